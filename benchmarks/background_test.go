package benchmarks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/on"
)

const (
	backgroundObjects = 10_000
	tickInterval      = 5 * time.Second
	tickTime          = 4 * tickInterval // of the measurement
)

// BenchmarkBackground has 10,000 handled objects that nothing happens to, and measures
// what a timer, or a daemon, for each of them costs beside them.
func BenchmarkBackground(b *testing.B) {
	type cost struct{ heap, stacks, ending, left float64 }
	kinds := []string{"idle", "timers", "daemons", "daemons-object"}
	runs := map[string][]cost{}
	for b.Loop() {
		for _, kind := range kinds {
			p := start(b, kind, eventGroup, backgroundObjects)
			now := p.ask(b, "heap")
			last := p.stop(b)
			runs[kind] = append(runs[kind], cost{float64(now.Heap), float64(now.Stacks), last.Ending.Seconds(), float64(last.Left)})
		}
	}
	of := func(kind string, field func(cost) float64) float64 { return median(runs[kind], field) }
	heap, stacks := func(c cost) float64 { return c.heap }, func(c cost) float64 { return c.stacks }
	// What is kept of an object is its bytes, in an allocation of the next larger size.
	kept := float64(cap(bytes.Clone(objectBytes())))
	b.ReportMetric(kept, "B/object-kept")
	for _, kind := range kinds[1:] {
		b.ReportMetric((of(kind, heap)-of("idle", heap))/backgroundObjects-kept, "heap-B/"+kind)
		b.ReportMetric((of(kind, stacks)-of("idle", stacks))/backgroundObjects, "stack-B/"+kind)
		b.ReportMetric(of(kind, func(c cost) float64 { return c.ending }), "s-to-end/"+kind)
		b.ReportMetric(of(kind, func(c cost) float64 { return c.left }), "goroutines-left/"+kind)
	}
	b.ReportMetric(0, "ns/op")
}

// objectBytes is an object as it comes over the watch.
func objectBytes() []byte {
	line := (&eventStream{api: newEventAPI(backgroundObjects), kind: "ADDED"}).appendEvent(nil)
	var event struct{ Object json.RawMessage }
	if err := json.Unmarshal(line, &event); err != nil {
		panic(err) // plain data
	}
	return event.Object
}

// runIdle is an operator for whose objects there is nothing to do.
func runIdle(ctx context.Context, o operatorOptions) error {
	return runBackground(ctx, o, o.ready, func(on.AnyOption, on.AnyOption) {})
}

// begun calls back when it was called for as many objects as there are.
func begun(o operatorOptions) (count func()) {
	return func() {
		if handled.Add(1) == int64(o.objects) {
			o.ready()
		}
	}
}

// runTimers has a timer for each of them, which ticks once in the beginning.
func runTimers(ctx context.Context, o operatorOptions) error {
	begins := begun(o)
	return runBackground(ctx, o, nil, func(widgets, in on.AnyOption) {
		on.Timer(func(context.Context, *kopf.Tick[*Widget]) error {
			begins()
			return nil
		}, widgets, in, on.ID("timer"), on.Interval(time.Hour), on.Jitter(0))
	})
}

// runDaemons has a daemon for each of them, which waits for its end.
func runDaemons(ctx context.Context, o operatorOptions) error {
	begins := begun(o)
	return runBackground(ctx, o, nil, func(widgets, in on.AnyOption) {
		on.Daemon(func(ctx context.Context, _ *kopf.Daemon[*Widget]) error {
			begins()
			<-ctx.Done()
			return context.Cause(ctx)
		}, widgets, in, on.ID("daemon"))
	})
}

// runDaemonsWithObject has one that looks at its object whenever that has changed.
func runDaemonsWithObject(ctx context.Context, o operatorOptions) error {
	begins := begun(o)
	return runBackground(ctx, o, nil, func(widgets, in on.AnyOption) {
		on.Daemon(func(ctx context.Context, d *kopf.Daemon[*Widget]) error {
			for {
				if err := tick(d.Object()); err != nil {
					return err
				}
				begins()
				select {
				case <-d.Changed():
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}, widgets, in, on.ID("daemon"))
	})
}

// runBackground is an operator for objects that were handled before. known is called
// when it knows them.
func runBackground(ctx context.Context, o operatorOptions, known func(), register func(widgets, in on.AnyOption)) error {
	api := newEventAPI(o.objects)
	return runStreamed(ctx, api, listed, known, func(widgets, in on.AnyOption) {
		on.Create(unexpected, widgets, in, on.ID("create"))
		on.Update(unexpected, widgets, in, on.ID("update"))
		on.Delete(unexpected, widgets, in, on.ID("delete"))
		register(widgets, in)
	})
}

// runStreamed is an operator for widgets from a watch that needs no control plane. heard is
// called, if there is such a function, when the operator has said a message.
func runStreamed(ctx context.Context, api *eventAPI, message string, heard func(), register func(widgets, in on.AnyOption)) error {
	reg := kopf.NewRegistry()
	register(on.Resource(eventGroup+"/v1", cluster.Plural), on.In(reg))
	var out slog.Handler = slog.NewTextHandler(io.Discard, nil)
	if heard != nil {
		out = &listener{out, message, api.objects, heard}
	}
	operator, err := kopf.New(kopf.Options{Registry: reg, Config: streamed(api), Logger: slog.New(out)})
	if err != nil {
		return err
	}
	return operator.Run(ctx)
}

func streamed(api http.RoundTripper) *rest.Config {
	return &rest.Config{Host: "http://events.invalid", Transport: api, QPS: -1}
}

// BenchmarkTicks has something done for each of 10,000 objects every five seconds: by a
// timer, and by a reconciler that asks to be called again.
func BenchmarkTicks(b *testing.B) {
	type cost struct{ cpu, heap float64 }
	kinds := []string{"ticks", "requeue"}
	runs := map[string][]cost{}
	for b.Loop() {
		for _, kind := range kinds {
			empty := start(b, kind, eventGroup, 0)
			baseline := empty.ask(b, "heap")
			empty.stop(b)
			p := start(b, kind, eventGroup, backgroundObjects)
			before := p.ask(b, "usage")
			time.Sleep(tickTime)
			after := p.ask(b, "usage")
			now := p.ask(b, "heap")
			p.stop(b)
			ticks := after.Handled - before.Handled
			if least := int64(0.5 * backgroundObjects * tickTime.Seconds() / tickInterval.Seconds()); ticks < least {
				b.Errorf("%s: %d ticks in %s, %d expected", kind, ticks, tickTime, least)
			}
			runs[kind] = append(runs[kind], cost{
				float64((after.CPU - before.CPU).Microseconds()) / float64(ticks),
				float64(now.Heap+now.Stacks-baseline.Heap-baseline.Stacks) / backgroundObjects,
			})
		}
	}
	medians := map[string]cost{}
	for _, kind := range kinds {
		medians[kind] = cost{
			median(runs[kind], func(c cost) float64 { return c.cpu }),
			median(runs[kind], func(c cost) float64 { return c.heap }),
		}
		b.ReportMetric(medians[kind].cpu, "cpu-µs/tick-"+kind)
		b.ReportMetric(medians[kind].heap, "B/object-"+kind)
	}
	b.ReportMetric(medians["ticks"].cpu/medians["requeue"].cpu, "cpu-ratio")
	b.ReportMetric(medians["ticks"].heap/medians["requeue"].heap, "heap-ratio")
	b.ReportMetric(0, "ns/op")
}

// runTicks is the operator with this library.
func runTicks(ctx context.Context, o operatorOptions) error {
	begins := begun(o)
	var known func()
	if o.objects == 0 {
		known = o.ready
	}
	return runBackground(ctx, o, known, func(widgets, in on.AnyOption) {
		on.Timer(func(_ context.Context, t *kopf.Tick[*Widget]) error {
			begins()
			return tick(t.Object)
		}, widgets, in, on.ID("timer"), on.Interval(tickInterval), on.Sharp(), on.Jitter(tickInterval))
	})
}

// tick is what is done each time: somebody looks at the object.
func tick(w *Widget) error {
	if w.Spec.Value != 8 {
		return fmt.Errorf("value is %d", w.Spec.Value)
	}
	return nil
}

// runRequeue is the same by hand.
func runRequeue(ctx context.Context, o operatorOptions) error {
	manager, err := localManager(newEventAPI(o.objects))
	if err != nil {
		return err
	}
	begins, c := begun(o), manager.GetClient()
	err = ctrl.NewControllerManagedBy(manager).Named("widgets").For(&Widget{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 100}).
		Complete(reconcileFunc(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			var w Widget
			if err := c.Get(ctx, r.NamespacedName, &w); err != nil {
				return ctrl.Result{}, client.IgnoreNotFound(err)
			}
			begins()
			return ctrl.Result{RequeueAfter: tickInterval}, tick(&w)
		}))
	if err != nil {
		return err
	}
	if o.objects == 0 {
		go func() {
			if manager.GetCache().WaitForCacheSync(ctx) {
				o.ready()
			}
		}()
	}
	return manager.Start(ctx)
}

type reconcileFunc func(context.Context, ctrl.Request) (ctrl.Result, error)

func (f reconcileFunc) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	return f(ctx, r)
}

// localManager is a manager of controller-runtime for widgets from a watch that needs no
// control plane.
func localManager(api *eventAPI) (ctrl.Manager, error) {
	return ctrl.NewManager(streamed(api), ctrl.Options{
		Scheme:  widgetScheme(eventGroup),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Logger:  logr.FromSlogHandler(slog.NewTextHandler(io.Discard, nil)),
		Cache:   cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(schema.GroupVersionKind{Group: eventGroup, Version: "v1", Kind: cluster.Kind}, meta.RESTScopeNamespace)
			return mapper, nil
		},
	})
}
