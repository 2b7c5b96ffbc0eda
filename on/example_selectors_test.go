package on_test

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// One handler for whatever kubectl get all shows, without a Go type for each kind.
func ExampleCategory() {
	on.Event(func(ctx context.Context, e *kopf.Event[*unstructured.Unstructured]) error {
		e.Log.Info("seen", "kind", e.Object.GetKind(), "replicas", e.Object.Object["spec"])
		return nil
	}, on.Category("all"), on.ID("seen"))
}

// For metadata alone, nothing else is read from the API server.
func ExampleEverything() {
	on.Event(func(ctx context.Context, e *kopf.Event[*metav1.PartialObjectMetadata]) error {
		if e.Object.Labels["owner"] == "" {
			e.Log.Warn("nobody owns this", "kind", e.Object.Kind)
		}
		return nil
	}, on.Everything(), on.ID("owners"))
}

// All resources of the cluster that can be scaled.
func ExampleResourceFunc() {
	scalable := on.ResourceFunc(func(r on.APIResource) bool {
		return r.Preferred && slices.Contains(r.Subresources, "scale")
	})
	on.Update(func(ctx context.Context, c *kopf.Change[*unstructured.Unstructured]) error {
		replicas, _, err := unstructured.NestedInt64(c.New.Object, "spec", "replicas")
		c.Log.Info("scaled", "kind", c.New.GetKind(), "to", replicas)
		return err
	}, scalable, on.ID("scaled"))
}

// The version may be left open: it is the one that the API server prefers.
func ExampleKind() {
	on.Create(provision, on.Kind("Database"), on.Group("example.com"), on.ID("provision"))
}

func ExamplePlural() {
	on.Create(provision, on.Plural("databases"), on.ID("provision"))
}

func ExampleSingular() {
	on.Create(provision, on.Singular("database"), on.ID("provision"))
}

func ExampleShortName() {
	on.Create(provision, on.ShortName("db"), on.ID("provision"))
}

// All resources of one group, those that are added to it later as well.
func ExampleGroup() {
	on.Event(func(ctx context.Context, e *kopf.Event[*metav1.PartialObjectMetadata]) error {
		e.Log.Info("seen", "kind", e.Object.Kind)
		return nil
	}, on.Everything(), on.Group("example.com"), on.ID("seen"))
}

func ExampleVersion() {
	on.Create(provision, on.Kind("Database"), on.Group("example.com"), on.Version("v1beta1"), on.ID("provision"))
}
