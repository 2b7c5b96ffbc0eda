package engine

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kopf-go/kopf/indexing"
	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/cause"
	"github.com/kopf-go/kopf/internal/decisions"
	"github.com/kopf-go/kopf/internal/logging"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/stream"
)

// object is the actor of one object, by UID and never by name. Its observe lane
// takes every event in order; its change lane works on the newest body only, one
// run at a time. While nothing happens it is a small record without the object: it
// has a goroutine and a body only as long as one of the lanes needs them.
type object struct {
	kind            *kind
	uid             types.UID
	namespace, name string

	mu sync.Mutex

	departure *departure // its namespace is not served any more; nil: it is

	indexed *indexed // nil: nothing is to be indexed
	buried  bool     // its deletion has begun its way through the indices

	// Observe lane.
	events     []stream.Event
	observing  bool
	background *background // nil: no daemon or timer was for the object yet

	memos *registry.Memos // nil: nobody has asked for them yet

	readings map[*user]*indexing.Reader // what change handlers have read in their last calls
	woken    map[*user]wakefulness      // those that are to run again for that

	// Change lane.
	seen    string // the newest version that the lane knows, own writes included
	initial bool   // was there at the first listing, and was not handled since
	found   bool   // was there at the first listing
	gone    bool
	leaving bool            // its deletion was requested
	ended   bool            // delete handlers are through, though the object may be there
	repose  repose          // why there is nothing to do, while there is no work
	resumed map[string]bool // resume handlers that are through in this process, until all are
	renewal renewal
	work    *work // nil: nothing is going on
}

// work is what an object has only while there is something to do, or to wait for.
type work struct {
	latest  *body.Body
	newer   bool // latest arrived after the run took its body
	running bool
	timer   *timer

	carry     *carry // what could not be written yet
	seen      seen
	failures  int   // framework errors in a row (THR-1)
	held      bool  // until the timer fires, because the object is written in circles
	conflicts int   // in a row
	refresh   bool  // a write failed: what is on the server is unknown
	known     *term // the term in which latest is known not to be from before it; in others it is read first
	partings  int   // attempts to write since the term has ended
	// blindUntil is when events are believed again after an own write whose version
	// cannot be compared with theirs.
	blindUntil time.Time

	since   time.Time           // of the change that is worked on; zero: none is
	next    time.Time           // of the first change after the one that is looked at
	waiting []decisions.Verdict // handlers that wait for their next attempt
}

func newWork() *work { return &work{seen: seen{}, since: time.Now()} }

// offer takes an event of the object that is in the indices, if it is to be: the only way
// in from the stream. It does not block.
func (o *object) offer(event stream.Event) {
	if o.kind.observes() {
		o.observe(event)
	}
	if !o.kind.changes() {
		if event.Type == stream.Deleted {
			o.kind.forget(o)
		}
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leaving = o.leaving || event.Type == stream.Deleted || event.Body.Deleting()
	if event.Type == stream.Deleted && !o.gone {
		o.vanish(event)
		return
	}
	if o.gone || !o.admit(event.Body) {
		return
	}
	t := o.kind.engine.current()
	if t == nil {
		o.note(event.Body)
		return
	}
	if o.work == nil {
		o.begin()
		if o.calm(event.Body) {
			o.initial = o.initial && t.lookAt(o.kind).doubts(event.Body.ResourceVersion)
			return
		}
		o.work = newWork()
	}
	o.work.arrive()
	o.work.latest, o.work.newer = event.Body, true
	if o.work.known != t && !t.lookAt(o.kind).doubts(event.Body.ResourceVersion) {
		o.work.known = t
	}
	if o.work.failures == 0 && (!o.work.held || event.Body.Deleting()) { // else only the newest body counts when the back-off is over (THR-2)
		o.start()
	}
}

// calm tells whether a version of the object asks for nothing. The caller holds the lock.
func (o *object) calm(b *body.Body) bool {
	if o.departure != nil {
		return o.kind.clean(b)
	}
	o.repose = o.kind.repose(b, o.initial)
	return len(o.woken) == 0 && o.repose != stirred
}

// note is for a version that comes while there is no term. What asks for something is kept,
// until it does not any more, because whoever leads has done it. That an object has to be
// looked at although nothing has happened to it is remembered anyway. The caller holds the
// lock.
func (o *object) note(b *body.Body) {
	w := o.work
	if w != nil && w.running { // still, in a term that has ended
		w.latest = b
		return
	}
	o.begin()
	if o.handled(b) {
		o.drop()
		return
	}
	if w == nil {
		w = newWork()
		o.work = w
	}
	w.latest, w.refresh = b, false
}

// handled tells whether a version of the object asks for nothing by itself. The caller holds
// the lock.
func (o *object) handled(b *body.Body) bool {
	if o.departure != nil {
		return o.kind.clean(b)
	}
	return o.kind.quiet(b, false)
}

// admit is the barrier of own writes: the lane never goes back to a body older than
// one that it knows, be it from an event or from the response to a write of its own,
// which in four of ten cases comes after its own echo (CON-1, B13).
//
// Versions of an aggregated API may not be comparable. Then what comes after an own
// write is not believed until the write has been seen, or ConsistencyTimeout is over
// and the object was read again. The caller holds the lock.
func (o *object) admit(b *body.Body) bool {
	version, w := b.ResourceVersion, o.work
	if order, err := resourceversion.CompareResourceVersion(version, o.seen); o.seen != "" {
		switch {
		case version == o.seen && o.renewal == listed:
		case err == nil && order <= 0:
			return false
		case err != nil && version == o.seen:
			if w != nil {
				w.blindUntil = time.Time{}
			}
			return false
		case err != nil && w != nil && time.Now().Before(w.blindUntil):
			w.refresh = true
			return false
		}
	}
	o.seen = version
	if o.renewal == listed {
		o.renewal = admitted
	}
	return true
}

// vanish ends the object: its running handlers finish, and nothing is written any
// more.
func (o *object) vanish(event stream.Event) {
	o.gone = true
	t := o.kind.engine.current()
	idle := o.work == nil || !o.work.running
	elsewhere := t == nil || // it is the leader's business
		event.Missed && o.work != nil && o.work.known != t && t.lookAt(o.kind) != nil // or may have been
	if idle && elsewhere {
		o.drop()
		o.kind.forget(o)
		return
	}
	if o.work == nil {
		if o.departure != nil || o.ended || event.Missed || len(o.kind.optionalHandlers) == 0 && !o.kind.slipped(event.Body) {
			o.kind.forget(o)
			return
		}
		o.work = newWork()
	}
	if !event.Missed {
		o.work.latest = event.Body
	}
	o.work.newer = true
	o.start()
}

// start runs the change lane unless it is running, or there is no term. The caller holds
// the lock.
func (o *object) start() {
	w, e := o.work, o.kind.engine
	e.timers.stop(w.timer)
	w.timer = nil
	t := e.current()
	if w.running || t == nil {
		return
	}
	if l := t.lookAt(o.kind); l != nil && w.known != t && !o.gone {
		l.want(o)
		return
	}
	if w.known = t; t.enter() {
		w.running = true
		go o.run(t)
	}
}

// wake runs the change lane when a wait is over.
func (o *object) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.work != nil {
		o.start()
	}
}

// verdict is what a cycle says about the next one.
type verdict struct {
	again bool          // at once: the cycle changed the object, or wants a fresher one
	after time.Duration // then; zero: when something happens
	hold  bool          // not before, whatever happens
	keep  bool          // something is going on that is not written down
}

// run is the change lane: cycles until there is nothing to do, or the term has ended.
func (o *object) run(t *term) {
	e := o.kind.engine
	defer t.exit()
	e.gate.enter()
	defer e.gate.leave()
	ended := false
	defer func() {
		if !ended {
			o.cutOff(t)
		}
	}()
	for {
		o.mu.Lock()
		w := o.work
		w.newer = false
		o.begin()
		b, gone := w.latest, o.gone
		o.mu.Unlock()

		var v verdict
		var err error
		if !t.ended() || w.carry != nil {
			v, err = o.step(t, b, gone)
		}

		o.mu.Lock()
		again, pause := o.settle(t, v, err)
		o.rest()
		o.mu.Unlock()
		if !again {
			ended = true
			return
		}
		if pause > 0 {
			e.gate.leave()
			t.wait(pause)
			e.gate.reenter()
		}
	}
}

// cutOff schedules another run after a handler has ended its goroutine instead of
// returning, as testing.T's FailNow does. What the cycle had to say is lost.
func (o *object) cutOff(t *term) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.work.partings = lastWords
	o.settle(t, verdict{}, errGoexit)
	if o.work != nil {
		o.work.partings = 0
	}
	o.rest()
}

var errGoexit = errors.New("a handler has ended its goroutine instead of returning (runtime.Goexit)")

// settle decides after a cycle whether another follows, and after which pause. The caller
// holds the lock.
func (o *object) settle(t *term, v verdict, err error) (again bool, pause time.Duration) {
	e, w := o.kind.engine, o.work
	if t.ended() {
		return o.part(t, v, err)
	}
	if err != nil {
		w.failures++
		v = verdict{after: e.settings.errorDelay(w.failures)}
		o.log().Error("handling failed, will be tried again", "error", err, "in", v.after, "failures", w.failures)
	} else {
		w.failures = 0
	}
	w.held = v.hold
	switch {
	case err == nil && !v.hold && (w.newer || v.again):
		return true, 0
	case v.after > 0:
		w.running = false
		w.timer = e.timers.at(time.Now().Add(v.after), o.wake)
		return false, 0
	case o.gone:
		o.kind.forget(o)
	case v.keep:
		w.running = false
		return false, 0
	case time.Now().Before(w.blindUntil):
		w.running = false
		w.timer = e.timers.at(w.blindUntil, o.wake)
		return false, 0
	}
	w.running = false
	if w.carry == nil || o.gone {
		o.work = nil
		if !o.initial {
			o.resumed = nil
		}
	}
	return false, 0
}

// step is one cycle on a body, after fetching a fresh one if need be.
func (o *object) step(t *term, b *body.Body, gone bool) (verdict, error) {
	e := o.kind.engine
	o.mu.Lock()
	w := o.work
	refresh := w.refresh
	o.mu.Unlock()
	if gone {
		if o.ended || b == nil {
			return verdict{}, nil
		}
	} else if refresh {
		fresh, err := o.kind.client.Get(t.writing, o.kind.resource.GVR, o.namespace, o.name)
		if apierrors.IsNotFound(err) {
			return verdict{}, nil // its deletion event is on the way
		}
		if err != nil {
			return verdict{}, err
		}
		if fresh.UID != o.uid {
			return verdict{}, nil
		}
		b = o.learn(fresh)
		o.mu.Lock()
		w.refresh = false
		o.mu.Unlock()
	}
	if o.resumed == nil && o.kind.resumes {
		o.resumed = map[string]bool{}
	}
	c := &cycle{term: t, object: o, kind: o.kind, body: b, gone: gone, now: time.Now(), carry: w.carry, seen: w.seen, resumed: o.resumed}
	c.checkpoints.cycle = c
	v, err := c.report(c.do)
	w.carry = c.leftover
	o.mu.Lock()
	w.waiting = c.waiting()
	o.mu.Unlock()
	if undecoded := (*registry.DecodeError)(nil); errors.As(err, &undecoded) { // by a filter
		e.complain(o, c.body, undecodable, undecoded)
		return verdict{}, nil // until it changes
	}
	if err == nil {
		w.conflicts = 0
		return v, nil
	}
	switch {
	case errors.Is(err, errGone):
		return verdict{}, nil // what has been done is remembered until its deletion is heard of
	case apierrors.IsConflict(err) && w.conflicts < maxConflicts:
		// Somebody else wrote meanwhile: normal, begin anew with what is there now.
		w.conflicts++
		o.mistrust()
		return verdict{again: true}, nil
	}
	w.conflicts = 0 // the back-off is their end, too
	o.mistrust()
	return verdict{}, err
}

// mistrust has the next cycle read the object: after a failed write nobody knows
// what is on the server.
func (o *object) mistrust() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.work.refresh = true
}

// maxConflicts in a row are resolved at once; after that they back off.
const maxConflicts = 5

// learn makes a body from a response the newest one, if it is, and returns the
// newest.
func (o *object) learn(b *body.Body) *body.Body {
	o.mu.Lock()
	defer o.mu.Unlock()
	order, err := resourceversion.CompareResourceVersion(b.ResourceVersion, o.seen)
	if o.seen == "" || err != nil || order >= 0 { // what cannot be compared is believed: the server said it just now
		o.seen, o.work.latest = b.ResourceVersion, b
	}
	o.leaving = o.leaving || b.Deleting()
	if err != nil {
		o.work.blindUntil = time.Now().Add(o.kind.engine.settings.ConsistencyTimeout)
	}
	return o.work.latest
}

// finish notes that the handlers for a reason are through.
func (o *object) finish(r cause.Reason) {
	o.initial, o.resumed = false, nil
	o.ended = o.ended || r == cause.Delete || r == cause.Free
}

// Memos are what handlers remember of the object.
func (o *object) Memos() *registry.Memos {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.memos == nil {
		o.memos = &registry.Memos{Operator: o.kind.engine.Memos}
	}
	return o.memos
}

// identity is a body that says who the object was, and no more.
func (o *object) identity() *body.Body {
	return body.Identify(metav1.TypeMeta{APIVersion: o.kind.apiVersion, Kind: o.kind.resource.GVK.Kind}, o.namespace, o.name, o.uid, "")
}

func (o *object) log() *slog.Logger {
	return o.kind.log.With(logging.ObjectKey, o.kind.reference(o.namespace, o.name, o.uid))
}

// speaking is a handler's logger, which can make events of what it is given (LOG-5).
func (o *object) speaking(log *slog.Logger) *slog.Logger {
	if !o.kind.engine.Recorder.Config().Loggers {
		return log
	}
	return o.kind.engine.Recorder.Logger(log, o.reference())
}
