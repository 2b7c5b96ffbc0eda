package engine

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"github.com/kopf-go/kopf/internal/stream"
)

// findNamespaces serves the namespaces that match. listed is called when those that are there
// are known, or cannot be.
func (d *director) findNamespaces(ctx context.Context, listed func()) {
	for _, name := range d.Namespaces.exact() {
		d.serve(ctx, name)
	}
	switch {
	case !d.Namespaces.dynamic():
		listed()
	case d.settings.DiscoverOnce:
		listed()
		d.once(slog.LevelError, "scanning is disabled, patterns and the selector of namespaces match nothing: give exact names")
	default:
		d.followNamespaces(ctx, listed)
	}
}

// followNamespaces serves the namespaces that match, as they come and go, or are labelled
// otherwise. One that is being deleted is served until it is gone, for its objects may need
// us (B33). listed is called when those that are there are known, or cannot be.
func (d *director) followNamespaces(ctx context.Context, listed func()) {
	known := make(chan struct{}) // closed when those that are there are
	gvk := corev1.SchemeGroupVersion.WithKind("Namespace")
	s := stream.New(stream.Options{
		Client: d.client.MetadataOnly(gvk), GVR: corev1.SchemeGroupVersion.WithResource("namespaces"),
		GVK: gvk, Logger: d.log, Silence: d.settings.InactivityTimeout,
		OnEvent: func(event stream.Event) {
			name := event.Body.Name
			switch {
			case event.Type == stream.Deleted:
				d.abandon(name)
			case d.Namespaces.Match(name, event.Body.Labels):
				d.serve(ctx, name)
			default:
				d.dismiss(ctx, name)
			}
		},
		OnError: func(f stream.Failure) {
			if f.Reason == stream.Forbidden && (closed(known) || f.Verb == "list") { // else it will be listed yet
				listed()
				d.sayForbidden(f, closed(known))
			}
		},
	})
	d.streams.Go(func() { s.Run(ctx) })
	d.streams.Go(func() {
		select {
		case <-ctx.Done():
		case <-s.Synced():
			close(known)
			d.unsay(namespacesForbidden{})
			listed()
		}
	})
}

// namespacesForbidden is what sayForbidden is about.
type namespacesForbidden struct{}

// sayForbidden says once what does not work without the permission to look at namespaces (NS-6).
// Both verbs are tried again and again, whichever is missing.
func (d *director) sayForbidden(f stream.Failure, known bool) {
	message := "permission is missing, patterns of namespaces match nothing: grant list and watch, or give exact names"
	switch {
	case known:
		message = "permission is missing, namespaces that come, go or change are not noticed: grant list and watch"
	case d.Namespaces.selector != nil:
		message = "permission is missing, the selector of namespaces matches nothing: grant list and watch, or give exact names instead"
	}
	d.say(namespacesForbidden{}, slog.LevelError, message, "resource", "namespaces", "error", f.Err)
}

// serve begins to serve a namespace. Objects that are there are dealt with as at the start
// (B50).
func (d *director) serve(ctx context.Context, namespace string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.namespaces[namespace] {
		return
	}
	d.namespaces[namespace] = true
	d.spaces.are(d.namespaces)
	delete(d.departing, namespace)
	for _, k := range d.kinds {
		if k.resource.Namespaced {
			d.follow(ctx, k, namespace, true)
		}
	}
}

// dismiss stops to serve a namespace that does not match any more: its objects are released,
// then its streams end.
func (d *director) dismiss(ctx context.Context, namespace string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.namespaces[namespace] {
		return
	}
	d.log.Info("namespace is not for this operator any more, its objects are released", "namespace", namespace)
	delete(d.namespaces, namespace)
	d.spaces.are(d.namespaces)
	for key, f := range d.following {
		if key.namespace == namespace {
			d.departing[namespace] = true
			d.follow(ctx, f.kind, namespace, false)
			d.ready.settle(key)
		}
	}
}

// abandon stops to serve a namespace that is gone. So are its objects, though the end
// of the stream may have come before the news of it.
func (d *director) abandon(namespace string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.namespaces, namespace)
	d.spaces.are(d.namespaces)
	delete(d.departing, namespace)
	for key, f := range d.following {
		if key.namespace != namespace {
			continue
		}
		f.cancel()
		delete(d.following, key)
		d.ready.settle(key)
		objects := f.kind.in(namespace) // not those of a namespace that is created anew meanwhile
		d.streams.Go(func() {
			<-f.ended
			f.kind.bury(objects)
		})
	}
}

// depart is when all objects of a kind in a namespace are released. It tells whether that
// was it, or the namespace is served again.
func (d *director) depart(f *following) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.wanted {
		return false
	}
	f.kind.forgetAll(f)
	if d.following[f.key] == f {
		delete(d.following, f.key)
	}
	for key := range d.following {
		if key.namespace == f.key.namespace {
			return true
		}
	}
	if d.departing[f.key.namespace] {
		delete(d.departing, f.key.namespace)
		d.log.Info("objects are released", "namespace", f.key.namespace)
	}
	return true
}
