package kopf_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// A whole operator: say what is to be done, and run.
func Example() {
	on.Update(func(ctx context.Context, c *kopf.Change[*appsv1.Deployment]) error {
		c.Log.Info("scaled", "from", *c.Old.Spec.Replicas, "to", *c.New.Spec.Replicas)
		return nil
	}, on.Field("spec.replicas"), on.ID("scaled"))

	kopf.Main(kopf.Options{})
}

// An operator as a part of another program, with handlers of its own.
func ExampleNew() {
	greet := func(ctx context.Context, c *kopf.Change[*appsv1.Deployment]) error {
		c.Log.Info("hello", "replicas", c.New.Spec.Replicas)
		return nil
	}
	reg := kopf.NewRegistry()
	on.Create(greet, on.ID("greet"), on.In(reg))

	op, err := kopf.New(kopf.Options{
		Name:       "greeter",
		Registry:   reg,
		Namespaces: []string{"team-*", "!team-secret"},
	})
	if err != nil {
		log.Fatal(err) // all mistakes in the registrations, with file and line
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := op.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// Something is not there yet: look again in ten seconds, as often as need be.
func ExampleRetry() {
	wait := func(ctx context.Context, c *kopf.Change[*appsv1.Deployment]) error {
		if c.New.Status.ReadyReplicas == 0 {
			return kopf.Retry(10*time.Second, errors.New("no replica is ready"))
		}
		return nil
	}

	err := wait(context.Background(), &kopf.Change[*appsv1.Deployment]{New: &appsv1.Deployment{}})
	var retry *kopf.RetryError
	fmt.Println(errors.As(err, &retry), retry.After, err)
	// Output: true 10s no replica is ready
}

// No further attempt would help: only a change of the object does.
func ExamplePermanent() {
	check := func(ctx context.Context, c *kopf.Change[*appsv1.Deployment]) error {
		if c.New.Spec.Replicas == nil {
			return kopf.Permanent(errors.New("spec.replicas must be set"))
		}
		return nil
	}

	err := check(context.Background(), &kopf.Change[*appsv1.Deployment]{New: &appsv1.Deployment{}})
	fmt.Println(errors.As(err, new(*kopf.PermanentError)), err)
	// Output: true spec.replicas must be set
}

type DatabaseSpec struct {
	Engine   string `json:"engine"`
	Replicas int32  `json:"replicas,omitempty"`
}

type DatabaseStatus struct {
	Phase string `json:"phase,omitempty"`
}

// A custom resource without generated code.
type Database = kopf.Resource[DatabaseSpec, DatabaseStatus]

func ExampleResource() {
	databases := on.Resource("example.com/v1", "databases")

	on.Create(func(ctx context.Context, c *kopf.Change[*Database]) error {
		c.Log.Info("creating a database", "engine", c.New.Spec.Engine)
		c.Patch.Apply(func(d *Database) { d.Status.Phase = "Ready" })
		return nil
	}, databases, on.ID("provision"))
}

// All mistakes in registrations are found before anything runs.
func ExampleRegistry() {
	reg := kopf.NewRegistry()
	resize := func(context.Context, *kopf.Change[*appsv1.Deployment]) error { return nil }
	on.Update(resize, on.Field("spec.replica"), on.ID("resize"), on.In(reg))

	if _, err := kopf.New(kopf.Options{Registry: reg}); err != nil {
		_, mistake, _ := strings.Cut(err.Error(), ": ") // it begins with file and line
		fmt.Println(mistake)
	}
	// Output: update handler resize/spec.replica: no field "replica" in v1.DeploymentSpec at spec (did you mean "replicas"?)
}

// What a handler remembers of an object, every other handler of the object finds, of
// whatever kind.
func ExampleNewMemo() {
	type visits struct {
		sync.Mutex // daemons run beside other handlers
		times      int
	}
	memo := kopf.NewMemo(func() *visits { return new(visits) })
	visited := func(ctx context.Context, c *kopf.Change[*appsv1.Deployment]) error {
		v := memo.Of(c)
		v.Lock()
		defer v.Unlock()
		v.times++
		fmt.Println("visit", v.times)
		return nil
	}
	on.Create(visited, on.ID("visited"))
	on.Update(visited, on.ID("visited"))

	// In a test, each argument that is made by hand has a memo of its own.
	c := &kopf.Change[*appsv1.Deployment]{}
	_ = visited(context.Background(), c)
	_ = visited(context.Background(), c)
	_ = visited(context.Background(), &kopf.Change[*appsv1.Deployment]{})
	// Output:
	// visit 1
	// visit 2
	// visit 1
}
