package engine

import (
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/stream"
)

// departure is that of the objects of a namespace that is not served any more. As long as it
// lasts, they are out of the scope of all handlers.
type departure struct {
	rested chan struct{} // one of them may have come to rest
}

func newDeparture() *departure { return &departure{rested: make(chan struct{}, 1)} }

// renewal is how far an object has come whose namespace is served again before it was
// forgotten. It is to be dealt with as if the operator had just started.
type renewal uint8

const (
	settled  renewal = iota // there is nothing to it
	unlisted                // it was not listed yet, and may be gone
	listed                  // the change lane is to take the next version for one that was there at the start
	admitted                // it has it
)

// dismiss begins the departure of all objects that a stream tells of, and returns them.
func (k *kind) dismiss(f *following) []*object {
	k.mu.Lock()
	if f.departure == nil {
		f.departure = newDeparture()
	}
	k.mu.Unlock()
	return k.in(f.key.namespace)
}

// takeBack ends the departure: what the stream tells of from now on is handled.
func (k *kind) takeBack(f *following) {
	k.mu.Lock()
	was := f.departure
	f.departure = nil
	k.mu.Unlock()
	for _, o := range k.in(f.key.namespace) {
		o.takeBack(was)
	}
}

// forgetAll forgets the objects that have departed.
func (k *kind) forgetAll(f *following) {
	for _, o := range k.in(f.key.namespace) {
		o.mu.Lock()
		if o.departure == f.departure {
			k.forget(o)
		}
		o.mu.Unlock()
	}
}

// clear takes a listed object that may depart, to take what is ours off it.
func (k *kind) clear(f *following, b *body.Body) {
	if k.clean(b) {
		return
	}
	k.mu.Lock()
	o := k.objects[b.UID]
	if o == nil {
		o = k.newObject(b, false, f.departure)
	}
	k.mu.Unlock()
	o.clear(b)
}

// clean tells whether nothing is on an object that would have to go when it is not handled
// any more. The state that was handled last stays.
func (k *kind) clean(b *body.Body) bool {
	return !b.HasFinalizer(k.engine.naming.Finalizer) && !k.store.HasStray(b)
}

// unlisted are the objects of a namespace that is served again, but that are not there any
// more.
func (k *kind) unlisted(namespace string) (objects []*object) {
	for _, o := range k.in(namespace) {
		o.mu.Lock()
		if o.renewal == unlisted {
			objects = append(objects, o)
		}
		o.mu.Unlock()
	}
	return objects
}

// leave takes the object out of the scope of all handlers. What runs of its change handlers
// comes to its end; daemons and timers are stopped.
func (o *object) leave(d *departure) {
	o.mu.Lock()
	o.departure, o.renewal, o.woken = d, settled, nil
	if o.work != nil { // whatever it waits for
		o.work.newer, o.work.held = true, false
		o.start()
	}
	indexes := len(o.kind.indexHandlers) > 0
	works := len(o.kind.background) > 0 && (o.observing || o.background != nil)
	o.mu.Unlock()
	if indexes {
		o.enqueue(toIndex{again: true})
	}
	if works {
		o.observe(stream.Event{Type: again, Missed: true, Body: o.identity()})
	}
}

// clear has the change lane look at a version of an object that departs.
func (o *object) clear(b *body.Body) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.departure == nil || o.gone {
		return
	}
	if order, err := resourceversion.CompareResourceVersion(b.ResourceVersion, o.seen); o.seen != "" && err == nil && order < 0 {
		return // a newer one has come meanwhile
	}
	o.seen = b.ResourceVersion
	if o.work == nil {
		o.work = newWork()
	}
	o.work.latest, o.work.newer, o.work.known = b, true, o.kind.engine.current()
	if o.work.failures == 0 {
		o.start()
	}
}

// takeBack brings the object back into the scope of handlers, unless it has departed from
// somewhere else.
func (o *object) takeBack(from *departure) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.departure == from {
		o.departure, o.renewal = nil, unlisted
	}
}

// renew takes note that an object whose namespace is served again is there.
func (o *object) renew() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.renewal == unlisted {
		o.renewal = listed
	}
}

// begin has the change lane take the object for one that was there at the start, if it is
// time for that. The caller holds the lock, or nobody else has the object.
func (o *object) begin() {
	if o.renewal != admitted {
		return
	}
	o.renewal = settled
	o.initial, o.found = true, true
	o.resumed = nil
}

// departing tells whether the object is out of the scope of all handlers.
func (o *object) departing() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.departure != nil
}

func (o *object) departs(d *departure) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.departure == d
}

// busy tells whether something goes on with the object.
func (o *object) busy() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.work != nil && (o.work.running || o.work.timer != nil || o.waits()) || o.observing || o.indexed != nil && o.indexed.running {
		return true
	}
	bg := o.background
	if bg == nil {
		return false
	}
	for _, w := range bg.workers {
		if w != nil && (w.wanted || !w.Lets()) {
			return true
		}
	}
	return bg.users > 0
}

// waits tells whether its work is for another term, of this operator or of another one. The
// caller holds the lock.
func (o *object) waits() bool {
	t := o.kind.engine.current()
	return t == nil || o.work.known != t
}

// rest tells whoever waits for it that something of the object has come to an end. The
// caller holds the lock.
func (o *object) rest() {
	if o.departure != nil {
		signal(o.departure.rested)
	}
}

// depart lets go of an object that is out of the scope of all handlers. What they have come
// to is written, and what they were not through with is forgotten. One that is being deleted
// is let go like any other: its delete handlers would act for a namespace that they are not
// for.
func (c *cycle) depart() (verdict, error) {
	c.edits = new(registry.Edits)
	if c.gone {
		c.leftover = nil
		return verdict{}, nil
	}
	c.holds = c.object.holding()
	return c.release()
}
