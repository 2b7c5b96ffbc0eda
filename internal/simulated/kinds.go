package simulated

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Serve adds a kind, or replaces its description and keeps the objects. A kind whose
// group has a dot and is not Kubernetes' own has a CustomResourceDefinition, which
// comes, changes and goes with it.
func (s *Server) Serve(k Kind) *Collection {
	if k.Singular == "" {
		k.Singular = strings.ToLower(k.Kind)
	}
	if k.Verbs == nil {
		k.Verbs = []string{"create", "delete", "get", "list", "patch", "update", "watch"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := k.GroupVersion + "/" + k.Plural
	c := s.collections[key]
	if c == nil {
		c = &Collection{server: s, kind: k, objects: map[name]*version{}}
		s.collections[key] = c
		s.order = append(s.order, c)
	}
	c.kind = k
	s.define(k.resource())
	return c
}

// Withdraw ends a kind with all its objects: when it returns they are gone, whatever
// their finalizers, and so is the CustomResourceDefinition if this was its last version.
func (s *Server) Withdraw(groupVersion, plural string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := groupVersion + "/" + plural
	c := s.collections[key]
	for _, v := range c.sorted("") {
		o := v.peek()
		c.remove(name{o.GetNamespace(), o.GetName()})
	}
	c.withdrawn = true
	delete(s.collections, key)
	for i, other := range s.order {
		if other == c {
			s.order = append(s.order[:i:i], s.order[i+1:]...)
			break
		}
	}
	s.define(c.kind.resource())
	s.look()
}

// define makes the CustomResourceDefinition of a resource what it has to be. The
// caller holds the lock.
func (s *Server) define(resource schema.GroupResource) {
	if !strings.Contains(resource.Group, ".") || strings.HasSuffix(resource.Group, ".k8s.io") {
		return
	}
	spec := map[string]any{"group": resource.Group}
	var versions []any
	for _, c := range s.order {
		if k := &c.kind; k.resource() == resource {
			spec["names"] = map[string]any{"plural": k.Plural, "kind": k.Kind, "categories": k.Categories, "shortNames": k.ShortNames}
			versions = append(versions, map[string]any{"name": k.gvk().Version})
		}
	}
	spec["versions"] = versions
	crds, at := s.collections["apiextensions.k8s.io/v1/customresourcedefinitions"], name{"", resource.String()}
	switch {
	case versions == nil:
		crds.remove(at)
	case crds.objects[at] == nil:
		if _, err := crds.create(Object("", at.name, map[string]any{"spec": spec})); err != nil {
			panic(err) // a mistake in a test
		}
	default:
		if _, err := crds.update(at, false, func(o *unstructured.Unstructured) error {
			o.Object["spec"] = normal(map[string]any{"spec": spec})["spec"]
			return nil
		}); err != nil {
			panic(err)
		}
	}
}

// Prefer makes a version the preferred one of its group, which is the one that was
// served first otherwise.
func (s *Server) Prefer(groupVersion string) {
	gv, _ := schema.ParseGroupVersion(groupVersion)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.preferred[gv.Group] = gv.Version
}

// Break makes a group and version that of an aggregated API that does not answer:
// requests get 503, and aggregated discovery calls it stale. mend ends it.
func (s *Server) Break(groupVersion string) (mend func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[groupVersion] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.broken, groupVersion)
	}
}
