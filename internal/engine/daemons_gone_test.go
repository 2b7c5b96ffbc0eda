package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// B01: a deletion that was missed is noticed at the new listing.
func TestMissedDeletion_B01_DMN9(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.engage(func(h handlers) {
			h.daemon("d", nil, on.Finalize())
			h.create("c", nil)
			h.update("u", nil)
		})
		for _, name := range []string{"w1", "w2", "w3"} {
			w.create(name, 1)
		}
		w.settle()
		w.mark()
		stop := w.server.Before(simulated.On{Verb: "watch", Resource: "widgets"}, simulated.Always(simulated.Fail(500)))
		w.server.CutWatches()
		w.resize("w1", 2)
		if err := w.widgets.Vanish(ns, "w3"); err != nil {
			t.Fatal(err)
		}
		w.server.Compact()
		stop()
		w.sleep(time.Minute)
		w.expectSet("u w1 #0 1→2", "d w3 leaves: deletion of the object was requested")
		if n := o.Employed(); n != 2 {
			t.Errorf("%d objects have daemons", n)
		}
		w.mark()
		w.create("w3", 1)
		w.settle()
		w.expectSet("d w3 #0 begins", "c w3 #0 →1")
	})
}

// What is gone for another reason than its own deletion.
func TestEverythingIsGone_DMN9(t *testing.T) {
	for name, vanish := range map[string]func(w *world){
		"resource withdrawn": func(w *world) { w.server.Withdraw("demo.example/v1", "widgets") },
		"no deletion timestamp": func(w *world) {
			if err := w.widgets.Vanish(ns, "w1"); err != nil {
				w.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("its handlers wait until it is")
				o := w.engage(func(h handlers) {
					h.daemon("d", nil)
					h.daemon("holding", lingering(time.Second), on.Finalize())
					h.timer("t", nil, on.Interval(time.Hour))
				})
				w.create("w1", 1)
				w.settle()
				w.mark()
				vanish(w)
				w.sleep(10 * time.Second)
				w.expectSet("d w1 leaves: deletion of the object was requested", "holding w1 leaves: deletion of the object was requested")
				w.quiet(3 * time.Hour)
				o.unemployed()
			})
		})
	}
}

func TestNamespaceIsGone_DMN9(t *testing.T) {
	scenario(t, func(w *world) {
		w.spaces = []string{"team-*"}
		namespaces := w.server.Collection("v1", "namespaces")
		if _, err := namespaces.Create(simulated.Object("", "team-a", nil)); err != nil {
			t.Fatal(err)
		}
		o := w.engage(func(h handlers) { h.daemon("d", nil) })
		made := simulated.Object("team-a", "w1", nil)
		if _, err := w.widgets.Create(made); err != nil {
			t.Fatal(err)
		}
		w.settle()
		release := w.server.Hold()
		if err := errors.Join(w.widgets.Vanish("team-a", "w1"), namespaces.Vanish("", "team-a")); err != nil {
			t.Fatal(err)
		}
		release()
		w.sleep(time.Minute)
		w.expectAnyTime("d w1 #0 begins", "d w1 leaves: deletion of the object was requested")
		o.unemployed()
	})
}

// B09: objects are known by their UID, and not by their name.
func TestSameNames_B09(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			on.Timer(func(_ context.Context, k *tick) error {
				w.note(fmt.Sprintf("%s/%s %s +%s", k.Object.Namespace, k.Object.Name, k.Object.UID, w.since()))
				return nil
			}, on.ID("t"), on.In(h.r), forWidgets, on.Interval(5*time.Second))
			h.daemon("d", lingering(2*time.Second))
			h.create("c", nil)
		})
		var uids []string
		w.mark()
		for i, space := range []string{"ns1", "ns2"} {
			o, err := w.widgets.Create(simulated.Object(space, "same", map[string]any{"spec": map[string]any{"size": int64(i)}}))
			if err != nil {
				t.Fatal(err)
			}
			uids = append(uids, string(o.GetUID()))
			w.sleep(time.Second)
		}
		w.sleep(5 * time.Second)
		for _, want := range []string{"ns1/same " + uids[0] + " +0s", "ns2/same " + uids[1] + " +1s", "ns1/same " + uids[0] + " +5s", "ns2/same " + uids[1] + " +6s"} {
			if !contains(w.called(), want) {
				t.Errorf("no %s", want)
			}
		}
		w.mark()
		if err := w.widgets.Delete("ns1", "same"); err != nil {
			t.Fatal(err)
		}
		o, err := w.widgets.Create(simulated.Object("ns1", "same", map[string]any{"spec": map[string]any{"size": int64(0)}}))
		if err != nil {
			t.Fatal(err)
		}
		uid := string(o.GetUID())
		w.sleep(7 * time.Second)
		w.expectSet("ns1/same "+uid, "c same #0 →0", "d same #0 begins", "ns2/same "+uids[1], "d same leaves: deletion of the object was requested", "ns1/same "+uid)
	})
}

func contains(calls []string, want string) bool {
	for _, c := range calls {
		if c == want {
			return true
		}
	}
	return false
}
