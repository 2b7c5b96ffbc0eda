// Package misuse holds calls that must not compile. Each line with an error ends in
// a comment that says what the compiler is to complain about.
package misuse

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

func change(context.Context, *kopf.Change[*appsv1.Deployment]) error            { return nil }
func field(context.Context, *kopf.FieldChange[*appsv1.Deployment, int32]) error { return nil }
func event(context.Context, *kopf.Event[*appsv1.Deployment]) error              { return nil }
func byValue(context.Context, *kopf.Change[appsv1.Deployment]) error            { return nil } // does not satisfy
func list(context.Context, *kopf.Change[*appsv1.DeploymentList]) error          { return nil } // does not satisfy
func noContext(*kopf.Change[*appsv1.Deployment]) error                          { return nil }
func noError(context.Context, *kopf.Change[*appsv1.Deployment])                 {}
func result(context.Context, *kopf.Change[*appsv1.Deployment]) (any, error)     { return nil, nil }
func snapshot(context.Context, *kopf.Snapshot[*appsv1.Deployment]) bool         { return true }
func accessor(d *appsv1.Deployment) *int32                                      { return d.Spec.Replicas }
func noAccessor(d *appsv1.Deployment) int32                                     { return *d.Spec.Replicas }
func watch(context.Context, *kopf.Daemon[*appsv1.Deployment]) error             { return nil }
func tick(context.Context, *kopf.Tick[*appsv1.Deployment]) error                { return nil }
func validate(context.Context, *kopf.Admission[*appsv1.Deployment]) error       { return nil }
func delay(*appsv1.Deployment) time.Duration                                    { return 0 }
func index(context.Context, *kopf.Snapshot[*appsv1.Deployment]) (map[string]int, error) {
	return nil, nil
}
func start(context.Context, *kopf.Activity) error                           { return nil }
func login(context.Context, *kopf.Login) (*kopf.Credentials, error)         { return nil, nil }
func probe(context.Context, *kopf.Probe) (int, error)                       { return 0, nil }
func flat(context.Context, *kopf.Snapshot[*appsv1.Deployment]) (int, error) { return 0, nil }
func edit(c *kopf.Change[*appsv1.Deployment], f func(*corev1.Pod)) {
	c.Patch.Apply(f) // *"k8s.io/api/apps/v1".Deployment
}

func right() {
	on.Create(change, on.Field("spec.replicas"), on.Value(3), on.When(snapshot), on.Retries(1), on.ID("a"))
	on.Update(change, on.FieldOf(accessor), on.Old(1), on.New(2))
	on.Delete(change, on.Optional())
	on.Resume(change, on.Deleted())
	on.FieldChange("spec.replicas", field, on.Old(1), on.New(2), on.Backoff(0))
	on.Event(event, on.Path("spec"), on.Param(1))
	var found *kopf.Index[string, int] = on.Index(index, on.Field("spec.replicas"), on.Value(1), on.When(snapshot), on.Label("a", "b"),
		on.Retries(1), on.Errors(on.Temporary), on.Kind("Deployment"), on.ID("i"), on.Inject(nil))
	on.Daemon(watch, on.InitialDelayFunc(delay), on.Finalize(), on.CancellationBackoff(1), on.CancellationTimeout(1), on.CancellationPolling(1),
		on.Path("spec"), on.Annotation("a", "b"), on.Timeout(1), on.Backoff(1), on.Inject(nil), on.Sensitive("spec"))
	on.Timer(tick, on.InitialDelay(1), on.Interval(1), on.Sharp(), on.Idle(1), on.Jitter(1), on.Uses(found), on.FieldOf(accessor), on.Everything())
	on.Timer(tick, on.Cron("@daily"))
	on.Create(change, on.Uses(found), on.Inject(nil))
	on.Update(change, on.Uses(found))
	on.Delete(change, on.Uses(found))
	on.Resume(change, on.Uses(found))
	on.FieldChange("spec.replicas", field, on.Uses(found))
	on.Validate(validate, on.Operations("CREATE", "UPDATE"), on.Subresource("*"), on.Persistent(), on.SideEffects(), on.IgnoreFailures(),
		on.FieldOf(accessor), on.Value(1), on.When(snapshot), on.Label("a", "b"), on.Annotation("a", "b"), on.Param(1), on.ID("v"), on.Inject(nil))
	on.Mutate(validate, on.Kind("Deployment"), on.Group("apps"), on.Version("v1"), on.Path("spec"), on.Operations("DELETE"))
	on.ValidateCEL[*appsv1.Deployment]("p", "true", on.Message("a"), on.MessageExpression("b"), on.Everything(), on.Label("a", "b"), on.In(nil),
		on.Operations("CREATE"), on.Subresource("scale"))
}

func rightInActivities() {
	on.Startup(start, on.ID("a"), on.Param(1), on.In(nil), on.Errors(on.Permanent), on.Timeout(1), on.Retries(1), on.Backoff(1))
	on.Cleanup(start, on.ID("a"), on.Retries(1))
	on.Login(login, on.ID("a"), on.Timeout(1))
	on.Probe(probe, on.ID("a"), on.Backoff(1))
}

func wrongInActivities(found *kopf.Index[string, int]) {
	on.Startup(start, on.Resource("v1", "pods")) // ActivityOption
	on.Startup(start, on.Field("spec"))          // ActivityOption
	on.Startup(start, on.When(snapshot))         // ActivityOption
	on.Startup(start, on.Inject(nil))            // ActivityOption
	on.Cleanup(start, on.Label("a", "b"))        // ActivityOption
	on.Cleanup(start, on.Interval(1))            // ActivityOption
	on.Login(login, on.Uses(found))              // ActivityOption
	on.Login(login, on.Sensitive("spec"))        // ActivityOption
	on.Probe(probe, on.Operations("CREATE"))     // ActivityOption
	on.Probe(probe, on.Optional())               // ActivityOption
	on.Startup(login)                            // activities.Activity
	on.Login(start)                              // Credentials
	on.Probe(start)                              // (V, error)
	on.Cleanup(change)                           // Activity
	on.Event(event, on.ID("a"), on.Retries(1))   // EventOption
}

func wrongInBackground(found *kopf.Index[string, int]) {
	on.Daemon(watch, on.Old(1))                                    // DaemonOption
	on.Daemon(watch, on.Interval(1))                               // DaemonOption
	on.Daemon(watch, on.Sharp())                                   // DaemonOption
	on.Daemon(watch, on.Idle(1))                                   // DaemonOption
	on.Daemon(watch, on.Cron("@daily"))                            // DaemonOption
	on.Daemon(watch, on.Jitter(1))                                 // DaemonOption
	on.Daemon(watch, on.Uses(found))                               // DaemonOption
	on.Daemon(watch, on.Optional())                                // DaemonOption
	on.Timer(tick, on.New(1))                                      // TimerOption
	on.Timer(tick, on.Finalize())                                  // TimerOption
	on.Timer(tick, on.CancellationBackoff(1))                      // TimerOption
	on.Timer(tick, on.CancellationTimeout(1))                      // TimerOption
	on.Timer(tick, on.CancellationPolling(1))                      // TimerOption
	on.Timer(tick, on.Deleted())                                   // TimerOption
	on.Index(index, on.Uses(found))                                // IndexOption
	on.Index(index, on.InitialDelay(1))                            // IndexOption
	on.Index(index, on.Interval(1))                                // IndexOption
	on.Index(index, on.Old(1))                                     // IndexOption
	on.Index(index, on.Finalize())                                 // IndexOption
	on.Create(change, on.InitialDelay(1))                          // CreateOption
	on.Update(change, on.Interval(1))                              // UpdateOption
	on.Delete(change, on.Finalize())                               // DeleteOption
	on.Event(event, on.Uses(found))                                // EventOption
	on.Event(event, on.InitialDelay(1))                            // EventOption
	on.Daemon(tick)                                                // typed".Daemon[
	on.Timer(watch)                                                // typed".Tick[
	on.Index(flat)                                                 // map[K]V
	on.InitialDelayFunc(noAccessor)                                // "time".Duration
	on.Uses(index)                                                 // Index[K, V]
	var wrong *kopf.Index[string, string] = on.Index(index)        // Index[string, int]
	found.Replace("owner", nil)                                    // no field or method Replace
	kopf.NewMemo(func() int { return 1 }).Of(context.Background()) // typed".Memoized
	_ = wrong
}

func wrong() {
	on.Create(change, on.Old(1))                                 // CreateOption
	on.Create(change, on.New(1))                                 // CreateOption
	on.Create(change, on.Optional())                             // CreateOption
	on.Create(change, on.Deleted())                              // CreateOption
	on.Update(change, on.Optional())                             // UpdateOption
	on.Update(change, on.Deleted())                              // UpdateOption
	on.Delete(change, on.Deleted())                              // DeleteOption
	on.Delete(change, on.Old(1))                                 // DeleteOption
	on.Resume(change, on.Optional())                             // ResumeOption
	on.Resume(change, on.New(1))                                 // ResumeOption
	on.Event(event, on.Retries(1))                               // EventOption
	on.Event(event, on.Timeout(1))                               // EventOption
	on.Event(event, on.Backoff(1))                               // EventOption
	on.Event(event, on.Errors(on.Permanent))                     // EventOption
	on.Event(event, on.Old(1))                                   // EventOption
	on.Event(event, on.Optional())                               // EventOption
	on.FieldChange("spec.replicas", field, on.Field("spec"))     // FieldChangeOption
	on.FieldChange("spec.replicas", field, on.Path("spec"))      // FieldChangeOption
	on.FieldChange("spec.replicas", field, on.FieldOf(accessor)) // FieldChangeOption
	on.FieldChange("spec.replicas", field, on.Optional())        // FieldChangeOption
	on.Create(event)                                             // typed".Change[
	on.Event(change)                                             // typed".Event[
	on.FieldChange("spec.replicas", change)                      // FieldChange
	on.Create(noContext)                                         // func(context.Context
	on.Create(noError)                                           // func(context.Context
	on.Create(result)                                            // func(context.Context
	on.FieldOf(noAccessor)                                       // func(T) *V
	on.In("registry")                                            // registry.Registry
	on.Create[*corev1.Pod](change)                               // Change[*"k8s.io/api/core/v1".Pod]
}

func wrongAtAdmission(found *kopf.Index[string, int]) {
	on.Validate(validate, on.Retries(1))                              // ValidateOption
	on.Validate(validate, on.Timeout(1))                              // ValidateOption
	on.Validate(validate, on.Old(1))                                  // ValidateOption
	on.Validate(validate, on.Uses(found))                             // ValidateOption
	on.Validate(validate, on.Message("x"))                            // ValidateOption
	on.Mutate(validate, on.Errors(on.Ignored))                        // MutateOption
	on.Mutate(validate, on.Backoff(1))                                // MutateOption
	on.Mutate(validate, on.Optional())                                // MutateOption
	on.Mutate(change)                                                 // typed".Admission[
	on.Create(change, on.Operations("CREATE"))                        // CreateOption
	on.Event(event, on.Subresource("status"))                         // EventOption
	on.Update(change, on.Persistent())                                // UpdateOption
	on.Delete(change, on.SideEffects())                               // DeleteOption
	on.Timer(tick, on.IgnoreFailures())                               // TimerOption
	on.ValidateCEL[*appsv1.Deployment]("x", "true", on.ID("x"))       // PolicyOption
	on.ValidateCEL[*appsv1.Deployment]("x", "true", on.Field("spec")) // PolicyOption
	on.ValidateCEL[*appsv1.Deployment]("x", "true", on.Persistent())  // PolicyOption
}
