package simulated_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/kopf-go/kopf/internal/simulated"
)

var widgetsGVR = schema.GroupVersionResource{Group: "demo.example", Version: "v1", Resource: "widgets"}

func widgetKind() simulated.Kind {
	return simulated.Kind{GroupVersion: "demo.example/v1", Kind: "Widget", Plural: "widgets", Namespaced: true, Status: true}
}

// env is a server with a client-go client, which must be content with it.
type env struct {
	*testing.T
	server  *simulated.Server
	widgets *simulated.Collection
	client  dynamic.ResourceInterface
}

func run(t *testing.T, test func(env)) {
	synctest.Test(t, func(t *testing.T) {
		server := simulated.New()
		widgets := server.Serve(widgetKind())
		client, err := dynamic.NewForConfig(server.Config())
		if err != nil {
			t.Fatal(err)
		}
		test(env{t, server, widgets, client.Resource(widgetsGVR).Namespace("default")})
	})
}

func (e env) create(name string, fields map[string]any, finalizers ...string) *unstructured.Unstructured {
	e.Helper()
	o := simulated.Object("default", name, fields)
	o.SetFinalizers(finalizers)
	o, err := e.widgets.Create(o)
	if err != nil {
		e.Fatal(err)
	}
	return o
}

func (e env) patch(name, patch string, subresources ...string) (*unstructured.Unstructured, error) {
	return e.client.Patch(e.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
}

func (e env) mustPatch(name, patch string, subresources ...string) *unstructured.Unstructured {
	e.Helper()
	o, err := e.patch(name, patch, subresources...)
	if err != nil {
		e.Fatal(err)
	}
	return o
}

func spec(key string, value any) map[string]any {
	return map[string]any{"spec": map[string]any{key: value}}
}

func TestPatch(t *testing.T) {
	run(t, func(e env) {
		t := e.T
		w := e.create("w1", spec("size", 1))
		if w.GetGeneration() != 1 || w.GetUID() == "" {
			t.Fatal(w)
		}
		same := e.mustPatch("w1", `{"spec":{"size":1},"status":{"phase":"x"}}`)
		if same.GetResourceVersion() != w.GetResourceVersion() || same.Object["status"] != nil {
			t.Error("the main endpoint took a status", same)
		}
		next := e.mustPatch("w1", `{"spec":{"size":2}}`)
		if next.GetGeneration() != 2 || next.GetResourceVersion() == w.GetResourceVersion() {
			t.Error(next)
		}
		done := e.mustPatch("w1", `{"spec":{"size":3},"status":{"phase":"x"}}`, "status")
		if size, _, _ := unstructured.NestedInt64(done.Object, "spec", "size"); size != 2 || done.GetGeneration() != 2 || done.Object["status"] == nil {
			t.Error("the status endpoint", done)
		}
		_, err := e.patch("w1", `{"metadata":{"resourceVersion":"`+w.GetResourceVersion()+`"},"spec":{"size":4}}`)
		if !apierrors.IsConflict(err) {
			t.Error("stale version:", err)
		}
		_, err = e.patch("w1", `{"metadata":{"uid":"other"},"spec":{"size":4}}`)
		if !apierrors.IsInvalid(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldValueInvalid) {
			t.Error("other uid:", err)
		}
		_, err = e.patch("w1", `{"metadata":{"annotations":{"a":"`+strings.Repeat("x", 1<<18)+`"}}}`)
		if !apierrors.IsInvalid(err) {
			t.Error("too large:", err)
		}
		if _, err = e.patch("w2", `{}`); !apierrors.IsNotFound(err) {
			t.Error("absent:", err)
		}
	})
}

func TestFinalizers(t *testing.T) {
	run(t, func(e env) {
		t := e.T
		e.create("w1", nil, "x/a", "x/b")
		if err := e.client.Delete(e.Context(), "w1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w := e.widgets.Get("default", "w1")
		if w.GetDeletionTimestamp() == nil || w.GetGeneration() != 2 {
			t.Fatal(w)
		}
		if _, err := e.patch("w1", `{"metadata":{"finalizers":["x/a","x/b","x/c"]}}`); !apierrors.IsInvalid(err) {
			t.Error("a new finalizer:", err)
		}
		w = e.mustPatch("w1", `{"metadata":{"finalizers":["x/b"]}}`)
		last := e.mustPatch("w1", `{"metadata":{"finalizers":null}}`)
		if last.GetResourceVersion() != w.GetResourceVersion() {
			t.Error("the version moved on")
		}
		if e.widgets.Get("default", "w1") != nil {
			t.Error("it is still there")
		}
	})
}

func TestWatch(t *testing.T) {
	run(t, func(e env) {
		t := e.T
		first := e.create("w1", spec("size", 1))
		yes := true
		w, err := e.client.Watch(t.Context(), metav1.ListOptions{
			SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		next := func() watch.Event { return <-w.ResultChan() }
		if event := next(); event.Type != watch.Added {
			t.Fatal(event)
		}
		if event := next(); event.Type != watch.Bookmark || event.Object.(*unstructured.Unstructured).GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			t.Fatal(event)
		}
		if event := next(); event.Type != watch.Bookmark || time.Since(begun) != time.Minute {
			t.Fatal(event, time.Since(begun))
		}
		e.mustPatch("w1", `{"spec":{"size":2}}`)
		if event := next(); event.Type != watch.Modified {
			t.Fatal(event)
		}
		e.server.DelayWatches(3 * time.Second)
		e.mustPatch("w1", `{"spec":{"size":3}}`)
		began := time.Now()
		if event := next(); event.Type != watch.Modified || time.Since(began) != 3*time.Second {
			t.Fatal(event)
		}
		e.server.DelayWatches(0)
		release := e.server.Hold()
		if err := e.widgets.Delete("default", "w1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		release()
		if event := next(); event.Type != watch.Deleted {
			t.Fatal(event)
		}
		e.server.CutWatches()
		for event := range w.ResultChan() {
			if event.Type != watch.Error && event.Type != watch.Bookmark { // the former is client-go's word for it
				t.Fatal("it goes on", event)
			}
		}

		w, err = e.client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: first.GetResourceVersion()})
		if err != nil {
			t.Fatal(err)
		}
		var types []watch.EventType
		for range 3 {
			types = append(types, next().Type)
		}
		if !slices.Equal(types, []watch.EventType{watch.Modified, watch.Modified, watch.Deleted}) {
			t.Error(types)
		}
		w.Stop()
		e.server.Compact()
		w, err = e.client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: first.GetResourceVersion()})
		if err != nil {
			t.Fatal(err)
		}
		if event := next(); event.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
			t.Error(event)
		}
		w.Stop()
		synctest.Wait()
		if n := e.server.Watches(); n != 0 {
			t.Error(n, "watches are open")
		}
	})
}

func TestWatchThroughSelector(t *testing.T) {
	run(t, func(e env) {
		t := e.T
		w, err := e.client.Watch(t.Context(), metav1.ListOptions{LabelSelector: "a=b", ResourceVersion: e.server.Version()})
		if err != nil {
			t.Fatal(err)
		}
		e.create("w1", nil)
		e.mustPatch("w1", `{"metadata":{"labels":{"a":"b"}}}`)
		e.mustPatch("w1", `{"metadata":{"labels":{"a":"c"}}}`)
		if event := <-w.ResultChan(); event.Type != watch.Added {
			t.Error(event)
		}
		if event := <-w.ResultChan(); event.Type != watch.Deleted {
			t.Error(event)
		}
		w.Stop()
	})
}

func TestSelectByName(t *testing.T) {
	run(t, func(e env) {
		t := e.T
		e.create("w1", nil)
		e.create("w2", nil)
		only := metav1.ListOptions{FieldSelector: "metadata.name=w2"}
		list, err := e.client.List(t.Context(), only)
		if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "w2" {
			t.Error(list, err)
		}
		only.ResourceVersion = e.server.Version()
		w, err := e.client.Watch(t.Context(), only)
		if err != nil {
			t.Fatal(err)
		}
		e.mustPatch("w1", `{"spec":{"size":2}}`)
		e.mustPatch("w2", `{"spec":{"size":2}}`)
		if event := <-w.ResultChan(); event.Type != watch.Modified || event.Object.(*unstructured.Unstructured).GetName() != "w2" {
			t.Error(event)
		}
		w.Stop()
	})
}

func TestFaults(t *testing.T) {
	run(t, func(e env) {
		t := e.T
		e.create("w1", spec("size", 1))
		e.server.Before(simulated.On{Verb: "patch", Skip: 1, Times: 1}, simulated.Always(simulated.Fail(409)))
		e.mustPatch("w1", `{"spec":{"size":2}}`)
		if _, err := e.patch("w1", `{"spec":{"size":3}}`); !apierrors.IsConflict(err) {
			t.Error(err)
		}
		e.server.After(simulated.On{Verb: "patch", Times: 1}, simulated.Always(simulated.Drop()))
		if _, err := e.patch("w1", `{"spec":{"size":4}}`); !errors.As(err, new(*net.OpError)) {
			t.Error(err)
		}
		e.server.Before(simulated.On{Verb: "patch", Times: 1}, simulated.Always(&simulated.Fault{Code: 429, RetryAfter: 7 * time.Second}))
		begun := time.Now()
		w := e.mustPatch("w1", `{"spec":{"size":5}}`)
		if time.Since(begun) != 7*time.Second {
			t.Error("repeated after", time.Since(begun))
		}
		if w.GetGeneration() != 4 {
			t.Error("generation", w.GetGeneration())
		}
		if n := e.server.Count(simulated.On{Verb: "patch", Resource: "widgets"}); n != 5 {
			t.Error(n, "patches")
		}
		e.server.Before(simulated.On{Verb: "get", Times: 1}, simulated.Always(&simulated.Fault{Hang: true}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := e.client.Get(ctx, "w1", metav1.GetOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestPagesAndPruning(t *testing.T) {
	run(t, func(e env) {
		t := e.T
		kind := widgetKind()
		kind.Keeps = []string{"spec", "status.phase"}
		e.server.Serve(kind)
		for _, name := range []string{"a", "b", "c"} {
			e.create(name, map[string]any{"spec": map[string]any{"x": 1}, "data": 1})
		}
		list, err := e.client.List(t.Context(), metav1.ListOptions{Limit: 2})
		if err != nil || len(list.Items) != 2 || list.Items[0].Object["data"] != nil {
			t.Fatal(list, err)
		}
		list, err = e.client.List(t.Context(), metav1.ListOptions{Limit: 2, Continue: list.GetContinue()})
		if err != nil || len(list.Items) != 1 || list.GetContinue() != "" {
			t.Fatal(list, err)
		}
		w := e.mustPatch("a", `{"status":{"phase":"p","other":1}}`, "status")
		if status := w.Object["status"].(map[string]any); len(status) != 1 {
			t.Error(status)
		}
		d, err := discovery.NewDiscoveryClientForConfig(e.server.Config())
		if err != nil {
			t.Fatal(err)
		}
		if _, resources, err := d.ServerGroupsAndResources(); err != nil || len(resources) != 3 {
			t.Error(resources, err)
		}
		if _, err := d.ServerResourcesForGroupVersion("none/v1"); !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}
