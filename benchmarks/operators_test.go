package benchmarks

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/on"
)

// All operators do the same job: they handle creations, changes of the spec or the
// labels, and deletions, which a finalizer holds up; they know what was handled last
// from an annotation; and they say in status.observed what they have handled. Both
// write one line per handled change to a log that nobody keeps.

// handled counts calls of handlers.
var handled atomic.Int64

// runKopf is the operator with this library.
func runKopf(ctx context.Context, o operatorOptions) error {
	reg := kopf.NewRegistry()
	widgets, in := on.Resource(o.group+"/v1", cluster.Plural), on.In(reg)
	on.Create(observe, widgets, in, on.ID("create"))
	on.Update(observe, widgets, in, on.ID("update"))
	on.Delete(func(context.Context, *kopf.Change[*Widget]) error {
		handled.Add(1)
		return nil
	}, widgets, in, on.ID("delete"))
	out := slog.NewTextHandler(io.Discard, nil)
	operator, err := kopf.New(kopf.Options{
		Registry: reg, Config: o.config, Logger: slog.New(&listener{out, listed, o.objects, o.ready}),
	})
	if err != nil {
		return err
	}
	return operator.Run(ctx)
}

func observe(_ context.Context, c *kopf.Change[*Widget]) error {
	handled.Add(1)
	c.Patch.Apply(func(w *Widget) { w.Status.Observed = c.New.Spec.Value })
	return nil
}

// What operators say when they know all objects, or have indexed them.
const (
	listed  = "watching"
	indexed = "indices are complete"
)

// listener finds out from the log when the operator knows all objects.
type listener struct {
	slog.Handler
	message string
	objects int
	ready   func()
}

func (l *listener) Handle(ctx context.Context, record slog.Record) error {
	if record.Message == l.message {
		all := true
		record.Attrs(func(a slog.Attr) bool {
			all = all && (a.Key != "objects" || a.Value.Int64() == int64(l.objects))
			return true
		})
		if all {
			l.ready()
		}
	}
	return l.Handler.Handle(ctx, record)
}

func (l *listener) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &listener{l.Handler.WithAttrs(attrs), l.message, l.objects, l.ready}
}

func (l *listener) WithGroup(name string) slog.Handler {
	return &listener{l.Handler.WithGroup(name), l.message, l.objects, l.ready}
}

// runTyped is the operator by hand on a typed cache.
func runTyped(ctx context.Context, o operatorOptions) error {
	return runPeer(ctx, o, &reconciler{
		make:    func() client.Object { return &Widget{} },
		essence: func(w client.Object) string { return essenceOf(&w.(*Widget).Spec, w.GetLabels()) },
		value:   func(w client.Object) int64 { return w.(*Widget).Spec.Value },
	})
}

// runUnstructured is the operator by hand on a cache of untyped objects.
func runUnstructured(ctx context.Context, o operatorOptions) error {
	gvk := schema.GroupVersionKind{Group: o.group, Version: "v1", Kind: cluster.Kind}
	return runPeer(ctx, o, &reconciler{
		make: func() client.Object {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(gvk)
			return u
		},
		essence: func(w client.Object) string {
			return essenceOf(w.(*unstructured.Unstructured).Object["spec"], w.GetLabels())
		},
		value: func(w client.Object) int64 {
			value, _, _ := unstructured.NestedInt64(w.(*unstructured.Unstructured).Object, "spec", "value")
			return value
		},
	})
}

func runPeer(ctx context.Context, o operatorOptions, r *reconciler) error {
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(io.Discard, nil)))
	manager, err := ctrl.NewManager(o.config, ctrl.Options{
		Scheme:  widgetScheme(o.group),
		Metrics: metricsserver.Options{BindAddress: "0"},
		// What a careful author does against the memory that nobody needs.
		Cache:  cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	})
	if err != nil {
		return err
	}
	r.client = manager.GetClient()
	r.tell = sync.OnceFunc(o.ready)
	r.expected = int64(o.objects)
	// What the operator writes itself, and who else writes the status, wakes nobody.
	changed := predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{})
	err = ctrl.NewControllerManagedBy(manager).Named("widgets").For(r.make(), builder.WithPredicates(changed)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 100}).Complete(r)
	if err != nil {
		return err
	}
	if o.objects == 0 {
		go func() {
			if manager.GetCache().WaitForCacheSync(ctx) {
				r.tell()
			}
		}()
	}
	return manager.Start(ctx)
}

// reconciler is the operator by hand. It writes merge patches of what it has to say,
// and goes on with the answers, so that nothing is read again.
type reconciler struct {
	client  client.Client
	make    func() client.Object
	essence func(client.Object) string
	value   func(client.Object) int64

	known    atomic.Int64 // objects that were looked at
	expected int64
	tell     func() // that all of them are known
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	w := r.make()
	if err := r.client.Get(ctx, request.NamespacedName, w); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	err := r.reconcile(ctx, w)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 10 * time.Millisecond}, nil // the newer object is on the way
	}
	if r.known.Add(1) == r.expected && err == nil {
		r.tell()
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

func (r *reconciler) reconcile(ctx context.Context, w client.Object) error {
	held := controllerutil.ContainsFinalizer(w, finalizer)
	if !w.GetDeletionTimestamp().IsZero() {
		if !held {
			return nil
		}
		handled.Add(1)
		log.FromContext(ctx).Info("deleted")
		controllerutil.RemoveFinalizer(w, finalizer)
		return r.writeFinalizers(ctx, w)
	}
	now, was := r.essence(w), w.GetAnnotations()[lastHandled]
	if held && was == now {
		return nil
	}
	if !held { // before any side effect
		controllerutil.AddFinalizer(w, finalizer)
		if err := r.writeFinalizers(ctx, w); err != nil {
			return err
		}
	}
	if was != "" { // a handler wants to know what has changed
		var old essence[WidgetSpec]
		if err := json.Unmarshal([]byte(was), &old); err != nil {
			return err
		}
		log.FromContext(ctx).Info("updated", "from", old.Spec.Value, "to", r.value(w))
	} else {
		log.FromContext(ctx).Info("created", "value", r.value(w))
	}
	handled.Add(1)
	status := fmt.Appendf(nil, `{"status":{"observed":%d}}`, r.value(w))
	if err := r.client.Status().Patch(ctx, w, client.RawPatch(types.MergePatchType, status)); err != nil {
		return err
	}
	return r.patch(ctx, w, map[string]any{"annotations": map[string]string{lastHandled: now}})
}

func (r *reconciler) writeFinalizers(ctx context.Context, w client.Object) error {
	return r.patch(ctx, w, map[string]any{"finalizers": w.GetFinalizers(), "resourceVersion": w.GetResourceVersion()})
}

func (r *reconciler) patch(ctx context.Context, w client.Object, metadata map[string]any) error {
	raw, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	return r.client.Patch(ctx, w, client.RawPatch(types.MergePatchType, raw))
}
