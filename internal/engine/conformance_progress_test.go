package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// A field that was changed, and the object deleted, while nobody was there: its handler is
// told of the change, with the reason of the deletion.
func TestFieldChangedBeforeDeletion_CHG6(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) {
			on.FieldChange("spec.color", func(_ context.Context, c *kopf.FieldChange[*widget, string]) error {
				w.note(fmt.Sprintf("%s %s %q→%q", c.Reason, c.Object.Name, c.Old, c.New))
				return nil
			}, on.ID("color"), on.In(h.r), forWidgets)
			h.delete("delete", nil)
		}
		o := w.start(register)
		w.create("w1", 1, func(o widgetObj) { set(o, "red", "spec", "color") })
		w.settle()
		_ = o.stop()
		w.update("w1", func(o widgetObj) { set(o, "blue", "spec", "color") })
		w.delete("w1")
		w.mark()
		w.start(register)
		w.sleep(time.Minute)
		w.expectAnyTime(`delete w1 "red"→"blue"`, "delete w1 #0 1→1")
		w.gone("w1")
	})
}

// A resumption that has failed for good is over, as one that has succeeded.
func TestResumptionFailsForGood_CHG3(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("failed for good")
		register := func(h handlers) {
			h.create("c", nil)
			h.resume("r", failing(kopf.Permanent(errFlop), kopf.Permanent(errFlop)))
		}
		o := w.start(register)
		w.create("w1", 1)
		w.settle()
		_ = o.stop()
		w.mark()
		w.start(register)
		w.sleep(time.Minute)
		w.touchStatus("w1", "x")
		w.sleep(time.Minute)
		w.expectAnyTime("r w1 #0 1→1")
		w.noProgress("w1")
	})
}

// A creation that goes on after a restart is no resumption, then or later.
func TestNoResumptionAfterCreation_CHG2_T004(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) {
			h.create("c", func(_ context.Context, c *change) error {
				if c.Retry == 0 {
					return kopf.Retry(time.Minute, errFlop)
				}
				return nil
			})
			h.resume("r", nil)
		}
		o := w.start(register)
		w.create("w1", 1)
		w.settle()
		_ = o.stop()
		w.mark()
		w.start(register)
		w.sleep(5 * time.Minute)
		w.touchStatus("w1", "x")
		w.sleep(time.Minute)
		w.expectAnyTime("c w1 #1 →1") // CHG-2 row 4: initial is forced to false
	})
}

// A finalizer that somebody takes off, though it is needed, is put on again.
func TestFinalizerTakenOffBySomebody_FIN3(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(handlers.all)
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.update("w1", finalizedBy())
		w.settle()
		w.finalizers("w1", finalizer)
		w.writes("patch widgets")
		w.expect()
	})
}

// What holds an object may depend on fields that do not count otherwise.
func TestFilterOnStatusHolds_FIN2_FLT15(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("create", nil)
			h.delete("delete", nil, on.Field("status.phase"), on.Value("Busy"))
		})
		w.create("w1", 1)
		w.settle()
		w.finalizers("w1")
		w.touchStatus("w1", "Busy")
		w.settle()
		w.finalizers("w1", finalizer)
		w.touchStatus("w1", "Idle")
		w.settle()
		w.finalizers("w1")
		w.touchStatus("w1", "Idler")
		w.settle()
		w.finalizers("w1")
	})
}

// Delete handlers that are through are not called again by the next process, neither
// while others are being tried nor while somebody else holds the object.
func TestDeleteHandlersAndRestarts_FIN10(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) {
			h.delete("d1", nil)
			h.delete("d2", func(_ context.Context, c *change) error {
				if c.Retry < 2 {
					return kopf.Retry(time.Minute, errFlop)
				}
				return nil
			})
		}
		o := w.start(register)
		w.create("w1", 1, finalizedBy("x/y"))
		w.settle()
		w.mark()
		w.delete("w1")
		w.sleep(30 * time.Second)
		o.kill()
		w.sleep(time.Second)
		o = w.start(register)
		w.sleep(5 * time.Minute)
		_ = o.stop()
		w.start(register)
		w.sleep(time.Minute)
		w.update("w1", finalizedBy())
		w.sleep(time.Minute)
		w.expectAnyTime("d1 w1 #0 1→1", "d2 w1 #0 1→1", "d2 w1 #1 1→1", "d2 w1 #2 1→1")
		w.gone("w1")
	})
}

// An object goes while its next attempt is being waited for: there is none.
func TestNoAttemptAfterTheObjectIsGone_T001(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("create", func(context.Context, *change) error { return kopf.Retry(time.Minute, errFlop) })
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(90 * time.Second)
		w.delete("w1")
		w.sleep(time.Hour)
		w.expectAnyTime("create w1 #0 →1", "create w1 #1 →1")
		w.writes("patch widgets", "patch widgets")
	})
}

// An object leaves the filter of the handler that its creation waits for: it is handled,
// and the records go. The change that made it leave is told to the others.
func TestLeavingTheFilterOfCreation_PRG5(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("a", func(context.Context, *change) error { return kopf.Retry(time.Minute, errFlop) }, on.Label("tier", "gold"))
			h.create("b", nil)
			h.update("u", nil)
		})
		w.create("w1", 1, label("tier", "gold"))
		w.settle()
		w.mark()
		w.update("w1", label("tier", "silver"))
		w.sleep(time.Hour)
		w.noProgress("w1")
		w.expectAnyTime("u w1 #0 1→1")
		if w.handledSize("w1") != 1 {
			t.Error("not handled")
		}
	})
}

// The same in an update.
func TestLeavingTheFilterOfUpdate_PRG5(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("c", nil)
			h.update("a", func(context.Context, *change) error { return kopf.Retry(time.Minute, errFlop) }, on.Label("tier", "gold"))
			h.update("u", nil)
		})
		w.create("w1", 1, label("tier", "gold"))
		w.settle()
		w.mark()
		w.resize("w1", 2)
		w.sleep(time.Second)
		w.update("w1", label("tier", "silver"))
		w.sleep(time.Hour)
		w.noProgress("w1")
		w.expectAnyTime("a w1 #0 1→2", "u w1 #0 1→2", "u w1 #0 2→2")
	})
}

// A change is taken back while its handler runs: what the handler has done is known, so
// it is told that there is a way back.
func TestRevertWhileHandlerRuns_PRG8(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("c", nil)
			h.update("u", sleeping(10*time.Second))
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.resize("w1", 2)
		w.sleep(time.Second)
		w.resize("w1", 1)
		w.sleep(time.Minute)
		w.expectAnyTime("u w1 #0 1→2", "u w1 #0 2→1")
		w.noProgress("w1")
	})
}

// A handler that has failed for good is told of a further change as one that succeeded.
func TestFurtherChangeAfterFailure_PRG7(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("failed for good")
		w.start(func(h handlers) {
			h.create("c", nil)
			h.update("bad", failing(kopf.Permanent(errFlop)))
			h.update("slow", failing(kopf.Retry(10*time.Second, nil)))
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.resize("w1", 2)
		w.sleep(time.Second)
		w.resize("w1", 3)
		w.sleep(time.Minute)
		w.expectAnyTime("bad w1 #0 1→2", "slow w1 #0 1→2", "slow w1 #1 1→3", "bad w1 #0 2→3")
		w.noProgress("w1")
	})
}

// Somebody wipes our annotations off while somebody else holds the object: that the
// delete handlers are through is known all the same.
func TestRecordsWipedOffDuringDeletion_FIN10(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.delete("mandatory", nil)
			h.delete("optional", nil, on.Optional())
		})
		w.create("w1", 1, finalizedBy("x/y"))
		w.settle()
		w.mark()
		w.delete("w1")
		w.sleep(time.Minute)
		w.update("w1", func(o widgetObj) { o.SetAnnotations(nil) })
		w.sleep(time.Minute)
		w.update("w1", finalizedBy())
		w.sleep(time.Minute)
		w.gone("w1")
		w.expectAnyTime("mandatory w1 #0 1→1", "optional w1 #0 1→1")
	})
}

// The deletion is requested right before the finalizer is put on, and somebody else holds
// the object: it is not ours, and that is no error.
func TestDeletedRightBeforeTheFinalizer_FIN5(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(handlers.all)
		w.server.Before(simulated.On{Verb: "patch", Times: 1}, func(simulated.Request) *simulated.Fault {
			w.delete("w1")
			return nil
		})
		w.mark()
		w.create("w1", 1, finalizedBy("x/y"))
		w.sleep(time.Minute)
		w.expect()
		w.finalizers("w1", "x/y")
		w.writes("patch widgets 409")
	})
}

// An optional delete handler is tried again from memory, long after another object has
// taken the name: each has its own handlers.
func TestOptionalDeleteOutlivesTheName_FIN7(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("create", nil)
			h.delete("optional", failing(kopf.Retry(time.Minute, errFlop)), on.Optional())
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.delete("w1")
		w.create("w1", 2)
		w.sleep(time.Hour)
		w.expectSet("optional w1 #0 1→1", "create w1 #0 →2", "optional w1 #1 1→1")
		if w.handledSize("w1") != 2 {
			t.Error("not handled")
		}
	})
}
