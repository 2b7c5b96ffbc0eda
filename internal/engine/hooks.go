package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/metrics"
	"github.com/kopf-go/kopf/internal/registry"
)

// Hook is a handler for requests, with the resources that it is for.
type Hook struct {
	Handler   *registry.Handler
	Resources []Resource
}

func (h Hook) equal(other Hook) bool {
	return h.Handler == other.Handler && slices.Equal(h.Resources, other.Resources)
}

func resourcesOf(served []registry.APIResource) []Resource {
	resources := make([]Resource, len(served))
	for i, r := range served {
		resources[i] = resourceOf(r)
	}
	return resources
}

// announceHooks tells of hooks that are for other resources than before.
func (d *director) announceHooks(hooks []Hook) {
	if d.OnHooks == nil || slices.EqualFunc(hooks, d.hooks, Hook.equal) {
		return
	}
	d.hooks = hooks
	d.countHooks(hooks)
	d.OnHooks(slices.Clone(hooks))
	d.hooked.Store(true)
}

// CountReview counts what an admission handler has said of a request.
func (e *Engine) CountReview(h *registry.Handler, resource schema.GroupVersionResource, outcome string, took time.Duration) {
	d := e.director.Load()
	if d == nil {
		return
	}
	d.mu.Lock()
	meter := d.counted[resourceName(resource)]
	d.mu.Unlock()
	if meter != nil {
		meter.Attempt(h.ID, outcome, false)
		meter.Review(h.ID, took)
	}
}

// countHooks begins and ends to count for resources that handlers for requests are for.
func (d *director) countHooks(hooks []Hook) {
	d.mu.Lock()
	defer d.mu.Unlock()
	wanted := map[string]bool{}
	for _, hook := range hooks {
		for _, r := range hook.Resources {
			name := resourceName(r.GVR)
			wanted[name] = true
			if d.counted[name] == nil {
				d.counted[name] = metrics.Follow(name)
			}
		}
	}
	for name, meter := range d.counted {
		if !wanted[name] {
			meter.Release()
			delete(d.counted, name)
		}
	}
}

// IsReady tells whether handlers may be called: it is known which resources those for
// requests are for, if there are any, and indices are complete.
func (e *Engine) IsReady() bool {
	if e.OnHooks != nil && !e.hooked.Load() {
		return false
	}
	return e.indexed()
}

func (e *Engine) indexed() bool {
	select {
	case <-e.ready.opened:
		return true
	default:
		return false
	}
}

// Ready waits until handlers may be called, for indices are complete.
func (e *Engine) Ready(ctx context.Context) error {
	if e.indexed() {
		return nil
	}
	select {
	case <-e.ready.opened:
		return nil
	case <-ctx.Done():
		return errors.New("indices are not complete yet")
	}
}

// MemosOf are the memos of an object of a resource, if it is followed; else such that
// nobody else will see.
func (e *Engine) MemosOf(resource schema.GroupResource, uid types.UID) *registry.Memos {
	var kinds []*kind
	if d := e.director.Load(); d != nil {
		d.mu.Lock()
		kinds = slices.Clone(d.kinds)
		d.mu.Unlock()
	}
	for _, k := range kinds {
		if k.resource.GVR.GroupResource() != resource {
			continue
		}
		k.mu.Lock()
		o := k.objects[uid]
		k.mu.Unlock()
		if o != nil {
			return o.Memos()
		}
	}
	return e.MemosOfNone()
}

// MemosOfNone are for an object that is only being created: nobody else will see them (ADM-6).
func (e *Engine) MemosOfNone() *registry.Memos { return &registry.Memos{Operator: e.Memos} }

// Kept looks once at what the API serves, and returns the resources on whose objects the
// handlers leave something: state, or a finalizer. It is for an engine that does not run.
func (e *Engine) Kept(ctx context.Context) ([]Resource, error) {
	assignments, err := e.resolveOnce(ctx)
	var kept []Resource
	for _, a := range assignments {
		if slices.ContainsFunc(a.handlers, func(h *registry.Handler) bool { return h.Keeps() || h.Finalize }) {
			kept = append(kept, a.resource)
		}
	}
	return kept, err
}

// Spaces looks once at which namespaces are served now; none stands for everywhere. It is for
// an engine that does not run.
func (e *Engine) Spaces(ctx context.Context) (names []string, err error) {
	if e.Namespaces.All() {
		return nil, nil
	}
	names = e.Namespaces.exact()
	if e.Namespaces.dynamic() {
		client := e.client.MetadataOnly(corev1.SchemeGroupVersion.WithKind("Namespace"))
		err = client.List(ctx, corev1.SchemeGroupVersion.WithResource("namespaces"), "", e.settings.RequestTimeout, func(b *body.Body, _ error) error {
			if e.Namespaces.Match(b.Name, b.Labels) && !slices.Contains(names, b.Name) {
				names = append(names, b.Name)
			}
			return nil
		})
	}
	if err == nil && len(names) == 0 {
		err = errors.New("no namespace matches")
	}
	return names, err
}

func (e *Engine) resolveOnce(ctx context.Context) ([]*assignment, error) {
	d := newDirector(e)
	d.readEverything(ctx)
	if err := errors.Join(ctx.Err(), d.unread); err != nil {
		return nil, err
	}
	assignments, _, _ := d.assign(d.served())
	return assignments, nil
}
