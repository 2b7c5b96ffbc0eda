package metrics

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// State is what an operator is about at a moment.
type State struct {
	// Queued are objects that wait for a place to be worked on.
	Queued int
	Kinds  map[string]KindState
}

// KindState is the part of one kind of resource.
type KindState struct {
	Objects int
	// StreamAge is the time since the last sign of life, of the stream that is oldest;
	// Streams is how many there are.
	StreamAge time.Duration
	Streams   int
	// Stuck are deletions that wait for us for longer than StuckAfter.
	Stuck int
	// Waiting counts handlers that wait for their next attempt.
	Waiting map[string]int
}

// StuckAfter is when a deletion that our finalizer holds up counts as stuck.
const StuckAfter = 5 * time.Minute

var watched = struct {
	sync.Mutex
	next    int
	sources map[int]func() State
}{sources: map[int]func() State{}}

// Watch has an operator looked at whenever metrics are scraped, until the returned function
// is called. Several operators in one process are added up.
func Watch(source func() State) (end func()) {
	watched.Lock()
	defer watched.Unlock()
	id := watched.next
	watched.next++
	watched.sources[id] = source
	return func() {
		watched.Lock()
		defer watched.Unlock()
		delete(watched.sources, id)
	}
}

// look adds up what all operators are about.
func look() State {
	watched.Lock()
	sources := slices.Collect(maps.Values(watched.sources))
	watched.Unlock()
	sum := State{Kinds: map[string]KindState{}}
	for _, source := range sources {
		state := source()
		sum.Queued += state.Queued
		for kind, k := range state.Kinds {
			s := sum.Kinds[kind]
			s.Objects += k.Objects
			s.Stuck += k.Stuck
			s.Streams += k.Streams
			s.StreamAge = max(s.StreamAge, k.StreamAge)
			if s.Waiting == nil {
				s.Waiting = map[string]int{}
			}
			for handler, n := range k.Waiting {
				s.Waiting[handler] += n
			}
			sum.Kinds[kind] = s
		}
	}
	return sum
}

// present collects what is looked at only when somebody asks: it costs nothing else.
type present struct{}

var (
	objects = prometheus.NewDesc("kopf_objects", "Objects that are known.", []string{"kind"}, nil)
	age     = prometheus.NewDesc("kopf_stream_age_seconds",
		"Time since the last sign of life of the stream of objects, of the oldest one.", []string{"kind"}, nil)
	stuck = prometheus.NewDesc("kopf_deletions_stuck",
		"Objects whose deletion this operator has been holding up for more than 5 minutes.", []string{"kind"}, nil)
	waiting = prometheus.NewDesc("kopf_handlers_waiting",
		"Handlers of objects that wait for their next attempt.", []string{"kind", "handler"}, nil)
	queued = prometheus.NewDesc("kopf_queue_waiting",
		"Objects that wait for a place to be worked on (Settings.Queueing.WorkerLimit).", nil, nil)
)

// Describe is part of prometheus.Collector.
func (present) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{objects, age, stuck, waiting, queued} {
		out <- desc
	}
}

// Collect is part of prometheus.Collector.
func (present) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	state := look()
	gauge(queued, float64(state.Queued))
	for kind, k := range state.Kinds {
		gauge(objects, float64(k.Objects), kind)
		gauge(stuck, float64(k.Stuck), kind)
		if k.Streams > 0 {
			gauge(age, k.StreamAge.Seconds(), kind)
		}
		for handler, n := range k.Waiting {
			gauge(waiting, float64(n), kind, handler)
		}
	}
}
