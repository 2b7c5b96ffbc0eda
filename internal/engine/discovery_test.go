package engine

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/internal/registry"
)

// catalogue is what an API server serves, by group and version.
type catalogue map[string][]metav1.APIResource

func (c catalogue) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	list, ok := c[groupVersion]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, groupVersion)
	}
	return &metav1.APIResourceList{GroupVersion: groupVersion, APIResources: list}, nil
}

type unreachable struct{ err error }

func (u unreachable) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	return nil, u.err
}

func named1(groupVersion, name string) registry.Selector {
	gv, _ := schema.ParseGroupVersion(groupVersion)
	return registry.Selector{GroupVersion: gv, Name: name}
}

var served = catalogue{
	"v1": {
		{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true, ShortNames: []string{"po"}},
		{Name: "pods/status", Kind: "Pod", Namespaced: true},
		{Name: "pods/eviction", Kind: "Eviction", Namespaced: true},
		{Name: "nodes", SingularName: "node", Kind: "Node", ShortNames: []string{"no"}},
	},
	"example.com/v1": {
		{Name: "boxes", SingularName: "", Kind: "Box", Namespaced: true, Categories: []string{"all"}},
		{Name: "widgets", SingularName: "widget", Kind: "Widget", ShortNames: []string{"w", "things"}, Namespaced: true},
		{Name: "wares", SingularName: "ware", Kind: "Ware", ShortNames: []string{"w", "things"}},
		{Name: "wares/status", Kind: "Ware"},
		{Name: "things", SingularName: "thing", Kind: "Thing"},
		{Name: "mirrors", SingularName: "mirror", Kind: "Thing"},
	},
}

// SEL, T029, T040: by plural, singular, short name and kind.
func TestFind(t *testing.T) {
	for _, c := range []struct {
		groupVersion, name string
		plural             string // of what is found; empty: nothing
		kind               string
		namespaced, status bool
	}{
		{"v1", "pods", "pods", "Pod", true, true},
		{"v1", "pod", "pods", "Pod", true, true},
		{"v1", "po", "pods", "Pod", true, true},
		{"v1", "Pod", "pods", "Pod", true, true},
		{"v1", "nodes", "nodes", "Node", false, false},
		{"v1", "Eviction", "", "", false, false},    // a subresource
		{"v1", "pods/status", "", "", false, false}, // so is this
		{"v1", "POD", "", "", false, false},
		{"v1", "secrets", "", "", false, false},
		{"v2", "pods", "", "", false, false},
		{"none.example.com/v1", "pods", "", "", false, false},
		{"example.com/v1", "box", "boxes", "Box", true, false}, // T040: no singular
		{"example.com/v1", "Box", "boxes", "Box", true, false},
		{"example.com/v1", "all", "", "", false, false}, // T029: a category
		{"example.com/v1", "ware", "wares", "Ware", false, true},
		{"example.com/v1", "things", "things", "Thing", false, false}, // the plural, though others are called so, too
		{"example.com/v1", "thing", "things", "Thing", false, false},
	} {
		selector := named1(c.groupVersion, c.name)
		r, err := find(served, selector)
		if err != nil {
			t.Errorf("%s: %v", selector, err)
			continue
		}
		if c.plural == "" || r == nil {
			if r != nil || c.plural != "" {
				t.Errorf("%s: found %+v", selector, r)
			}
			continue
		}
		want := Resource{
			GVR:        selector.GroupVersion.WithResource(c.plural),
			GVK:        selector.GroupVersion.WithKind(c.kind),
			Namespaced: c.namespaced, Status: c.status,
		}
		if *r != want {
			t.Errorf("%s: found %+v, want %+v", selector, *r, want)
		}
	}
}

// An ambiguous selector is an error that names the candidates.
func TestFindAmbiguous(t *testing.T) {
	for name, candidates := range map[string]string{"w": "widgets and wares", "Thing": "things and mirrors"} {
		r, err := find(served, named1("example.com/v1", name))
		want := name + ".v1.example.com is ambiguous: it names " + candidates + "; use the plural"
		if r != nil || err == nil || err.Error() != want {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// T040: statuses other than 404 escalate.
func TestFindErrors(t *testing.T) {
	for _, cause := range []error{
		errors.New("connection refused"),
		apierrors.NewForbidden(schema.GroupResource{}, "", nil),
		apierrors.NewServiceUnavailable("aggregated API"),
		apierrors.NewGenericServerResponse(http.StatusInternalServerError, "get", schema.GroupResource{}, "", "", 0, true),
	} {
		r, err := find(unreachable{cause}, named1("example.com/v1", "widgets"))
		if r != nil || !errors.Is(err, cause) || !strings.HasPrefix(err.Error(), "cannot find out which resources example.com/v1 has: ") {
			t.Errorf("%+v, %v", r, err)
		}
	}
	gone := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "", 0, true)
	if r, err := find(unreachable{gone}, named1("example.com/v1", "widgets")); r != nil || err != nil {
		t.Errorf("404: %+v, %v", r, err)
	}
}

func TestKindSelector(t *testing.T) {
	s := KindSelector(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	if s.String() != "Deployment.v1.apps" {
		t.Error(s)
	}
}
