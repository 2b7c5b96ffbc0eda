package on_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/on"
)

func anything(context.Context, *kopf.Event[*unstructured.Unstructured]) error { return nil }

// T027: what Kopf says by position is said by options with names here.
func TestSelectors_T027_SEL1(t *testing.T) {
	for name, c := range map[string]struct {
		options []on.EventOption
		want    registry.Selector
	}{
		"SEL-1 kind":       {[]on.EventOption{on.Kind("Pod")}, registry.Selector{By: registry.ByKind, Name: "Pod"}},
		"SEL-1 plural":     {[]on.EventOption{on.Plural("pods")}, registry.Selector{By: registry.ByPlural, Name: "pods"}},
		"SEL-1 singular":   {[]on.EventOption{on.Singular("pod")}, registry.Selector{By: registry.BySingular, Name: "pod"}},
		"SEL-1 short name": {[]on.EventOption{on.ShortName("po")}, registry.Selector{By: registry.ByShortName, Name: "po"}},
		"SEL-1 category":   {[]on.EventOption{on.Category("all")}, registry.Selector{By: registry.ByCategory, Name: "all"}},
		"SEL-3 everything": {[]on.EventOption{on.Everything()}, registry.Selector{By: registry.ByEverything}},
		"SEL-2 group and version narrow, in any order": {
			[]on.EventOption{on.Version("v1"), on.Plural("pods"), on.Group("metrics.k8s.io")},
			registry.Selector{By: registry.ByPlural, Name: "pods", Group: "metrics.k8s.io", HasGroup: true, Version: "v1"},
		},
		"SEL-2 the core group": {[]on.EventOption{on.Everything(), on.Group("")}, registry.Selector{By: registry.ByEverything, HasGroup: true}},
		"SEL-2 exact":          {[]on.EventOption{on.Resource("apps/v1", "deploy")}, registry.Selector{By: registry.ByName, Name: "deploy", Group: "apps", HasGroup: true, Version: "v1"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := only(t, func(in on.AnyOption) { on.Event(anything, append(c.options, in)...) })
			if h.Selector != c.want {
				t.Errorf("got %+v", h.Selector)
			}
		})
	}
}

// The function gets all that discovery knows of a resource.
func TestResourceFunc_SEL11(t *testing.T) {
	var got on.APIResource
	h := only(t, func(in on.AnyOption) {
		on.Event(anything, on.ResourceFunc(func(r on.APIResource) bool { got = r; return r.Namespaced }), in)
	})
	r := registry.APIResource{
		Group: "apps", Version: "v1", Kind: "Deployment", Plural: "deployments", Singular: "deployment",
		ShortNames: []string{"deploy"}, Categories: []string{"all"}, Subresources: []string{"scale", "status"},
		Namespaced: true, Preferred: true, Verbs: []string{"list", "watch"},
	}
	if h.Selector.By != registry.ByFunc || !h.Selector.Matches(r) || !reflect.DeepEqual(registry.APIResource(got), r) {
		t.Errorf("%+v, %+v", h.Selector, got)
	}
	r.Namespaced = false
	if h.Selector.Matches(r) {
		t.Error("the function said no")
	}
}

// An option that is used for several handlers is one selector; the ids may not clash.
func TestOptionIsOneSelector(t *testing.T) {
	reg := kopf.NewRegistry()
	namespaced := on.ResourceFunc(func(r on.APIResource) bool { return r.Namespaced })
	on.Event(anything, on.ID("a"), namespaced, on.In(reg))
	on.Event(anything, on.ID("b"), namespaced, on.In(reg))
	if all := reg.Handlers(); all[0].Selector != all[1].Selector || reg.Err() != nil {
		t.Error(all[0].Selector, all[1].Selector, reg.Err())
	}
	on.Event(anything, on.ID("b"), namespaced, on.In(reg))
	if err := reg.Err(); err == nil || !strings.Contains(err.Error(), "its id is taken") {
		t.Error(err)
	}
}

func TestSelectorMistakes_T028_SEL4(t *testing.T) {
	type options = []on.EventOption
	for name, c := range map[string]struct {
		options options
		mistake string
	}{
		"two names":               {options{on.Kind("Pod"), on.Plural("pods")}, "on.Plural does not go with on.Kind: name the resource in one way"},
		"name and category":       {options{on.Category("all"), on.ShortName("po")}, "on.ShortName does not go with on.Category"},
		"name and everything":     {options{on.Everything(), on.Kind("Pod")}, "on.Kind does not go with on.Everything"},
		"name and function":       {options{on.Singular("pod"), on.ResourceFunc(func(on.APIResource) bool { return true })}, "on.ResourceFunc does not go with on.Singular"},
		"name and resource":       {options{on.Resource("v1", "pods"), on.Kind("Pod")}, "on.Kind does not go with on.Resource"},
		"twice":                   {options{on.Kind("Pod"), on.Kind("Node")}, "on.Kind is given twice"},
		"two groups":              {options{on.Kind("Pod"), on.Group("a"), on.Group("b")}, "on.Group is given twice"},
		"two versions":            {options{on.Kind("Pod"), on.Version("v1"), on.Version("v2")}, "on.Version is given twice"},
		"empty kind":              {options{on.Kind("")}, "on.Kind is empty"},
		"empty plural":            {options{on.Plural("")}, "on.Plural is empty"},
		"empty singular":          {options{on.Singular("")}, "on.Singular is empty"},
		"empty short name":        {options{on.ShortName("")}, "on.ShortName is empty"},
		"empty category":          {options{on.Category("")}, "on.Category is empty"},
		"empty version":           {options{on.Kind("Pod"), on.Version("")}, "on.Version is empty"},
		"empty kind in a group":   {options{on.Kind(""), on.Group("apps")}, "on.Kind is empty"},
		"no function":             {options{on.ResourceFunc(nil)}, "on.ResourceFunc got no function"},
		"group alone":             {options{on.Group("apps")}, "on.Group does not name a resource: add on.Kind"},
		"version alone":           {options{on.Version("v1")}, "on.Version does not name a resource: add on.Kind"},
		"group with resource":     {options{on.Resource("v1", "pods"), on.Group("apps")}, "on.Group does not go with on.Resource"},
		"version with resource":   {options{on.Version("v1"), on.Resource("v1", "pods")}, "on.Version does not go with on.Resource"},
		"group with bad resource": {options{on.Resource("", "pods"), on.Group("apps")}, `on.Resource("", "pods") needs a group and version`},
	} {
		t.Run("SEL-4 "+name, func(t *testing.T) {
			reg := kopf.NewRegistry()
			on.Event(anything, append(c.options, on.In(reg))...)
			err := reg.Err()
			if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), c.mistake) {
				t.Errorf("got %v", err)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "on/selectors_test.go:") {
				t.Errorf("no place: %v", err)
			}
		})
	}
}
