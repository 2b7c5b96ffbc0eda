package engine_test

import (
	"testing"
	"time"

	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// One stream for each resource and each namespace; one that ends takes its own streams
// along and no other, least of all those of resources without namespaces.
func TestStreamsOfNamespaces_T042_T043_NS7_ORC1_X19(t *testing.T) {
	scenario(t, func(w *world) {
		gadgets := w.server.Serve(simulated.Kind{
			GroupVersion: "demo.example/v1", Kind: "Gadget", Plural: "gadgets", Namespaced: true, Status: true,
		})
		planets := w.server.Serve(simulated.Kind{GroupVersion: "demo.example/v1", Kind: "Planet", Plural: "planets", Status: true})
		w.spaces = []string{"team-*"}
		spaces := w.server.Collection("v1", "namespaces")
		w.start(func(h handlers) {
			h.create("widget", nil)
			on.Create(h.change("gadget", nil), on.ID("gadget"), on.In(h.r), on.Resource("demo.example/v1", "gadgets"))
			on.Create(h.change("planet", nil), on.ID("planet"), on.In(h.r), on.Resource("demo.example/v1", "planets"))
		})
		build := func(where *simulated.Collection, namespace, name string) {
			w.Helper()
			o := simulated.Object(namespace, name, map[string]any{"spec": map[string]any{"size": int64(1)}})
			if _, err := where.Create(o); err != nil {
				t.Fatal(err)
			}
			w.sleep(time.Second)
		}
		watches := func(want int) {
			w.Helper()
			if n := w.server.Watches(); n != want {
				t.Errorf("%d watches, want %d", n, want)
			}
		}
		idle := w.server.Watches() // of planets, namespaces and whatever else is needed for it all
		build(planets, "", "p1")
		for _, name := range []string{"team-a", "other", "team-b"} {
			build(spaces, "", name)
		}
		watches(idle + 2*2)
		for _, namespace := range []string{"team-a", "team-b", "other"} {
			build(w.widgets, namespace, "w-in-"+namespace)
			build(gadgets, namespace, "g-in-"+namespace)
		}
		w.expectAnyTime("planet p1 #0 →1", "widget w-in-team-a #0 →1", "gadget g-in-team-a #0 →1",
			"widget w-in-team-b #0 →1", "gadget g-in-team-b #0 →1")
		w.mark()
		if err := spaces.Delete("", "team-a"); err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Second)
		watches(idle + 2)
		build(planets, "", "p2")
		build(w.widgets, "team-b", "w2")
		build(gadgets, "team-b", "g2")
		w.expectAnyTime("planet p2 #0 →1", "widget w2 #0 →1", "gadget g2 #0 →1")
	})
}

// After an own write, its answer is what the lane goes on with. It waits neither for the
// echo nor for a time-out.
func TestNoWaitForTheOwnEcho_T110(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(handlers.all)
		w.server.Before(simulated.On{Verb: "patch", Times: 1}, func(simulated.Request) *simulated.Fault {
			w.server.DelayWatches(3 * time.Second)
			return nil
		})
		w.mark()
		w.create("w1", 1)
		w.settle()
		w.expect("create w1 #0 →1 +0s") // the finalizer's echo is to come
		w.writes("patch widgets", "patch widgets")
		w.quiet(time.Minute) // and is no news when it comes
		w.expect("create w1 #0 →1 +0s")
	})
}
