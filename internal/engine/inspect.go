package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/decisions"
	"github.com/kopf-go/kopf/internal/metrics"
	"github.com/kopf-go/kopf/internal/registry"
)

// What can be seen from outside of an engine that runs: by metrics, by health checks, and
// by people. It is looked at when somebody asks, which takes a moment per object, and costs
// nothing else.

// pulse tells whether a loop is at work, and since when.
type pulse struct{ since atomic.Pointer[time.Time] }

func (p *pulse) work() {
	now := time.Now()
	p.since.Store(&now)
}

func (p *pulse) rest() { p.since.Store(nil) }

// stuck is for how long the loop has been at work.
func (p *pulse) stuck() time.Duration {
	if since := p.since.Load(); since != nil {
		return time.Since(*since)
	}
	return 0
}

// How long one round of a loop may last until it counts as stuck. The director asks the API
// server in a round, which may take its time to answer.
const (
	directorLimit = 10 * time.Minute
	timersLimit   = time.Minute
)

// Alive tells what is stuck, if anything is: then only a restart helps.
func (e *Engine) Alive() error {
	var errs []error
	if d := e.director.Load(); d != nil {
		if busy := d.pulse.stuck(); busy > directorLimit {
			errs = append(errs, fmt.Errorf("looking for resources has been going on for %s", busy.Round(time.Second)))
		}
	}
	if busy := e.timers.pulse.stuck(); busy > timersLimit {
		errs = append(errs, fmt.Errorf("nothing that waits is woken since %s", busy.Round(time.Second)))
	}
	return errors.Join(errs...)
}

// StreamsAlive names the streams that nothing was heard of for too long.
func (e *Engine) StreamsAlive() error {
	var errs []error
	for _, k := range e.followed() {
		for _, s := range k.Streams {
			if s.Late() {
				errs = append(errs, fmt.Errorf("nothing was heard of %s %s for %s", k.Name, s.Namespace, s.Age.Round(time.Second)))
			}
		}
	}
	return errors.Join(errs...)
}

// followed are the kinds with their streams.
func (e *Engine) followed() (found []followedKind) {
	d := e.director.Load()
	if d == nil {
		return nil
	}
	_, paused := e.pausing() // nothing is to be heard then
	e.mu.Lock()
	since := e.continuing
	e.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.kinds {
		one := followedKind{kind: k}
		one.Name, one.Version, one.Kind.Kind = resourceName(k.resource.GVR), k.resource.GVR.Version, k.resource.GVK.Kind
		for _, f := range d.following {
			if f.kind == k && f.stream != nil && !paused {
				one.Streams = append(one.Streams, f.state(since, e.silence()))
			}
		}
		slices.SortFunc(one.Streams, func(a, b decisions.Stream) int { return cmp.Compare(b.Age, a.Age) })
		found = append(found, one)
	}
	slices.SortFunc(found, func(a, b followedKind) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

type followedKind struct {
	decisions.Kind
	kind *kind
}

// silence is for how long nothing may be heard of a stream: until its connection is
// taken for dead, and some time to open another one.
func (e *Engine) silence() time.Duration {
	silence := e.settings.InactivityTimeout
	if silence == 0 {
		silence = defaultSilence
	}
	return silence + graceOfStreams
}

const (
	defaultSilence = 3 * time.Minute // of a stream
	graceOfStreams = 30 * time.Second
)

func (f *following) state(since time.Time, limit time.Duration) decisions.Stream {
	s := decisions.Stream{Namespace: f.key.namespace, Limit: limit, Age: max(min(time.Since(f.stream.LastActivity()), time.Since(since)), 0)}
	select {
	case <-f.stream.Synced():
		s.Listed = true
	default:
	}
	return s
}

// bustle is what goes on with objects of a kind.
type bustle struct {
	objects, busy, timed, stuck int
	waiting                     map[string]int // handlers
}

func (k *kind) bustle() bustle {
	b := bustle{waiting: map[string]int{}}
	for _, o := range k.all() {
		b.objects++
		o.mu.Lock()
		if w := o.work; w != nil {
			b.busy++
			if w.timer != nil {
				b.timed++
			}
			for _, v := range w.waiting {
				b.waiting[k.nameOf(v.Handler)]++
			}
			if l := w.latest; l != nil && l.DeletionTimestamp != nil && l.HasFinalizer(k.engine.naming.Finalizer) &&
				time.Since(l.DeletionTimestamp.Time) > metrics.StuckAfter {
				b.stuck++
			}
		}
		o.mu.Unlock()
	}
	return b
}

// nameOf is the handler that an id belongs to: ids of sub-handlers are made of data, and
// count as their outermost parent's.
func (k *kind) nameOf(id string) string {
	best := ""
	for _, h := range k.handlers {
		if id == h.ID {
			return id
		}
		if len(h.ID) > len(best) && len(id) > len(h.ID) && id[:len(h.ID)+1] == h.ID+"/" {
			best = h.ID
		}
	}
	if best == "" {
		return "unknown"
	}
	return best
}

// uncount ends the counting of all that was followed.
func (d *director) uncount() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.kinds {
		k.meter.Release()
	}
	for _, meter := range d.counted {
		meter.Release()
	}
}

// measure is for metrics.
func (e *Engine) measure() metrics.State {
	state := metrics.State{Queued: e.gate.waiting(), Kinds: map[string]metrics.KindState{}}
	for _, f := range e.followed() {
		b := f.kind.bustle()
		k := metrics.KindState{Objects: b.objects, Streams: len(f.Streams), Stuck: b.stuck, Waiting: b.waiting}
		if len(f.Streams) > 0 {
			k.StreamAge = f.Streams[0].Age
		}
		state.Kinds[f.Name] = k
	}
	return state
}

// Report is for people.
func (e *Engine) Report() decisions.State {
	state := decisions.State{Time: time.Now(), Running: true, Ready: e.IsReady(), Queued: e.gate.waiting()}
	e.mu.Lock()
	switch {
	case e.paused != nil:
		state.Notes = append(state.Notes, "paused: "+e.paused.Error())
	case e.suspended != nil:
		state.Notes = append(state.Notes, "stands by: another replica leads, or none yet")
	}
	running := map[*registry.Handler]int{}
	for _, c := range e.calls {
		running[c.handler]++
	}
	e.mu.Unlock()
	for _, f := range e.followed() {
		b := f.kind.bustle()
		counts := f.kind.meter.Counts()
		f.Objects, f.Busy, f.Stuck = b.objects, b.busy, b.stuck
		state.Waiting += b.timed
		for _, h := range f.kind.handlers {
			f.Handlers = append(f.Handlers, decisions.Handler{
				ID: h.ID, Cause: string(h.Kind), Filters: filtersOf(h), Source: h.Source,
				Running: running[h], Waiting: b.waiting[h.ID], Counts: counts[h.ID],
			})
		}
		state.Kinds = append(state.Kinds, f.Kind)
	}
	return state
}

// filtersOf says what a handler's filters look at.
func filtersOf(h *registry.Handler) (filters []string) {
	for _, c := range h.Labels {
		filters = append(filters, "label "+c.Key)
	}
	for _, c := range h.Annotations {
		filters = append(filters, "annotation "+c.Key)
	}
	if len(h.Field) > 0 {
		filters = append(filters, "field "+h.Field.String())
	}
	if h.When != nil {
		filters = append(filters, "when")
	}
	return filters
}

// Find returns how the objects stand that are meant, most of them at most. It looks at all
// objects.
func (e *Engine) Find(kind, namespace, name string, most int) (found []decisions.Standing) {
	for _, f := range e.followed() {
		for _, o := range f.kind.all() {
			if len(found) < most && o.title().Match(kind, namespace, name, f.Kind.Kind) {
				found = append(found, o.standing())
			}
		}
	}
	return found
}

// Standing is how an object stands; false: it is not known, any more.
func (e *Engine) Standing(uid types.UID) (decisions.Standing, bool) {
	for _, f := range e.followed() {
		f.kind.mu.Lock()
		o := f.kind.objects[uid]
		f.kind.mu.Unlock()
		if o != nil {
			return o.standing(), true
		}
	}
	return decisions.Standing{}, false
}

func (o *object) standing() decisions.Standing {
	s := decisions.Standing{Object: o.title()}
	s.Running = o.kind.engine.runningOn(o)
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.work
	switch {
	case w == nil && o.gone:
		s.State = "gone"
	case w == nil:
		s.State = o.repose.text()
	case w.running:
		s.State = "being worked on"
	case w.timer != nil:
		s.State, s.Next = "waiting", decisions.At(w.timer.at)
	case o.kind.engine.current() == nil:
		s.State = "waiting for a term: this replica does not lead, or is paused"
	default:
		s.State = "waiting for something to happen"
	}
	if w != nil {
		s.Waiting = slices.Clone(w.waiting)
		if w.latest != nil && w.latest.Deleting() {
			s.State = "being deleted, " + s.State
		}
	}
	return s
}

// runningOn names the user's functions that run on an object.
func (e *Engine) runningOn(o *object) (names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.calls {
		if c.object == o {
			names = append(names, string(c.handler.Kind)+" "+c.handler.ID)
		}
	}
	slices.Sort(names)
	return names
}

// repose is why there is nothing to do for an object.
type repose uint8

const (
	stirred   repose = iota // there is, or nobody has looked
	unchanged               // since it was handled
	unwanted                // no handler is for it
	notHeld                 // it is being deleted, and we do not hold it
)

func (r repose) text() string {
	switch r {
	case unchanged:
		return "unchanged since it was handled: nothing to do"
	case unwanted:
		return "no handler of changes is for it: labels or annotations do not match, or there is none"
	case notHeld:
		return "being deleted, and not held by this operator"
	}
	return "nothing to do"
}
