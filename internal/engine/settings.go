package engine

import "time"

// Settings tune the engine. Zero values stand for the defaults.
type Settings struct {
	// DefaultBackoff is the pause after a failed attempt of a handler that does not
	// say one itself. Default: 1 minute.
	DefaultBackoff time.Duration
	// ErrorDelays are the pauses after errors that are not a handler's, such as a
	// refused write: per object, one after the other, the last one repeated. Default:
	// 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377 and 610 seconds.
	ErrorDelays []time.Duration
	// CheckpointInterval is how old the success of a handler may become, while other
	// handlers of the same object still run, until it is written down. Default: 1 second.
	CheckpointInterval time.Duration
	// ConsistencyTimeout is how long events are held against an own write that
	// cannot be found among them, for resources whose versions cannot be compared.
	// Default: 5 seconds.
	ConsistencyTimeout time.Duration
	// RequestTimeout limits each write. Default: 30 seconds.
	RequestTimeout time.Duration
	// ExitTimeout is how long handlers may go on when the operator stops, after their
	// context has ended; then they are left behind, and named. Default: 10 seconds.
	ExitTimeout time.Duration
	// MaxCycles is how many objects are worked on at the same time, not counting
	// those whose handlers are running. Default: 100.
	MaxCycles int
	// DiscoveryInterval is the pause between looks for resources that are not served
	// yet. Default: 5 seconds.
	DiscoveryInterval time.Duration
}

// WithDefaults fills in what is zero.
func (s Settings) WithDefaults() Settings {
	fill(&s.DefaultBackoff, time.Minute)
	fill(&s.CheckpointInterval, time.Second)
	fill(&s.ConsistencyTimeout, 5*time.Second)
	fill(&s.RequestTimeout, 30*time.Second)
	fill(&s.ExitTimeout, 10*time.Second)
	fill(&s.DiscoveryInterval, 5*time.Second)
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
