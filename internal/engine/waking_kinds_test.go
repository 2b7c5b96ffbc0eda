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

// Handlers of each kind are woken when they have been called, and called once at a restart.
func TestEachKindIsWoken(t *testing.T) {
	type registration func(h handlers, index *colours, see changeFn)
	create := func(h handlers, index *colours, see changeFn) {
		on.Create(see, on.ID("see"), on.In(h.r), forWidgets, forTargets, on.Uses(index))
	}
	update := func(h handlers, index *colours, see changeFn) {
		on.Update(see, on.ID("see"), on.In(h.r), forWidgets, forTargets, on.Uses(index))
	}
	resume := func(h handlers, index *colours, see changeFn) { // what the others say holds for it, too
		on.Resume(see, on.ID("see"), on.In(h.r), forWidgets, forTargets)
	}
	resumeAlone := func(h handlers, index *colours, see changeFn) {
		on.Resume(see, on.ID("see"), on.In(h.r), forWidgets, forTargets, on.Uses(index))
	}
	field := func(h handlers, index *colours, _ changeFn) {
		on.FieldChange("spec.rev", func(ctx context.Context, f *kopf.FieldChange[*widget, int64]) error {
			colour, _ := index.Tracked(ctx).First(1)
			h.w.note(strings.TrimSpace(fmt.Sprintf("see %s %s #%d %s", f.Object.Name, f.Reason, f.Retry, colour)))
			if f.Reason == kopf.ReasonIndex && f.Old != f.New {
				h.w.Errorf("%v", f)
			}
			return nil
		}, on.ID("see"), on.In(h.r), forWidgets, forTargets, on.Uses(index))
	}
	for _, c := range []struct {
		name     string
		register []registration
		created  string // reasons of the calls when the object is created, changed, and found at a restart
		updated  string
		found    string
	}{
		{"create", []registration{create}, "create", "", "index"},
		{"update", []registration{update}, "", "update", "index"},
		{"resume", []registration{resumeAlone}, "", "", "resume"},
		{"field", []registration{field}, "create", "update", "index"},
		{"one function for all", []registration{create, update, resume}, "create", "update", "resume"},
		{"in another order", []registration{resume, update, create}, "create", "update", "resume"},
	} {
		t.Run(c.name, func(t *testing.T) {
			scenario(t, func(w *world) {
				register := func(h handlers) {
					index := h.colours()
					see := h.see("see", index, nil)
					for _, r := range c.register {
						r(h, index, see)
					}
				}
				expect := func(reason, colour string) {
					w.Helper()
					w.settle()
					if reason == "" {
						w.expect()
					} else {
						w.expect(fmt.Sprintf("see t %s #0 %s", reason, colour))
					}
					w.mark()
				}
				w.source("a", 1, "red")
				o := w.start(register)
				w.mark()
				w.target("t", 1, func(o widgetObj) { set(o, int64(1), "spec", "rev") })
				expect(c.created, "red")
				if c.created != "" {
					w.paint("a", "green")
					expect("index", "green")
				}
				w.update("t", func(o widgetObj) { set(o, int64(2), "spec", "rev") })
				w.settle()
				if c.updated != "" {
					w.expect(fmt.Sprintf("see t update #0 %s", map[bool]string{true: "green", false: "red"}[c.created != ""]))
				}
				w.mark()
				w.paint("a", "blue")
				if c.created+c.updated == "" {
					expect("", "")
				} else {
					expect("index", "blue")
				}
				_ = o.stop()
				w.start(register)
				expect(c.found, "blue")
				w.paint("a", "black")
				w.settle()
				w.expect("see t index #0 black")
				w.writes()
				w.delete("t")
				w.settle()
				w.gone("t")
			})
		})
	}
}

// A timer ticks when what its last tick has read is another one, also while it waits for
// an attempt; once more if that is while it ticks.
func TestTimerIsWoken(t *testing.T) {
	scenario(t, func(w *world) {
		w.source("a", 1, "red")
		var index *colours
		errs := failing(nil, kopf.Retry(time.Hour, nil))
		w.start(func(h handlers) {
			index = h.colours()
			h.timer("tick", func(ctx context.Context, c *tick) error {
				colour, _ := index.Tracked(ctx).First(c.Object.Spec.Size)
				h.w.note(colour)
				time.Sleep(time.Second)
				return errs(ctx, nil)
			}, on.Interval(24*time.Hour), forTargets, on.Uses(index))
		})
		w.mark()
		w.target("t", 1)
		w.sleep(2 * time.Second)
		w.expect("tick t #0 1 +0s", "red")
		w.mark()
		w.paint("a", "green")
		w.sleep(2 * time.Second) // it fails
		w.expect("tick t #0 1 +0s", "green")
		w.paint("a", "blue")
		w.sleep(500 * time.Millisecond)
		w.paint("a", "white")
		w.paint("a", "black")
		w.sleep(time.Hour)
		w.expect("tick t #0 1 +0s", "green", "tick t #1 1 +2s", "blue", "tick t #0 1 +3s", "black")
		w.writes()
		w.gets(0)
		w.delete("t")
		w.settle()
		if n := notes(index); n != 0 {
			t.Errorf("%d notes are left", n)
		}
	})
}

// A timer whose edit cannot be written is woken meanwhile: it writes first, and ticks then.
func TestTimerIsWokenWithSomethingToWrite(t *testing.T) {
	scenario(t, func(w *world) {
		w.source("a", 1, "red")
		w.start(func(h handlers) {
			index := h.colours()
			h.timer("tick", func(ctx context.Context, c *tick) error {
				colour, _ := index.Tracked(ctx).First(c.Object.Spec.Size)
				h.w.note(colour)
				c.Patch.Apply(func(o *widget) { o.Status.Phase = colour })
				return nil
			}, on.Interval(24*time.Hour), forTargets, on.Uses(index))
		})
		remove := w.server.Before(simulated.On{Verb: "patch"}, simulated.Always(simulated.Fail(500)))
		w.target("t", 1)
		w.settle()
		w.paint("a", "green")
		w.settle()
		remove()
		w.sleep(time.Hour)
		if calls := w.called(); !slices.Equal([]string{"red", "green"}, []string{calls[1], calls[len(calls)-1]}) || len(calls) != 4 {
			t.Error(calls)
		}
		if phase := w.get("t").Object["status"].(map[string]any)["phase"]; phase != "green" {
			t.Error(phase)
		}
	})
}

// B37: a delete handler that waits for something that others will say in the status is
// called as soon as they do, and not when it is through.
func TestDeleteHandlerIsWoken_B37(t *testing.T) {
	scenario(t, func(w *world) {
		var phases *kopf.Index[string, string]
		w.start(func(h handlers) {
			phases = on.Index(func(_ context.Context, s *kopf.Snapshot[*widget]) (map[string]string, error) {
				return map[string]string{s.Object.Name: s.Object.Status.Phase}, nil
			}, on.ID("phases"), on.In(h.r), forWidgets)
			h.create("create", nil)
			h.delete("delete", func(ctx context.Context, c *change) error {
				h.w.note(string(c.Reason))
				if phase, _ := phases.Tracked(ctx).First(c.Object.Name); phase != "Detached" {
					c.Patch.Apply(func(o *widget) { o.Status.Phase = "Waiting" })
					return kopf.Retry(10*time.Minute, nil)
				}
				return nil
			}, on.Uses(phases))
			h.delete("slow", func(context.Context, *change) error { return kopf.Retry(time.Hour, nil) }, on.Retries(2))
		})
		w.allow("slow failed", "failed for good")
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.delete("w1")
		w.settle()
		if phase := w.get("w1").Object["status"].(map[string]any)["phase"]; phase != "Waiting" {
			t.Error(phase)
		}
		w.sleep(5 * time.Second)
		w.mark()
		w.touchStatus("w1", "Detached")
		w.settle()
		w.expect("delete w1 #2 1→1 +0s", "delete")
		w.mark()
		w.touchStatus("w1", "Gone") // nobody cares any more
		w.settle()
		w.expect()
		w.sleep(2 * time.Hour)
		w.gone("w1")
		if n := notes(phases); n != 0 {
			t.Errorf("%d notes are left", n)
		}
	})
}

// A live object's delete handler is not called by an index, nor by a restart.
func TestDeleteHandlerSleepsWhileTheObjectLives(t *testing.T) {
	scenario(t, func(w *world) {
		w.source("a", 1, "red")
		register := func(h handlers) {
			index := h.colours()
			see := h.see("see", index, nil)
			on.Create(see, on.ID("see"), on.In(h.r), forWidgets, forTargets, on.Uses(index))
			on.Delete(h.see("end", index, nil), on.ID("end"), on.In(h.r), forWidgets, forTargets, on.Uses(index))
		}
		o := w.start(register)
		w.target("t", 1)
		w.settle()
		w.paint("a", "green")
		w.settle()
		_ = o.stop()
		w.start(register)
		w.expect("see t create #0 red", "see t index #0 green", "see t index #0 green")
		w.mark()
		w.delete("t")
		w.settle()
		w.expect("end t delete #0 green")
		w.gone("t")
	})
}

// An optional delete handler that waits for its next attempt is called at once, although
// the object is gone.
func TestOptionalDeleteHandlerIsWoken(t *testing.T) {
	scenario(t, func(w *world) {
		w.source("a", 1, "red")
		var index *colours
		w.start(func(h handlers) {
			index = h.colours()
			on.Delete(h.see("end", index, failing(kopf.Retry(time.Hour, nil))), on.Optional(),
				on.ID("end"), on.In(h.r), forWidgets, forTargets, on.Uses(index))
		})
		w.target("t", 1)
		w.settle()
		w.delete("t")
		w.settle()
		w.gone("t")
		w.paint("a", "green")
		w.settle()
		w.paint("a", "blue")
		w.sleep(2 * time.Hour)
		w.expect("end t delete #0 red", "end t delete #1 green")
		w.gets(0)
		if n := notes(index); n != 0 {
			t.Errorf("%d notes are left", n)
		}
	})
}
