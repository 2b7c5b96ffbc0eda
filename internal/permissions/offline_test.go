package permissions

import (
	"reflect"
	"strings"
	"testing"

	"github.com/kopf-go/kopf/internal/registry"
)

func TestOffline(t *testing.T) {
	offline := Offline{ClusterScoped: []string{"tenants.example.com"}, StatusOf: func(t reflect.Type) bool { return t == nil }}
	in := func(by registry.By, name, group, version string) registry.Selector {
		return registry.Selector{By: by, Name: name, Group: group, HasGroup: true, Version: version}
	}
	deployments := Resource{Group: "apps", Version: "v1", Plural: "deployments", Kind: "Deployment", Namespaced: true, Status: true}
	for _, tc := range []struct {
		selector registry.Selector
		want     Resource
		says     string // of a note, or an error
	}{
		{in(registry.ByKind, "Deployment", "apps", "v1"), deployments, ""},
		{in(registry.ByName, "deployments", "apps", "v1"), deployments, ""},
		{in(registry.ByName, "deployment", "apps", "v1"), deployments, ""},
		{in(registry.ByName, "Deployment", "apps", "v1"), deployments, ""},
		{in(registry.BySingular, "endpoints", "", "v1"), Resource{Version: "v1", Plural: "endpoints", Kind: "Endpoints", Namespaced: true}, ""},
		{in(registry.ByPlural, "nodes", "", ""), Resource{Plural: "nodes", Kind: "Node", Status: true}, ""},
		{in(registry.ByPlural, "customresourcedefinitions", "apiextensions.k8s.io", "v1"), Resource{Group: "apiextensions.k8s.io", Version: "v1", Plural: "customresourcedefinitions", Status: true}, ""},
		{in(registry.ByName, "deploy", "apps", "v1"), Resource{}, "give its plural name, or look at a cluster"},
		{in(registry.ByPlural, "deployment", "apps", "v1"), Resource{}, "which Kubernetes does not have under this name"},
		{in(registry.ByName, "databases", "example.com", "v1"), Resource{Group: "example.com", Version: "v1", Plural: "databases", Namespaced: true, Status: true}, ""},
		{in(registry.ByName, "tenants", "example.com", "v1"), Resource{Group: "example.com", Version: "v1", Plural: "tenants", Status: true}, ""},
		{in(registry.ByName, "Policy", "example.com", "v1"), Resource{Group: "example.com", Version: "v1", Plural: "policies", Kind: "Policy", Namespaced: true, Status: true}, ""},
		{in(registry.ByKind, "Box", "example.com", ""), Resource{Group: "example.com", Plural: "boxes", Kind: "Box", Namespaced: true, Status: true}, ""},
		{in(registry.BySingular, "box", "example.com", ""), Resource{Group: "example.com", Plural: "boxes", Namespaced: true, Status: true}, ""},
		{in(registry.ByName, "sheep", "example.com", "v1"), Resource{Group: "example.com", Version: "v1", Plural: "sheep", Namespaced: true, Status: true}, `"sheep" is taken for the plural name`},
		{registry.Selector{By: registry.ByEverything}, Resource{Group: "*", Version: "*", Plural: "*", Namespaced: true, Status: true}, ""},
		{in(registry.ByEverything, "", "apps", ""), Resource{Group: "apps", Version: "*", Plural: "*", Namespaced: true, Status: true}, ""},
		{registry.Selector{By: registry.ByKind, Name: "Pod"}, Resource{}, "only a cluster knows"},
		{in(registry.ByShortName, "po", "", "v1"), Resource{}, "only a cluster knows"},
		{in(registry.ByCategory, "all", "", "v1"), Resource{}, "only a cluster knows"},
		{in(registry.ByFunc, "", "", "v1"), Resource{}, "only a cluster knows"},
	} {
		got, note, err := offline.Resolve(&registry.Handler{Kind: registry.Event, ID: "h", Source: "f.go:1", Selector: tc.selector})
		said := note
		if err != nil {
			said, got = err.Error(), Resource{}
		}
		if got != tc.want || (said == "") != (tc.says == "") || !strings.Contains(said, tc.says) || said != "" && !strings.HasPrefix(said, "event handler h at f.go:1") {
			t.Errorf("%s: %+v, %q", tc.selector, got, said)
		}
	}
	custom := &registry.Handler{Kind: registry.Event, Type: reflect.TypeFor[*int](), Selector: in(registry.ByName, "databases", "example.com", "v1")}
	if got, _, _ := offline.Resolve(custom); got.Status {
		t.Error("its type says that there is no status")
	}
}
