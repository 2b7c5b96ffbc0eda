package registry

import (
	"slices"
	"strings"
)

// APIResource is a resource as discovery describes it (SEL-11). Package on has the
// same struct for users, with the same fields in the same order.
type APIResource struct {
	Group        string
	Version      string
	Kind         string
	Plural       string
	Singular     string
	ShortNames   []string
	Categories   []string
	Subresources []string
	Namespaced   bool
	Preferred    bool
	Verbs        []string
}

// String returns the resource as kubectl would take it, such as deployments.v1.apps.
func (r APIResource) String() string { return dotted(r.Plural, r.Version, r.Group) }

// event tells whether the resource is one that handling itself makes objects of.
// Any version of events.k8s.io counts, not only the preferred one as in Kopf (SEL-7).
func (r APIResource) event() bool {
	return r.Plural == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}

// By says what a selector goes by.
type By int

// What selectors go by. ByType is the zero value: by the Go type of the handler,
// whose resource the scheme knows.
const (
	ByType By = iota
	ByName    // any of plural, singular, short name and kind
	ByKind
	ByPlural
	BySingular
	ByShortName
	ByCategory
	ByEverything
	ByFunc
)

// Predicate is a function that selects resources. Selectors hold a pointer to one, so
// that they can be compared: two are the same only if they come from the same option.
type Predicate struct{ Match func(APIResource) bool }

// Selector says which resources of the API a handler is for. It is comparable.
type Selector struct {
	By   By
	Name string // of the kind, the category, …; empty if By needs none

	Group    string // the core group is empty, too
	HasGroup bool   // else any group
	Version  string // empty: the preferred one

	Predicate *Predicate // with ByFunc
}

// Empty tells whether the selector leaves the choice to the scheme.
func (s Selector) Empty() bool { return s.By == ByType }

// Specific tells whether the selector names one resource, so that two of them are
// a mistake (SEL-8).
func (s Selector) Specific() bool {
	return s.By != ByCategory && s.By != ByEverything && s.By != ByFunc
}

// String returns the selector for logs: as kubectl would take it if it is a name, such
// as databases.v1.example.com.
func (s Selector) String() string {
	name := s.Name
	switch s.By {
	case ByCategory:
		name = "category " + s.Name
	case ByEverything:
		name = "everything"
	case ByFunc:
		name = "function"
	}
	return dotted(name, s.Version, s.Group)
}

func dotted(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ".")
}

// Matches tells whether the selector fits a resource, looked at alone (SEL-6, SEL-7).
func (s Selector) Matches(r APIResource) bool {
	switch {
	case s.HasGroup && s.Group != r.Group:
		return false
	case s.Version != "" && s.Version != r.Version:
		return false
	case s.Version == "" && !r.Preferred && s.By != ByFunc:
		return false
	case !s.Specific() && r.event():
		return false
	}
	switch s.By {
	case ByName:
		return s.Name == r.Plural || s.Name == r.Singular || s.Name == r.Kind || slices.Contains(r.ShortNames, s.Name)
	case ByKind:
		return s.Name == r.Kind
	case ByPlural:
		return s.Name == r.Plural
	case BySingular:
		return s.Name == r.Singular
	case ByShortName:
		return slices.Contains(r.ShortNames, s.Name)
	case ByCategory:
		return slices.Contains(r.Categories, s.Name)
	case ByEverything:
		return true
	case ByFunc:
		return s.Predicate.Match(r)
	}
	return false
}

// Select returns those of all served resources that the selector is for, in their
// order. A name is taken for one of the core group if there is one (SEL-9), and
// for a plural, which is unique in its group and version, before anything else. More
// than one left of a specific selector are an ambiguity, for the caller to report.
func (s Selector) Select(served []APIResource) []APIResource {
	var found []APIResource
	for _, r := range served {
		if s.Matches(r) {
			found = append(found, r)
		}
	}
	if !s.Specific() {
		return found
	}
	found = prefer(found, func(r APIResource) bool { return r.Group == "" })
	if s.By == ByName {
		found = prefer(found, func(r APIResource) bool { return r.Plural == s.Name })
	}
	return found
}

// prefer keeps those that are better, if there are any.
func prefer(resources []APIResource, better func(APIResource) bool) []APIResource {
	var kept []APIResource
	for _, r := range resources {
		if better(r) {
			kept = append(kept, r)
		}
	}
	if len(kept) == 0 {
		return resources
	}
	return kept
}
