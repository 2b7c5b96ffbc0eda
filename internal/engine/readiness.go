package engine

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kopf-go/kopf/internal/metrics"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/stream"
)

// readiness keeps all handlers but those of indices from being called until all
// indices hold what was there at the start (IDX-6). Resources that have no indices are
// not even listed before that. Events of those that have are parked, in order: in a
// list, not in goroutines. Nothing of that takes a place of the gate, so it cannot dead-lock
// whatever the limit is (B08).
//
// Once it is open it stays open: what is indexed later is not waited for.
type readiness struct {
	engine *Engine
	log    *slog.Logger
	since  time.Time
	opened chan struct{}

	mu      sync.Mutex
	open    bool
	sealed  bool                   // what is awaited is known
	opening bool                   // what was parked is being let go
	awaited map[streamKey][]string // streams that are not listed yet, with the ids of their indices
	pending int                    // events that are not indexed yet
	parked  []parked
}

type parked struct {
	object *object
	event  stream.Event
}

func newReadiness(e *Engine) *readiness {
	return &readiness{engine: e, log: e.log, opened: make(chan struct{}), awaited: map[streamKey][]string{}, open: true}
}

// begin closes the gate, if there is an index.
func (r *readiness) begin(handlers []*registry.Handler) {
	r.since = time.Now()
	if !slices.ContainsFunc(handlers, func(h *registry.Handler) bool { return h.Kind == registry.Index }) {
		close(r.opened)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = false
	r.remind()
}

// remind names now and then what is waited for. The caller holds the lock.
func (r *readiness) remind() {
	r.engine.timers.at(time.Now().Add(remindOfIndices), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.open {
			return
		}
		var resources, ids []string
		for key, names := range r.awaited {
			resources = append(resources, resourceName(key.gvr))
			ids = append(ids, names...)
		}
		slices.Sort(resources)
		slices.Sort(ids)
		r.log.Warn("indices are not complete yet, no other handler is called before that",
			"indices", strings.Join(slices.Compact(ids), ","), "resources", strings.Join(slices.Compact(resources), ","),
			"objects to index", r.pending, "running", strings.Join(r.engine.some(5), ", "), "for", time.Since(r.since).Round(time.Second))
		r.remind()
	})
}

const remindOfIndices = 10 * time.Second

func (r *readiness) ready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// await has a stream waited for, unless it comes too late for that.
func (r *readiness) await(key streamKey, k *kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open || r.sealed {
		return
	}
	for _, h := range k.indexHandlers {
		r.awaited[key] = append(r.awaited[key], h.ID)
	}
}

// awaits tells whether a stream is waited for.
func (r *readiness) awaits(key streamKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, is := r.awaited[key]
	return is
}

// seal tells that all that is to be awaited is.
func (r *readiness) seal() {
	r.mu.Lock()
	r.sealed = true
	r.check()
}

// settle tells that a stream is listed, or that it never will be.
func (r *readiness) settle(key streamKey) {
	r.mu.Lock()
	delete(r.awaited, key)
	r.check()
}

// indexing counts an event that is to be indexed, unless it comes after everything was
// listed, for those never end. The returned function tells that it is.
func (r *readiness) indexing() (indexed func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open || r.listed() {
		return func() {}
	}
	r.pending++
	return r.indexed
}

// listed tells whether everything is. The caller holds the lock.
func (r *readiness) listed() bool { return r.sealed && len(r.awaited) == 0 }

func (r *readiness) indexed() {
	r.mu.Lock()
	r.pending--
	r.check()
}

// park keeps an event until all indices are complete; false: they are.
func (r *readiness) park(o *object, event stream.Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open {
		return false
	}
	r.parked = append(r.parked, parked{o, event})
	return true
}

// check opens the gate if it is time. It is called with the lock held, and releases it.
func (r *readiness) check() {
	defer r.mu.Unlock()
	if r.open || !r.listed() || r.pending > 0 || r.opening {
		return
	}
	took := time.Since(r.since)
	metrics.IndicesReady.Set(took.Seconds())
	r.log.LogAttrs(context.Background(), slog.LevelInfo, "indices are complete", slog.Duration("took", took.Round(time.Millisecond)))
	r.opening = true
	for len(r.parked) > 0 { // more may come meanwhile, and must not overtake them
		batch := r.parked
		r.parked = nil
		r.mu.Unlock()
		for _, p := range batch {
			p.object.offer(p.event)
		}
		r.mu.Lock()
	}
	r.open = true
	close(r.opened)
}
