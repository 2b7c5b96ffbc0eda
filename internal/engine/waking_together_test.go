package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
)

// A handler that is through is called at once although others of the same change are not,
// and its progress is told from what it was called for before; after a restart, too.
func TestWokenWhileOthersHoldTheChangeUp(t *testing.T) {
	for _, kind := range []string{"create", "update"} {
		t.Run(kind, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.source("a", 1, "red")
				again := kopf.Retry(time.Hour, nil)
				var then swap
				register := func(h handlers) {
					index := h.colours()
					see := h.see("see", index, then.call)
					if kind == "create" {
						on.Create(see, on.ID("see"), on.In(h.r), forWidgets, forTargets, on.Uses(index))
						h.create("slow", failing(again, again), forTargets)
					} else {
						on.Update(see, on.ID("see"), on.In(h.r), forWidgets, forTargets, on.Uses(index))
						h.update("slow", failing(again, again), forTargets)
					}
				}
				o := w.start(register)
				w.target("t", 1)
				w.settle()
				if kind == "update" {
					w.update("t", annotation("note", "x"))
					w.settle()
				}
				calls := w.called()
				if len(calls) != 2 || calls[0] != "see t "+kind+" #0 red" {
					t.Fatal(calls)
				}
				w.mark()
				w.paint("a", "green")
				w.settle()
				w.expect("see t index #0 green")
				w.gets(0)
				w.writes()
				then.to(failing(kopf.Retry(time.Minute, nil)))
				w.paint("a", "blue")
				w.sleep(61 * time.Second)
				w.expect("see t index #0 green", "see t index #0 blue", "see t index #1 blue")
				w.mark()
				then.to(failing(kopf.Retry(2*time.Minute, nil)))
				w.paint("a", "white")
				w.settle()
				o.kill()
				o = w.start(register)
				w.expect("see t index #0 white")
				w.sleep(121 * time.Second)
				w.expect("see t index #0 white", "see t index #1 white")
				then.to(nil)
				o.kill()
				w.mark()
				o = w.start(register)
				w.expect("see t index #0 white")
				w.mark()
				w.sleep(3 * time.Hour)
				for _, call := range w.called() {
					if !strings.HasPrefix(call, "slow ") {
						t.Error(w.called())
					}
				}
				w.noProgress("t")
				if err := o.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// An update and a change of the index are one call, for the update, in whatever order they
// come while the handler runs; and a retry after an update is told of the update.
func TestWokenWithAnUpdate(t *testing.T) {
	for _, first := range []string{"index", "update"} {
		t.Run(first+" first", func(t *testing.T) {
			scenario(t, func(w *world) {
				w.source("a", 1, "red")
				var then swap
				then.to(func(context.Context, *change) error { time.Sleep(time.Second); return nil })
				w.start(func(h handlers) {
					index := h.colours()
					see := h.see("see", index, then.call)
					on.Create(see, on.ID("see"), on.In(h.r), forWidgets, forTargets, on.Uses(index))
					on.Update(see, on.ID("see"), on.In(h.r), forWidgets, forTargets, on.Uses(index))
				})
				w.target("t", 1)
				w.settle()
				steps := []func(){func() { w.paint("a", "green") }, func() { w.update("t", annotation("note", "x")) }}
				if first == "update" {
					slices.Reverse(steps)
				}
				for _, step := range steps {
					step()
					w.settle()
				}
				w.sleep(time.Hour)
				w.expect("see t create #0 red", "see t update #0 green")
				w.mark()
				then.to(failing(kopf.Retry(time.Hour, nil)))
				w.paint("a", "blue")
				w.settle()
				w.update("t", annotation("note", "y"))
				w.sleep(2 * time.Hour)
				w.expect("see t index #0 blue", "see t update #0 blue")
				w.noProgress("t")
			})
		})
	}
}

// Whatever lifecycle picks among those that were woken, each is called once, and nothing is
// written for it.
func TestWokenByLifecycles(t *testing.T) {
	for name, lifecycle := range map[string]settings.Lifecycle{
		"all at once": settings.AllAtOnce, "one by one": settings.OneByOne, "asap": settings.ASAP, "randomized": settings.Randomized, "shuffled": settings.Shuffled,
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.settings.Execution.Lifecycle = lifecycle
				w.source("a", 1, "red")
				register := func(h handlers) {
					index := h.colours()
					for _, id := range []string{"one", "two", "three"} {
						on.Create(h.see(id, index, nil), on.ID(id), on.In(h.r), forWidgets, forTargets, on.Uses(index))
					}
				}
				o := w.start(register)
				w.target("t", 1)
				w.settle()
				w.mark()
				w.paint("a", "green")
				w.sleep(time.Hour)
				w.expectSet("one t index #0 green", "two t index #0 green", "three t index #0 green")
				if n := w.server.Count(simulated.On{Verb: "get"}); n < 1 || n > 3 { // the first may be through when the next is woken
					t.Errorf("%d reads", n)
				}
				w.writes()
				_ = o.stop()
				w.mark()
				w.start(register)
				w.sleep(time.Hour)
				w.expectSet("one t index #0 green", "two t index #0 green", "three t index #0 green")
				w.writes()
			})
		})
	}
}

// Sub-handlers read with the context of their parent. Those that are through are called
// again with it, also if another one still keeps the parent waiting.
func TestSubhandlersAreWoken(t *testing.T) {
	scenario(t, func(w *world) {
		w.source("a", 1, "red")
		w.source("b", 2, "red")
		again := kopf.Retry(time.Hour, nil)
		slow, parent := failing(again, again, again), failing(nil, nil, nil, errors.New("no children today"))
		register := func(h handlers) {
			index := h.colours()
			on.Create(func(ctx context.Context, c *change) error {
				h.w.note(fmt.Sprintf("parent %s #%d", c.Reason, c.Retry))
				if err := parent(ctx, c); err != nil {
					return err
				}
				on.Subhandler(c, "quick", h.see("quick", index, nil))
				on.Subhandler(c, "slow", func(ctx context.Context, c *change) error {
					h.w.note(fmt.Sprintf("slow %s #%d", c.Reason, c.Retry))
					index.Tracked(ctx).First(2)
					return slow(ctx, c)
				})
				return nil
			}, on.ID("parent"), on.In(h.r), forWidgets, forTargets, on.Uses(index), on.Backoff(time.Minute))
		}
		o := w.start(register)
		w.target("t", 1)
		w.settle()
		w.expect("parent create #0", "quick t create #0 red", "slow create #0")
		w.mark()
		w.sleep(time.Hour)
		w.expect("parent create #1", "slow create #1")
		w.mark()
		w.paint("a", "green") // what quick has read, two calls ago
		w.settle()
		w.expect("parent create #2", "quick t index #0 green", "slow create #2")
		w.mark()
		w.paint("b", "green")
		w.settle()
		w.expect("parent create #3")
		w.sleep(time.Minute) // it has failed before its sub-handlers were called, which is made up for
		w.expect("parent create #3", "parent create #4", "quick t index #0 green")
		w.mark()
		o.kill()
		o = w.start(register)
		w.expect()
		w.paint("a", "blue")
		w.sleep(3 * time.Hour)
		w.expect("parent create #5", "quick t index #0 blue", "slow create #3")
		w.noProgress("t")
		w.mark()
		w.paint("b", "blue")
		w.settle()
		w.expect("parent index #0", "quick t index #0 blue", "slow index #0")
		w.writes()
		if err := o.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A sub-handler for changes of a field is called with its parent for an index, too, though
// no field has changed.
func TestSubhandlerOfAFieldIsWoken(t *testing.T) {
	scenario(t, func(w *world) {
		w.source("a", 2, "red")
		w.start(func(h handlers) {
			index := h.colours()
			on.Update(func(ctx context.Context, c *change) error {
				on.Subhandler(c, "sized", h.see("sized", index, nil), on.Field("spec.size"))
				on.Subhandler(c, "revised", h.see("revised", index, nil), on.Field("spec.rev"))
				return nil
			}, on.ID("parent"), on.In(h.r), forWidgets, forTargets, on.Uses(index))
		})
		w.target("t", 1)
		w.settle()
		w.resize("t", 2)
		w.settle()
		w.expect("sized t update #0 red")
		w.mark()
		w.paint("a", "green")
		w.settle()
		w.expect("sized t index #0 green")
		w.writes()
	})
}
