package engine_test

import (
	"testing"
	"time"

	"github.com/kopf-go/kopf/internal/simulated"
)

// B33, NS-5: a namespace that is being deleted is served until it is gone, and its
// successor of the same name like any other.
func TestNamespaceComesAndGoes_NS5_T041_X19(t *testing.T) {
	scenario(t, func(w *world) {
		w.spaces = []string{"team-*"}
		spaces := w.server.Collection("v1", "namespaces")
		begin := func() {
			o := simulated.Object("", "team-a", nil)
			o.SetFinalizers([]string{"controller"}) // of who empties the namespace first
			if _, err := spaces.Create(o); err != nil {
				t.Fatal(err)
			}
			w.sleep(time.Second)
			widget := simulated.Object("team-a", "w1", map[string]any{"spec": map[string]any{"size": int64(1)}})
			if _, err := w.widgets.Create(widget); err != nil {
				t.Fatal(err)
			}
			w.sleep(time.Second)
			w.expectSet("create w1 #0 →1")
		}
		w.start(handlers.all)
		idle := w.server.Watches()
		begin()
		if err := spaces.Delete("", "team-a"); err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Second)
		w.mark()
		if err := w.widgets.Delete("team-a", "w1"); err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Second)
		w.expectSet("delete w1 #0 1→1") // the namespace is still served
		if w.widgets.Get("team-a", "w1") != nil {
			t.Error("w1 is held in a namespace that is being deleted")
		}
		if _, err := spaces.Update("", "team-a", func(o widgetObj) { o.SetFinalizers(nil) }); err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Second)
		if n := w.server.Watches(); n != idle {
			t.Errorf("%d watches, %d before the namespace was there", n, idle)
		}
		w.mark()
		begin()
	})
}

// Objects whose deletion was not seen before their namespace was gone are gone, too.
func TestNamespaceTakesItsObjectsAlong(t *testing.T) {
	scenario(t, func(w *world) {
		w.spaces = []string{"team-*"}
		spaces := w.server.Collection("v1", "namespaces")
		if _, err := spaces.Create(simulated.Object("", "team-a", nil)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.widgets.Create(simulated.Object("team-a", "w1", nil)); err != nil {
			t.Fatal(err)
		}
		w.start(func(h handlers) { h.events() })
		w.sleep(time.Second)
		w.mark()
		if err := spaces.Delete("", "team-a"); err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Second)
		w.expectAnyTime("event w1 DELETED 0")
	})
}
