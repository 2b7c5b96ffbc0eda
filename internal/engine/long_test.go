package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
)

func sleeping(d time.Duration) changeFn {
	return func(ctx context.Context, _ *change) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// X24, design §3.4: a handler that runs for an hour holds nothing else up.
func TestLongHandler_PIPE5_CON3_X24(t *testing.T) {
	scenario(t, func(w *world) {
		w.settings.Queueing.WorkerLimit = 1
		w.start(func(h handlers) {
			h.create("create", func(ctx context.Context, c *change) error {
				if c.Object.Name == "long" {
					return sleeping(time.Hour)(ctx, c)
				}
				return nil
			})
			h.delete("delete", nil)
			h.events()
		})
		w.create("long", 1)
		w.settle()
		w.mark()
		for size := range 3 {
			w.resize("long", size+2)
			w.settle()
		}
		w.create("short", 1)
		w.settle()
		w.delete("long")
		w.sleep(10 * time.Minute)
		var ofLong, ofShort []string
		for _, call := range w.called() {
			if strings.Contains(call, "long") {
				ofLong = append(ofLong, call)
			} else if strings.HasPrefix(call, "event") {
				ofShort = append(ofShort, call)
			}
		}
		want := []string{"event long MODIFIED 2 +0s", "event long MODIFIED 3 +10ms", "event long MODIFIED 4 +20ms", "event long MODIFIED 4 +40ms"}
		if !slices.Equal(ofLong, want) {
			t.Error(ofLong)
		}
		if want := []string{"event short ADDED 1 +30ms", "event short MODIFIED 1 +30ms", "event short MODIFIED 1 +30ms"}; !slices.Equal(ofShort, want) {
			t.Error(ofShort)
		}
		if w.handledSize("short") != 1 {
			t.Error("the short one has to wait")
		}
		w.mark()
		w.sleep(time.Hour)
		w.expectSet("event long MODIFIED 4", "delete long #0 1→4", "event long DELETED 4")
		w.gone("long")
	})
}

// Design §3.6: a finished handler is recorded about a second later while the next one
// still runs, and nothing more is written meanwhile.
func TestCheckpoints(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("a", nil)
			h.create("b", sleeping(500*time.Millisecond))
			h.create("c", sleeping(time.Hour))
			h.create("d", nil)
		})
		w.mark()
		begun := time.Now()
		w.create("w1", 1)
		w.sleep(900 * time.Millisecond)
		w.writes()
		w.sleep(30 * time.Minute)
		for _, id := range []string{"a", "b"} {
			r := w.record("w1", id)
			if r == nil || !r.Success || r.Retries != 1 {
				t.Errorf("record of %s: %+v", id, r)
			}
		}
		if w.record("w1", "c") != nil || w.record("w1", "d") != nil {
			t.Error("records of what has not finished")
		}
		requests := w.server.Writes()
		if len(requests) == 0 || len(requests) > 2 {
			t.Error(len(requests), "writes")
		}
		for _, r := range requests {
			if after := r.At.Sub(begun); after > 2500*time.Millisecond {
				t.Error("written after", after)
			}
		}
		w.sleep(time.Hour)
		w.noProgress("w1")
		w.expectAnyTime("a w1 #0 →1", "b w1 #0 →1", "c w1 #0 →1", "d w1 #0 →1")
		if n := len(w.server.Writes()); n != len(requests)+1 {
			t.Error(n, "writes in the end")
		}
		w.quiet(10 * time.Minute)
	})
}

// The same, and the process dies: what is recorded is not repeated, what ran is begun
// anew with the same number.
func TestCrashAfterCheckpoint_ORD3(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) {
			h.create("a", nil)
			h.create("b", sleeping(time.Minute))
			h.create("c", nil)
		}
		o := w.start(register)
		w.mark()
		w.create("w1", 1)
		w.sleep(10 * time.Second)
		o.kill()
		w.sleep(time.Second)
		w.start(register)
		w.sleep(10 * time.Minute)
		w.expectAnyTime("a w1 #0 →1", "b w1 #0 →1", "b w1 #0 →1", "c w1 #0 →1")
		w.noProgress("w1")
	})
}

// Somebody changes the object while a checkpointed cycle runs: the change is not
// lost, and the records do not conflict.
func TestChangeDuringCheckpointedCycle(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("a", nil)
			h.create("b", sleeping(10*time.Second))
			h.update("update", nil)
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(500 * time.Millisecond)
		w.resize("w1", 2)
		w.sleep(3 * time.Second)
		w.resize("w1", 3)
		w.sleep(time.Minute)
		w.expectAnyTime("a w1 #0 →1", "b w1 #0 →1", "update w1 #0 1→3")
		if w.handledSize("w1") != 3 {
			t.Error("handled", w.handledSize("w1"))
		}
		w.noProgress("w1")
	})
}

// Only the edit before the checkpoint: its event is older than the checkpoint's answer.
func TestChangeBeforeCheckpoint(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("a", nil)
			h.create("b", sleeping(10*time.Second))
			h.update("update", nil)
		})
		w.mark()
		w.create("w1", 1)
		w.settle()
		w.server.DelayWatches(3 * time.Second)
		w.resize("w1", 2)
		w.sleep(time.Minute)
		w.expectAnyTime("a w1 #0 →1", "b w1 #0 →1", "update w1 #0 1→2")
		if w.handledSize("w1") != 2 {
			t.Error("handled", w.handledSize("w1"))
		}
	})
}

// The answer to a checkpoint is lost: its records are not taken for those of the next
// change.
func TestLostCheckpoint(t *testing.T) {
	for name, on := range map[string]simulated.On{
		"one": {Verb: "patch", Times: 1}, "the next one too": {Verb: "patch", Times: 2},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("handling failed, will be tried again")
				w.start(func(h handlers) {
					h.create("create", nil)
					h.update("a", nil)
					h.update("b", sleeping(1500*time.Millisecond))
				})
				w.create("w1", 1)
				w.settle()
				w.server.After(on, simulated.Always(simulated.Drop()))
				w.mark()
				w.resize("w1", 2)
				w.sleep(1200 * time.Millisecond)
				w.resize("w1", 3)
				w.sleep(time.Minute)
				w.expectAnyTime("a w1 #0 1→2", "b w1 #0 1→2", "a w1 #0 2→3", "b w1 #0 2→3")
				w.noProgress("w1")
				if w.handledSize("w1") != 3 {
					t.Error("handled", w.handledSize("w1"))
				}
			})
		})
	}
}

// The deletion is requested while a checkpointed cycle runs.
func TestDeletionDuringCheckpointedCycle(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("a", nil)
			h.create("b", sleeping(10*time.Second))
			h.delete("delete", nil)
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(500 * time.Millisecond)
		w.delete("w1")
		w.sleep(time.Minute)
		w.expectAnyTime("a w1 #0 →1", "b w1 #0 →1", "delete w1 #0 1→1")
		w.gone("w1")
	})
}

// An orderly stop: handlers learn why, and what they did is written.
func TestGracefulStop(t *testing.T) {
	scenario(t, func(w *world) {
		var cause error
		register := func(h handlers) {
			h.create("a", nil)
			h.create("b", func(ctx context.Context, _ *change) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				time.Sleep(500 * time.Millisecond) // to clean up
				return nil
			})
			h.create("c", nil)
		}
		o := w.start(register)
		w.mark()
		w.create("w1", 1)
		w.sleep(100 * time.Millisecond)
		if err := o.stop(); err != nil {
			t.Error(err)
		}
		if !errors.Is(cause, kopf.ErrExiting) {
			t.Error("cause", cause)
		}
		for _, id := range []string{"a", "b"} {
			if r := w.record("w1", id); r == nil || !r.Success {
				t.Errorf("record of %s: %+v", id, r)
			}
		}
		w.writes("patch widgets")
		w.start(register)
		w.sleep(time.Minute)
		w.expectAnyTime("a w1 #0 →1", "b w1 #0 →1", "c w1 #0 →1")
		w.noProgress("w1")
	})
}

// A handler that is interrupted by the stop is begun anew by the next operator, with
// the same number; one that asks for a retry gets it.
func TestInterruptedByStop_THR4(t *testing.T) {
	for name, test := range map[string]struct {
		err   func(context.Context) error
		calls []string
	}{
		"the context's error": {func(ctx context.Context) error { return ctx.Err() }, []string{"a w1 #0 →1", "b w1 #0 →1", "b w1 #0 →1"}},
		"its cause":           {context.Cause, []string{"a w1 #0 →1", "b w1 #0 →1", "b w1 #0 →1"}},
		"something else":      {func(context.Context) error { return errFlop }, []string{"a w1 #0 →1", "b w1 #0 →1", "b w1 #0 →1"}},
		"a retry":             {func(context.Context) error { return kopf.Retry(time.Minute, errFlop) }, []string{"a w1 #0 →1", "b w1 #0 →1", "b w1 #1 →1"}},
		"for good":            {func(context.Context) error { return kopf.Permanent(errFlop) }, []string{"a w1 #0 →1", "b w1 #0 →1"}},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("handler failed for good")
				first := true
				register := func(h handlers) {
					h.create("a", nil)
					h.create("b", func(ctx context.Context, _ *change) error {
						if !first {
							return nil
						}
						first = false
						<-ctx.Done()
						return test.err(ctx)
					})
				}
				o := w.start(register)
				w.mark()
				w.create("w1", 1)
				w.sleep(100 * time.Millisecond)
				if err := o.stop(); err != nil {
					t.Error(err)
				}
				w.start(register)
				w.sleep(5 * time.Minute)
				w.expectAnyTime(test.calls...)
				w.noProgress("w1")
			})
		})
	}
}

// A handler that does not listen is left behind after ExitTimeout, and named.
func TestDeafHandler(t *testing.T) {
	scenario(t, func(w *world) {
		w.settings.Queueing.ExitTimeout = 5 * time.Second
		o := w.start(func(h handlers) {
			h.create("deaf", func(context.Context, *change) error { time.Sleep(time.Hour); return nil })
			h.create("next", nil)
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		err := o.stop()
		if err == nil || !strings.Contains(err.Error(), "deaf") || !strings.Contains(err.Error(), "w1") {
			t.Error(err)
		}
		if d := w.since(); d != 5*time.Second {
			t.Error("stopped after", d)
		}
		w.sleep(2 * time.Hour)
		w.expect()
		w.writes()
	})
}

// Nothing begins after the stop has begun, and queued objects are left to the next.
func TestStopWithQueue(t *testing.T) {
	scenario(t, func(w *world) {
		w.settings.Queueing.WorkerLimit = 1
		register := func(h handlers) { h.create("create", sleeping(time.Minute)); h.delete("delete", nil) }
		o := w.start(register)
		names := []string{"a", "b", "c", "d"}
		w.mark()
		for _, name := range names {
			w.create(name, 1)
		}
		w.sleep(10 * time.Second)
		if err := o.stop(); err != nil {
			t.Error(err)
		}
		w.mark()
		w.sleep(10 * time.Second)
		w.expect()
		w.writes()
		w.start(register)
		w.sleep(5 * time.Minute)
		w.expectSet("create a #0 →1", "create b #0 →1", "create c #0 →1", "create d #0 →1")
		for _, name := range names {
			if w.handledSize(name) != 1 {
				t.Error(name, "is not handled")
			}
		}
	})
}

// A handler's object is its own: what others do with it, it does not see.
func TestPrivateCopies(t *testing.T) {
	scenario(t, func(w *world) {
		spoil := func(_ context.Context, c *change) error {
			if c.Object.Spec.Size != 1 || len(c.Object.Labels) != 1 {
				t.Error("spoiled", c.Object)
			}
			c.Object.Spec.Size = 99
			c.Object.Labels["a"] = "spoiled"
			return nil
		}
		w.start(func(h handlers) { h.create("a", spoil); h.create("b", spoil) })
		w.create("w1", 1, label("a", "b"))
		w.settle()
		if !slices.Equal(w.called()[:1], []string{"a w1 #0 →1 +10ms"}) || w.handledSize("w1") != 1 {
			t.Error(w.called())
		}
	})
}
