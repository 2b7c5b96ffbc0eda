package engine

import (
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kopf-go/kopf/daemons"
	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/cause"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/stream"
)

// background is what an object has of daemons and timers: the newest version of it, for
// those that are wanted, and a worker for each handler.
type background struct {
	ended   bool  // the object is no more. The object's lock guards it
	users   int32 // how many are about to say what is wanted: it is not forgotten meanwhile. The object's lock guards it
	live    registry.Live
	workers []*worker // by the kind's background handlers; nil: was never wanted. The object's lock guards it

	mu      sync.Mutex
	seen    string // the version of live
	essence uint64
	changed time.Time // when the essence was another one for the last time
}

// supervise begins and ends daemons and timers, as an event asks for it (DMN-2). A daemon
// that holds its object begins when the finalizer is on it, and not before.
func (o *object) supervise(event stream.Event) {
	if len(o.kind.background) == 0 {
		return
	}
	b := event.Body
	wanted := make([]bool, len(o.kind.background))
	why := daemons.ErrDeleted
	unsure := false
	unwanted := event.Type == again && event.Missed // whatever the object is like
	if event.Type != stream.Deleted && !b.Deleting() {
		why = daemons.ErrMismatch
		for i := range wanted {
			if unwanted {
				break
			}
			var err error
			wanted[i], err = o.wants(i, b)
			unsure = unsure || err != nil
		}
	}
	if unsure {
		o.superviseLater(b)
	}
	if !o.attend(event, wanted) {
		return
	}
	defer o.retire(true)
	for i, h := range o.kind.background {
		w, released := o.assign(i, wanted[i], why, event.Type == stream.Listed)
		if w == nil {
			continue
		}
		w.steer()
		if w.standing().undecoded {
			w.Wake() // perhaps it does now
		}
		if released && h.Finalize && w.Lets() {
			o.reconsider()
		}
	}
}

// again is the type of an event of our own: nothing has happened, but somebody has to look
// at the object once more.
const again stream.Type = "AGAIN"

// superviseLater has the filters asked again that have failed, unless something newer is
// known by then.
func (o *object) superviseLater(b *body.Body) {
	e := o.kind.engine
	e.timers.at(time.Now().Add(e.settings.DefaultBackoff), func() {
		o.mu.Lock()
		newest := !o.gone && o.seen == b.ResourceVersion
		o.mu.Unlock()
		if newest {
			o.observe(stream.Event{Type: again, Body: b})
		}
	})
}

// wants tells whether a daemon or timer is to run on the object. If its filter fails, what
// runs goes on and nothing begins.
func (o *object) wants(i int, b *body.Body) (bool, error) {
	e, h := o.kind.engine, o.kind.background[i]
	log := o.log().With("handler", h.ID)
	subject := &cause.Subject{Body: b, Resource: o.kind.resource.GVR, Log: log, Memos: o.Memos}
	if o.kind.unfollowed.Load() || o.departing() {
		return false, nil
	}
	matches, err := subject.PreMatches(e.handling, h)
	running := o.wanted(i)
	if undecoded := (*registry.DecodeError)(nil); errors.As(err, &undecoded) {
		e.complain(o, b, undecodable, undecoded)
		return running, nil // until it changes
	}
	if err != nil {
		if !e.stopping() {
			log.Error("filter failed, what runs goes on and nothing begins until it is tried again",
				"error", err, "in", e.settings.DefaultBackoff)
		}
		return running, err
	}
	return matches && (running || !h.Finalize || b.HasFinalizer(e.naming.Finalizer)), nil
}

func (o *object) wanted(i int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.background != nil && o.background.workers[i] != nil && o.background.workers[i].wanted
}

// attend keeps the newest version of an object that something is wanted for, or runs on.
// It tells whether there is something to do for its workers, after which the object is
// to be retired.
func (o *object) attend(event stream.Event, wanted []bool) bool {
	o.mu.Lock()
	bg := o.background
	busy := slices.Contains(wanted, true)
	if bg == nil && busy {
		bg = &background{workers: make([]*worker, len(wanted))}
		o.background = bg
		o.kind.engine.employ(o)
	}
	if bg != nil {
		bg.users++
		if bg.ended && slices.Contains(wanted, true) {
			bg.anew()
		}
		bg.ended = bg.ended || event.Type == stream.Deleted || event.Type == again && event.Missed || o.kind.unfollowed.Load()
		busy = busy || slices.ContainsFunc(bg.workers, func(w *worker) bool { return w != nil && w.Running() })
	}
	o.mu.Unlock()
	if bg == nil {
		return false
	}
	if busy && !event.Missed {
		o.kind.show(bg, event.Body)
	}
	return true
}

// anew is for an object that was let go, and is wanted again before it was forgotten: what
// was done for good may be done again. The caller holds the object's lock.
func (bg *background) anew() {
	bg.ended = false
	for i, w := range bg.workers {
		if w != nil && w.Done() && !w.Running() {
			w.unread()
			bg.workers[i] = nil
		}
	}
}

// show makes a version of the object the newest one, if it is. The answer to a write may
// come before the events of what was written earlier.
func (k *kind) show(bg *background, b *body.Body) {
	bg.mu.Lock()
	defer bg.mu.Unlock()
	if order, err := resourceversion.CompareResourceVersion(b.ResourceVersion, bg.seen); bg.seen != "" && err == nil && order <= 0 {
		return
	}
	bg.seen = b.ResourceVersion
	essential := false
	if k.idles {
		sum := maphash.Bytes(essenceSeed, k.store.Essence(b).Bytes())
		if essential = sum != bg.essence || bg.changed.IsZero(); essential {
			bg.essence, bg.changed = sum, time.Now()
		}
	}
	bg.live.Set(b, essential)
}

var essenceSeed = maphash.MakeSeed()

// lastChange is when the object has changed last.
func (bg *background) lastChange() time.Time {
	bg.mu.Lock()
	defer bg.mu.Unlock()
	return bg.changed
}

// newest is the newest version that is known.
func (bg *background) newest() (*body.Body, string) {
	bg.mu.Lock()
	defer bg.mu.Unlock()
	b, _, _ := bg.live.Body()
	return b, bg.seen
}

// assign says what is wanted of a worker, and returns it; nil: there is none. crowd tells
// that it is wanted together with those of all other objects. released tells that it was
// wanted before.
func (o *object) assign(i int, wanted bool, why error, crowd bool) (w *worker, released bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	wanted = wanted && !o.leaving && o.departure == nil // the change lane may know already, and have let the object go
	w = o.background.workers[i]
	if w == nil {
		if !wanted {
			return nil, false
		}
		w = newWorker(o, o.background, o.kind.background[i])
		o.background.workers[i] = w
	}
	released = w.wanted && !wanted
	if wanted && !w.wanted {
		w.crowd = crowd
	}
	if w.wanted = wanted; !wanted {
		w.why = why
		if o.leaving {
			w.why = daemons.ErrDeleted
		}
	}
	return w, released
}

// retire forgets what nobody needs any more: the object's bytes, or all of it. What is
// done for good is remembered (DMN-6). user tells that it is called by one of the users.
func (o *object) retire(user bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.rest()
	bg := o.background
	if bg == nil {
		return
	}
	if user {
		bg.users--
	}
	if bg.users > 0 {
		return
	}
	empty := true
	for _, w := range bg.workers {
		if w == nil {
			continue
		}
		if w.wanted && !w.Done() || w.Running() {
			return
		}
		empty = empty && !w.Done()
	}
	for _, w := range bg.workers {
		if w != nil {
			w.unread()
		}
	}
	if empty || bg.ended {
		o.background = nil
		o.kind.engine.dismiss(o)
		return
	}
	bg.mu.Lock()
	defer bg.mu.Unlock()
	bg.seen = ""
	bg.live.Clear()
}

// holding tells whether a daemon that holds the object runs on it, or is about to.
func (o *object) holding() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.background == nil {
		return false
	}
	return slices.ContainsFunc(o.background.workers, func(w *worker) bool {
		return w != nil && w.handler.Finalize && (w.wanted && !w.Done() || !w.Lets())
	})
}

// through tells whether a daemon is done for good with the object.
func (o *object) through(h *registry.Handler) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.background != nil && slices.ContainsFunc(o.background.workers, func(w *worker) bool {
		return w != nil && w.handler == h && w.Done()
	})
}

// reconsider has the change lane look at the object again, because of something that is
// not in it.
func (o *object) reconsider() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone {
		return
	}
	if o.work == nil {
		o.work = newWork()
		o.work.refresh = true
		if o.background != nil {
			b, version := o.background.newest()
			if order, err := resourceversion.CompareResourceVersion(version, o.seen); b != nil && err == nil && order >= 0 {
				o.work.latest, o.work.refresh = b, false
			}
		}
		if o.work.refresh { // it is read anyway
			o.work.known = o.kind.engine.current()
		}
	}
	o.work.newer = true
	if o.work.failures == 0 && !o.work.held {
		o.start()
	}
}

// employ notes that an object has work in the background. If it is known already, from
// another version of its resource that is not followed any more, it has to wait until
// that has come to an end: nothing runs twice for one UID (DMN-2).
func (e *Engine) employ(o *object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.employed[o.uid] == nil {
		e.employed[o.uid] = o
	} else {
		e.heirs[o.uid] = o
	}
}

func (e *Engine) dismiss(o *object) {
	e.mu.Lock()
	heir := e.heirs[o.uid]
	switch {
	case heir == o:
		delete(e.heirs, o.uid)
		heir = nil
	case heir != nil:
		delete(e.heirs, o.uid)
		e.employed[o.uid] = heir
	default:
		delete(e.employed, o.uid)
	}
	e.mu.Unlock()
	if heir != nil && e.enter() {
		go func() { // the caller has a lock
			defer e.exit()
			heir.steer(false)
		}()
	}
}

// suspend stops all work in the background, and has none begin until it is resumed.
func (e *Engine) suspend(why error) {
	e.mu.Lock()
	e.suspended = why
	e.mu.Unlock()
	e.steerAll(false)
}

// resume has the work in the background begin again that is wanted.
func (e *Engine) resume() {
	e.mu.Lock()
	e.suspended = nil
	e.mu.Unlock()
	e.steerAll(true)
}

// steerAll has all workers run, or stop, as is wanted of them now. crowd tells that those
// that begin do so together.
func (e *Engine) steerAll(crowd bool) {
	e.mu.Lock()
	objects := make([]*object, 0, len(e.employed))
	for _, o := range e.employed {
		objects = append(objects, o)
	}
	e.mu.Unlock()
	for _, o := range objects {
		o.steer(crowd)
	}
}

// steer has the object's workers run, or stop, as is wanted of them now.
func (o *object) steer(crowd bool) {
	o.mu.Lock()
	if o.background == nil {
		o.mu.Unlock()
		return
	}
	o.background.users++
	workers := slices.Clone(o.background.workers)
	for _, w := range workers {
		if w != nil {
			w.crowd = w.crowd || crowd
		}
	}
	o.mu.Unlock()
	defer o.retire(true)
	for _, w := range workers {
		if w != nil {
			w.steer()
		}
	}
}

// whyNot is why nothing may run in the background of an object; nil: it may.
func (e *Engine) whyNot(o *object) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.suspended == nil && e.employed[o.uid] != o {
		return daemons.ErrMismatch // its time will come
	}
	return e.suspended
}
