package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// endless registers an event handler that answers each event with another value.
func endless(h handlers) {
	on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
		e.Patch.Apply(func(o *widget) { o.Status.Phase = fmt.Sprint(time.Now().UnixNano()) })
		return nil
	}, on.ID("endless"), on.In(h.r), forWidgets)
}

// X12, EVT-5, design §4 "loops": an event handler that answers each event with another
// value is slowed down, and a Warning on the object says why.
func TestLoopOfEvents_X12(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("written more than 50 times")
		w.server.Before(simulated.On{Verb: "patch"}, simulated.Always(simulated.Delay(time.Millisecond)))
		w.start(endless)
		w.create("w1", 1)
		w.sleep(time.Minute)
		if n := len(w.server.Writes()); n < 50 || n > 65 {
			t.Errorf("%d writes", n)
		}
		events := w.server.Requests(simulated.On{Verb: "create", Resource: "events"})
		if len(events) != 1 || !strings.Contains(string(events[0].Body), "Looping") {
			t.Errorf("%d events", len(events))
		}
	})
}

// X12: one that settles is none.
func TestNoLoop_X12(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
				e.Patch.Apply(func(o *widget) { o.Status.Phase = fmt.Sprint("size ", o.Spec.Size) })
				return nil
			}, on.ID("mirror"), on.In(h.r), forWidgets)
		})
		w.create("w1", 1)
		w.settle()
		for size := range 100 {
			w.resize("w1", size+2)
			w.settle()
		}
		if n := len(w.server.Writes()); n != 101 {
			t.Errorf("%d writes", n)
		}
		w.quiet(time.Hour)
	})
}

// X11, DB-2, design §4 "loops": a handler that edits what it is called for, too; other
// objects are not held up, and a deletion comes through.
func TestLoopOfOwnChanges_X11(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("written more than 50 times")
		w.server.Before(simulated.On{Verb: "patch"}, simulated.Always(simulated.Delay(time.Millisecond)))
		w.start(func(h handlers) {
			h.create("create", nil)
			h.update("update", func(_ context.Context, c *change) error {
				if c.Object.Name == "w1" {
					c.Patch.Apply(func(o *widget) { o.Spec.Rev++ })
				}
				return nil
			})
			h.delete("delete", nil)
		})
		w.create("w1", 1)
		w.create("w2", 1)
		w.settle()
		w.resize("w1", 2)
		w.sleep(time.Minute)
		w.mark()
		w.sleep(10 * time.Minute)
		if n := len(w.called()); n == 0 || n > 10 {
			t.Errorf("%d calls while it is slowed down", n)
		}
		w.mark()
		w.resize("w2", 2)
		w.settle()
		w.expectAnyTime("update w2 #0 1→2")
		w.mark()
		w.delete("w1")
		w.sleep(15 * time.Minute)
		w.gone("w1")
	})
}

// DB-2: an edit of its own is one more update, and no loop.
func TestOwnChange_DB2(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("create", nil)
			h.update("update", func(_ context.Context, c *change) error {
				c.Patch.Apply(func(o *widget) { o.Spec.Rev = o.Spec.Size })
				return nil
			})
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.resize("w1", 2)
		w.settle()
		w.expectAnyTime("update w1 #0 1→2", "update w1 #0 2→2")
		w.quiet(time.Hour)
	})
}
