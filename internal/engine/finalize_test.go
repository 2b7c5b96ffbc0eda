package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// DMN-3: the finalizer is put on, and confirmed, before the daemon begins; T138: what no
// daemon is for has none.
func TestFinalizerBeforeDaemon_DMN3_T138(t *testing.T) {
	for name, fault := range map[string]*simulated.Fault{
		"refused": simulated.Fail(500), "lost": simulated.Drop(), "not permitted": simulated.Fail(403),
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("handling failed, will be tried again")
				w.start(func(h handlers) {
					on.Daemon(func(ctx context.Context, d *daemon) error {
						w.note(fmt.Sprintf("begins %v", d.Object().Finalizers))
						<-ctx.Done()
						return nil
					}, on.ID("d"), on.In(h.r), forWidgets, on.Finalize(), on.Label("run", "yes"))
				})
				mend := w.server.Before(simulated.On{Verb: "patch"}, simulated.Always(fault))
				w.mark()
				w.create("w1", 1, label("run", "yes"))
				w.create("w2", 1, label("run", "no"))
				w.sleep(3 * time.Second)
				w.expect()
				mend()
				w.sleep(10 * time.Second)
				w.expect("begins [" + finalizer + "]")
				w.finalizers("w2")
				w.mark()
				w.update("w1", finalizedBy()) // somebody takes it off
				w.settle()
				w.finalizers("w1", finalizer)
				w.writes("patch widgets")
				w.expect()
			})
		})
	}
}

// Held until all have left, delete handlers run meanwhile, each once; foreign finalizers stay.
func TestHeldByMany_DMN3_DMN11_X07(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.engage(func(h handlers) {
			h.daemon("d1", lingering(time.Second), on.Finalize())
			h.daemon("d2", lingering(3*time.Second), on.Finalize())
			h.daemon("free", lingering(time.Hour))
			h.delete("del", failing(kopf.Retry(500*time.Millisecond, nil)))
			h.delete("optional", nil, on.Optional())
		})
		w.create("w1", 1, finalizedBy("example.com/other"))
		w.settle()
		w.finalizers("w1", "example.com/other", finalizer)
		w.mark()
		w.delete("w1")
		w.sleep(2999 * time.Millisecond)
		w.finalizers("w1", "example.com/other", finalizer)
		w.resize("w1", 2) // somebody else writes meanwhile
		w.sleep(2 * time.Millisecond)
		w.finalizers("w1", "example.com/other")
		w.expectSet("del w1 #0 1→1", "optional w1 #0 1→1", "del w1 #1 1→1", "d1 w1 leaves: "+deletedReason, "d2 w1 leaves: "+deletedReason)
		w.mark()
		w.update("w1", finalizedBy())
		w.gone("w1")
		w.sleep(2 * time.Hour)
		w.expectSet("free w1 leaves: " + deletedReason)
		w.writes()
		o.unemployed()
	})
}

// Delete handlers that take longer than the daemon.
func TestDaemonLeavesFirst_DMN3(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.daemon("d", lingering(time.Second), on.Finalize())
			h.delete("del", sleeping(5*time.Second))
			h.delete("later", failing(kopf.Retry(7*time.Second, nil)))
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.delete("w1")
		w.sleep(11900 * time.Millisecond)
		w.finalizers("w1", finalizer)
		w.sleep(200 * time.Millisecond)
		w.gone("w1")
		w.expectSet("del w1 #0 1→1", "d w1 leaves: "+deletedReason, "later w1 #0 1→1", "later w1 #1 1→1")
	})
}

// DMN-6, DMN-11: a daemon that is done for good lets its object go at once, without an
// event, and the finalizer comes again with the next operator.
func TestReleasedWhenDone_DMN6_DMN11(t *testing.T) {
	for name, err := range map[string]error{"success": nil, "failure": kopf.Permanent(errFlop)} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("failed for good")
				register := func(h handlers) {
					h.daemon("d", func(ctx context.Context, d *daemon) error {
						_ = sleeping(time.Minute)(ctx, nil)
						return err
					}, on.Finalize())
				}
				o := w.start(register)
				w.create("w1", 1)
				w.sleep(59 * time.Second)
				w.finalizers("w1", finalizer)
				w.sleep(time.Second)
				w.finalizers("w1")
				w.mark()
				w.resize("w1", 2)
				w.touchStatus("w1", "x")
				w.quiet(time.Hour)
				w.expect()
				if err := o.stop(); err != nil {
					t.Error(err)
				}
				w.mark()
				w.start(register)
				w.finalizers("w1", finalizer)
				w.delete("w1")
				w.settle()
				w.gone("w1")
				w.expectAnyTime("d w1 #0 begins", fmt.Sprint("d w1 leaves: ", err))
			})
		})
	}
}

// DMN-16: when it does not match any more, the object is let go once the daemon has left,
// with the outcome of what is being handled (FIN-4). Neither holds a deletion up.
func TestMismatchWhileCreating_DMN16_FIN4(t *testing.T) {
	for name, deletes := range map[string]bool{"to its end": false, "deleted": true} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.start(func(h handlers) {
					h.daemon("d", lingering(3*time.Second), on.Finalize(), on.Label("run", "yes"))
					h.create("c", failing(times(2, kopf.Retry(10*time.Second, nil))...))
				})
				w.mark()
				w.create("w1", 1, label("run", "yes"))
				w.sleep(12 * time.Second)
				w.finalizers("w1", finalizer)
				w.update("w1", label("run", "no"))
				w.sleep(2900 * time.Millisecond)
				w.finalizers("w1", finalizer)
				if deletes {
					w.delete("w1")
					w.sleep(200 * time.Millisecond)
					w.gone("w1")
					w.expectSet("d w1 #0 begins", "c w1 #0 →1", "c w1 #1 →1", "d w1 leaves: "+mismatchReason)
					return
				}
				w.sleep(200 * time.Millisecond)
				w.expectSet("d w1 #0 begins", "c w1 #0 →1", "c w1 #1 →1", "d w1 leaves: "+mismatchReason)
				w.sleep(10 * time.Second)
				w.finalizers("w1")
				w.noProgress("w1")
				w.update("w1", label("run", "yes"))
				w.settle()
				w.finalizers("w1", finalizer)
				w.expectSet("d w1 #0 begins", "c w1 #0 →1", "c w1 #1 →1", "d w1 leaves: "+mismatchReason, "c w1 #2 →1", "d w1 #0 begins")
			})
		})
	}
}

// A finalizer of ours, or of a Python operator before, that no daemon wants, is taken off.
func TestForeignState_DMN3(t *testing.T) {
	scenario(t, func(w *world) {
		w.create("w1", 1, finalizedBy("example.com/other", finalizer))
		w.create("w2", 1, finalizedBy(finalizer))
		w.delete("w2")
		w.start(func(h handlers) {
			h.daemon("d", nil)
			h.timer("t", nil, on.Interval(time.Hour))
		})
		w.finalizers("w1", "example.com/other")
		w.gone("w2")
		w.writes("patch widgets", "patch widgets")
	})
}

// Whenever the process dies, the object goes in the end, the delete handler is called to
// its end once, and never are there two daemons in a process.
func TestKilledWhileFinalizing_DMN3_DMN13(t *testing.T) {
	for step := range 24 {
		t.Run(fmt.Sprint("step ", step), func(t *testing.T) {
			scenario(t, func(w *world) {
				var mu sync.Mutex
				done, requests := 0, 0
				register := func(h handlers) {
					h.daemon("d", lingering(300*time.Millisecond), on.Finalize())
					h.delete("del", func(ctx context.Context, _ *change) error {
						if err := sleeping(100*time.Millisecond)(ctx, nil); err != nil {
							return err
						}
						mu.Lock()
						defer mu.Unlock()
						done++
						return nil
					})
				}
				o := w.start(register)
				killed := make(chan struct{}, 1)
				count := func(simulated.Request) *simulated.Fault {
					mu.Lock()
					defer mu.Unlock()
					if requests++; requests == step/2+1 && step < 12 {
						o.link.die()
						killed <- struct{}{}
					}
					return nil
				}
				if step%2 == 0 {
					w.server.Before(simulated.On{Verb: "patch"}, count)
				} else {
					w.server.After(simulated.On{Verb: "patch"}, count)
				}
				w.create("w1", 1)
				if step >= 12 { // at a moment
					time.Sleep(time.Second)
				}
				w.settle()
				w.delete("w1")
				if step >= 12 {
					time.Sleep(time.Duration(step-12) * 40 * time.Millisecond)
					o.kill()
				}
				w.sleep(time.Second)
				select {
				case <-killed:
					o.kill()
					w.start(register)
				default:
					if step >= 12 {
						w.start(register)
					}
				}
				w.sleep(time.Minute)
				w.gone("w1")
				begins := 0
				for _, call := range timeless(w.called()) {
					if call == "d w1 #0 begins" {
						begins++
					}
				}
				most, least := 1, 1
				switch step {
				case 0: // gone before anything had begun
					least = 0
				case 2: // the record of the attempt did not come through
					most = 2
				}
				if done > most || done < least || begins > 2 {
					t.Errorf("deleted %d times, %d daemons", done, begins)
				}
			})
		})
	}
}

// DMN-5, T143: what runs want changed is written after each return, also after errors;
// each change once, whatever happens to the requests.
func TestPatchesOfDaemons_DMN5_T143(t *testing.T) {
	lost := func(w *world) {
		w.server.After(simulated.On{Verb: "patch", Times: 1}, simulated.Always(simulated.Drop()))
	}
	fail := func(code, times int) func(w *world) {
		return func(w *world) {
			w.server.Before(simulated.On{Verb: "patch", Times: times}, simulated.Always(simulated.Fail(code)))
		}
	}
	for name, c := range map[string]struct {
		fault    func(w *world)
		attempts []string
		size     int
		writes   []string
	}{
		"no fault":        {func(*world) {}, []string{"#0 +0s", "#1 +1s"}, 3, []string{"patch widgets", "patch widgets"}},
		"conflict":        {fail(409, 1), []string{"#0 +0s", "#1 +1s"}, 3, []string{"patch widgets 409", "patch widgets", "patch widgets"}},
		"conflicts":       {fail(409, 7), []string{"#0 +0s", "#1 +1s"}, 3, nil},
		"refused":         {fail(422, 1), []string{"#0 +0s", "#1 +1s"}, 2, []string{"patch widgets 422", "patch widgets"}},
		"not permitted":   {fail(403, 1), []string{"#0 +0s", "#1 +1s"}, 2, []string{"patch widgets 403", "patch widgets"}},
		"internal errors": {fail(500, 4), []string{"#0 +0s", "#1 +7s"}, 3, nil},
		"too many":        {fail(429, 3), []string{"#0 +0s", "#1 +4s"}, 3, nil},
		"answer is lost":  {lost, []string{"#0 +0s", "#1 +1s"}, 4, nil}, // a function that counts is applied to what is there
		"foreign change": {func(w *world) {
			w.server.Before(simulated.On{Verb: "patch", Times: 1}, func(simulated.Request) *simulated.Fault { w.update("w1", annotation("a", "b")); return nil })
		}, []string{"#0 +0s", "#1 +1s"}, 3, nil},
		"half of requests": {func(w *world) {
			n := 0
			w.server.Before(simulated.On{Verb: "patch"}, func(simulated.Request) *simulated.Fault {
				if n++; n%2 == 1 {
					return simulated.Fail(503)
				}
				return nil
			})
		}, []string{"#0 +0s", "#1 +1s"}, 3, nil},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("is dropped")
				w.start(func(h handlers) {
					on.Daemon(func(_ context.Context, d *daemon) error {
						w.note(fmt.Sprintf("#%d +%s", d.Retry, w.since()))
						d.Patch.Apply(func(o *widget) { o.Spec.Size++ })
						if d.Retry == 0 {
							return kopf.Retry(time.Second, errFlop)
						}
						return nil
					}, on.ID("d"), on.In(h.r), forWidgets)
				})
				w.mark()
				c.fault(w)
				w.create("w1", 1)
				w.sleep(time.Hour)
				w.expect(c.attempts...)
				o := w.get("w1")
				size, _, _ := unstructuredInt(o, "spec", "size")
				if size != c.size {
					t.Errorf("size %d, not %d", size, c.size)
				}
				if c.writes != nil {
					w.writes(c.writes...)
				}
			})
		})
	}
}

// An error of writing is one of the attempt if the handler had none.
func TestRefusedPatch_DMN5_T143(t *testing.T) {
	for name, c := range map[string]struct {
		codes []int
		want  []string
	}{
		"at once": {[]int{422}, []string{"#0 +0s", "#1 +5s"}},
		"later":   {[]int{500, 503, 422}, []string{"#0 +0s", "#1 +5s"}},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.start(func(h handlers) {
					on.Daemon(func(_ context.Context, d *daemon) error {
						w.note(fmt.Sprintf("#%d +%s", d.Retry, w.since()))
						d.Patch.Apply(func(o *widget) { o.Status.Phase = "x" })
						return nil
					}, on.ID("d"), on.In(h.r), forWidgets, on.Backoff(5*time.Second))
				})
				codes := slices.Clone(c.codes)
				w.server.Before(simulated.On{Verb: "patch", Times: len(codes)}, func(simulated.Request) *simulated.Fault {
					code := codes[0]
					codes = codes[1:]
					return simulated.Fail(code)
				})
				w.mark()
				w.create("w1", 1)
				w.sleep(time.Hour)
				w.expect(c.want...)
				if phase := w.get("w1").Object["status"]; fmt.Sprint(phase) != "map[phase:x]" {
					t.Error(phase)
				}
			})
		})
	}
}

// What could not be written yet is written when the work is stopped, or it is said that it
// is lost; not if the object is gone.
func TestStoppedBeforeItCouldWrite_DMN5_DMN13(t *testing.T) {
	for name, c := range map[string]struct {
		stop    func(w *world, o *operator)
		mends   bool
		written bool
		dropped int
	}{
		"mismatch":               {func(w *world, _ *operator) { w.update("w1", label("run", "no")) }, true, true, 0},
		"exit":                   {func(_ *world, o *operator) { _ = o.stop() }, true, true, 0},
		"exit, and still broken": {func(_ *world, o *operator) { _ = o.stop() }, false, false, 1},
		"deleted":                {func(w *world, _ *operator) { w.delete("w1") }, true, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("is dropped")
				o := w.start(func(h handlers) {
					h.timer("t", func(_ context.Context, k *tick) error {
						k.SetResult("done")
						return nil
					}, on.Interval(time.Hour), on.Label("run", "yes"))
				})
				mend := w.server.Before(simulated.On{Verb: "patch"}, simulated.Always(simulated.Fail(500)))
				w.create("w1", 1, label("run", "yes"))
				w.sleep(100 * time.Second)
				if c.mends {
					mend()
				}
				c.stop(w, o)
				w.sleep(100 * time.Second)
				mend()
				written := false
				if o := w.widgets.Get(ns, "w1"); o != nil {
					written = fmt.Sprint(o.Object["status"]) == "map[t:done]"
				}
				if written != c.written || len(w.errorLogs("is dropped")) != c.dropped {
					t.Errorf("written: %t, %d logs", written, len(w.errorLogs("is dropped")))
				}
			})
		})
	}
}

func unstructuredInt(o widgetObj, path ...string) (int, bool, error) {
	var at any = o.Object
	for _, p := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return 0, false, nil
		}
		at = m[p]
	}
	switch n := at.(type) {
	case int64:
		return int(n), true, nil
	case float64:
		return int(n), true, nil
	}
	return 0, false, nil
}
