package on_test

import (
	"context"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// DatabaseAccess is the spec of a custom resource.
type DatabaseAccess struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

type access = kopf.Resource[DatabaseAccess, struct{}]

// A password in the spec is not kept in the annotation of the former state, nor seen in
// the difference: that it has changed is.
func ExampleSensitive() {
	on.Update(func(ctx context.Context, c *kopf.Change[*access]) error {
		return setPassword(ctx, c.New.Spec.User, c.New.Spec.Password)
	}, on.ID("password"), on.Field("spec.password"), on.Sensitive("spec.password"), on.Resource("example.com/v1", "accesses"))
}

func setPassword(context.Context, string, string) error { return nil }
