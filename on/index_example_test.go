package on_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// Pods by their node, for handlers of other objects to look at.
func ExampleIndex() {
	reg := kopf.NewRegistry()
	podsByNode := on.Index(func(ctx context.Context, s *kopf.Snapshot[*corev1.Pod]) (map[string]string, error) {
		if s.Object.Spec.NodeName == "" {
			return map[string]string{}, nil // not scheduled, or not any more
		}
		return map[string]string{s.Object.Spec.NodeName: s.Object.Name}, nil
	}, on.ID("pods-by-node"), on.In(reg))

	on.Event(func(ctx context.Context, e *kopf.Event[*corev1.Node]) error {
		for pod := range podsByNode.Get(e.Object.Name) {
			e.Log.Info("is on the node", "pod", pod)
		}
		return nil
	}, on.ID("nodes"), on.In(reg))

	for _, h := range reg.Handlers() {
		fmt.Println(h.Name())
	}
	fmt.Println(podsByNode.Len(), "nodes before the operator runs")
	// Output:
	// index handler pods-by-node
	// event handler nodes
	// 0 nodes before the operator runs
}

// The status of a database follows the pods that have its label, whenever they come or go.
func ExampleUses() {
	reg := kopf.NewRegistry()
	databases := on.Resource("example.com/v1", "databases")
	pods := on.Index(func(ctx context.Context, s *kopf.Snapshot[*corev1.Pod]) (map[string]string, error) {
		return map[string]string{s.Object.Labels["database"]: s.Object.Name}, nil
	}, on.Label("database", func(string) bool { return true }), on.ID("pods-of-databases"), on.In(reg))

	summarise := func(ctx context.Context, c *kopf.Change[*Database]) error {
		phase := "Waiting"
		if pods.Tracked(ctx).Has(c.Object.Name) { // what is read like this is what the handler is called for again
			phase = "Ready"
		}
		c.Log.Info("looked at pods", "why", c.Reason) // create, or index if they have changed
		c.Patch.Apply(func(d *Database) { d.Status.Phase = phase })
		return nil
	}
	on.Create(summarise, databases, on.Uses(pods), on.ID("summarise"), on.In(reg))

	fmt.Println(reg.Err())
	// Output: <nil>
}
