package permissions

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/schemas"
)

// Offline finds the resources of handlers without a cluster.
type Offline struct {
	// ClusterScoped are custom resources whose objects are in no namespace, as
	// PLURAL.GROUP. Those of Kubernetes are known.
	ClusterScoped []string
	// StatusOf tells of a Go type whether its resource may have a status endpoint.
	StatusOf func(reflect.Type) bool
}

// errAsk is what to do about a resource that only a cluster knows.
var errAsk = errors.New("only a cluster knows which resources these are: name them with on.Resource, or look at a cluster")

// Resolve returns the resource that a handler is for. There is an error if that takes a
// cluster; a note says what was assumed.
func (o Offline) Resolve(h *registry.Handler) (r Resource, note string, err error) {
	s := h.Selector
	if s.By == registry.ByEverything {
		r = Resource{Group: all, Version: all, Plural: all, Namespaced: true, Status: true}
		if s.HasGroup {
			r.Group = s.Group
		}
		return r, "", nil
	}
	if !s.HasGroup || s.By == registry.ByShortName || s.By == registry.ByCategory || s.By == registry.ByFunc {
		return r, "", fmt.Errorf("%s at %s is for %s: %w", h.Name(), h.Source, s, errAsk)
	}
	if isBuiltIn(s.Group) {
		gv, b, known := named(s.Group, s.Version, s.Name, names(s.By))
		if !known {
			return r, "", fmt.Errorf("%s at %s is for %s, which Kubernetes does not have under this name: "+
				"give its plural name, or look at a cluster", h.Name(), h.Source, s)
		}
		if s.Version == "" {
			gv.Version = ""
		}
		return Resource{
			Group: gv.Group, Version: gv.Version, Plural: b.Plural, Kind: b.Kind,
			Namespaced: namespaced(gv.Group, b.Plural), Status: b.Status,
		}, "", nil
	}
	r, note = custom(s)
	r.Namespaced = namespaced(r.Group, r.Plural) && !slices.Contains(o.ClusterScoped, r.Plural+"."+r.Group)
	r.Status = o.StatusOf(h.Type)
	if note != "" {
		note = fmt.Sprintf("%s at %s: %s", h.Name(), h.Source, note)
	}
	return r, note, nil
}

// names are what a selector goes by.
func names(by registry.By) func(builtIn) []string {
	switch by {
	case registry.ByKind:
		return func(b builtIn) []string { return []string{b.Kind} }
	case registry.ByPlural:
		return func(b builtIn) []string { return []string{b.Plural} }
	case registry.BySingular:
		return func(b builtIn) []string { return []string{b.Singular} }
	}
	return func(b builtIn) []string { return []string{b.Plural, b.Singular, b.Kind} }
}

// custom is a resource that some CRD defines. Its plural name is what RBAC goes by; from a
// kind or a singular name it follows by the usual rules.
func custom(s registry.Selector) (r Resource, note string) {
	r = Resource{Group: s.Group, Version: s.Version, Plural: s.Name}
	kind := s.By == registry.ByKind || s.By == registry.ByName && unicode.IsUpper(rune(s.Name[0]))
	switch {
	case kind:
		r.Kind, r.Plural = s.Name, schemas.Plural(s.Name)
	case s.By == registry.BySingular:
		r.Plural = schemas.Plural(s.Name)
	case s.By == registry.ByName && !strings.HasSuffix(s.Name, "s"):
		note = fmt.Sprintf("%q is taken for the plural name of the resource; if it is not, give that to on.Resource", s.Name)
	}
	return r, note
}
