package on_test

import (
	"context"
	"fmt"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// A handler is a function, and its argument a struct: what it says can be tried without a
// cluster.
func ExampleValidate() {
	check := func(ctx context.Context, a *kopf.Admission[*Database]) error {
		if a.Old != nil && a.Old.Spec.Engine != a.New.Spec.Engine {
			return kopf.Reject(422, "engines cannot be changed").Field("spec.engine", "is "+a.Old.Spec.Engine+" for ever")
		}
		if a.New.Spec.Replicas == nil {
			a.Warn("without spec.replicas there is one only")
		}
		return nil
	}
	on.Validate(check, on.Resource("example.com/v1", "databases"), on.Operations("CREATE", "UPDATE"), on.ID("check"))

	a := &kopf.Admission[*Database]{
		Old: &Database{Spec: DatabaseSpec{Engine: "mysql"}},
		New: &Database{Spec: DatabaseSpec{Engine: "postgres"}},
	}
	fmt.Println(check(context.Background(), a))
	a.Old = nil
	fmt.Println(check(context.Background(), a), a.Warnings())
	// Output:
	// engines cannot be changed: spec.engine: is mysql for ever
	// <nil> [without spec.replicas there is one only]
}

// Defaults are set in place; fields that the Go type does not know are left alone.
func ExampleMutate() {
	setDefaults := func(ctx context.Context, a *kopf.Admission[*Database]) error {
		if a.Object.Spec.Engine == "" {
			a.Object.Spec.Engine = "postgres"
		}
		return nil
	}
	on.Mutate(setDefaults, on.Resource("example.com/v1", "databases"), on.Operations("CREATE"), on.ID("defaults"))

	a := &kopf.Admission[*Database]{Object: new(Database)}
	fmt.Println(setDefaults(context.Background(), a), a.Object.Spec.Engine)
	// Output: <nil> postgres
}

// The API server checks the rule itself, also while no operator runs.
func ExampleValidateCEL() {
	on.ValidateCEL[*Database]("few-replicas", "!has(object.spec.replicas) || object.spec.replicas <= 5",
		on.Resource("example.com/v1", "databases"),
		on.Operations("CREATE", "UPDATE"),
		on.MessageExpression(`"5 replicas are enough, not " + string(object.spec.replicas)`))
}

// What changes something elsewhere must not do so in a dry run.
func ExampleSideEffects() {
	on.Validate(func(ctx context.Context, a *kopf.Admission[*Database]) error {
		if a.DryRun {
			return nil
		}
		return reserve(ctx, a.Object.Name)
	}, on.Resource("example.com/v1", "databases"), on.Operations("CREATE"), on.SideEffects(), on.ID("reserve"))
}

func reserve(context.Context, string) error { return nil }
