package on_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/on"
)

func ExampleCreate() {
	on.Create(func(ctx context.Context, c *kopf.Change[*Database]) error {
		c.Log.Info("new database", "engine", c.New.Spec.Engine)
		c.Patch.Apply(func(d *Database) { d.Status.Phase = "Ready" })
		return nil
	}, on.Resource("example.com/v1", "databases"), on.ID("provision"), on.Retries(5))
}

func ExampleUpdate() {
	on.Update(func(ctx context.Context, c *kopf.Change[*appsv1.Deployment]) error {
		for _, item := range c.Diff {
			c.Log.Info("changed", "op", item.Op, "path", item.Path, "old", item.Old, "new", item.New)
		}
		return nil
	}, on.ID("audit"))
}

// The finalizer holds the object until the handler has succeeded.
func ExampleDelete() {
	release := func(ctx context.Context, c *kopf.Change[*Database]) error {
		return dropDatabase(ctx, c.Object.Spec.Engine, c.Object.Name)
	}
	on.Delete(release, on.Resource("example.com/v1", "databases"), on.ID("release"))
}

func dropDatabase(context.Context, string, string) error { return nil }

// What lives in the process is taken up again after a restart. A function may serve
// several causes.
func ExampleResume() {
	connect := func(ctx context.Context, c *kopf.Change[*Database]) error {
		c.Log.Info("connecting", "reason", c.Reason)
		return nil
	}
	databases := on.Resource("example.com/v1", "databases")
	on.Create(connect, databases, on.ID("connect"))
	on.Resume(connect, databases, on.ID("connect"))
}

func ExampleFieldChange() {
	on.FieldChange("spec.replicas", func(ctx context.Context, c *kopf.FieldChange[*appsv1.Deployment, int32]) error {
		switch {
		case !c.HadOld:
			c.Log.Info("replicas are set", "to", c.New)
		case !c.HasNew:
			c.Log.Info("replicas are left to the default", "were", c.Old)
		default:
			c.Log.Info("scaled", "from", c.Old, "to", c.New)
		}
		return nil
	}, on.ID("scaled"))
}

func ExampleEvent() {
	on.Event(func(ctx context.Context, e *kopf.Event[*corev1.Pod]) error {
		fmt.Println(e.Type, e.Object.Namespace, e.Object.Name, e.Object.Status.Phase)
		return nil
	}, on.Label("app", "web"))
}

func ExampleField() {
	reg := kopf.NewRegistry()
	resize := func(context.Context, *kopf.Change[*appsv1.Deployment]) error { return nil }
	// Any change of the field; a change to a certain value; objects that have it.
	on.Update(resize, on.Field("spec.replicas"), on.ID("resize"), on.In(reg))
	on.Update(resize, on.Field("spec.replicas"), on.Old(filters.Not(0)), on.New(0), on.ID("stopped"), on.In(reg))
	on.Create(resize, on.Field("spec.replicas"), on.ID("sized"), on.In(reg))

	for _, h := range reg.Handlers() {
		fmt.Println(h.Name()) // the field is part of the id
	}
	// Output:
	// update handler resize/spec.replicas
	// update handler stopped/spec.replicas
	// create handler sized/spec.replicas
}

func ExampleFieldOf() {
	reg := kopf.NewRegistry()
	resize := func(context.Context, *kopf.Change[*appsv1.Deployment]) error { return nil }
	replicas := on.FieldOf(func(d *appsv1.Deployment) *int32 { return d.Spec.Replicas })
	on.Update(resize, replicas, on.ID("resize"), on.In(reg))

	fmt.Println(reg.Handlers()[0].Name())
	// Output: update handler resize/spec.replicas
}

// Keys of labels and annotations have dots.
func ExamplePath() {
	reg := kopf.NewRegistry()
	resize := func(context.Context, *kopf.Change[*appsv1.Deployment]) error { return nil }
	on.Update(resize, on.Path("metadata", "annotations", "example.com/size"), on.ID("resize"), on.In(reg))

	fmt.Println(reg.Handlers()[0].Name(), reg.Err())
	// Output: update handler resize/metadata.annotations.example.com/size <nil>
}

func ExampleValue() {
	pause := func(context.Context, *kopf.Change[*appsv1.Deployment]) error { return nil }
	on.Create(pause, on.Field("spec.paused"), on.Value(true), on.ID("paused"))
	on.Update(pause, on.Field("spec.replicas"), on.Value(func(n int32) bool { return n > 100 }), on.ID("large"))
	on.Update(pause, on.Field("spec.minReadySeconds"), on.Value(filters.Any(0, 1)), on.ID("hasty"))
}

func ExampleLabel() {
	provision := func(context.Context, *kopf.Change[*corev1.ConfigMap]) error { return nil }
	on.Create(provision, on.ID("provision"),
		on.Label("tier", filters.Any("gold", "silver")),
		on.Label("app.kubernetes.io/managed-by", filters.Absent),
		on.Annotation("example.com/zone", func(zone string) bool { return strings.HasPrefix(zone, "eu-") }),
	)
}

func ExampleWhen() {
	provision := func(context.Context, *kopf.Change[*corev1.Pod]) error { return nil }
	on.Create(provision, on.ID("provision"), on.When(func(ctx context.Context, s *kopf.Snapshot[*corev1.Pod]) bool {
		return s.Object.Spec.HostNetwork && len(s.Object.Spec.Containers) > 1
	}))
}

// Five attempts within an hour, half a minute apart; the last failure is final.
func ExampleRetries() {
	provision := func(ctx context.Context, c *kopf.Change[*Database]) error {
		c.Log.Info("trying", "retry", c.Retry, "since", c.Started)
		return errors.New("not yet") // ctx ends when the hour is over
	}
	on.Create(provision, on.Resource("example.com/v1", "databases"), on.ID("provision"),
		on.Retries(5), on.Timeout(time.Hour), on.Backoff(30*time.Second))
}

// An error that says nothing itself may be final, or no matter.
func ExampleErrors() {
	notify := func(context.Context, *kopf.Change[*corev1.Pod]) error { return errors.New("nobody listens") }
	on.Create(notify, on.ID("notify"), on.Errors(on.Ignored))
	on.Update(notify, on.ID("notify"), on.Errors(on.Permanent))
}

// Nothing holds the object for this handler.
func ExampleOptional() {
	goodbye := func(ctx context.Context, c *kopf.Change[*corev1.Pod]) error {
		c.Log.Info("goodbye")
		return nil
	}
	on.Delete(goodbye, on.Optional(), on.ID("goodbye"))
}

// Objects that were being deleted when the operator started are resumed, too.
func ExampleDeleted() {
	reconnect := func(context.Context, *kopf.Change[*corev1.Pod]) error { return nil }
	on.Resume(reconnect, on.Deleted(), on.ID("reconnect"))
}

func ExampleIn() {
	greet := func(context.Context, *kopf.Change[*corev1.Pod]) error { return nil }
	reg := kopf.NewRegistry()
	on.Create(greet, on.ID("greet"), on.In(reg))

	op, err := kopf.New(kopf.Options{Registry: reg})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = op.Run(context.Background())
}

// One function several times, told apart by its param.
func ExampleParam() {
	provision := func(ctx context.Context, c *kopf.Change[*corev1.Pod]) error {
		c.Log.Info("provisioning", "plan", c.Param)
		return nil
	}
	reg := kopf.NewRegistry()
	for _, plan := range []string{"gold", "silver"} {
		on.Create(provision, on.ID("provision-"+plan), on.Param(plan), on.Label("plan", plan), on.In(reg))
	}

	for _, h := range reg.Handlers() {
		fmt.Println(h.Name(), h.Param)
	}
	// Output:
	// create handler provision-gold gold
	// create handler provision-silver silver
}

// The id is what the handler's progress is kept under, on every object: keep it when
// the function is renamed.
func ExampleID() {
	reg := kopf.NewRegistry()
	on.Create(provision, databases, on.In(reg))
	on.Create(provision, databases, on.ID("setup"), on.In(reg))

	for _, h := range reg.Handlers() {
		fmt.Println(h.ID)
	}
	// Output:
	// provision
	// setup
}

func ExampleResource() {
	resize := func(context.Context, *kopf.Change[*Database]) error { return nil }
	databases := on.Resource("example.com/v1", "databases") // once, for all handlers
	on.Create(resize, databases, on.ID("resize"))
	on.Update(resize, databases, on.ID("resize"), on.Field("spec.replicas"))
}
