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

// CHG-3, B41: once per process and object; not for what was created in this run, and
// not when everything is listed anew.
func TestResumeOnce_CHG3(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.start(handlers.all)
		w.create("w1", 1)
		w.create("w2", 1)
		w.settle()
		_ = o.stop()
		w.mark()
		w.start(handlers.all)
		w.create("w3", 1)
		w.settle()
		w.expectSet("resume w1 #0 1→1", "resume w2 #0 1→1", "create w3 #0 →1")
		w.mark()
		for range 3 {
			w.server.Compact()
			w.server.CutWatches()
			w.sleep(time.Minute)
			w.touchStatus("w1", time.Now().String())
			w.sleep(time.Minute)
		}
		w.expect()
		w.writes()
		w.resize("w1", 2)
		w.settle()
		w.expectAnyTime("update w1 #0 1→2")
	})
}

// An object that a relist finds has not been there before: it is no resumption.
func TestRelistFindsHandledObject_CHG3(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.start(handlers.all)
		w.create("w1", 1)
		w.settle()
		_ = o.stop()
		w.start(handlers.all)
		w.mark()
		refuse := w.server.Before(simulated.On{Verb: "watch"}, simulated.Always(simulated.Drop()))
		w.server.CutWatches()
		w.create("w2", 1)
		w.server.Compact()
		refuse()
		w.sleep(5 * time.Minute)
		w.expectAnyTime("create w2 #0 →1")
	})
}

// Design §4: until it succeeded, with the progress on the object.
func TestResumeIsRetried(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) {
			h.create("create", nil)
			h.resume("resume", failing(kopf.Retry(5*time.Second, errFlop), kopf.Retry(7*time.Second, errFlop)))
			h.resume("other", nil)
		}
		o := w.start(register)
		w.create("w1", 1)
		w.settle()
		_ = o.stop()
		w.mark()
		w.start(register)
		w.sleep(time.Second)
		w.touchStatus("w1", "x")
		w.sleep(time.Minute)
		w.expectAnyTime("resume w1 #0 1→1", "other w1 #0 1→1", "resume w1 #1 1→1", "resume w1 #2 1→1")
		w.noProgress("w1")
		w.mark()
		w.resize("w1", 2)
		w.sleep(time.Minute)
		w.expect()
	})
}

// A process that ends while resuming: the next one resumes, and goes on with what is
// recorded.
func TestRestartWhileResuming(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) {
			h.create("create", nil)
			h.resume("good", nil)
			h.resume("bad", func(_ context.Context, c *change) error {
				if c.Retry == 0 {
					return kopf.Retry(time.Minute, errFlop)
				}
				return nil
			})
		}
		o := w.start(register)
		w.create("w1", 1)
		w.settle()
		_ = o.stop()
		o = w.start(register)
		w.sleep(10 * time.Second)
		o.kill()
		w.mark()
		w.start(register)
		w.sleep(5 * time.Minute)
		w.expect("good w1 #0 1→1 +0s", "bad w1 #1 1→1 +49.99s") // once in each process (CHG-5)
		w.noProgress("w1")
	})
}

// PRG-6: an update comes while a resumption is retried: whoever has resumed is not
// called again.
func TestUpdateWhileResuming_PRG6(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) {
			h.create("create", nil)
			h.resume("good", nil)
			h.resume("bad", failing(kopf.Retry(20*time.Second, errFlop)))
			h.update("update", nil)
		}
		o := w.start(register)
		w.create("w1", 1)
		w.settle()
		_ = o.stop()
		w.mark()
		w.start(register)
		w.sleep(5 * time.Second)
		w.resize("w1", 2)
		w.sleep(5 * time.Minute)
		w.expectAnyTime("good w1 #0 1→1", "bad w1 #0 1→1", "update w1 #0 1→2", "bad w1 #1 1→2")
		w.noProgress("w1")
		if w.handledSize("w1") != 2 {
			t.Error("handled", w.handledSize("w1"))
		}
	})
}

// CHG-4: the same function for creation and resumption is called once for either.
func TestCreateAndResumeShareFunction_CHG4(t *testing.T) {
	for _, withUpdate := range []bool{false, true} {
		scenario(t, func(w *world) {
			register := func(h handlers) {
				fn := h.change("f", nil)
				on.Create(fn, on.ID("f"), on.In(h.r), forWidgets)
				on.Resume(fn, on.ID("f"), on.In(h.r), forWidgets)
				if withUpdate {
					on.Update(fn, on.ID("f"), on.In(h.r), forWidgets)
				}
			}
			o := w.start(register)
			w.mark()
			w.create("w1", 1)
			w.settle()
			w.expectAnyTime("f w1 #0 →1")
			_ = o.stop()
			w.mark()
			o = w.start(register)
			w.expectAnyTime("f w1 #0 1→1")
			_ = o.stop()
			w.resize("w1", 2)
			w.mark()
			w.start(register)
			w.expectAnyTime("f w1 #0 1→2")
		})
	}
}

// CHG-5: resume handlers and deletion.
func TestResumeOfDeleted_CHG5(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) {
			h.create("create", nil)
			h.delete("delete", nil)
			h.resume("resume", nil)
			h.resume("deleted", nil, on.Deleted())
		}
		o := w.start(register)
		w.create("w1", 1)
		w.settle()
		_ = o.stop()
		w.delete("w1")
		w.mark()
		w.start(register)
		w.sleep(time.Minute)
		w.expectAnyTime("delete w1 #0 1→1", "deleted w1 #0 1→1")
		w.gone("w1")
	})
}

// Many objects at once at the start, which must not hold up a new one.
func TestResumeOfMany(t *testing.T) {
	scenario(t, func(w *world) {
		w.settings.Queueing.WorkerLimit = 3
		o := w.start(handlers.all)
		for i := range 50 {
			w.create(fmt.Sprint("w", i), 1)
		}
		w.sleep(time.Second)
		_ = o.stop()
		w.mark()
		w.start(func(h handlers) {
			h.create("create", nil)
			h.delete("delete", nil)
			h.resume("resume", func(context.Context, *change) error { time.Sleep(time.Minute); return nil })
		})
		w.create("new", 1)
		w.settle()
		if n := len(w.called()); n != 51 || !slices.ContainsFunc(w.called(), func(c string) bool { return strings.HasPrefix(c, "create new") }) {
			t.Error(n, "calls")
		}
		w.sleep(5 * time.Minute)
		if n := len(w.called()); n != 51 {
			t.Error(n, "calls")
		}
		if n := len(w.server.Writes()); n != 2 {
			t.Error(n, "writes")
		}
	})
}

// One function for resuming and for updates is called once for what happened while nobody
// was there, and is told of what comes while other handlers are not through.
func TestOneFunctionResumesAndUpdates_CHG4_PRG7(t *testing.T) {
	for name, register := range map[string]func(h handlers, see changeFn){
		"update first": func(h handlers, see changeFn) {
			on.Update(see, on.ID("see"), on.In(h.r), forWidgets)
			on.Resume(see, on.ID("see"), on.In(h.r), forWidgets)
		},
		"resume first": func(h handlers, see changeFn) {
			on.Resume(see, on.ID("see"), on.In(h.r), forWidgets)
			on.Update(see, on.ID("see"), on.In(h.r), forWidgets)
		},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				again := kopf.Retry(time.Hour, nil)
				slow := failing(again, again)
				all := func(h handlers) {
					register(h, h.change("see", nil))
					h.update("slow", slow)
				}
				o := w.start(all)
				w.create("w1", 1)
				w.settle()
				o.kill()
				w.resize("w1", 2)
				w.mark()
				o = w.start(all)
				w.expectSet("see w1 #0 1→2", "slow w1 #0 1→2")
				w.mark()
				o.kill()
				o = w.start(all)
				w.expectAnyTime("see w1 #0 1→2") // as at each restart
				w.mark()
				w.resize("w1", 3)
				w.sleep(2 * time.Hour)
				w.expectAnyTime("slow w1 #1 1→3", "slow w1 #2 1→3", "see w1 #0 2→3")
				w.noProgress("w1")
				if err := o.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
