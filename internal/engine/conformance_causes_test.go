package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// logsOf are the lines about an object.
func (w *world) logsOf(name string) (found []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.logs {
		if strings.Contains(line, "object="+ns+"/"+name+" ") || strings.HasSuffix(line, "object="+ns+"/"+name) {
			found = append(found, line)
		}
	}
	return found
}

// What is gone, not ours, or unchanged is not handled, and nothing is said of it.
func TestNothingToDo(t *testing.T) {
	for name, test := range map[string]struct {
		register func(handlers)
		prepare  func(*world)
		act      func(*world)
		writes   []string
	}{
		"T001 T084 gone": {
			register: func(h handlers) { h.create("create", nil); h.update("update", nil); h.resume("resume", nil) },
			act:      func(w *world) { w.delete("w1") },
		},
		"T001 gone, though somebody's finalizer is shown": { // the last one is, with the event
			register: func(h handlers) {
				h.create("create", nil)
				h.update("update", nil)
				h.resume("resume", nil, on.Deleted())
			},
			prepare: func(w *world) { w.update("w1", finalizedBy("x/y")); w.delete("w1") },
			act:     func(w *world) { w.update("w1", finalizedBy()) },
		},
		"T002 T084 free": {
			register: func(h handlers) { h.create("create", nil); h.update("update", nil) },
			prepare:  func(w *world) { w.update("w1", finalizedBy("x/y")); w.delete("w1") },
			act:      func(w *world) { w.resize("w1", 2) },
		},
		"T005 T084 noop": {
			register: handlers.all,
			act:      func(w *world) { w.touchStatus("w1", "x") },
		},
		"T087 FLT-13 out of scope": {
			register: func(h handlers) {
				only := on.Label("none", "such")
				h.create("create", nil, only)
				h.update("update", nil, only)
				h.delete("delete", nil, only)
				h.resume("resume", nil, only)
			},
			prepare: func(w *world) { w.create("w2", 1) },
			act:     func(w *world) { w.resize("w1", 2); w.resize("w2", 2); w.delete("w2") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.start(test.register)
				w.create("w1", 1)
				w.settle()
				if test.prepare != nil {
					test.prepare(w)
					w.settle()
				}
				w.mark()
				said := len(w.logsOf("w1"))
				test.act(w)
				w.sleep(10 * time.Minute)
				w.expect()
				w.writes()
				if lines := w.logsOf("w1"); len(lines) != said {
					t.Errorf("it is talked about: %q", lines[said:])
				}
			})
		})
	}
}

// The event of the deletion still shows our finalizer, for that was the last one:
// nothing is left to be written.
func TestDeletionEventShowsOurFinalizer_T085_FIN9_T108(t *testing.T) {
	scenario(t, func(w *world) {
		var shown []string
		w.start(func(h handlers) {
			h.all()
			on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
				if e.Type == "DELETED" {
					shown = e.Object.Finalizers
				}
				return nil
			}, on.ID("event"), on.In(h.r), forWidgets)
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.delete("w1")
		w.sleep(10 * time.Minute)
		w.gone("w1")
		if !slices.Equal(shown, []string{finalizer}) {
			t.Errorf("the event shows %q", shown)
		}
		// The answer to the write has the version from before it, which is no sign of
		// fields that the schema does not keep (FIN-9).
		w.expectAnyTime("delete w1 #0 1→1")
		w.writes("patch widgets")
		for _, line := range w.logsOf("w1") {
			if strings.Contains(line, "WARN") {
				t.Error(line)
			}
		}
	})
}

// The same, but somebody else's finalizer goes a moment before ours: the object is gone
// when we write, and that is no error.
func TestLastFinalizerGoesUnderOurWrite_FIN9(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(handlers.all)
		w.create("w1", 1)
		w.settle()
		w.server.Before(simulated.On{Verb: "patch", Times: 1}, func(simulated.Request) *simulated.Fault {
			w.update("w1", finalizedBy())
			return nil
		})
		w.mark()
		w.delete("w1")
		w.sleep(10 * time.Minute)
		w.gone("w1")
		w.expectAnyTime("delete w1 #0 1→1")
		w.writes("patch widgets 404")
	})
}

// Handlers of one resource hear nothing of another, and their filters are not asked.
func TestHandlersOfTwoResources_T012_T017(t *testing.T) {
	scenario(t, func(w *world) {
		gadgets := w.server.Serve(simulated.Kind{
			GroupVersion: "demo.example/v1", Kind: "Gadget", Plural: "gadgets", Namespaced: true, Status: true,
		})
		forGadgets := on.Resource("demo.example/v1", "gadgets")
		w.start(func(h handlers) {
			h.create("widget", nil)
			on.Create(h.change("gadget", nil), on.ID("gadget"), on.In(h.r), forGadgets)
			h.create("widget2", nil, on.When(func(_ context.Context, s *kopf.Snapshot[*widget]) bool {
				if s.Object.Kind != "Widget" {
					t.Errorf("a filter was asked about a %s", s.Object.Kind)
				}
				return true
			}))
			on.Create(h.change("gadget2", nil), on.ID("gadget2"), on.In(h.r), forGadgets)
		})
		w.mark()
		w.create("w1", 1)
		w.settle()
		if _, err := gadgets.Create(simulated.Object(ns, "g1", map[string]any{"spec": map[string]any{"size": int64(2)}})); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.expectAnyTime("widget w1 #0 →1", "widget2 w1 #0 →1", "gadget g1 #0 →2", "gadget2 g1 #0 →2")
	})
}

// Any change handler without filters keeps all objects in scope: what is handled is
// known of them, so that one that begins to match another handler's filter is not
// taken for a new one.
func TestHandlerWithoutFiltersKeepsAllInScope_FLT14(t *testing.T) {
	scenario(t, func(w *world) {
		gold := on.Label("tier", "gold")
		w.start(func(h handlers) {
			h.create("create", nil, gold)
			h.update("gold", nil, gold)
			h.delete("delete", nil, gold)
			h.resume("any", nil) // is for no change at all, but has no filter
		})
		w.create("w1", 1)
		w.settle()
		w.expect()
		if w.handledSize("w1") != 1 {
			t.Error("what is in scope is not recorded as handled")
		}
		w.finalizers("w1") // the scope does not hold it
		w.mark()
		w.update("w1", label("tier", "gold"))
		w.settle()
		w.expectAnyTime("gold w1 #0 1→1")
		w.finalizers("w1", finalizer)
	})
}

// Filters are asked about events of the object, never of their own.
func TestFiltersAreAskedAtEvents_FLT16(t *testing.T) {
	scenario(t, func(w *world) {
		open, asked := false, 0
		w.start(func(h handlers) {
			h.create("create", nil, on.When(func(context.Context, *kopf.Snapshot[*widget]) bool {
				asked++
				return open
			}))
		})
		w.mark()
		w.create("w1", 1)
		w.settle()
		open = true
		before := asked
		w.sleep(time.Hour)
		if asked != before {
			t.Error("the filter was asked without an event")
		}
		w.expect()
		w.touchStatus("w1", "x")
		w.settle()
		w.expectAnyTime("create w1 #0 →1")
	})
}

// Event handlers whose filters an object leaves are not called, and need no event to
// make up for it when it is back.
func TestEventHandlerWithFilter_FLT17(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
				w.note(fmt.Sprintf("%s %s %d", e.Object.Name, e.Type, e.Object.Spec.Size))
				return nil
			}, on.ID("event"), on.In(h.r), forWidgets, on.Label("tier", "gold"))
		})
		w.create("w1", 1, label("tier", "gold"))
		w.settle()
		w.update("w1", label("tier", "silver"))
		w.settle()
		w.resize("w1", 2)
		w.settle()
		w.update("w1", label("tier", "gold"))
		w.settle()
		w.delete("w1")
		w.settle()
		w.expect("w1 ADDED 1", "w1 MODIFIED 2", "w1 DELETED 2")
		w.writes()
	})
}

// Labels and annotations are a part of what counts, but for those that operators and
// kubectl keep their own books in.
func TestLabelsAndAnnotationsAreEssential_FLT18(t *testing.T) {
	for name, test := range map[string]struct {
		edit   func(widgetObj)
		counts bool
	}{
		"a label":            {label("a", "b"), true},
		"an annotation":      {annotation("a", "b"), true},
		"kubectl's":          {annotation("kubectl.kubernetes.io/last-applied-configuration", "{}"), false},
		"another operator's": {annotation("other.kopf.zalando.org/last-handled-configuration", "{}"), false},
		"a marked operator's": {func(o widgetObj) {
			annotation("op.example.com/kopf-managed", "yes")(o)
			annotation("op.example.com/h", "{}")(o)
		}, false},
		"kubectl's restart": {annotation("kubectl.kubernetes.io/restartedAt", "now"), true},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.start(handlers.all)
				w.create("w1", 1)
				w.settle()
				w.mark()
				w.update("w1", test.edit)
				w.sleep(time.Minute)
				if test.counts {
					w.expectAnyTime("update w1 #0 1→1")
				} else {
					w.expect()
					w.writes()
				}
			})
		})
	}
}

// Which handlers hold an object: delete handlers that are not optional, and only if the
// object is in their scope.
func TestWhatHoldsAnObject_FIN1_FIN2(t *testing.T) {
	for name, test := range map[string]struct {
		operator string
		register func(handlers)
		want     []string
	}{
		"no delete handler": {register: func(h handlers) { h.create("create", nil); h.update("update", nil); h.resume("resume", nil) }},
		"a delete handler":  {register: func(h handlers) { h.delete("delete", nil) }, want: []string{finalizer}},
		"an optional one":   {register: func(h handlers) { h.delete("delete", nil, on.Optional()) }},
		"one of two is optional": {register: func(h handlers) {
			h.delete("a", nil, on.Optional())
			h.delete("b", nil)
		}, want: []string{finalizer}},
		"for another label": {register: func(h handlers) {
			h.create("create", nil)
			h.delete("delete", nil, on.Label("a", "other"))
		}},
		"for this label": {register: func(h handlers) { h.delete("delete", nil, on.Label("a", "b")) }, want: []string{finalizer}},
		"for a field that is not there": {register: func(h handlers) {
			h.create("create", nil)
			h.delete("delete", nil, on.Field("spec.color"))
		}},
		"for a field that is there": {register: func(h handlers) { h.delete("delete", nil, on.Field("spec.size")) }, want: []string{finalizer}},
		"a filter says no": {register: func(h handlers) {
			h.create("create", nil)
			h.delete("delete", nil, on.When(func(context.Context, *kopf.Snapshot[*widget]) bool { return false }))
		}},
		"resuming of deleted objects": {register: func(h handlers) { h.resume("resume", nil, on.Deleted()) }},
		"an operator with a name": {operator: "mine", register: func(h handlers) { h.delete("delete", nil) },
			want: []string{"mine.kopf.zalando.org/finalizer"}},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.startAs(test.operator, test.register)
				w.create("w1", 1, label("a", "b"))
				w.sleep(time.Minute)
				w.finalizers("w1", test.want...)
			})
		})
	}
}

// The handlers for one object run one at a time, and its events are told in order;
// event handlers do not wait for change handlers, though.
func TestOneAtATimeForEachObject_ORD1(t *testing.T) {
	scenario(t, func(w *world) {
		changing, observing := map[string]int{}, map[string]int{}
		both := false
		var told []string
		enter := func(counts map[string]int, name string) func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if counts[name]++; counts[name] > 1 {
				t.Errorf("two handlers of %s at a time", name)
			}
			both = both || changing[name] > 0 && observing[name] > 0
			return func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				counts[name]--
			}
		}
		slow := func(ctx context.Context, c *change) error {
			defer enter(changing, c.Object.Name)()
			return sleeping(700*time.Millisecond)(ctx, c)
		}
		w.start(func(h handlers) {
			h.create("a", slow)
			h.create("b", slow)
			h.update("c", slow)
			h.update("d", slow)
			h.delete("e", slow)
			on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
				defer enter(observing, e.Object.Name)()
				time.Sleep(90 * time.Millisecond)
				if e.Object.Name == "w1" {
					w.mu.Lock()
					told = append(told, fmt.Sprint(e.Type, " ", e.Object.Spec.Size))
					w.mu.Unlock()
				}
				return nil
			}, on.ID("event"), on.In(h.r), forWidgets)
		})
		for size := range 30 {
			for _, name := range []string{"w1", "w2"} {
				if size == 0 {
					w.create(name, 0)
				} else {
					w.resize(name, size)
				}
			}
			w.sleep(50 * time.Millisecond)
		}
		w.delete("w1")
		w.sleep(time.Minute)
		if !both {
			t.Error("event handlers have waited for change handlers")
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		told = slices.Compact(told) // our own writes have the size of the event before
		var want []string
		for size := range 30 {
			want = append(want, fmt.Sprint("MODIFIED ", size))
		}
		want = slices.Insert(want, 0, "ADDED 0")
		want = append(want, "DELETED 29")
		if !slices.Equal(told, want) {
			t.Errorf("told %q", told)
		}
	})
}

// Resume handlers are called along with update handlers, in order of registration and
// with the reason of the update; with creation they are not.
func TestResumptionMixesWithUpdates_CHG5(t *testing.T) {
	scenario(t, func(w *world) {
		reason := func(_ context.Context, c *change) error { w.note(string(c.Reason)); return nil }
		register := func(h handlers) {
			h.update("a", reason)
			h.resume("b", reason)
			h.create("c", reason)
			h.update("d", reason)
			h.resume("e", reason)
		}
		o := w.start(register)
		w.create("w1", 1)
		w.settle()
		w.expectAnyTime("c w1 #0 →1", "create")
		_ = o.stop()
		w.resize("w1", 2)
		w.mark()
		w.start(register)
		w.expectAnyTime("a w1 #0 1→2", "update", "b w1 #0 1→2", "update", "d w1 #0 1→2", "update", "e w1 #0 1→2", "update")
		_ = w.operators[len(w.operators)-1].stop()
		w.mark()
		w.start(register)
		w.expectAnyTime("b w1 #0 2→2", "resume", "e w1 #0 2→2", "resume")
		w.writes()
	})
}

// An object that leaves the scope of the delete handlers, but not that of others: the
// finalizer goes with what else there is to write, and comes back before anything else.
func TestLeavingTheDeleteHandlersOnly_FIN4(t *testing.T) {
	for name, deleting := range map[string]bool{"alive": false, "being deleted": true} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				gold := on.Label("tier", "gold")
				w.start(func(h handlers) {
					h.create("create", nil)
					h.update("update", nil)
					h.delete("delete", failing(kopf.Retry(time.Minute, errFlop)), gold)
				})
				w.create("w1", 1, label("tier", "gold"))
				w.settle()
				w.finalizers("w1", finalizer)
				if deleting {
					w.delete("w1")
					w.settle()
				}
				w.mark()
				w.update("w1", label("tier", "silver"))
				w.sleep(10 * time.Minute)
				w.writes("patch widgets")
				if deleting {
					w.expect()
					w.gone("w1")
					return
				}
				w.expectAnyTime("update w1 #0 1→1")
				w.finalizers("w1")
				w.mark()
				w.update("w1", label("tier", "gold"))
				w.sleep(time.Minute)
				w.finalizers("w1", finalizer)
				w.expectAnyTime("update w1 #0 1→1")
				w.writes("patch widgets", "patch widgets")
			})
		})
	}
}
