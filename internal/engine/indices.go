package engine

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/kopf-go/kopf/indexing"
	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/cause"
	"github.com/kopf-go/kopf/internal/metrics"
	"github.com/kopf-go/kopf/internal/outcome"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/internal/stream"
)

// indexed is what the index functions of a kind have to do with one object. An object
// has it only while it waits to be indexed, or if that went wrong.
type indexed struct {
	queue    []toIndex
	running  bool
	troubles map[*registry.Handler]*trouble
}

// toIndex is an event that is to be indexed before anything else happens to it.
type toIndex struct {
	stream.Event
	again bool   // it was indexed before, and some function has failed
	done  func() // tells that it is indexed
}

// trouble is an index function that has failed for an object (IDX-8).
type trouble struct {
	record state.Record
	body   *body.Body // for another attempt; nil: the error is permanent
	timer  *timer
}

// take is where events of the object come in: to be indexed first, if it is to be.
func (o *object) take(event stream.Event) {
	if len(o.kind.indexHandlers) == 0 {
		o.offer(event)
		return
	}
	if event.Type == stream.Deleted {
		o.mu.Lock()
		o.buried = true
		o.mu.Unlock()
	}
	o.enqueue(toIndex{Event: event, done: o.kind.engine.ready.indexing()})
}

func (o *object) enqueue(item toIndex) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.indexed == nil {
		o.indexed = &indexed{}
	}
	o.indexed.queue = append(o.indexed.queue, item)
	if !o.indexed.running && o.kind.engine.enter() {
		o.indexed.running = true
		go o.indexAll()
	}
}

// indexAll indexes what is queued.
func (o *object) indexAll() {
	e := o.kind.engine
	defer e.exit()
	var item toIndex
	ended := false
	defer func() {
		if !ended { // by a function, as in object.cutOff
			o.log().Error("indexing was cut off", "error", errGoexit)
			o.passOn(item)
			o.goOnIndexing()
		}
	}()
	for {
		o.mu.Lock()
		if len(o.indexed.queue) == 0 || e.stopping() {
			o.indexed.queue, o.indexed.running = nil, false
			if len(o.indexed.troubles) == 0 {
				o.indexed = nil
			}
			o.mu.Unlock()
			ended = true
			return
		}
		item = o.indexed.queue[0]
		o.indexed.queue[0] = toIndex{}
		o.indexed.queue = o.indexed.queue[1:]
		o.mu.Unlock()
		for _, h := range o.kind.indexHandlers {
			o.fill(h, item)
		}
		o.passOn(item)
	}
}

// goOnIndexing takes up the queue in another goroutine.
func (o *object) goOnIndexing() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kind.engine.enter() {
		go o.indexAll()
	} else {
		o.indexed.queue, o.indexed.running = nil, false
	}
}

// passOn lets an event go where it goes without indices, once all of them are complete.
func (o *object) passOn(item toIndex) {
	if !item.again && !o.kind.engine.ready.park(o, item.Event) {
		o.offer(item.Event)
	}
	if item.done != nil {
		item.done()
	}
}

// fill has an index function look at an object, and takes what it says.
func (o *object) fill(h *registry.Handler, event toIndex) {
	owner := ownerOf(o, h)
	t := o.troubleOf(h)
	switch {
	case o.kind.retired.Load():
		return
	case event.Type == stream.Deleted:
		h.Index.Remove(owner)
		o.forgive(h)
		return
	case t != nil && t.body == nil, t != nil && !t.record.Awake(time.Now()):
		o.keepFor(t, event.Body)
		return
	case t == nil && event.again:
		return // it was only others that have failed
	}
	e, log := o.kind.engine, o.log().With("handler", h.ID)
	subject := &cause.Subject{Body: event.Body, Resource: o.kind.resource.GVR, Log: log, Memos: o.Memos}
	matches, err := subject.PreMatches(e.handling, h)
	if err == nil && !matches {
		h.Index.Remove(owner)
		o.forgive(h)
		return
	}
	record := state.Record{Started: time.Now()}
	if t != nil {
		record = t.record
	}
	call := &registry.Call{
		Body: event.Body, Resource: o.kind.resource.GVR, Param: h.Param, Log: log, Memos: o.Memos,
		Retry: record.Retries, Started: record.Started,
	}
	out, refused := outcome.Refused(h, record, time.Now())
	if !refused {
		if err == nil {
			err = o.indexCall(h, call)
		}
		if err != nil && e.stopping() {
			return
		}
		if undecoded := (*registry.DecodeError)(nil); errors.As(err, &undecoded) {
			e.complain(o, event.Body, undecodable, undecoded)
			return // what is there stays until the object changes
		}
		out = outcome.Of(h, record, err, time.Now(), e.settings.DefaultBackoff)
	}
	metrics.Attempts.WithLabelValues(resourceName(o.kind.resource.GVR), h.ID, out.Name()).Inc()
	o.conclude(h, call, out, log, out.Record(record, time.Now()))
}

// indexCall calls an index function, which its timeout limits as any other handler.
func (o *object) indexCall(h *registry.Handler, call *registry.Call) error {
	ctx := o.kind.engine.handling
	if h.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, call.Started.Add(h.Timeout), &timeoutError{h})
		defer cancel()
	}
	return o.kind.engine.call(ctx, o, h, call)
}

// conclude takes the outcome of an index function (IDX-3, IDX-8).
func (o *object) conclude(h *registry.Handler, call *registry.Call, out outcome.Outcome, log *slog.Logger, record state.Record) {
	var panicked *outcome.PanicError
	if errors.As(out.Err, &panicked) {
		log = log.With("stack", string(panicked.Stack))
	}
	switch {
	case out.Ignored != nil:
		log.Error("index function failed, what it said before stays", "error", out.Ignored)
		o.forgive(h)
	case out.Err == nil:
		if call.Entries != nil {
			o.keep(h, call.Entries)
		}
		o.forgive(h)
	case out.Final:
		log.Error("index function failed for good, the object is left out of the index until the operator starts anew", "error", out.Err)
		h.Index.Remove(ownerOf(o, h))
		o.resent(h, &trouble{record: record})
	default:
		log.Warn("index function failed, the object is left out of the index until it is tried again", "error", out.Err, "in", out.Delay)
		h.Index.Remove(ownerOf(o, h))
		o.resent(h, &trouble{record: record, body: call.Body})
	}
}

func (o *object) troubleOf(h *registry.Handler) *trouble {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.indexed.troubles[h]
}

// keepFor has another attempt look at the newest body.
func (o *object) keepFor(t *trouble, b *body.Body) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if t.body != nil {
		t.body = b
	}
}

// forgive forgets that a function has failed.
func (o *object) forgive(h *registry.Handler) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if t := o.indexed.troubles[h]; t != nil {
		o.kind.engine.timers.stop(t.timer)
		delete(o.indexed.troubles, h)
	}
}

// resent remembers that a function has failed, and has it tried again when it is time.
func (o *object) resent(h *registry.Handler, t *trouble) {
	o.forgive(h)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.indexed.troubles == nil {
		o.indexed.troubles = map[*registry.Handler]*trouble{}
	}
	o.indexed.troubles[h] = t
	if t.body != nil {
		t.timer = o.kind.engine.timers.at(t.record.Delayed, func() {
			o.mu.Lock()
			b := t.body
			o.mu.Unlock()
			o.enqueue(toIndex{Event: stream.Event{Body: b}, again: true})
		})
	}
}

// ownerOf is under which name the entries of an object are in an index: functions that
// feed the same one do not know of each other, nor do the kinds that follow a resource in
// one version after the other.
func ownerOf(o *object, h *registry.Handler) indexing.Owner {
	if h.Feed == 0 && o.kind.edition == 0 {
		return indexing.Owner(o.uid)
	}
	return indexing.Owner(string(o.uid) + "/" + strconv.Itoa(o.kind.edition) + "/" + strconv.Itoa(h.Feed))
}

// retire takes objects out of the indices that are in them as those of another kind, which
// follows the resource in another version.
func (k *kind) retire(objects []*object) {
	k.retired.Store(true)
	for _, o := range objects {
		for _, h := range k.indexHandlers {
			h.Index.Remove(ownerOf(o, h))
		}
	}
}

// keep takes what a function has said into its index.
func (o *object) keep(h *registry.Handler, entries func(indexing.Owner)) {
	owner := ownerOf(o, h)
	entries(owner)
	if o.kind.retired.Load() { // meanwhile
		h.Index.Remove(owner)
	}
}
