package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// swap is a handler that can be exchanged for another one at any time.
type swap struct{ atomic.Pointer[changeFn] }

func (s *swap) to(fn changeFn) { s.Store(&fn) }

func (s *swap) call(ctx context.Context, c *change) error {
	if fn := s.Load(); fn != nil && *fn != nil {
		return (*fn)(ctx, c)
	}
	return nil
}

// A call for an index that fails is tried again like any other, is on record, and is gone
// on with after a restart. What it has read counts, and has it called at once.
func TestFailedCallForIndex(t *testing.T) {
	scenario(t, func(w *world) {
		w.source("a", 1, "red")
		again := kopf.Retry(time.Hour, nil)
		then := failing(nil, again, again, again)
		register := func(h handlers) { h.seer(then) }
		o := w.start(register)
		w.target("t", 1)
		w.settle()
		w.paint("a", "green")
		w.settle()
		w.expect("see t create #0 red", "see t index #0 green")
		if r := w.record("t", "see"); r == nil || r.Purpose != "resume" || r.Retries != 1 || r.Finished() {
			t.Fatalf("%+v", r)
		}
		w.mark()
		w.paint("a", "blue")
		w.settle()
		w.expect("see t index #1 blue")
		w.gets(0) // the body is at hand
		w.mark()
		o.kill()
		w.sleep(10 * time.Minute)
		o = w.start(register)
		w.sleep(40 * time.Minute)
		w.expect()
		w.resize("t", 1)
		w.touchStatus("t", "x")
		w.update("t", annotation("note", "x")) // an update, which is not its business
		w.settle()
		w.expect()
		w.sleep(11 * time.Minute)
		w.expect("see t index #2 blue")
		w.sleep(2 * time.Hour)
		w.expect("see t index #2 blue", "see t index #3 blue")
		w.noProgress("t")
		w.mark()
		w.paint("a", "white")
		w.settle()
		w.expect("see t index #0 white")
		w.writes()
		if err := o.stop(); err != nil {
			t.Error(err)
		}
	})
}

// What changes while the handler runs has it run once more, however much that is, and the
// last call sees the last of it.
func TestBurstWhileTheHandlerRuns(t *testing.T) {
	scenario(t, func(w *world) {
		w.source("a", 1, "red")
		w.start(func(h handlers) {
			h.seer(func(context.Context, *change) error { time.Sleep(10 * time.Second); return nil })
		})
		w.mark()
		w.target("t", 1)
		for i := range 1000 {
			time.Sleep(5 * time.Millisecond)
			w.paint("a", fmt.Sprint(i))
		}
		w.sleep(time.Minute)
		w.expect("see t create #0 red", "see t index #0 999")
		w.gets(0)
		w.writes("patch widgets") // of the creation
	})
}

// What changes before the handler has read it, though after it was called, is seen, and
// calls nobody.
func TestChangeBeforeReading(t *testing.T) {
	scenario(t, func(w *world) {
		w.source("a", 1, "red")
		w.start(func(h handlers) {
			index := h.colours()
			see := h.see("see", index, nil)
			on.Create(func(ctx context.Context, c *change) error {
				time.Sleep(time.Second)
				return see(ctx, c)
			}, on.ID("see"), on.In(h.r), forWidgets, forTargets, on.Uses(index))
		})
		w.target("t", 1)
		w.settle()
		w.paint("a", "green")
		w.sleep(2 * time.Second)
		w.expect("see t create #0 green")
		w.paint("a", "blue")
		w.sleep(500 * time.Millisecond)
		w.paint("a", "black")
		w.sleep(time.Hour)
		w.expect("see t create #0 green", "see t index #0 black")
	})
}

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

// A change that comes while the object does not match is told when it does again.
func TestWokenOutOfScope(t *testing.T) {
	scenario(t, func(w *world) {
		w.source("a", 1, "red")
		w.start(func(h handlers) {
			h.seer(nil, on.Label("on", "yes"))
			h.update("other", nil, forTargets)
		})
		w.create("t", 1, func(o widgetObj) { o.SetLabels(map[string]string{"kind": "target", "on": "yes"}) })
		w.settle()
		w.update("t", func(o widgetObj) { o.SetLabels(map[string]string{"kind": "target", "on": "no"}) })
		w.settle()
		w.mark()
		w.paint("a", "green")
		w.paint("a", "blue")
		w.settle()
		w.expect()
		w.writes()
		w.gets(1)
		w.update("t", func(o widgetObj) { o.SetLabels(map[string]string{"kind": "target", "on": "yes"}) })
		w.settle()
		w.expectAnyTime("see t index #0 blue", "other t #0 1→1")
		w.update("t", func(o widgetObj) { o.SetLabels(map[string]string{"kind": "target", "on": "no"}) })
		w.settle()
		w.update("t", func(o widgetObj) { o.SetLabels(map[string]string{"kind": "target", "on": "yes"}) })
		w.settle()
		w.expectAnyTime("see t index #0 blue", "other t #0 1→1", "other t #0 1→1", "other t #0 1→1")
	})
}

// An object that is being deleted, is gone, or was created anew is not called for what its
// handler has read.
func TestWokenTooLate(t *testing.T) {
	scenario(t, func(w *world) {
		w.source("a", 1, "red")
		var index *colours
		w.start(func(h handlers) { index = h.seer(nil) })
		w.target("t", 1, finalizedBy("example.com/other"))
		w.settle()
		w.delete("t")
		w.settle()
		w.mark()
		w.paint("a", "green")
		w.settle()
		w.expect()
		w.gets(0)
		w.update("t", finalizedBy())
		w.settle()
		w.gone("t")
		w.paint("a", "blue")
		w.settle()
		w.expect()
		w.gets(0)
		if n := notes(index); n != 0 {
			t.Errorf("%d notes are left", n)
		}

		// The watch does not say that it is another one.
		w.target("t", 1)
		w.settle()
		w.mark()
		release := w.server.Hold()
		if err := w.widgets.Vanish(ns, "t"); err != nil {
			t.Fatal(err)
		}
		w.target("t", 1)
		w.settle()
		release()
		w.paint("a", "black")
		w.sleep(time.Minute)
		calls := w.called()
		if len(calls) == 0 || calls[0] != "see t create #0 blue" && calls[0] != "see t create #0 black" || len(calls) > 2 {
			t.Error(calls)
		}
		if n := notes(index); n != 1 {
			t.Errorf("%d notes", n)
		}
	})
}

// The object is gone, or another one, when it is read.
func TestWokenObjectIsGoneWhenItIsRead(t *testing.T) {
	for name, what := range map[string]func(w *world){
		"gone": func(w *world) {},
		"anew": func(w *world) { w.target("t", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.source("a", 1, "red")
				var index *colours
				w.start(func(h handlers) { index = h.seer(nil) })
				w.target("t", 1)
				w.settle()
				w.mark()
				w.server.Before(simulated.On{Verb: "get", Times: 1}, func(simulated.Request) *simulated.Fault {
					if err := w.widgets.Vanish(ns, "t"); err != nil {
						t.Error(err)
					}
					what(w)
					return nil
				})
				w.paint("a", "green")
				w.sleep(time.Minute)
				if name == "gone" {
					w.expect()
					w.writes()
				} else {
					w.expect("see t create #0 green")
				}
				w.gets(1)
				if n := notes(index); n != map[string]int64{"gone": 0, "anew": 1}[name] {
					t.Errorf("%d notes", n)
				}
			})
		})
	}
}

// A read that fails is repeated; one that is answered by mistake that there is no such
// object is made up for at the next event, though it would ask for nothing otherwise.
func TestWokenObjectCannotBeRead(t *testing.T) {
	for _, c := range []struct {
		fault *simulated.Fault
		calls int // before an event
		gets  int
	}{
		{simulated.Fail(http.StatusInternalServerError), 1, 3},
		{simulated.Fail(http.StatusTooManyRequests), 1, 3},
		{simulated.Fail(http.StatusForbidden), 1, 3},
		{simulated.Drop(), 1, 3},
		{simulated.Fail(http.StatusNotFound), 0, 1},
		{simulated.Fail(http.StatusGone), 1, 3},
	} {
		t.Run(fmt.Sprintf("%+v", *c.fault), func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("handling failed")
				w.source("a", 1, "red")
				w.target("t", 1)
				w.start(func(h handlers) { h.seer(nil) })
				w.server.Before(simulated.On{Verb: "get", Times: 2}, simulated.Always(c.fault))
				w.mark()
				w.paint("a", "green")
				w.sleep(10 * time.Minute)
				if got := w.called(); len(got) != c.calls {
					t.Error(got)
				}
				if got := w.server.Count(simulated.On{Verb: "get"}); got < c.gets {
					t.Errorf("%d reads", got)
				}
				w.touchStatus("t", "x")
				w.settle()
				w.expect("see t index #0 green")
				w.writes()
			})
		})
	}
}

// A process that dies in the middle of a call, and handlers that panic, end their goroutine,
// or hang until the end: the call is repeated, and nothing is lost.
func TestWokenCallIsCutOff(t *testing.T) {
	for name, cut := range map[string]changeFn{
		"killed":   func(ctx context.Context, _ *change) error { <-ctx.Done(); return ctx.Err() },
		"panics":   func(context.Context, *change) error { panic("flop") },
		"ends":     func(context.Context, *change) error { runtime.Goexit(); return nil },
		"too long": func(ctx context.Context, _ *change) error { <-ctx.Done(); return context.Cause(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("panicked", "Goexit", "failed for good")
				w.source("a", 1, "red")
				var then swap
				register := func(h handlers) {
					var opts []on.CreateOption
					if name == "too long" {
						opts = append(opts, on.Timeout(time.Minute))
					}
					h.seer(then.call, opts...)
				}
				o := w.start(register)
				w.target("t", 1)
				w.settle()
				w.mark()
				then.to(cut)
				w.paint("a", "green")
				w.settle()
				then.to(nil)
				switch name {
				case "killed":
					o.kill()
					w.start(register)
					w.expect("see t index #0 green", "see t index #0 green")
				case "too long":
					w.sleep(time.Hour)
					w.expect("see t index #0 green")
				default:
					w.sleep(time.Hour)
					if calls := w.called(); len(calls) != 2 || !strings.HasSuffix(calls[1], "green") {
						t.Error(calls)
					}
				}
				w.noProgress("t")
				w.mark()
				w.paint("a", "blue")
				w.settle()
				w.expect("see t index #0 blue")
			})
		})
	}
}

// Whatever lifecycle picks among those that were woken, each is called once, and nothing is
// written for it.
func TestWokenByLifecycles(t *testing.T) {
	for name, lifecycle := range map[string]kopf.Lifecycle{
		"all at once": kopf.AllAtOnce, "one by one": kopf.OneByOne, "asap": kopf.ASAP, "randomized": kopf.Randomized, "shuffled": kopf.Shuffled,
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

// What a woken handler wants changed is written in spite of conflicts and lost answers,
// and it is not called again for that.
func TestWokenHandlerEdits(t *testing.T) {
	for name, fault := range map[string]*simulated.Fault{
		"conflict": simulated.Fail(http.StatusConflict), "error": simulated.Fail(500), "lost": simulated.Drop(),
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("handling failed")
				w.source("a", 1, "red")
				w.start(func(h handlers) {
					index := h.colours()
					h.create("c", func(ctx context.Context, c *change) error {
						colour, _ := index.Tracked(ctx).First(1)
						c.Patch.Apply(func(o *widget) { o.Status.Phase = colour })
						return nil
					}, forTargets, on.Uses(index))
				})
				w.target("t", 1)
				w.settle()
				w.server.Before(simulated.On{Verb: "patch", Resource: "widgets/status", Times: 2}, simulated.Always(fault))
				w.mark()
				w.paint("a", "green")
				w.sleep(time.Hour)
				w.expect("c t #0 1→1 +0s")
				if phase := w.get("t").Object["status"].(map[string]any)["phase"]; phase != "green" {
					t.Error(phase)
				}
				w.noProgress("t")
				w.quiet(time.Hour)
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

// Nobody is woken before all indices are complete.
func TestNobodyIsWokenBeforeIndicesAreComplete(t *testing.T) {
	scenario(t, func(w *world) {
		for i := range 100 {
			w.source(fmt.Sprint("a", i), 1, fmt.Sprint(i))
		}
		w.target("t", 1)
		w.server.Before(simulated.On{Resource: "widgets"}, simulated.Always(simulated.Delay(time.Second)))
		w.launch(func(h handlers) { h.seer(nil) })
		w.sleep(500 * time.Millisecond)
		w.paint("a1", "x")
		w.expect()
		w.sleep(time.Hour)
		if calls := w.called(); len(calls) != 1 {
			t.Error(calls)
		}
	})
}
