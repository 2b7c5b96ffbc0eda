package on_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// An operator whose handlers are methods has its indices as fields, which tests can fill.
type nodeHandlers struct {
	PodsByNode *kopf.Index[string, string] `index:"pods-by-node"`
}

func (h *nodeHandlers) gone(ctx context.Context, c *kopf.Change[*corev1.Node]) error {
	for pod := range h.PodsByNode.Get(c.Object.Name) {
		c.Log.Info("has lost its node", "pod", pod)
	}
	return nil
}

// The fields of a handler's struct are set by the tags, when the operator is made.
func ExampleInject() {
	reg := kopf.NewRegistry()
	h := &nodeHandlers{}
	on.Delete(h.gone, on.Inject(h), on.In(reg))
	index := on.Index(func(ctx context.Context, s *kopf.Snapshot[*corev1.Pod]) (map[string]string, error) {
		return map[string]string{s.Object.Spec.NodeName: s.Object.Name}, nil
	}, on.ID("pods-by-node"), on.In(reg))

	_, err := kopf.New(kopf.Options{Registry: reg, Config: &rest.Config{Host: "https://cluster.example.com"}})
	fmt.Println(h.PodsByNode == index, err)
	// Output: true <nil>
}
