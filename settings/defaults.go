package settings

import (
	"cmp"
	"time"

	"github.com/kopf-go/kopf/webhook"
)

// WithDefaults returns what is in effect: what is zero is its default, but for what
// kopf.New makes of other options, such as storages and certificates.
func (s Settings) WithDefaults() Settings {
	fill(&s.Execution.DefaultBackoff, time.Minute)
	fill(&s.Execution.CheckpointInterval, time.Second)
	if s.Execution.Lifecycle == nil {
		s.Execution.Lifecycle = AllAtOnce
	}
	fill(&s.Queueing.WorkerLimit, 100)
	if len(s.Queueing.ErrorDelays) == 0 {
		for _, seconds := range []time.Duration{1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610} {
			s.Queueing.ErrorDelays = append(s.Queueing.ErrorDelays, seconds*time.Second)
		}
	}
	fill(&s.Queueing.LoopLimit, 50)
	fill(&s.Queueing.LoopWindow, time.Minute)
	fill(&s.Queueing.ExitTimeout, 10*time.Second)
	fill(&s.Persistence.RecordLimit, 64<<10)
	fill(&s.Persistence.ConsistencyTimeout, 5*time.Second)
	fill(&s.Networking.RequestTimeout, 30*time.Second)
	fill(&s.Watching.InactivityTimeout, 3*time.Minute)
	fill(&s.Scanning.Interval, 5*time.Second)
	s.Admission = s.Admission.withDefaults()
	fill(&s.Process.CleanupTimeout, 10*time.Second)
	fill(&s.Process.ExitTimeout, 10*time.Minute)
	fill(&s.Posting.Component, "kopf")
	fill(&s.Peering.Name, DefaultPeeringName)
	fill(&s.Peering.Lifetime, DefaultPeeringLifetime)
	s.LeaderElection = s.LeaderElection.withDefaults()
	return s
}

const defaultWebhookPort = 9443

func (a Admission) withDefaults() Admission {
	if url, is := a.Endpoint.(webhook.URL); is {
		fill(&a.Port, url.Port)
		fill(&a.Port, defaultWebhookPort)
		fill(&url.Port, a.Port)
		a.Endpoint = url
	}
	fill(&a.Port, defaultWebhookPort)
	fill(&a.Timeout, 10*time.Second)
	return a
}

// fill sets what is zero.
func fill[V comparable](setting *V, value V) {
	*setting = cmp.Or(*setting, value)
}
