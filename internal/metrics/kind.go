package metrics

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Kind counts for one kind of resource, as long as it is followed. When nobody follows it
// any more, its series are deleted, and what still comes is not counted: so CRDs that come
// and go leave nothing behind. It is safe for concurrent use; counting costs some 200 ns.
type Kind struct {
	name string

	mu     sync.Mutex
	over   bool
	counts map[string]map[string]uint64 // of attempts, by handler and outcome
}

var followed = struct {
	sync.Mutex
	kinds map[string]int // how many count for it
}{kinds: map[string]int{}}

// Follow begins to count for a kind, such as deployments.apps. Release ends it.
func Follow(kind string) *Kind {
	followed.Lock()
	defer followed.Unlock()
	followed.kinds[kind]++
	return &Kind{name: kind, counts: map[string]map[string]uint64{}}
}

// Release ends the counting. The last one of a kind takes its series along. A second call
// has no effect.
func (k *Kind) Release() {
	followed.Lock()
	defer followed.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return
	}
	k.over = true
	if followed.kinds[k.name]--; followed.kinds[k.name] > 0 {
		return
	}
	delete(followed.kinds, k.name)
	for _, series := range byKind {
		series.DeletePartialMatch(prometheus.Labels{"kind": k.name})
	}
}

// byKind are all that have a label for the kind.
var byKind = []interface {
	DeletePartialMatch(prometheus.Labels) int
}{Attempts, Retries, Duration, Running, Complaints, Background, Abandoned, Writes, StatusWrites, Convergence}

// Attempt counts a call of a handler that has come to its end, or what was said instead
// of one. again tells that it was not the first one.
func (k *Kind) Attempt(handler, outcome string, again bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return
	}
	if k.counts[handler] == nil {
		k.counts[handler] = map[string]uint64{}
	}
	k.counts[handler][outcome]++
	Attempts.WithLabelValues(k.name, handler, outcome).Inc()
	if again {
		Retries.WithLabelValues(k.name, handler).Inc()
	}
}

// Counts are the attempts so far, by handler and outcome, of this Kind.
func (k *Kind) Counts() map[string]map[string]uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	counts := maps.Clone(k.counts)
	for handler, outcomes := range counts {
		counts[handler] = maps.Clone(outcomes)
	}
	return counts
}

// Complain counts an object that cannot be handled as it should be.
func (k *Kind) Complain(reason string) { k.inc(Complaints, reason) }

// Abandon counts a daemon or tick that was left behind.
func (k *Kind) Abandon(handler string) { k.inc(Abandoned, handler) }

// Write counts a request to an object's own endpoint, or to that of its status.
func (k *Kind) Write(status bool, outcome string) {
	if status {
		k.inc(StatusWrites, outcome)
	} else {
		k.inc(Writes, outcome)
	}
}

func (k *Kind) inc(series *prometheus.CounterVec, value string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over {
		series.WithLabelValues(k.name, value).Inc()
	}
}

// Converge notes how long it took from a change until all its handlers were through.
func (k *Kind) Converge(took time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over {
		Convergence.WithLabelValues(k.name).Observe(took.Seconds())
	}
}

// Review notes how long a call of an admission handler lasted.
func (k *Kind) Review(handler string, took time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over {
		Duration.WithLabelValues(k.name, handler).Observe(took.Seconds())
	}
}

// Handler measures the calls of one handler. The nil one measures nothing.
type Handler struct {
	running    prometheus.Gauge
	duration   prometheus.Observer
	background prometheus.Gauge // nil: it does not work in the background
}

// Handler makes the meters of a handler.
func (k *Kind) Handler(id string, background bool) *Handler {
	h := &Handler{running: Running.WithLabelValues(k.name, id), duration: Duration.WithLabelValues(k.name, id)}
	if background {
		h.background = Background.WithLabelValues(k.name, id)
	}
	return h
}

// Begin notes that a call begins, and End that it ends. Neither allocates.
func (h *Handler) Begin() time.Time {
	if h == nil {
		return time.Time{}
	}
	h.running.Inc()
	if h.background != nil {
		h.background.Inc()
	}
	return time.Now()
}

// End notes that a call ends, which has begun at a time.
func (h *Handler) End(begun time.Time) {
	if h == nil {
		return
	}
	h.running.Dec()
	if h.background != nil {
		h.background.Dec()
	}
	h.duration.Observe(time.Since(begun).Seconds())
}

// Followed are the names of all kinds that are counted for.
func Followed() []string {
	followed.Lock()
	defer followed.Unlock()
	return slices.Sorted(maps.Keys(followed.kinds))
}
