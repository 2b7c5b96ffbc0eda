package on_test

import (
	"context"
	"fmt"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// One sub-handler for each item, with retries of its own: what has succeeded does not
// run again when another one fails.
func ExampleSubhandler() {
	on.Create(func(ctx context.Context, c *kopf.Change[*Database]) error {
		for flag, value := range c.New.Spec.Flags {
			on.Subhandler(c, "flag-"+flag, func(ctx context.Context, c *kopf.Change[*Database]) error {
				c.Log.Info("setting", "flag", flag, "value", value)
				return nil
			}, on.Retries(3), on.Timeout(time.Minute))
		}
		return nil
	}, databases, on.ID("flags"))
}

// A set of functions that is made elsewhere.
func ExampleSubhandlers() {
	steps := map[string]func(context.Context, *kopf.Change[*Database]) error{
		"1-volume":  func(context.Context, *kopf.Change[*Database]) error { return nil },
		"2-service": func(context.Context, *kopf.Change[*Database]) error { return nil },
	}
	on.Create(func(ctx context.Context, c *kopf.Change[*Database]) error {
		on.Subhandlers(c, steps, on.Backoff(5*time.Second))
		return nil
	}, databases, on.ID("steps"))
}

// The parent goes on when its sub-handlers are finished.
func ExampleExecute() {
	on.Create(func(ctx context.Context, c *kopf.Change[*Database]) error {
		on.Subhandler(c, "primary", provision)
		on.Subhandler(c, "replica", provision)
		outcomes, err := on.Execute(ctx, c)
		if err != nil {
			return err
		}
		for _, o := range outcomes {
			if o.Err != nil {
				return kopf.Permanent(fmt.Errorf("%s: %w", o.ID, o.Err))
			}
		}
		c.Patch.Apply(func(d *Database) { d.Status.Phase = "Ready" })
		return nil
	}, databases, on.ID("cluster"))
}
