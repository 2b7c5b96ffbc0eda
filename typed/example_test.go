package typed_test

import (
	"context"
	"fmt"

	"github.com/kopf-go/kopf/typed"
)

// Only what the function has changed is sent: the status to its endpoint, in the
// same go as the bookkeeping.
func ExamplePatch_Apply() {
	handler := func(ctx context.Context, c *typed.Change[*database]) error {
		engine := c.New.Spec.Engine
		c.Patch.Apply(func(d *database) {
			d.Status.Phase = "Ready for " + engine
			delete(d.Spec.Flags, "draft")
		})
		return nil
	}

	object, status := patchesOf(handler, `{"metadata":{"name":"blue","uid":"1"},
		"spec":{"engine":"pg","flags":{"draft":"yes","ssl":"on"},"unknownToUs":{"stays":true}}}`)
	fmt.Println(object)
	fmt.Println(status)
	// Output:
	// {"metadata":{"uid":"1"},"spec":{"flags":{"draft":null}}}
	// {"metadata":{"uid":"1"},"status":{"phase":"Ready for pg"}}
}
