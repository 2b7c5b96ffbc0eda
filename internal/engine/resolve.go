package engine

import (
	"fmt"
	"log/slog"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
)

// assignment is a resource with the handlers for it, in order of registration.
type assignment struct {
	resource Resource
	handlers []*registry.Handler
}

// assign finds the resources of each handler among what is served. Watching and
// calling handlers both go by it, so that a handler is never called for a resource
// that its own selector was not resolved to (SEL-10). What is wrong with one
// registration disables that one and no other (OBS-4).
// Handlers for requests follow nothing: they are hooks.
func (d *director) assign(served []registry.APIResource) (all []*assignment, hooks []Hook, unresolved int) {
	byResource := map[schema.GroupVersionResource]*assignment{}
	for _, h := range d.Handlers {
		found := d.resolve(h, served)
		if len(found) == 0 && h.Selector.Specific() {
			unresolved++
		}
		if h.Admission() {
			hooks = append(hooks, Hook{Handler: h, Resources: resourcesOf(found)})
			continue
		}
		for _, r := range found {
			resource := resourceOf(r)
			a := byResource[resource.GVR]
			if a == nil {
				a = &assignment{resource: resource}
				byResource[resource.GVR] = a
				all = append(all, a)
			}
			if d.compatible(h, a) {
				a.handlers = append(a.handlers, h)
			}
		}
	}
	return all, hooks, unresolved
}

// resolve returns the resources that a handler can be served on, and says what stands
// against others.
func (d *director) resolve(h *registry.Handler, served []registry.APIResource) []registry.APIResource {
	who := []any{"resource", h.Selector.String(), "handler", h.ID, "source", h.Source}
	found, err := selected(h, served)
	if err != nil {
		d.say(h, slog.LevelError, "resources cannot be selected, the handler is called for no further ones", append(who, "error", err)...)
		return slices.DeleteFunc(slices.Clone(served), func(r registry.APIResource) bool { return !d.serves(h, resourceOf(r).GVR) })
	}
	found = d.faithful(h, found, served)
	switch {
	case len(found) == 0:
		d.unserved(h, who)
		return nil
	case h.Selector.Specific() && len(found) > 1:
		d.say(h, slog.LevelError, "resource is ambiguous, its handler is not called: narrow it with on.Group or on.Version, or use on.Resource",
			append(who, "candidates", names(found))...)
		// Somebody else's new resource does not stop what has been running well.
		return slices.DeleteFunc(found, func(r registry.APIResource) bool { return !d.serves(h, resourceOf(r).GVR) })
	}
	d.unsay(h)
	if h.Admission() {
		return found
	}
	return d.able(h, found, who)
}

// selected is what the selector says, which may be a function of the user's.
func selected(h *registry.Handler, served []registry.APIResource) (found []registry.APIResource, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in the function of on.ResourceFunc: %v\n%s", p, debug.Stack())
		}
	}()
	return h.Selector.Select(served), nil
}

// unserved says that a handler has no resource, and why.
func (d *director) unserved(h *registry.Handler, who []any) {
	if slices.ContainsFunc(d.kinds, func(k *kind) bool { return slices.Contains(k.handlers, h) }) {
		return // it may be for a moment only; see reconsider
	}
	level := slog.LevelError
	if !h.Selector.Specific() {
		level = slog.LevelWarn
	}
	message := "resource is not served by the cluster, its handlers wait until it is"
	if h.Kind == registry.Index {
		message = "resource is not served by the cluster, its index stays empty until it is"
	}
	for gv, err := range d.catalogue.failures() {
		if h.Selector.HasGroup && h.Selector.Group == gv.Group {
			d.say(h, level, "resource is not found, its handlers wait", append(who, "error", err)...)
			return
		}
	}
	d.say(h, level, message, who...)
}

// faithful keeps a handler without a version of its own with the version that it has
// been following, as long as that is served: the objects are the same in all of them,
// and to go over to another one would be to begin anew.
func (d *director) faithful(h *registry.Handler, found, served []registry.APIResource) []registry.APIResource {
	if h.Selector.Version != "" || h.Selector.By == registry.ByFunc {
		return found
	}
	for i, r := range found {
		if d.serves(h, resourceOf(r).GVR) {
			continue
		}
		for _, other := range served {
			if other.Group == r.Group && other.Plural == r.Plural && d.serves(h, resourceOf(other).GVR) {
				found[i] = other
			}
		}
	}
	return found
}

// able leaves out resources that cannot be followed, and for handlers that keep
// state on objects those that cannot be patched (T036).
func (d *director) able(h *registry.Handler, found []registry.APIResource, who []any) []registry.APIResource {
	var able, blind, fixed []registry.APIResource
	for _, r := range found {
		switch {
		case !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch"):
			blind = append(blind, r)
		case (h.Keeps() || h.Finalize) && !slices.Contains(r.Verbs, "patch"):
			fixed = append(fixed, r)
		default:
			able = append(able, r)
		}
	}
	d.leaveOut(h, "resources cannot be listed and watched, and are left out", blind, who)
	d.leaveOut(h, "resources cannot be patched, and are left out for a handler that keeps its state on objects", fixed, who)
	return able
}

func (d *director) leaveOut(h *registry.Handler, why string, resources []registry.APIResource, who []any) {
	type about struct {
		*registry.Handler
		why string
	}
	if len(resources) == 0 {
		d.unsay(about{h, why})
		return
	}
	d.say(about{h, why}, slog.LevelWarn, why, append(who, "left out", names(resources))...)
}

func names(resources []registry.APIResource) string {
	var all []string
	for _, r := range resources {
		all = append(all, r.String())
	}
	return strings.Join(all, ", ")
}

// compatible tells whether a handler can be called beside those that were registered
// before it: on one resource, ids say whose progress is whose, though the selectors
// did not show that it is one.
func (d *director) compatible(h *registry.Handler, a *assignment) bool {
	if h.Kind == registry.Event || h.Kind == registry.Index {
		return true
	}
	for _, other := range a.handlers {
		if h.Clashes(other) || other.Kind == h.Kind && other.ID != h.ID && state.SameNames(other.ID, h.ID) {
			d.once(slog.LevelError, "handler is left out of a resource where its id is taken: name one of them otherwise with on.ID",
				"handler", h.ID, "source", h.Source, "resource", resourceName(a.resource.GVR), "taken at", other.Source)
			return false
		}
	}
	return true
}

// serves tells whether a handler is served on a resource now.
func (d *director) serves(h *registry.Handler, gvr schema.GroupVersionResource) bool {
	for _, k := range d.kinds {
		if k.resource.GVR == gvr {
			return slices.Contains(k.handlers, h)
		}
	}
	return false
}

// metadataOnly tells whether all that handlers want to see of objects is their
// metadata.
func metadataOnly(handlers []*registry.Handler) bool {
	return !slices.ContainsFunc(handlers, func(h *registry.Handler) bool {
		return h.Type != reflect.TypeFor[*metav1.PartialObjectMetadata]()
	})
}
