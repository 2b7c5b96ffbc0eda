package simulated_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// client-go finds the same in the aggregated and in the legacy form of discovery.
func TestDiscovery(t *testing.T) {
	for name, legacy := range map[string]bool{"aggregated": false, "legacy": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(e env) {
				e.server.LegacyDiscovery = legacy
				newer := widgetKind()
				newer.GroupVersion, newer.Categories, newer.ShortNames, newer.Verbs = "demo.example/v2", []string{"all"}, []string{"wd"}, []string{"list"}
				e.server.Serve(newer)
				e.server.Prefer("demo.example/v2")
				d, err := discovery.NewDiscoveryClientForConfig(e.server.Config())
				if err != nil {
					e.Fatal(err)
				}
				groups, resources, failed, err := d.GroupsAndMaybeResources()
				if err != nil || len(failed) > 0 || (resources == nil) != legacy {
					e.Fatal(resources, failed, err)
				}
				i := 0
				for groups.Groups[i].Name != "demo.example" {
					i++
				}
				if g := groups.Groups[i]; len(g.Versions) != 2 || g.PreferredVersion.Version != "v2" {
					e.Error(g)
				}
				list, err := d.ServerResourcesForGroupVersion("demo.example/v2")
				if known := resources[schema.GroupVersion{Group: "demo.example", Version: "v2"}]; known != nil {
					list = known
				}
				if err != nil || len(list.APIResources) != 2 || list.APIResources[1].Name != "widgets/status" {
					e.Fatal(list, err)
				}
				if r := list.APIResources[0]; r.Categories[0] != "all" || r.ShortNames[0] != "wd" || r.Verbs[0] != "list" || r.SingularName != "widget" {
					e.Error(r)
				}
				mend := e.server.Break("demo.example/v2")
				_, _, failed, err = d.GroupsAndMaybeResources()
				if _, direct := d.ServerResourcesForGroupVersion("demo.example/v2"); err != nil || direct == nil || !legacy && len(failed) != 1 {
					e.Error(failed, err, direct)
				}
				mend()
				if _, err := d.ServerResourcesForGroupVersion("demo.example/v2"); err != nil {
					e.Error(err)
				}
			})
		})
	}
}

// A kind has a CustomResourceDefinition as long as one of its versions is served, and
// takes its objects along.
func TestServeAndWithdraw(t *testing.T) {
	run(t, func(e env) {
		crds := e.server.Collection("apiextensions.k8s.io/v1", "customresourcedefinitions")
		first := crds.Get("", "widgets.demo.example")
		if first == nil || crds.Get("", "namespaces") != nil {
			e.Fatal(crds.List())
		}
		other := widgetKind()
		other.GroupVersion = "demo.example/v2"
		e.server.Serve(other)
		if second := crds.Get("", "widgets.demo.example"); second.GetUID() != first.GetUID() || second.GetGeneration() != 2 {
			e.Error(second)
		}
		e.server.Withdraw("demo.example/v2", "widgets")
		e.create("w", nil, "example.com/held")
		w, err := e.client.Watch(e.Context(), metav1.ListOptions{})
		if err != nil {
			e.Fatal(err)
		}
		e.server.Withdraw("demo.example/v1", "widgets")
		var seen []string
		for event := range w.ResultChan() { // it ends
			seen = append(seen, string(event.Type))
		}
		if strings.Join(seen, " ") != "ADDED DELETED" || crds.Get("", "widgets.demo.example") != nil {
			e.Error(seen, crds.List())
		}
		if _, err := e.client.List(e.Context(), metav1.ListOptions{}); err == nil {
			e.Error("the kind is still served")
		}
		e.server.Serve(widgetKind())
		if again := crds.Get("", "widgets.demo.example"); again.GetUID() == first.GetUID() || e.server.Collection("demo.example/v1", "widgets").Get("default", "w") != nil {
			e.Error(again)
		}
	})
}

// client-go's metadata client is content with what it gets.
func TestMetadataOnly(t *testing.T) {
	run(t, func(e env) {
		e.create("w", map[string]any{"spec": map[string]any{"size": 1}})
		client, err := metadata.NewForConfig(e.server.Config())
		if err != nil {
			e.Fatal(err)
		}
		widgets := client.Resource(widgetsGVR).Namespace("default")
		o, err := widgets.Get(e.Context(), "w", metav1.GetOptions{})
		if err != nil || o.Name != "w" {
			e.Error(o, err)
		}
		d, err := discovery.NewDiscoveryClientForConfig(e.server.Config())
		if err != nil {
			e.Fatal(err)
		}
		raw, err := d.RESTClient().Get().AbsPath("/apis/demo.example/v1/namespaces/default/widgets/w").
			SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json").DoRaw(e.Context())
		if err != nil || !strings.Contains(string(raw), `"kind":"PartialObjectMetadata"`) || strings.Contains(string(raw), "spec") {
			e.Errorf("%s, %v", raw, err)
		}
		list, err := widgets.List(e.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 || list.Items[0].Name != "w" || list.ResourceVersion == "" {
			e.Error(list, err)
		}
		w, err := widgets.Watch(e.Context(), metav1.ListOptions{})
		if err != nil {
			e.Fatal(err)
		}
		if o, is := (<-w.ResultChan()).Object.(*metav1.PartialObjectMetadata); !is || o.Name != "w" {
			e.Error(o)
		}
		w.Stop()
	})
}
