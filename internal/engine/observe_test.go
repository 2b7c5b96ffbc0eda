package engine_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// EVT-5, X12: what an event handler changes is written, once, and then there is silence.
func TestEventHandlerPatches_X12(t *testing.T) {
	for name, disturb := range map[string]func(w *world){
		"undisturbed": func(*world) {},
		"conflict": func(w *world) { // somebody else adds a finalizer just before our list arrives
			w.server.Before(simulated.On{Verb: "patch", Times: 1}, func(simulated.Request) *simulated.Fault {
				w.update("w1", func(o widgetObj) { o.SetFinalizers(append(o.GetFinalizers(), "x/y")) })
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.start(func(h handlers) { h.patchingEvents() })
				disturb(w)
				w.create("w1", 1)
				w.sleep(time.Second)
				finalizers := w.get("w1").GetFinalizers()
				if !slices.Contains(finalizers, "example.com/seen") || name == "conflict" && !slices.Contains(finalizers, "x/y") {
					t.Errorf("finalizers are %q", finalizers)
				}
				w.quiet(10 * time.Minute)
				w.update("w1", func(o widgetObj) { o.SetFinalizers(nil) })
				w.delete("w1")
				w.sleep(time.Second)
			})
		})
	}
}

// EVT-3: what cannot be written is said and dropped; events go on.
func TestEventHandlerPatchIsRefused(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("changes by event handlers could not be written")
		w.server.Before(simulated.On{Verb: "patch", Times: 1}, simulated.Always(&simulated.Fault{Code: http.StatusForbidden}))
		w.start(func(h handlers) { h.patchingEvents() })
		w.create("w1", 1)
		w.sleep(time.Second)
		if len(w.errorLogs("changes by event handlers could not be written")) != 1 {
			t.Error("nobody hears of it")
		}
		w.resize("w1", 2)
		w.sleep(time.Second)
		if !slices.Contains(w.get("w1").GetFinalizers(), "example.com/seen") {
			t.Error("the next event is not handled")
		}
	})
}

// The API server may delete an object that got its finalizer a moment ago. Side effects
// may have begun, so its delete handlers are called, if only from the deletion event.
func TestObjectThatSlippedAway(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(handlers.all)
		w.create("w1", 1)
		w.settle()
		w.mark()
		if err := w.widgets.Vanish(ns, "w1"); err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Minute)
		w.expectAnyTime("delete w1 #0 1→1")
		w.writes()
	})
}

// A last-handled record that somebody has spoilt is an error of that object, said and
// repeated with pauses; it does not keep the object from being deleted.
func TestSpoiltLastHandled_DB6(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("handling failed, will be tried again")
		w.start(handlers.all)
		w.create("w1", 1)
		w.create("w2", 1)
		w.settle()
		w.mark()
		w.update("w1", annotation(lastHandledName, "{spoilt"))
		w.resize("w2", 2)
		w.settle()
		w.expectAnyTime("update w2 #0 1→2")
		if logs := w.errorLogs("handling failed"); len(logs) == 0 || !strings.Contains(logs[0], lastHandledName) {
			t.Errorf("the annotation is not named: %q", logs)
		}
		w.mark()
		w.delete("w1")
		w.sleep(time.Minute)
		w.gone("w1")
		if calls := w.called(); len(calls) != 1 || !strings.HasPrefix(calls[0], "delete w1") {
			t.Errorf("calls: %q", calls)
		}
	})
}

func (h handlers) patchingEvents() {
	on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
		e.Patch.Apply(func(o *widget) {
			if !slices.Contains(o.Finalizers, "example.com/seen") && o.DeletionTimestamp == nil {
				o.Finalizers = append(o.Finalizers, "example.com/seen")
			}
		})
		return nil
	}, on.ID("patching"), on.In(h.r), forWidgets)
}

// What an event handler changes of an object that is gone is written nowhere, least of
// all to its successor of the same name.
func TestEventHandlerPatchesWhatIsGone_T093(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
				if e.Type == "DELETED" {
					e.Patch.Apply(func(o *widget) { o.Spec.Color = "gone" })
				}
				return nil
			}, on.ID("event"), on.In(h.r), forWidgets)
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.delete("w1")
		w.create("w1", 2)
		w.sleep(time.Minute)
		w.writes()
	})
}
