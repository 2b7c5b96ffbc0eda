package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// PEER-9: while the operator is paused, nothing of its resources is watched, nothing begins, and
// what runs is interrupted; events come to nobody. Afterwards everything is listed anew, and
// only what has changed is news; also what is gone.
func TestPause_PEER9(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.engage(func(h handlers) {
			h.all()
			h.events()
			h.daemon("d", nil, on.Label("run", "yes"))
			on.Create(h.change("slow", func(ctx context.Context, _ *change) error {
				<-ctx.Done()
				w.note("slow ends: " + context.Cause(ctx).Error())
				return ctx.Err()
			}), on.ID("slow"), on.In(h.r), forWidgets, on.Label("slow", "yes"))
		})
		w.create("same", 1)
		w.create("runs", 1, label("run", "yes"))
		w.create("slow", 1, label("slow", "yes"))
		w.create("gone", 1)
		w.create("changes", 1)
		w.sleep(time.Second)
		if w.server.Watches() != 2 { // and that of CRDs
			t.Errorf("%d watches", w.server.Watches())
		}
		w.mark()
		drained := o.Pause(kopf.ErrPaused)
		w.settle()
		select {
		case <-drained:
		default:
			t.Errorf("something runs: %q", o.Running())
		}
		w.expectSet("slow ends: operator is paused", "d runs leaves: operator is paused")
		if !o.IsReady() {
			t.Error("it is not ready")
		}
		if w.server.Watches() != 1 {
			t.Errorf("%d watches", w.server.Watches())
		}
		w.mark()
		w.update("gone", finalizedBy())
		w.delete("gone")
		w.resize("changes", 2)
		w.create("new", 1)
		w.sleep(time.Hour)
		w.expect()
		if n := len(w.server.Requests(simulated.On{Resource: "widgets*"})); n != 0 {
			t.Errorf("%d requests", n)
		}
		o.Continue()
		w.settle()
		w.expectSet(
			"event gone DELETED 0", "event changes MODIFIED 2", "event new LISTED 1", "event slow MODIFIED 1", "d runs #0 begins",
			"slow slow #0 →1", "update changes #0 1→2", "create new #0 →1",
			"event changes MODIFIED 2", "event new MODIFIED 1", "event new MODIFIED 1",
		)
		w.mark()
		w.create("later", 1)
		w.settle()
		w.expectSet("event later ADDED 1", "create later #0 →1", "event later MODIFIED 1", "event later MODIFIED 1")
	})
}

// PEER-9, B43: a pause and leadership are two things; both are needed.
func TestPausesAndTerms_PEER9_B43(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.engage(func(h handlers) { h.all() })
		size := 1
		w.create("w1", size)
		w.settle()
		happens := func(want bool, what string) {
			t.Helper()
			w.mark()
			size++
			w.resize("w1", size)
			w.sleep(time.Second)
			if n := len(w.called()); (n == 1) != want || n > 1 {
				t.Errorf("%s: %q", what, w.called())
			}
		}
		happens(true, "leads")
		o.StepDown(kopf.ErrPaused)
		happens(false, "stands by")
		o.Pause(kopf.ErrPaused)
		happens(false, "stands by, paused")
		o.Lead(nil)
		happens(false, "leads, paused")
		w.mark()
		o.Continue()
		w.sleep(time.Second)
		w.expectAnyTime("update w1 #0 2→5")
		happens(true, "leads again")
		o.Pause(kopf.ErrPaused)
		o.Continue()
		happens(true, "after a short pause")
		o.Pause(kopf.ErrPaused)
		o.StepDown(kopf.ErrPaused)
		o.Continue()
		happens(false, "stands by, not paused")
		o.Fence()
		w.mark()
		o.Lead(nil)
		w.sleep(time.Second)
		w.expectAnyTime("update w1 #0 7→8")
		o.Lead(nil)
		happens(true, "is told twice")
	})
}

// Two tell the engine to pause, and to go on, at any time.
func TestPausedAtStart_PEER9(t *testing.T) {
	scenario(t, func(w *world) {
		w.create("w1", 1, annotation(lastHandledName, `{"spec":{"size":1}}`))
		w.server.Before(simulated.On{Resource: "widgets"}, simulated.Always(simulated.Delay(time.Second)))
		o := w.engage(func(h handlers) { h.all() })
		o.Pause(kopf.ErrPaused)
		o.Pause(kopf.ErrPaused)
		w.sleep(time.Hour)
		w.expect()
		o.Continue()
		o.Continue()
		w.sleep(10 * time.Second)
		w.expectAnyTime("resume w1 #0 1→1")
	})
}

// Fence: a request that is under way ends, and no other one is made, though handlers go on.
func TestFenceEndsRequests_B43(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.engage(func(h handlers) {
			h.create("create", sleepingDeaf(time.Second))
			h.daemon("polite", nil, on.CancellationBackoff(time.Hour))
		})
		w.create("w1", 1)
		w.sleep(time.Second)
		w.server.Before(simulated.On{Verb: "patch"}, func(simulated.Request) *simulated.Fault {
			return &simulated.Fault{Hang: true}
		})
		w.sleep(time.Second)
		w.create("w2", 1)
		w.sleep(500 * time.Millisecond)
		drained := o.StepDown(kopf.ErrPaused)
		w.sleep(100 * time.Millisecond)
		w.mark()
		o.Fence()
		w.settle()
		w.expectSet("polite w1 leaves: operator is paused", "polite w2 leaves: operator is paused")
		w.sleep(time.Second)
		select {
		case <-drained:
		default:
			t.Errorf("not drained: %q", o.Running())
		}
		w.sleep(time.Hour)
		if writes := w.server.Writes(); len(writes) != 0 {
			t.Errorf("a write: %s", writes[0].Body)
		}
	})
}

func sleepingDeaf(d time.Duration) changeFn {
	return func(context.Context, *change) error {
		time.Sleep(d)
		return nil
	}
}

// B43: the clock is asked before anything begins and before each request, also before one that
// is repeated because the server wanted that.
func TestTheClockIsAsked_B43(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.engage(func(h handlers) { h.all() })
		o.StepDown(kopf.ErrPaused)
		deadline := time.Now().Add(3 * time.Second)
		holds := func() bool { return time.Now().Before(deadline) }
		w.server.Before(simulated.On{Verb: "patch"}, simulated.Always(&simulated.Fault{Code: 429, RetryAfter: 2 * time.Second}))
		w.mark()
		w.create("w1", 1)
		o.Lead(holds)
		w.sleep(time.Minute)
		if n := len(w.server.Writes()); n != 2 { // at 0 and 2 s
			t.Errorf("%d writes", n)
		}
		w.create("w2", 1)
		w.sleep(time.Minute)
		if n := len(w.server.Writes()); n != 2 {
			t.Errorf("%d writes", n)
		}
		<-o.StepDown(kopf.ErrPaused)
	})
}
