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

// What the model has found. Each is a scenario on its own.

// B23: records of progress are another object's, too, if its creation was not through
// when the manifest was exported. The UID is written with what counts as handled only.
func TestRecordsOfAnotherObject_B23(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("first", nil)
			h.create("second", failing(kopf.Retry(time.Minute, errFlop)))
		})
		export := w.create("w1", 1)
		w.sleep(time.Second)
		export = w.get(export.GetName())
		w.delete("w1")
		w.sleep(time.Second)
		w.mark()
		o := simulated.Object(ns, "w1", map[string]any{"spec": export.Object["spec"]})
		o.SetAnnotations(export.GetAnnotations())
		if _, err := w.widgets.Create(o); err != nil {
			t.Fatal(err)
		}
		w.sleep(2 * time.Minute)
		w.expectAnyTime("first w1 #0 →1", "second w1 #0 →1")
	})
}

// CHG-6, PRG-7: a field handler that was told of a value at creation is told of it
// again, as if the field had changed since, if another handler of the creation saw the
// object before it was edited.
func TestFieldIsToldOnceWhileCreating_PRG7(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("create", nil)
			h.field("size", failing(kopf.Retry(time.Minute, errFlop)))
		})
		w.create("w1", 1)
		w.sleep(time.Second)
		w.resize("w1", 2)
		w.sleep(2 * time.Minute)
		w.expectAnyTime("create w1 #0 →1", "size #0 0→1", "size #1 0→2")
	})
}

// PRG-7: handlers that were shown three different states in one change-set are each
// told what they have not seen, and nothing twice.
func TestNothingIsToldTwice_PRG7(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.update("quick", nil)
			h.update("slow", failing(kopf.Retry(10*time.Second, errFlop)))
			h.update("slower", failing(kopf.Retry(20*time.Second, errFlop)))
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.resize("w1", 2)
		w.sleep(5 * time.Second)
		w.resize("w1", 3)
		w.sleep(10 * time.Second)
		w.resize("w1", 4)
		w.sleep(time.Minute)
		w.expectAnyTime(
			"quick w1 #0 1→2", "slow w1 #0 1→2", "slower w1 #0 1→2", "slow w1 #1 1→3", "slower w1 #1 1→4",
			"quick w1 #0 2→4", "slow w1 #0 3→4",
		)
	})
}

// PRG-8, B06: who was told of a change is told, too, when it is undone.
func TestUndoneChangeIsTold_PRG8(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.update("quick", nil)
			h.update("slow", failing(kopf.Retry(time.Minute, errFlop)))
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.resize("w1", 2)
		w.sleep(time.Second)
		w.resize("w1", 1)
		w.sleep(2 * time.Minute)
		w.expectAnyTime("quick w1 #0 1→2", "slow w1 #0 1→2", "quick w1 #0 2→1")
	})
}

// CHG-5: a resume handler is called once in each process, even if it had finished in
// the middle of an update in the process before.
func TestResumedInEachProcess_CHG5(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) {
			h.create("create", nil)
			h.update("update", func(context.Context, *change) error { return kopf.Retry(time.Minute, errFlop) })
			h.resume("resume", nil)
		}
		first := w.start(register)
		w.create("w1", 1)
		w.settle()
		if err := first.stop(); err != nil {
			t.Fatal(err)
		}
		w.resize("w1", 2)
		w.mark()
		second := w.start(register)
		w.sleep(time.Second)
		w.expectAnyTime("update w1 #0 1→2", "resume w1 #0 1→2")
		if err := second.stop(); err != nil {
			t.Fatal(err)
		}
		w.mark()
		w.start(register)
		w.sleep(time.Second)
		w.expectAnyTime("resume w1 #0 1→2")
	})
}

// field notes the calls of a handler for changes of the size.
func (h handlers) field(id string, fn changeFn) {
	on.FieldChange("spec.size", func(ctx context.Context, c *kopf.FieldChange[*widget, int]) error {
		h.w.note(fmt.Sprintf("%s #%d %d→%d", id, c.Retry, c.Old, c.New))
		return fn(ctx, nil)
	}, on.ID(id), on.In(h.r), forWidgets)
}
