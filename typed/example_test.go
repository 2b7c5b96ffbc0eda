package typed_test

import (
	"context"
	"fmt"
	"log/slog"

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

// A merge patch reaches fields that the Go type does not have.
func ExamplePatch_Merge() {
	handler := func(ctx context.Context, c *typed.Change[*database]) error {
		c.Patch.Merge(map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"engine": c.New.Spec.Engine}},
			"spec":     map[string]any{"unknownToUs": nil},
		})
		return nil
	}

	object, _ := patchesOf(handler, `{"metadata":{"name":"blue","uid":"1"},
		"spec":{"engine":"pg","unknownToUs":{"goes":true}}}`)
	fmt.Println(object)
	// Output:
	// {"metadata":{"labels":{"engine":"pg"},"uid":"1"},"spec":{"unknownToUs":null}}
}

// A JSON patch is applied to this very version of the object, or to none.
func ExamplePatch_JSON() {
	handler := func(ctx context.Context, c *typed.Change[*database]) error {
		c.Patch.JSON(
			typed.PatchOperation{Op: "test", Path: "/spec/engine", Value: "pg"},
			typed.PatchOperation{Op: "replace", Path: "/spec/engine", Value: "pg17"},
			typed.PatchOperation{Op: "add", Path: "/metadata/labels/example.com~1upgraded", Value: "yes"},
		)
		return nil
	}

	object, _ := patchesOf(handler, `{"metadata":{"name":"blue","uid":"1","resourceVersion":"7","labels":{}},
		"spec":{"engine":"pg"}}`)
	fmt.Println(object)
	// Output:
	// {"metadata":{"labels":{"example.com/upgraded":"yes"},"resourceVersion":"7","uid":"1"},"spec":{"engine":"pg17"}}
}

// What this handler, and those before it, have asked for so far.
func ExamplePatch_Preview() {
	handler := func(ctx context.Context, c *typed.Change[*database]) error {
		c.Patch.Apply(func(d *database) { d.Status.Phase = "Ready" })
		next, err := c.Patch.Preview()
		if err != nil {
			return err
		}
		fmt.Printf("from %q to %q\n", c.Object.Status.Phase, next.Status.Phase)
		return nil
	}

	_, status := patchesOf(handler, `{"metadata":{"name":"blue","uid":"1"},"status":{"phase":"New"}}`)
	fmt.Println(status)
	// Output:
	// from "New" to "Ready"
	// {"metadata":{"uid":"1"},"status":{"phase":"Ready"}}
}

// A handler is a function, and its argument a struct: a test calls it, and looks at
// what it asked for.
func ExampleNewPatch() {
	handler := func(ctx context.Context, c *typed.Change[*database]) error {
		c.Log.Info("hello")
		c.Patch.Apply(func(d *database) { d.Status.Phase = "Ready for " + c.New.Spec.Engine })
		c.SetResult(42)
		return nil
	}

	object := &database{Spec: databaseSpec{Engine: "pg"}}
	c := &typed.Change[*database]{Object: object, New: object, Patch: typed.NewPatch(object)}
	c.Log = slog.New(slog.DiscardHandler)
	err := handler(context.Background(), c)

	after, patchErr := c.Patch.Preview()
	fmt.Println(err, patchErr, after.Status.Phase, c.Result())
	// Output: <nil> <nil> Ready for pg 42
}
