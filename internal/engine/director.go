package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/stream"
)

// director decides what is followed: one stream for every resource that a handler
// is for and every namespace that is served.
type director struct {
	*Engine

	streams sync.WaitGroup

	mu         sync.Mutex
	namespaces map[string]bool
	kinds      []*kind
	following  map[streamKey]following
	said       map[string]bool // complaints that were made already
}

// following is a stream that runs.
type following struct {
	kind   *kind
	cancel context.CancelFunc
	ended  chan struct{}
}

type streamKey struct {
	gvr       schema.GroupVersionResource
	namespace string
}

func newDirector(e *Engine) *director {
	return &director{
		Engine: e, namespaces: map[string]bool{}, following: map[streamKey]following{}, said: map[string]bool{},
	}
}

// run looks for the resources until all are found, keeps streams running until the
// context ends, and waits for them to end.
func (d *director) run(ctx context.Context) {
	defer d.streams.Wait()
	for _, name := range d.Namespaces.exact() {
		d.serve(ctx, name)
	}
	if d.Namespaces.dynamic() {
		d.followNamespaces(ctx)
	}
	pending := d.Handlers
	for {
		if pending = d.resolve(ctx, pending); len(pending) == 0 {
			<-ctx.Done()
			return
		}
		wait := time.NewTimer(d.settings.DiscoveryInterval)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
	}
}

// resolve starts the kinds that are served, and returns the handlers whose are not.
func (d *director) resolve(ctx context.Context, handlers []*registry.Handler) (pending []*registry.Handler) {
	found := map[registry.Selector]*Resource{}
	byResource := map[schema.GroupVersionResource][]*registry.Handler{}
	resources := map[schema.GroupVersionResource]Resource{}
	var order []schema.GroupVersionResource
	for _, h := range handlers {
		resource, known := found[h.Selector]
		if !known {
			var err error
			if resource, err = find(d.Discovery, h.Selector); err != nil {
				d.once("resource is not found, its handlers wait", "resource", h.Selector.String(), "handler", h.ID, "source", h.Source, "error", err)
			} else if resource == nil {
				d.once("resource is not served by the cluster, its handlers wait until it is",
					"resource", h.Selector.String(), "handler", h.ID, "source", h.Source)
			}
			found[h.Selector] = resource
		}
		if resource == nil {
			pending = append(pending, h)
			continue
		}
		if byResource[resource.GVR] == nil {
			order = append(order, resource.GVR)
			resources[resource.GVR] = *resource
		}
		byResource[resource.GVR] = append(byResource[resource.GVR], h)
	}
	for _, gvr := range order {
		k, err := newKind(d.Engine, resources[gvr], byResource[gvr])
		if err != nil {
			d.once("resource is not handled", "resource", resourceName(gvr), "error", err)
			continue
		}
		d.startKind(ctx, k)
	}
	return pending
}

func (d *director) startKind(ctx context.Context, k *kind) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kinds = append(d.kinds, k)
	if !k.resource.Namespaced || d.Namespaces.all() {
		d.follow(ctx, k, "")
		return
	}
	for name := range d.namespaces {
		d.follow(ctx, k, name)
	}
}

// follow starts the stream of a kind in a namespace. The caller holds the lock.
func (d *director) follow(ctx context.Context, k *kind, namespace string) {
	key := streamKey{k.resource.GVR, namespace}
	if _, is := d.following[key]; is {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	d.following[key] = following{kind: k, cancel: cancel, ended: ended}
	s := stream.New(stream.Options{
		Client: d.client, GVR: k.resource.GVR, GVK: k.resource.GVK, Namespace: namespace,
		OnEvent: k.handle,
		OnError: func(f stream.Failure) { d.failed(k, f) },
		Logger:  d.log,
	})
	d.streams.Go(func() {
		defer close(ended)
		s.Run(ctx)
	})
	d.streams.Go(func() {
		select {
		case <-ctx.Done():
		case <-s.Synced():
			k.mu.Lock()
			n := len(k.objects)
			k.mu.Unlock()
			k.log.Info("watching", "namespace", namespace, "objects", n)
		}
	})
}

// failed says what goes wrong in a stream. What passes by itself is for the debug
// level; what somebody has to mend is said once.
func (d *director) failed(k *kind, f stream.Failure) {
	switch f.Reason {
	case stream.Forbidden:
		ids := make([]string, 0, 1)
		for _, h := range append(slices.Clone(k.eventHandlers), k.changeHandlers...) {
			ids = append(ids, h.ID)
		}
		d.once("permission is missing, nothing of this resource is handled: grant the verb",
			"verb", f.Verb, "resource", resourceName(k.resource.GVR), "handlers", strings.Join(ids, ","), "error", f.Err)
	case stream.Unauthorized:
		d.once("credentials are not accepted", "verb", f.Verb, "resource", resourceName(k.resource.GVR), "error", f.Err)
	case stream.NotServed:
		d.once("resource is not served any more, its handlers wait until it is", "resource", resourceName(k.resource.GVR))
	case stream.Unreadable:
		k.log.Error("object is not readable and left out", "error", f.Error())
	default:
		k.log.Debug("stream was interrupted, it goes on", "reason", f.Reason, "verb", f.Verb, "error", f.Err)
	}
}

// once logs an error that would otherwise be repeated with every attempt.
func (d *director) once(message string, attrs ...any) {
	key := fmt.Sprint(append([]any{message}, attrs...)...)
	d.mu.Lock()
	known := d.said[key]
	d.said[key] = true
	d.mu.Unlock()
	if !known {
		d.log.Error(message, attrs...)
	}
}

// followNamespaces serves the namespaces that match, as they come and go. One that
// is being deleted is served until it is gone, for its objects may need us (B33).
func (d *director) followNamespaces(ctx context.Context) {
	s := stream.New(stream.Options{
		Client: d.client, GVR: corev1.SchemeGroupVersion.WithResource("namespaces"),
		GVK: corev1.SchemeGroupVersion.WithKind("Namespace"), Logger: d.log,
		OnEvent: func(event stream.Event) {
			name := event.Body.Name
			switch {
			case !d.Namespaces.match(name):
			case event.Type == stream.Deleted:
				d.abandon(name)
			default:
				d.serve(ctx, name)
			}
		},
		OnError: func(f stream.Failure) {
			if f.Reason == stream.Forbidden {
				d.once("permission is missing, patterns of namespaces match nothing: grant the verb, or give exact names",
					"verb", f.Verb, "resource", "namespaces", "error", f.Err)
			}
		},
	})
	d.streams.Go(func() { s.Run(ctx) })
}

func (d *director) serve(ctx context.Context, namespace string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.namespaces[namespace] {
		return
	}
	d.namespaces[namespace] = true
	for _, k := range d.kinds {
		if k.resource.Namespaced {
			d.follow(ctx, k, namespace)
		}
	}
}

// abandon stops to serve a namespace that is gone. So are its objects, though the end
// of the stream may have come before the news of it.
func (d *director) abandon(namespace string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.namespaces, namespace)
	for key, f := range d.following {
		if key.namespace != namespace {
			continue
		}
		f.cancel()
		delete(d.following, key)
		objects := f.kind.in(namespace) // not those of a namespace that is created anew meanwhile
		d.streams.Go(func() {
			<-f.ended
			for _, o := range objects {
				if f.kind.knows(o) { // else the stream has told of it before its end
					o.offer(stream.Event{Type: stream.Deleted, Missed: true, Body: o.identity()})
				}
			}
		})
	}
}
