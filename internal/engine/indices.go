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
	again bool   // it is no event, but some function has failed, and is to be called again
	next  int    // of the functions
	done  func() // tells that it is indexed
}

// trouble is an index function that has failed for an object (IDX-8). It belongs to the
// goroutine that indexes the object.
type trouble struct {
	record state.Record
	body   *body.Body // the newest one, for another attempt; nil: the error is permanent
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
		go o.indexAll(nil)
	}
}

// indexAll indexes what has begun to be indexed, if anything, and what is queued.
func (o *object) indexAll(item *toIndex) {
	defer o.kind.engine.exit()
	ended := false
	defer func() {
		if !ended { // by a function, as in object.cutOff
			o.goOnIndexing(item)
		}
	}()
	for {
		if item == nil {
			item = o.nextToIndex()
		}
		if item == nil {
			ended = true
			return
		}
		for item.next < len(o.kind.indexHandlers) {
			h := o.kind.indexHandlers[item.next]
			item.next++
			o.fill(h, item)
		}
		o.passOn(item)
		item = nil
	}
}

// nextToIndex takes the first of the queue; nil: there is nothing to do any more.
func (o *object) nextToIndex() *toIndex {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.indexed.queue) == 0 || o.kind.engine.stopping() {
		o.indexed.queue, o.indexed.running = nil, false
		if len(o.indexed.troubles) == 0 {
			o.indexed = nil
		}
		o.rest()
		return nil
	}
	item := o.indexed.queue[0]
	o.indexed.queue[0] = toIndex{}
	o.indexed.queue = o.indexed.queue[1:]
	return &item
}

// goOnIndexing goes on in another goroutine.
func (o *object) goOnIndexing(item *toIndex) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kind.engine.enter() {
		go o.indexAll(item)
	} else {
		o.indexed.queue, o.indexed.running = nil, false
	}
}

// passOn lets an event go where it goes without indices, once all of them are complete.
func (o *object) passOn(item *toIndex) {
	k := o.kind
	others := k.observes() || k.changes()
	if !item.again && !(others && k.engine.ready.park(o, item.Event)) {
		o.offer(item.Event)
	}
	if item.done != nil {
		item.done()
	}
}

// fill has an index function look at an object, unless it has failed and its time has not
// come.
func (o *object) fill(h *registry.Handler, item *toIndex) {
	t := o.troubleOf(h)
	due := t != nil && t.body != nil && t.record.Awake(time.Now())
	switch {
	case o.kind.retired.Load():
	case item.Type == stream.Deleted, o.departing():
		h.Index.Remove(ownerOf(o, h))
		o.forgive(h)
	case item.again && due: // for what came since it was due has not been looked at yet
		o.attempt(h, t.body, t.record)
	case item.again: // others have failed, or this one has failed again meanwhile
	case due:
		o.attempt(h, item.Body, t.record)
	case t == nil:
		o.attempt(h, item.Body, state.Record{Started: time.Now()})
	case t.body != nil:
		t.body = item.Body
	}
}

// attempt has an index function look at a version of the object, and takes what it says.
func (o *object) attempt(h *registry.Handler, b *body.Body, record state.Record) {
	call := &registry.Call{
		Body: b, Resource: o.kind.resource.GVR, Param: h.Param, Log: o.log().With("handler", h.ID), Memos: o.Memos,
		Retry: record.Retries, Started: record.Started,
	}
	err := o.passing(h, errGoexit) // unless it returns
	defer func() { o.assess(h, call, record, err) }()
	err = o.ask(h, call, record)
}

// ask calls an index function that is for the object, within its limits.
func (o *object) ask(h *registry.Handler, call *registry.Call, record state.Record) error {
	e := o.kind.engine
	subject := &cause.Subject{Body: call.Body, Resource: call.Resource, Log: call.Log, Memos: o.Memos}
	switch matches, err := subject.PreMatches(e.handling, h); {
	case errors.As(err, new(*registry.DecodeError)):
		return err
	case err != nil:
		return o.passing(h, err)
	case !matches:
		return errMismatch
	}
	if out, refused := outcome.Refused(h, record, time.Now()); refused {
		return out.Err
	}
	ctx := e.handling
	if h.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, call.Started.Add(h.Timeout), &timeoutError{h})
		defer cancel()
	}
	return e.call(ctx, nil, o, h, call)
}

var errMismatch = errors.New("the object does not match the filters")

// passing makes of what nobody can have meant an error that asks for another attempt,
// whatever the handler's error mode.
func (o *object) passing(h *registry.Handler, err error) error {
	after := o.kind.engine.settings.DefaultBackoff
	if h.Backoff >= 0 {
		after = h.Backoff
	}
	return &outcome.RetryError{After: after, Err: err}
}

// assess finds out what came of an attempt. One that comes to an end after the operator has
// said nothing any more: the index may be another operator's.
func (o *object) assess(h *registry.Handler, call *registry.Call, record state.Record, err error) {
	e := o.kind.engine
	undecoded := (*registry.DecodeError)(nil)
	switch {
	case e.stopping():
		return
	case errors.Is(err, errMismatch):
		h.Index.Remove(ownerOf(o, h))
		o.forgive(h)
		return
	case errors.As(err, &undecoded): // what is there stays until the object changes
		e.complain(o, call.Body, undecodable, undecoded)
		return
	}
	out := outcome.Of(h, record, err, time.Now(), e.settings.DefaultBackoff)
	o.kind.meter.Attempt(h.ID, out.Name(), record.Retries > 0)
	o.conclude(h, call, out, call.Log, out.Record(record, time.Now()))
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
		t.timer = o.kind.engine.timers.at(t.record.Delayed, func() { o.enqueue(toIndex{again: true}) })
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
