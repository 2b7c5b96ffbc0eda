package engine

import (
	"time"

	"github.com/kopf-go/kopf/internal/registry"
)

// Settings tune the engine; kopf.Settings says what they mean. Zero values stand
// for the defaults.
type Settings struct {
	DefaultBackoff     time.Duration
	ErrorDelays        []time.Duration
	CheckpointInterval time.Duration
	ConsistencyTimeout time.Duration
	RequestTimeout     time.Duration
	ExitTimeout        time.Duration
	MaxCycles          int
	DiscoveryInterval  time.Duration
	InactivityTimeout  time.Duration // zero: the default of the stream
	DiscoverOnce       bool
	StateInBody        bool // state is kept elsewhere than in the objects' metadata
	LoopLimit          int
	LoopWindow         time.Duration
	// Lifecycle picks the ids of those that are called; nil: all.
	Lifecycle func([]registry.Due) []string
}

// WithDefaults fills in what is zero.
func (s Settings) WithDefaults() Settings {
	fill(&s.DefaultBackoff, time.Minute)
	fill(&s.CheckpointInterval, time.Second)
	fill(&s.ConsistencyTimeout, 5*time.Second)
	fill(&s.RequestTimeout, 30*time.Second)
	fill(&s.ExitTimeout, 10*time.Second)
	fill(&s.DiscoveryInterval, 5*time.Second)
	fill(&s.LoopWindow, time.Minute)
	if s.LoopLimit == 0 {
		s.LoopLimit = 50
	}
	if s.MaxCycles == 0 {
		s.MaxCycles = 100
	}
	if len(s.ErrorDelays) == 0 {
		for _, seconds := range []time.Duration{1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610} {
			s.ErrorDelays = append(s.ErrorDelays, seconds*time.Second)
		}
	}
	return s
}

func fill(setting *time.Duration, value time.Duration) {
	if *setting == 0 {
		*setting = value
	}
}

// errorDelay is the pause after the nth error in a row (THR-1).
func (s Settings) errorDelay(n int) time.Duration {
	return s.ErrorDelays[min(n, len(s.ErrorDelays))-1]
}
