package engine

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/internal/metrics"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/stream"
)

// director decides what is followed: one stream for every resource that a handler
// is for and every namespace that is served.
type director struct {
	*Engine
	scan

	streams sync.WaitGroup

	indexed interest      // of indices
	found   chan struct{} // closed when it is known which of the resources of indices there are

	mu         sync.Mutex
	namespaces map[string]bool // that are served
	departing  map[string]bool // that are not any more, but not all of their objects are released
	kinds      []*kind         // changed by run's goroutine only, which reads it without the lock
	following  map[streamKey]*following
	editions   map[schema.GroupResource]int // how many kinds there were; of run's goroutine
	hooks      []Hook                       // as they were told of last; of run's goroutine
	said       map[any]string               // complaints that were made already, by what they are about
	counted    map[string]*metrics.Kind     // of resources that handlers for requests are for
	pulse      pulse
	news       []news
}

type streamKey struct {
	gvr       schema.GroupVersionResource
	namespace string
}

func newDirector(e *Engine) *director {
	d := &director{
		Engine: e, scan: newScan(e), namespaces: map[string]bool{}, departing: map[string]bool{}, following: map[streamKey]*following{}, said: map[any]string{}, counted: map[string]*metrics.Kind{},
		editions: map[schema.GroupResource]int{}, found: make(chan struct{}),
		indexed: interestIn(slices.DeleteFunc(slices.Clone(e.Handlers), func(h *registry.Handler) bool { return h.Kind != registry.Index })),
	}
	d.reader.beat = d.pulse.work
	return d
}

// run follows what is served, as it comes and goes, until the context ends, and waits
// for all streams to end.
func (d *director) run(ctx context.Context) {
	defer d.streams.Wait()
	d.pulse.work()
	listed := make(chan struct{})
	d.findNamespaces(ctx, sync.OnceFunc(func() {
		d.spaces.complete()
		close(listed)
	}))
	if d.crds {
		d.followCRDs(ctx)
	}
	d.look(ctx)
	d.streams.Go(func() { d.begin(ctx, listed) })
	found := sync.OnceFunc(func() { close(d.found) })
	for ctx.Err() == nil {
		if d.findable() {
			found()
		}
		d.pulse.rest()
		d.await(ctx)
		d.pulse.work()
		d.heed()
		d.look(ctx)
	}
	d.pulse.rest()
}

// findable tells whether it could be read of all groups that indices are of by name what
// they serve. What somebody would have to permit first is not waited for.
func (d *director) findable() bool {
	if d.unread != nil {
		return false
	}
	for gv, err := range d.catalogue.failures() {
		if _, named := d.indexed.groups[gv.Group]; named && !apierrors.IsForbidden(err) {
			return false
		}
	}
	return true
}

// begin has all followed when the indices are complete, for which the streams that fill
// them must be known.
func (d *director) begin(ctx context.Context, namespaces <-chan struct{}) {
	for _, known := range []<-chan struct{}{namespaces, d.found} {
		select {
		case <-ctx.Done():
			return
		case <-known:
		}
	}
	d.ready.seal()
	select {
	case <-ctx.Done():
		return
	case <-d.ready.opened:
	}
	d.mu.Lock()
	for _, k := range d.kinds {
		d.followAll(ctx, k)
	}
	first := slices.Collect(maps.Values(d.following))
	d.mu.Unlock()
	for _, f := range first {
		select {
		case <-ctx.Done():
			return
		case <-f.ended:
		case <-f.listed:
		}
	}
	close(d.warm)
}

// revise brings what is followed in line with what is served.
func (d *director) revise(ctx context.Context) {
	served := d.served()
	for _, k := range slices.Clone(d.kinds) {
		d.reconsider(k, served)
	}
	clear(d.renewed)
	assignments, hooks, unresolved := d.assign(served)
	d.unresolved = unresolved
	d.announceHooks(hooks)
	for _, a := range assignments {
		i := slices.IndexFunc(d.kinds, func(k *kind) bool { return k.resource.GVR == a.resource.GVR })
		if i < 0 {
			if len(a.handlers) > 0 && !d.overlaps(a) {
				d.reader.followed[a.resource.GVR.GroupVersion()] = true
				k, err := newKind(d.Engine, a.resource, a.handlers)
				if err != nil {
					d.once(slog.LevelError, "resource cannot be handled", "resource", resourceName(a.resource.GVR), "error", err)
					continue
				}
				k.edition = d.editions[a.resource.GVR.GroupResource()]
				d.editions[a.resource.GVR.GroupResource()]++
				d.startKind(ctx, k)
			}
			continue
		}
		for _, h := range a.handlers {
			if !slices.Contains(d.kinds[i].handlers, h) {
				d.once(slog.LevelWarn, "resource is followed already, one more handler for it is called only after a restart",
					"resource", resourceName(a.resource.GVR), "handler", h.ID, "source", h.Source)
			}
		}
	}
}

// reconsider ends a kind that is not served any more. Discovery may fail to mention
// a resource for a moment, such as while an API server starts, so that one look is not
// believed, unless its CustomResourceDefinition is gone.
func (d *director) reconsider(k *kind, served []registry.APIResource) {
	gvr := k.resource.GVR
	renewed := d.renewed[gvr.GroupResource()]
	elsewhere := false // in another version
	for _, r := range served {
		switch is := resourceOf(r); {
		case is.GVR == gvr && !renewed:
			k.absent = time.Time{}
			return
		case is == k.resource: // its successor is just like it
			k.absent = time.Time{}
			d.relist(k)
			return
		case is.GVR.GroupResource() == gvr.GroupResource():
			elsewhere = true
		}
	}
	if k.absent.IsZero() {
		k.absent = time.Now()
	}
	if left := secondLook - time.Since(k.absent); left > 0 && !renewed && !d.withdrawn[gvr.GroupResource()] {
		d.lookAgain(gvr.Group, left)
		return
	}
	d.log.Info("resource is not served any more", "resource", resourceName(gvr), "version", gvr.Version)
	d.endKind(k, renewed || !elsewhere)
}

// overlaps tells whether a handler is still followed in another version, which may be gone,
// but is not believed to be yet: its handlers would be called twice.
func (d *director) overlaps(a *assignment) bool {
	return slices.ContainsFunc(d.kinds, func(k *kind) bool {
		return !k.absent.IsZero() && k.resource.GVR.GroupResource() == a.resource.GVR.GroupResource() &&
			slices.ContainsFunc(a.handlers, func(h *registry.Handler) bool { return slices.Contains(k.handlers, h) })
	})
}

// relist has the streams of a kind begin anew at once, for a stream that found
// nothing there may wait for some time before it tries again. It knows which objects
// there were, and tells of those that are gone.
func (d *director) relist(k *kind) {
	d.log.Info("resource was taken away and created anew", "resource", resourceName(k.resource.GVR))
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.following {
		if f.kind == k {
			f.restart()
		}
	}
}

// endKind ends the streams of a kind. If its resource is gone, so are its objects,
// though the end of the streams may have come before the news of it; else they live on
// in another version.
func (d *director) endKind(k *kind, gone bool) {
	var ended []chan struct{}
	d.mu.Lock()
	d.kinds = slices.DeleteFunc(d.kinds, func(other *kind) bool { return other == k })
	for key, f := range d.following {
		if f.kind == k {
			f.cancel()
			delete(d.following, key)
			d.ready.settle(key)
			ended = append(ended, f.ended)
		}
	}
	d.mu.Unlock()
	for _, end := range ended {
		<-end
	}
	k.mu.Lock()
	objects := slices.Collect(maps.Values(k.objects))
	k.mu.Unlock()
	if gone {
		k.bury(objects)
	} else {
		k.retire(objects)
		k.unfollow(objects)
	}
	k.meter.Release()
}

func (d *director) startKind(ctx context.Context, k *kind) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kinds = append(d.kinds, k)
	d.followAll(ctx, k)
}

// followAll starts the streams of a kind. The caller holds the lock.
func (d *director) followAll(ctx context.Context, k *kind) {
	if !k.resource.Namespaced || d.Namespaces.All() {
		d.follow(ctx, k, "", true)
		return
	}
	for name := range d.namespaces {
		d.follow(ctx, k, name, true)
	}
	for name := range d.departing { // the kind may be another version of one that had objects there
		d.follow(ctx, k, name, false)
	}
}

// resumed waits until the operator is not paused, and tells whether the context lasts.
func (d *director) resumed(ctx context.Context, s *stream.Stream) bool {
	for {
		continued, paused := d.pausing()
		if !paused || ctx.Err() != nil {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
		case <-continued:
			s.Reopen()
		}
	}
}

// interrupt ends all streams of objects, for a pause or to begin anew.
func (d *director) interrupt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.following {
		f.restart()
	}
}

// failed says what goes wrong in a stream. What passes by itself is for the debug
// level; what somebody has to mend is said once.
func (d *director) failed(k *kind, key streamKey, f stream.Failure) {
	if f.Reason == stream.Forbidden || f.Reason == stream.NotServed && d.settings.DiscoverOnce {
		d.settleWithout(k, key)
	}
	switch f.Reason {
	case stream.Forbidden:
		ids := make([]string, 0, 1)
		for _, h := range k.handlers {
			ids = append(ids, h.ID)
		}
		d.once(slog.LevelError, "permission is missing, nothing of this resource is handled: grant the verb",
			"verb", f.Verb, "resource", resourceName(k.resource.GVR), "handlers", strings.Join(ids, ","), "error", f.Err)
	case stream.Unauthorized:
		d.once(slog.LevelError, "credentials are not accepted", "verb", f.Verb, "resource", resourceName(k.resource.GVR), "error", f.Err)
	case stream.NotServed:
		d.notServed(k)
	case stream.Unreadable:
		k.log.Error("object is not readable and left out", "error", f.Error())
	default:
		k.log.Debug("stream was interrupted, it goes on", "reason", f.Reason, "verb", f.Verb, "error", f.Err)
	}
}

// keysOf are the streams of a kind.
func (d *director) keysOf(k *kind) (keys []streamKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, f := range d.following {
		if f.kind == k {
			keys = append(keys, key)
		}
	}
	return keys
}

// settleWithout goes on without the objects of a stream that nothing comes from.
func (d *director) settleWithout(k *kind, key streamKey) {
	if d.ready.awaits(key) {
		for _, h := range k.indexHandlers {
			d.once(slog.LevelError, "index is not complete: its objects cannot be read; handlers run without them until they can",
				"index", h.ID, "resource", resourceName(k.resource.GVR), "namespace", key.namespace, "source", h.Source)
		}
	}
	d.ready.settle(key)
}
