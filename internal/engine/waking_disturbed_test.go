package engine_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
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
