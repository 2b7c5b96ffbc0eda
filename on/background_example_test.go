package on_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// A connection for each database, opened anew when its spec changes. Like this, the daemon
// is tested without an operator.
func ExampleDaemon() {
	reg := kopf.NewRegistry()
	connect := func(ctx context.Context, d *kopf.Daemon[*Database]) error {
		for {
			database := d.Object() // the newest version
			fmt.Println("connected to", database.Spec.Engine)
			select {
			case <-d.Changed():
			case <-d.Stopping(): // ten seconds before the context ends
				fmt.Println("says goodbye")
				return nil
			case <-ctx.Done():
				return context.Cause(ctx) // such as kopf.ErrDeleted
			}
		}
	}
	on.Daemon(connect, on.Resource("example.com/v1", "databases"), on.ID("connect"),
		on.CancellationBackoff(10*time.Second), on.In(reg))

	d, show, stop := kopf.NewDaemon(&Database{Spec: DatabaseSpec{Engine: "pg"}})
	show(&Database{Spec: DatabaseSpec{Engine: "pg17"}})
	stop()
	fmt.Println(connect(context.Background(), d))
	// Output:
	// connected to pg17
	// says goodbye
	// <nil>
}

// A daemon that is cut short by its context says why.
func ExampleDaemon_cause() {
	watch := func(ctx context.Context, d *kopf.Daemon[*Database]) error {
		<-ctx.Done()
		if errors.Is(context.Cause(ctx), kopf.ErrDeleted) {
			fmt.Println("closing", d.Object().Name)
		}
		return context.Cause(ctx)
	}
	on.Daemon(watch, on.Resource("example.com/v1", "databases"), on.ID("watch"), on.Finalize()) // so that there is time to

	ctx, end := context.WithCancelCause(context.Background())
	end(kopf.ErrDeleted)
	database := &Database{}
	database.Name = "blue"
	d, _, _ := kopf.NewDaemon(database)
	fmt.Println(watch(ctx, d) == kopf.ErrDeleted)
	// Output:
	// closing blue
	// true
}

// Every minute, from the first one to the next, whatever a tick takes.
func ExampleTimer() {
	probe := func(ctx context.Context, t *kopf.Tick[*Database]) error {
		phase := "Ready"
		if t.Object.Spec.Replicas == nil {
			phase = "Idle"
		}
		t.Patch.Apply(func(d *Database) { d.Status.Phase = phase })
		return nil
	}
	on.Timer(probe, on.Resource("example.com/v1", "databases"), on.ID("probe"),
		on.Interval(time.Minute), on.Sharp(), on.Retries(3), on.Backoff(time.Second))

	database := &Database{}
	t := &kopf.Tick[*Database]{Object: database, Patch: kopf.NewPatch(database)}
	err := probe(context.Background(), t)
	after, _ := t.Patch.Preview()
	fmt.Println(after.Status.Phase, err)
	// Output: Idle <nil>
}

// Every night at three, UTC, within an hour, each database at a minute of its own.
func ExampleCron() {
	backup := func(ctx context.Context, t *kopf.Tick[*Database]) error {
		t.Log.Info("backing up", "database", t.Object.Name)
		return nil
	}
	reg := kopf.NewRegistry()
	databases := on.Resource("example.com/v1", "databases")
	on.Timer(backup, databases, on.ID("backup"), on.Cron("CRON_TZ=UTC 0 3 * * *"), on.Jitter(time.Hour), on.In(reg))
	on.Timer(backup, databases, on.ID("wrong"), on.Cron("0 25 * * *"), on.In(reg))

	fmt.Println(reg.Err() != nil) // it says where, and that there is no hour 25
	// Output: true
}

// When nobody has touched a database for an hour, once.
func ExampleIdle() {
	suspend := func(ctx context.Context, t *kopf.Tick[*Database]) error {
		t.Patch.Apply(func(d *Database) { d.Status.Phase = "Suspended" })
		return nil
	}
	on.Timer(suspend, on.Resource("example.com/v1", "databases"), on.ID("suspend"), on.Idle(time.Hour))
}

// Databases that are larger are given more time before they are looked at.
func ExampleInitialDelayFunc() {
	watch := func(ctx context.Context, d *kopf.Daemon[*Database]) error { return nil }
	on.Daemon(watch, on.Resource("example.com/v1", "databases"), on.ID("patient"), on.InitialDelayFunc(func(d *Database) time.Duration {
		if d.Spec.Replicas == nil {
			return 0
		}
		return time.Duration(*d.Spec.Replicas) * time.Second
	}))
}
