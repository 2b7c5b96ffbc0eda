package stream_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/internal/stream"
)

var (
	things = schema.GroupVersionResource{Group: "demo.example", Version: "v1", Resource: "things"}
	thing  = schema.GroupVersionKind{Group: "demo.example", Version: "v1", Kind: "Thing"}
)

// bare checks that a body is the metadata of a thing, and nothing else.
func bare(t *testing.T, b *body.Body, name string) {
	t.Helper()
	tree, err := b.Tree()
	if err != nil {
		t.Fatal(err)
	}
	if len(tree) != 3 || b.APIVersion != "demo.example/v1" || b.Kind != "Thing" || tree["kind"] != "Thing" ||
		tree["apiVersion"] != "demo.example/v1" || b.Name != name || b.UID == "" || b.ResourceVersion == "" {
		t.Errorf("got %s", b.Raw())
	}
}

// What is asked for is the metadata, and the objects are of their own kind all the
// same: in streamed and plain lists, in watches, and in responses.
func TestMetadataOnly(t *testing.T) {
	for name, legacy := range map[string]bool{"served as asked": false, "of a server that gives whole objects": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testMetadataOnly(t, legacy) })
		})
	}
}

func testMetadataOnly(t *testing.T, whole bool) {
	server := simulated.New()
	server.WholeObjects = whole
	collection := server.Serve(simulated.Kind{GroupVersion: "demo.example/v1", Kind: "Thing", Plural: "things", Namespaced: true, Status: true})
	if _, err := collection.Create(simulated.Object("ns", "a", map[string]any{"spec": map[string]any{"size": 1}})); err != nil {
		t.Fatal(err)
	}
	all, err := stream.NewClient(server.Config(), nil)
	if err != nil {
		t.Fatal(err)
	}
	client := all.MetadataOnly(thing)
	var events []stream.Event
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	s := stream.New(stream.Options{
		Client: client, GVR: things, GVK: thing, OnEvent: func(e stream.Event) { events = append(events, e) },
		OnError: func(f stream.Failure) {
			if f.Reason != stream.Expired && f.Reason != stream.Unreachable {
				t.Error(f)
			}
		},
	})
	go func() { defer close(done); s.Run(ctx) }()
	synctest.Wait()
	if _, err := collection.Update("ns", "a", func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"x": "y"}) }); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	server.Compact() // what is missed now comes by a list
	server.CutWatches()
	if _, err := collection.Create(simulated.Object("ns", "b", map[string]any{"spec": map[string]any{"size": 1}})); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if len(events) != 3 || events[0].Type != stream.Listed || events[1].Type != stream.Modified || events[2].Type != stream.Added {
		t.Fatalf("got %+v", events)
	}
	bare(t, events[0].Body, "a")
	bare(t, events[1].Body, "a")
	bare(t, events[2].Body, "b")
	if events[1].Body.Labels["x"] != "y" {
		t.Errorf("got %s", events[1].Body.Raw())
	}

	b, err := client.Get(ctx, things, "ns", "a")
	if err != nil {
		t.Fatal(err)
	}
	bare(t, b, "a")
	for _, sub := range [][]string{nil, {"status"}} {
		if b, err = client.Patch(ctx, things, "ns", "a", types.MergePatchType, []byte(`{"status":{"phase":"p"},"metadata":{"labels":{"x":"z"}}}`), sub...); err != nil {
			t.Fatal(err)
		}
		bare(t, b, "a")
	}
	if o := collection.Get("ns", "a"); o.GetLabels()["x"] != "z" || o.Object["status"].(map[string]any)["phase"] != "p" || o.Object["spec"] == nil {
		t.Errorf("on the server is %v", o.Object)
	}
	if _, err = client.Get(ctx, things, "ns", "none"); !apierrors.IsNotFound(err) {
		t.Errorf("a Status is not taken for an object: %v", err)
	}
	if b, err = all.Get(ctx, things, "ns", "a"); err != nil || !strings.Contains(string(b.Raw()), `"size":1`) {
		t.Errorf("the other client gets %s, %v", b.Raw(), err)
	}
	cancel()
	<-done
}

// A plain list is one of metadata, too.
func TestMetadataOnlyList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := simulated.New()
		collection := server.Serve(simulated.Kind{GroupVersion: "demo.example/v1", Kind: "Thing", Plural: "things", Namespaced: true})
		if _, err := collection.Create(simulated.Object("ns", "a", map[string]any{"spec": map[string]any{"size": 1}})); err != nil {
			t.Fatal(err)
		}
		remove := server.Before(simulated.On{Verb: "watch"}, simulated.Always(simulated.Fail(422))) // no streamed lists
		defer remove()
		client, err := stream.NewClient(server.Config(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var events []stream.Event
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		s := stream.New(stream.Options{
			Client: client.MetadataOnly(thing), GVR: things, GVK: thing, OnEvent: func(e stream.Event) { events = append(events, e) },
		})
		go func() { defer close(done); s.Run(ctx) }()
		synctest.Wait()
		cancel()
		<-done
		lists := server.Requests(simulated.On{Verb: "list"})
		if len(events) != 1 || len(lists) == 0 || !strings.HasPrefix(lists[0].Accept, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1") {
			t.Fatalf("got %+v, asked %+v", events, lists)
		}
		bare(t, events[0].Body, "a")
	})
}
