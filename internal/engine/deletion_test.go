package engine_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// FIN-3, X22: the finalizer is on the object, and confirmed, before any handler is
// called, whatever goes wrong with putting it on.
func TestFinalizerBeforeHandlers_FIN3_X22(t *testing.T) {
	// B30, second variant: somebody adds another finalizer right before.
	addOther := func(w *world) func(simulated.Request) *simulated.Fault {
		return func(simulated.Request) *simulated.Fault {
			w.update("w1", func(o widgetObj) { o.SetFinalizers(append(o.GetFinalizers(), "x/c")) })
			return nil
		}
	}
	tests := map[string]struct {
		disturb func(*world)
		after   time.Duration // of the handler
		error   bool
		want    []string // finalizers
	}{
		"undisturbed": {func(*world) {}, 0, false, []string{"x/a", finalizer}},
		"conflict": {func(w *world) {
			w.server.Before(simulated.On{Verb: "patch", Times: 1}, addOther(w))
		}, 0, false, []string{"x/a", "x/c", finalizer}},
		"refused three times": {func(w *world) {
			w.server.Before(simulated.On{Verb: "patch", Times: 3}, simulated.Always(simulated.Fail(http.StatusConflict)))
		}, 0, false, []string{"x/a", finalizer}},
		"server error": {func(w *world) {
			w.server.Before(simulated.On{Verb: "patch", Times: 2}, simulated.Always(simulated.Fail(http.StatusInternalServerError)))
		}, 2 * time.Second, true, []string{"x/a", finalizer}},
		"too many requests": {func(w *world) {
			w.server.Before(simulated.On{Verb: "patch", Times: 2}, simulated.Always(&simulated.Fault{Code: 429, RetryAfter: 3 * time.Second}))
		}, 6 * time.Second, false, []string{"x/a", finalizer}},
		"answer lost": {func(w *world) {
			w.server.After(simulated.On{Verb: "patch", Times: 1}, simulated.Always(simulated.Drop()))
		}, time.Second, true, []string{"x/a", finalizer}},
		"request lost": {func(w *world) {
			w.server.Before(simulated.On{Verb: "patch", Times: 1}, simulated.Always(simulated.Drop()))
		}, time.Second, true, []string{"x/a", finalizer}},
		"slow answer, quick echo": {func(w *world) {
			w.server.After(simulated.On{Verb: "patch", Times: 1}, simulated.Always(simulated.Delay(4*time.Second)))
		}, 4 * time.Second, false, []string{"x/a", finalizer}},
		"late watch": {func(w *world) { w.server.DelayWatches(3 * time.Second) }, 3 * time.Second, false, []string{"x/a", finalizer}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.start(func(h handlers) {
					h.create("create", func(context.Context, *change) error {
						if !slices.Contains(w.get("w1").GetFinalizers(), finalizer) {
							t.Error("called without the finalizer")
						}
						return nil
					})
					h.delete("delete", nil)
				})
				if test.error {
					w.allow("handling failed, will be tried again")
				}
				w.mark()
				test.disturb(w)
				w.create("w1", 1, finalizedBy("x/a"))
				w.sleep(time.Minute)
				w.expect("create w1 #0 →1 +" + test.after.String())
				w.finalizers("w1", test.want...)
				w.quiet(10 * time.Minute)
			})
		})
	}
}

// B29: the finalizer goes after the last of the delete handlers.
func TestSeveralDeleteHandlers_FIN6_FIN10(t *testing.T) {
	scenario(t, func(w *world) {
		held := func(context.Context, *change) error {
			w.finalizers("w1", "x/a", finalizer)
			return nil
		}
		w.start(func(h handlers) {
			h.delete("d1", held)
			h.delete("d2", failing(kopf.Retry(5*time.Second, nil)))
			h.delete("d3", held)
		})
		w.create("w1", 1, finalizedBy("x/a"))
		w.settle()
		w.mark()
		w.delete("w1")
		w.sleep(time.Second)
		w.update("w1", label("a", "b")) // an event meanwhile is no reason to begin anew
		w.sleep(time.Minute)
		w.expect("d1 w1 #0 1→1 +0s", "d2 w1 #0 1→1 +0s", "d3 w1 #0 1→1 +0s", "d2 w1 #1 1→1 +5s")
		w.finalizers("w1", "x/a")
		w.writes("patch widgets", "patch widgets")
		w.noProgress("w1")
		w.mark()
		w.touchStatus("w1", "x")
		w.update("w1", label("a", "c"))
		w.sleep(10 * time.Minute)
		w.expect()
		w.writes()
	})
}

// B30: others' finalizers neither vanish nor come back.
func TestForeignFinalizers_FIN8_PAT7(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(handlers.all)
		w.create("w1", 1, finalizedBy("x/a", "x/b"))
		w.settle()
		w.finalizers("w1", "x/a", "x/b", finalizer)
		w.mark()
		w.server.Before(simulated.On{Verb: "patch", Times: 1}, func(simulated.Request) *simulated.Fault {
			w.update("w1", func(o widgetObj) { o.SetFinalizers([]string{"x/b", finalizer}) })
			return nil
		})
		w.delete("w1")
		w.sleep(time.Minute)
		w.finalizers("w1", "x/b")
		w.expect("delete w1 #0 1→1 +0s")
		w.writes("patch widgets 409", "patch widgets")
	})
}

// FIN-5, B34: what is terminating at the start.
func TestTerminatingAtStart_FIN5(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.start(handlers.all)
		for _, name := range []string{"w1", "w2", "w3"} {
			w.create(name, 1)
		}
		w.settle()
		_ = o.stop()
		w.delete("w1")
		w.update("w2", finalizedBy("x/y"))
		w.delete("w2")
		w.create("w4", 1, finalizedBy("x/y"))
		w.delete("w4")
		w.mark()
		w.start(handlers.all)
		w.sleep(time.Minute)
		calls := w.called()
		slices.Sort(calls)
		if !slices.Equal(calls, []string{"delete w1 #0 1→1 +0s", "resume w3 #0 1→1 +0s"}) {
			t.Error(calls)
		}
		w.gone("w1")
		w.finalizers("w2", "x/y")
		w.finalizers("w4", "x/y")
		w.writes("patch widgets")
	})
}

// Design §4: a finalizer that no handler needs any more is taken off at the start.
func TestOrphanedFinalizer_FIN4(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.start(handlers.all)
		w.create("w1", 1, finalizedBy("x/y"))
		w.create("w2", 1)
		w.settle()
		_ = o.stop()
		w.delete("w2")
		w.mark()
		w.start(func(h handlers) { h.create("create", nil) })
		w.sleep(time.Minute)
		w.finalizers("w1", "x/y")
		w.gone("w2")
		w.writes("patch widgets", "patch widgets")
		w.expect()
	})
}

// B35, FIN-4, FLT-13: objects that the filters leave out are not touched; one that
// leaves them is cleaned up with one write.
func TestFilteredObjects_FLT13_FLT15_X10(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) {
			h.create("create", func(_ context.Context, c *change) error {
				if c.Object.Name == "stuck" {
					return kopf.Retry(time.Hour, errFlop)
				}
				return nil
			}, on.Label("team", "a"))
			h.delete("delete", nil, on.Label("team", "a"))
		}
		w.start(register)
		for _, name := range []string{"o1", "o2", "o3", "o4"} {
			w.create(name, 1)
		}
		w.settle()
		w.writes()
		w.create("w1", 1, label("team", "a"))
		w.create("stuck", 1, label("team", "a"))
		w.settle()
		w.finalizers("w1", finalizer)
		w.mark()
		w.update("w1", label("team", "b"))
		w.update("stuck", label("team", "b"))
		w.settle()
		w.writes("patch widgets", "patch widgets")
		w.finalizers("w1")
		w.finalizers("stuck")
		w.noProgress("stuck")
		w.mark()
		w.delete("w1")
		w.settle()
		w.gone("w1")
		w.sleep(2 * time.Hour)
		w.writes()
		w.expect()
		w.update("stuck", label("team", "a")) // X10
		w.settle()
		w.expectAnyTime("create stuck #0 →1")
	})
}

// FIN-4: leaving the filter while the deletion is being handled releases the object.
func TestLeavingFilterDuringDeletion_FIN4_FLT15(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.delete("delete", func(context.Context, *change) error { return kopf.Retry(time.Minute, errFlop) }, on.Label("team", "a"))
		})
		w.create("w1", 1, label("team", "a"))
		w.settle()
		w.delete("w1")
		w.sleep(time.Second)
		w.update("w1", label("team", "b"))
		w.settle()
		w.gone("w1")
	})
}

// X09, FIN-7: delete handlers that hold nothing.
func TestOptionalDelete_FIN7_X09(t *testing.T) {
	optional := func(h handlers) { h.delete("optional", nil, on.Optional()) }
	t.Run("alone", func(t *testing.T) {
		scenario(t, func(w *world) {
			w.start(optional)
			w.create("w1", 1)
			w.settle()
			w.finalizers("w1")
			w.mark()
			w.delete("w1")
			w.sleep(time.Minute)
			w.expect("optional w1 #0 1→1 +0s")
			w.writes()
		})
	})
	t.Run("alone, retried from memory", func(t *testing.T) {
		scenario(t, func(w *world) {
			w.start(func(h handlers) {
				h.delete("optional", failing(kopf.Retry(5*time.Second, errFlop)), on.Optional())
			})
			w.create("w1", 1)
			w.settle()
			w.mark()
			w.delete("w1")
			w.sleep(time.Minute)
			w.expect("optional w1 #0 1→1 +0s", "optional w1 #1 1→1 +5s")
			w.writes()
		})
	})
	t.Run("held by another", func(t *testing.T) {
		scenario(t, func(w *world) {
			o := w.start(optional)
			w.create("w1", 1, finalizedBy("x/y"))
			w.settle()
			w.mark()
			w.delete("w1")
			w.sleep(time.Minute)
			w.expect("optional w1 #0 1→1 +0s")
			w.touchStatus("w1", "x")
			w.update("w1", label("a", "b"))
			w.sleep(time.Minute)
			_ = o.stop()
			w.start(optional)
			w.sleep(time.Minute)
			w.update("w1", label("a", "c"))
			w.sleep(time.Minute)
			w.update("w1", finalizedBy())
			w.sleep(time.Minute)
			w.gone("w1")
			w.expect("optional w1 #0 1→1 +0s")
		})
	})
	t.Run("with a mandatory sibling", func(t *testing.T) {
		scenario(t, func(w *world) {
			w.start(func(h handlers) {
				optional(h)
				h.delete("mandatory", failing(kopf.Retry(5*time.Second, nil)))
			})
			w.create("w1", 1)
			w.settle()
			w.mark()
			w.delete("w1")
			w.sleep(time.Minute)
			w.expect("optional w1 #0 1→1 +0s", "mandatory w1 #0 1→1 +0s", "mandatory w1 #1 1→1 +5s")
			w.gone("w1")
		})
	})
	t.Run("with a mandatory sibling and held by another", func(t *testing.T) {
		scenario(t, func(w *world) {
			register := func(h handlers) { optional(h); h.delete("mandatory", nil) }
			o := w.start(register)
			w.create("w1", 1, finalizedBy("x/y"))
			w.settle()
			w.mark()
			w.delete("w1")
			w.sleep(time.Minute)
			w.touchStatus("w1", "x")
			w.sleep(time.Minute)
			_ = o.stop()
			w.start(register)
			w.sleep(time.Minute)
			w.update("w1", finalizedBy())
			w.sleep(time.Minute)
			w.gone("w1")
			w.expect("optional w1 #0 1→1 +0s", "mandatory w1 #0 1→1 +0s")
		})
	})
	t.Run("and its creation is still tried", func(t *testing.T) {
		scenario(t, func(w *world) {
			w.start(func(h handlers) {
				optional(h)
				h.create("create", func(context.Context, *change) error { return kopf.Retry(time.Minute, errFlop) })
			})
			w.create("w1", 1)
			w.settle()
			w.mark()
			w.delete("w1")
			w.sleep(10 * time.Minute)
			w.expect("optional w1 #0 →1 +0s")
		})
	})
}

// X23, 404: the object vanishes under a running handler.
func TestObjectVanishesUnderHandler_X23(t *testing.T) {
	for name, back := range map[string]bool{"for good": false, "re-created under the same name (B09)": true} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.start(func(h handlers) {
					h.create("create", func(_ context.Context, c *change) error {
						time.Sleep(10 * time.Second)
						c.Patch.Apply(func(w *widget) { w.Spec.Color = "color of size " + string(rune('0'+c.New.Spec.Size)) })
						c.SetResult("ok")
						return nil
					})
				})
				w.mark()
				w.create("w1", 1)
				w.sleep(time.Second)
				w.delete("w1")
				if back {
					w.create("w1", 2)
				}
				w.sleep(10 * time.Minute)
				if !back {
					w.expect("create w1 #0 →1 +0s")
					return
				}
				w.expect("create w1 #0 →1 +0s", "create w1 #0 →2 +1s")
				w.noProgress("w1")
				if color := w.get("w1").Object["spec"].(map[string]any)["color"]; color != "color of size 2" {
					t.Error("the second object got what was meant for the first:", color)
				}
			})
		})
	}
}

// The same, but no event tells of it in time: right before a write the object vanishes,
// and perhaps another one takes its name (B09). Each kind of write is met.
func TestWriteMeetsAnotherObject_T105(t *testing.T) {
	patch := func(_ context.Context, c *change) error {
		if c.Object.Spec.Size < 10 {
			c.Patch.Apply(func(w *widget) { w.Status.Phase = "of the first" })
		}
		return nil
	}
	retry := func(_ context.Context, c *change) error {
		if c.Object.Spec.Size < 10 {
			return kopf.Retry(5*time.Second, errFlop)
		}
		return nil
	}
	tests := map[string]struct {
		register func(handlers)
		resource string
		before   func(*world) // with the object being handled
		act      func(*world)
		calls    []string
	}{
		"finalizer": {
			func(h handlers) { h.create("create", nil); h.delete("delete", nil) }, "widgets",
			nil, func(w *world) { w.create("w1", 1) }, nil,
		},
		"creation": {
			func(h handlers) { h.create("create", nil) }, "widgets",
			nil, func(w *world) { w.create("w1", 1) }, []string{"create w1 #0 →1"},
		},
		"status": {
			func(h handlers) { h.create("create", patch) }, "widgets/status",
			nil, func(w *world) { w.create("w1", 1) }, []string{"create w1 #0 →1"},
		},
		"progress": {
			func(h handlers) { h.create("create", retry) }, "widgets",
			nil, func(w *world) { w.create("w1", 1) }, []string{"create w1 #0 →1"},
		},
		"checkpoint": {
			func(h handlers) { h.create("create", nil); h.create("slow", sleeping(10*time.Second)) }, "widgets",
			nil, func(w *world) { w.create("w1", 1) }, []string{"create w1 #0 →1", "slow w1 #0 →1"},
		},
		"update": {
			func(h handlers) { h.create("create", nil); h.update("update", nil) }, "widgets",
			func(w *world) { w.create("w1", 1) }, func(w *world) { w.resize("w1", 2) }, []string{"update w1 #0 1→2"},
		},
		"deletion": {
			func(h handlers) { h.create("create", nil); h.delete("delete", nil) }, "widgets",
			func(w *world) { w.create("w1", 1) }, func(w *world) { w.delete("w1") }, []string{"delete w1 #0 1→1"},
		},
		"release": {
			func(h handlers) {
				h.create("create", nil, on.Label("a", "b"))
				h.delete("delete", nil, on.Label("a", "b"))
			}, "widgets",
			func(w *world) { w.create("w1", 1, label("a", "b")) }, func(w *world) { w.update("w1", label("a", "c")) }, nil,
		},
	}
	for name, test := range tests {
		for _, back := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, re-created: %t", name, back), func(t *testing.T) {
				scenario(t, func(w *world) {
					w.start(test.register)
					if test.before != nil {
						test.before(w)
						w.settle()
					}
					w.server.Before(simulated.On{Verb: "patch", Resource: test.resource, Times: 1}, func(simulated.Request) *simulated.Fault {
						w.server.DelayWatches(20 * time.Second)
						w.update("w1", finalizedBy())
						if w.widgets.Get(ns, "w1") != nil {
							w.delete("w1")
						}
						if back {
							w.create("w1", 11, label("a", "b"))
						}
						return nil
					})
					w.mark()
					test.act(w)
					w.sleep(15 * time.Second)
					if got := w.called(); len(got) != len(test.calls) {
						t.Error("before the events:", got)
					}
					w.sleep(10 * time.Minute)
					var first, second []string
					for _, call := range w.called() {
						call, _, _ = strings.Cut(call, " +")
						if strings.Contains(call, "→11") {
							second = append(second, call)
						} else {
							first = append(first, call)
						}
					}
					if !slices.Equal(first, test.calls) {
						t.Error("calls for the first:", first)
					}
					if back && (len(second) == 0 || second[0] != "create w1 #0 →11") {
						t.Error("calls for the second:", second)
					}
					if back {
						w.noProgress("w1")
						if w.handledSize("w1") != 11 || w.get("w1").Object["status"] != nil {
							t.Error(w.get("w1"))
						}
					}
					w.quiet(10 * time.Minute)
				})
			})
		}
	}
}

// B04: an object that does not decode is complained of once when it is a filter that
// finds out, is handled when it is mended, and can be deleted.
func TestUndecodableForFilters_B04(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("cannot be handled until it is changed", "failed for good")
		w.start(func(h handlers) {
			all := on.When(func(context.Context, *kopf.Snapshot[*widget]) bool { return true })
			h.create("create", nil, all)
			h.update("update", nil, all)
			h.delete("delete", nil, all)
		})
		w.create("w1", 1)
		w.create("w2", 1)
		w.settle()
		w.mark()
		for _, name := range []string{"w1", "w2"} {
			w.update(name, func(o widgetObj) { set(o, "large", "spec", "size") })
		}
		w.sleep(time.Hour)
		if n := len(w.errorLogs("cannot be handled")); n != 2 {
			t.Errorf("%d error logs", n)
		}
		w.expect()
		w.resize("w1", 3)
		w.settle()
		w.expectAnyTime("update w1 #0 1→3")
		w.delete("w2")
		w.settle()
		w.gone("w2")
		w.delete("w1")
		w.settle()
		w.gone("w1")
	})
}
