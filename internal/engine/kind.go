package engine

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/cause"
	"github.com/kopf-go/kopf/internal/logging"
	"github.com/kopf-go/kopf/internal/metrics"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/internal/stream"
)

// Resource is what discovery knows of a resource of the API.
type Resource struct {
	GVR        schema.GroupVersionResource
	GVK        schema.GroupVersionKind
	Namespaced bool
	Status     bool // has a status endpoint
}

// kind is one resource with the handlers for it and the objects that are alive.
type kind struct {
	engine   *Engine
	resource Resource
	client   *stream.Client // reads no more of objects than handlers want
	log      *slog.Logger
	// apiVersion is that of the objects, which is not to be composed for each line of the log.
	apiVersion string
	absent     time.Time // since when discovery does not have it; zero: it has
	missing    int       // how often the API server said that there is none
	born       *term     // the term in which it began to be followed
	edition    int       // how many kinds there were before of this resource, in whatever version
	retired    atomic.Bool
	meter      *metrics.Kind

	handlers         []*registry.Handler // all, in order of registration
	indexHandlers    []*registry.Handler
	eventHandlers    []*registry.Handler
	background       []*registry.Handler // daemons and timers
	meters           map[*registry.Handler]*metrics.Handler
	changeHandlers   []*registry.Handler
	optionalHandlers []*registry.Handler // of changeHandlers: delete handlers that hold nothing
	holders          []*registry.Handler // those that hold objects: delete handlers, daemons
	users            []*user             // of indices, among changeHandlers
	userOf           map[*registry.Handler]*user
	updater          map[*registry.Handler]*registry.Handler // of resume handlers: the same function for updates
	keys             map[*registry.Handler]*state.Keys
	store            *state.Store // what is kept on the objects
	sensitive        bool         // some values of the objects are not for everybody
	resumes          bool         // there are resume handlers
	idles            bool         // somebody wants to know when an object has changed last
	// simpleHolds tells that labels and annotations alone decide which objects the
	// holders hold.
	simpleHolds bool

	unfollowed atomic.Bool // it is not followed any more, though its objects may live on

	mu         sync.Mutex
	objects    map[types.UID]*object
	complaints map[types.UID]string // the last one of each object that has one
	pruned     map[string]bool      // fields that the API server does not keep, as they were warned of
}

func newKind(e *Engine, r Resource, handlers []*registry.Handler) (*kind, error) {
	k := &kind{
		engine: e, born: e.current(), resource: r, client: e.client, handlers: handlers, log: e.log.With("resource", resourceName(r.GVR)),
		apiVersion: r.GVK.GroupVersion().String(),
		keys:       map[*registry.Handler]*state.Keys{}, meters: map[*registry.Handler]*metrics.Handler{}, objects: map[types.UID]*object{},
		complaints: map[types.UID]string{}, pruned: map[string]bool{}, simpleHolds: true,
	}
	kept := e.State
	kept.Secret = r.GVR.Group == "" && r.GVR.Resource == "secrets"
	for _, h := range handlers {
		if len(h.Field) > 0 && h.Keeps() {
			kept.Extra = append(kept.Extra, h.Field) // counts although it may not be essential (ESS-3)
		}
		for _, path := range h.Sensitive {
			kept.Sensitive = append(kept.Sensitive, path)
		}
	}
	k.sensitive = kept.Secret || len(kept.Sensitive) > 0
	var err error
	if k.store, err = state.NewStore(kept); err != nil {
		return nil, err
	}
	k.meter = metrics.Follow(resourceName(r.GVR))
	for _, h := range handlers {
		k.add(h)
		k.meters[h] = k.meter.Handler(h.ID, h.Background())
	}
	k.users, k.userOf = usersAmong(k.changeHandlers)
	k.updater = updaters(k.changeHandlers)
	if metadataOnly(handlers) && (len(k.changeHandlers) == 0 || !e.settings.StateInBody) {
		k.client = e.client.MetadataOnly(r.GVK)
	}
	return k, nil
}

// reference says in logs which object is meant.
func (k *kind) reference(namespace, name string, uid types.UID) logging.Reference {
	return logging.Reference{APIVersion: k.apiVersion, Kind: k.resource.GVK.Kind, Name: name, UID: string(uid), Namespace: namespace}
}

// add sorts a handler in.
func (k *kind) add(h *registry.Handler) {
	if h.Finalize || h.Kind == registry.Delete && !h.Optional {
		k.holders = append(k.holders, h)
		k.simpleHolds = k.simpleHolds && h.When == nil && len(h.Field) == 0
	}
	switch h.Kind {
	case registry.Event:
		k.eventHandlers = append(k.eventHandlers, h)
		return
	case registry.Index:
		k.indexHandlers = append(k.indexHandlers, h)
		return
	case registry.Daemon, registry.Timer:
		k.background = append(k.background, h)
		k.idles = k.idles || h.Kind == registry.Daemon || h.Schedule.Idle > 0
		return
	case registry.Resume:
		k.resumes = true
	case registry.Delete:
		if h.Optional {
			k.optionalHandlers = append(k.optionalHandlers, h)
		}
	}
	k.changeHandlers = append(k.changeHandlers, h)
	k.keys[h] = k.store.Key(h.ID)
}

// updaters finds the functions that are for resuming and for updates (CHG-4).
func updaters(handlers []*registry.Handler) map[*registry.Handler]*registry.Handler {
	found := map[*registry.Handler]*registry.Handler{}
	for _, h := range handlers {
		for _, other := range handlers {
			if h.Kind == registry.Resume && other.UpdateLike() && h.Func == other.Func && h.ID == other.ID {
				found[h] = other
			}
		}
	}
	return found
}

// resuming tells whether what a handler does counts as resuming.
func (k *kind) resuming(h *registry.Handler) bool {
	if h.Kind == registry.Resume {
		return true
	}
	for _, updater := range k.updater {
		if updater == h {
			return true
		}
	}
	return false
}

// observes tells whether events of objects are of interest one by one.
func (k *kind) observes() bool { return len(k.eventHandlers)+len(k.background) > 0 }

// changes tells whether there may be something to do for, or on, an object that has changed.
// For daemons and timers there is: a finalizer of theirs, of ours or of a Python operator's.
func (k *kind) changes() bool { return len(k.changeHandlers)+len(k.background) > 0 }

func resourceName(gvr schema.GroupVersionResource) string {
	return gvr.GroupResource().String()
}

// handle takes an event from one of the streams of the kind.
func (k *kind) handle(f *following, event stream.Event) {
	b := event.Body
	// What appears while somebody else leads is, for handlers that are called when an operator
	// takes over, there when we do.
	old := event.Type == stream.Listed || k.engine.current() == nil
	k.mu.Lock()
	o := k.objects[b.UID]
	known := o != nil
	if !known {
		if f.departure != nil && (event.Type == stream.Deleted || k.clean(b)) {
			k.mu.Unlock()
			return
		}
		o = k.newObject(b, old, f.departure)
	}
	k.mu.Unlock()
	if known {
		o.renew()
	}
	o.take(event)
}

// newObject makes the record of an object. The caller holds the lock.
func (k *kind) newObject(b *body.Body, found bool, d *departure) *object {
	o := &object{kind: k, uid: b.UID, namespace: b.Namespace, name: b.Name, initial: found, found: found, departure: d}
	k.objects[b.UID] = o
	return o
}

// in returns the objects of a namespace.
func (k *kind) in(namespace string) (objects []*object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range k.objects {
		if o.namespace == namespace {
			objects = append(objects, o)
		}
	}
	return objects
}

// knows tells whether nothing was heard yet of an object's deletion.
func (k *kind) knows(o *object) bool {
	o.mu.Lock() // an object's lock comes before that of its kind
	defer o.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.objects[o.uid] == o && !o.gone && !o.buried
}

// bury tells of objects that they are gone, as far as the kind's streams, which have
// ended, have not.
func (k *kind) bury(objects []*object) {
	for _, o := range objects {
		if k.knows(o) {
			o.take(stream.Event{Type: stream.Deleted, Missed: true, Body: o.identity()})
		}
	}
}

// unfollow ends the work on objects that live on, but are not heard of any more.
func (k *kind) unfollow(objects []*object) {
	k.unfollowed.Store(true)
	if len(k.background) == 0 {
		return
	}
	for _, o := range objects {
		o.observe(stream.Event{Type: again, Missed: true, Body: o.identity()})
	}
}

// forget ends the record of an object that is gone.
func (k *kind) forget(o *object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o.forgetReadings()
	delete(k.objects, o.uid)
	delete(k.complaints, o.uid)
}

// unheard tells whether a complaint of an object is a new one.
func (k *kind) unheard(o *object, complaint string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.complaints[o.uid] == complaint
	k.complaints[o.uid] = complaint
	return !known
}

// slipped tells whether an object that is gone was held by us, and its deletion never
// requested: the API server deletes an object that had no finalizer when it looked,
// even if it has one a moment later. It is the server's race, and we cannot win it;
// but side effects may have begun, so the delete handlers are called, best effort.
func (k *kind) slipped(b *body.Body) bool {
	return !b.Deleting() && b.HasFinalizer(k.engine.naming.Finalizer)
}

// quiet tells whether an event asks for nothing at all, as almost all do. It is what
// a restart and a foreign status write cost per object, so it decides from the bytes
// and decodes nothing. When in doubt it says no, and a cycle has a closer look.
func (k *kind) quiet(b *body.Body, initial bool) bool { return k.repose(b, initial) != stirred }

// repose is quiet, with the reason.
func (k *kind) repose(b *body.Body, initial bool) repose {
	n := k.engine.naming
	held := b.HasFinalizer(n.Finalizer)
	if b.Deleting() {
		return reposeIf(!held && len(k.optionalHandlers) == 0, notHeld)
	}
	inScope, holds := false, false
	for _, h := range k.changeHandlers {
		labelled, err := cause.Labelled(h, b)
		if err != nil {
			return stirred
		}
		inScope = inScope || labelled
	}
	for _, h := range k.holders {
		labelled, err := cause.Labelled(h, b)
		if err != nil {
			return stirred
		}
		holds = holds || labelled
	}
	if k.store.HasStray(b) { // a record of progress
		return stirred
	}
	if !inScope && !holds {
		return reposeIf(!held, unwanted)
	}
	if !k.simpleHolds || held != holds || inScope && initial && (k.resumes || len(k.users) > 0) {
		return stirred
	}
	if !inScope {
		return unwanted
	}
	same, known, err := k.store.Handled(b)
	return reposeIf(err == nil && known && same, unchanged)
}

func reposeIf(is bool, why repose) repose {
	if is {
		return why
	}
	return stirred
}
