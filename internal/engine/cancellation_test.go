package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/indexing"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// deaf takes a time, whatever it is told.
func deaf(d time.Duration) daemonFn {
	return func(context.Context, *daemon) error { time.Sleep(d); return nil }
}

// abandoned is how often a daemon was abandoned, as it is served.
func abandoned(t *testing.T, handler string) (n int) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if family.GetName() == "kopf_background_abandoned_total" && l.GetName() == "handler" && l.GetValue() == handler {
					n += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return n
}

// DMN-10: told to stop, cancelled after the backoff, abandoned after the timeout. T139,
// T141, T142: the object is released when the daemon has left, at that moment.
func TestCancellation_DMN10_DMN11_DMN12_T139_T141_T142(t *testing.T) {
	backoff, timeout := on.CancellationBackoff(1230*time.Millisecond), on.CancellationTimeout(10*time.Second)
	onStopping := func(_ context.Context, d *daemon) error { <-d.Stopping(); return nil }
	for name, c := range map[string]struct {
		fn        daemonFn
		opts      []on.DaemonOption
		leaves    time.Duration
		abandoned bool
	}{
		"stops at once":           {onStopping, []on.DaemonOption{backoff, timeout}, 0, false},
		"at cancellation":         {nil, []on.DaemonOption{backoff, timeout}, 1230 * time.Millisecond, false},
		"slowly":                  {lingering(4560 * time.Millisecond), []on.DaemonOption{backoff, timeout}, 5790 * time.Millisecond, false},
		"never":                   {deaf(time.Hour), []on.DaemonOption{backoff, timeout}, 11230 * time.Millisecond, true},
		"without backoff":         {nil, []on.DaemonOption{timeout}, 0, false},
		"never, without backoff":  {deaf(time.Hour), []on.DaemonOption{timeout}, 10 * time.Second, true},
		"slowly, without timeout": {lingering(300 * time.Millisecond), nil, 300 * time.Millisecond, false},
		"late, without timeout":   {deaf(time.Hour), []on.DaemonOption{backoff}, time.Hour - 10*time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("is left behind")
				id := fmt.Sprintf("deaf-%d", time.Now().UnixNano()+int64(len(name)))
				was := abandoned(t, id)
				o := w.engage(func(h handlers) { h.daemon(id, c.fn, append(c.opts, on.Finalize())...) })
				w.create("w1", 1)
				w.settle()
				w.mark()
				w.delete("w1")
				if c.leaves > 0 {
					w.sleep(c.leaves - time.Millisecond)
					w.finalizers("w1", finalizer)
				}
				w.sleep(2 * time.Millisecond)
				w.gone("w1")
				w.writes("patch widgets")
				if n := len(w.errorLogs("is left behind")); (n == 1) != c.abandoned || abandoned(t, id)-was != n {
					t.Errorf("%d logs of abandoning, counted %d", n, abandoned(t, id)-was)
				}
				if c.abandoned && !strings.Contains(w.errorLogs("is left behind")[0], "object=default/w1 daemon="+id) {
					t.Error("it is not named")
				}
				w.sleep(time.Hour)
				o.unemployed()
			})
		})
	}
}

// DMN-10: the causes are told with the context, and say what happened first.
func TestCauses_DMN9_DMN10(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) {
			h.daemon("d", func(ctx context.Context, d *daemon) error {
				<-d.Stopping()
				w.note(fmt.Sprintf("stopping, %v", context.Cause(ctx)))
				<-ctx.Done()
				return context.Cause(ctx)
			}, on.CancellationBackoff(time.Second), on.Label("run", "yes"))
		}
		o := w.start(register)
		for _, name := range []string{"filter", "deleted", "exit"} {
			w.create(name, 1, label("run", "yes"))
		}
		w.settle()
		w.mark()
		w.update("filter", label("run", "no"))
		w.sleep(500 * time.Millisecond)
		w.delete("filter") // too late to be the reason
		w.sleep(time.Second)
		w.delete("deleted")
		w.sleep(2 * time.Second)
		if err := o.stop(); err != nil {
			t.Error(err)
		}
		w.expectAnyTime("stopping, <nil>", "d filter leaves: "+mismatchReason, "stopping, <nil>", "d deleted leaves: "+deletedReason,
			"stopping, <nil>", "d exit leaves: operator is exiting")
	})
}

// DMN-10: without a timeout it is waited for, and spoken of now and then.
func TestPolling_DMN10(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.daemon("d", deaf(10*time.Minute), on.Finalize(), on.CancellationPolling(2*time.Minute))
			h.timer("t", func(context.Context, *tick) error { time.Sleep(5 * time.Minute); return nil })
		})
		w.create("w1", 1)
		w.settle()
		w.delete("w1")
		w.sleep(9 * time.Minute)
		w.finalizers("w1", finalizer)
		w.expectLogged(4, "WARN", "does not leave although it was told to stop resource=widgets.demo.example object=default/w1 daemon=d")
		w.expectLogged(4, "WARN", "does not leave although it was told to stop resource=widgets.demo.example object=default/w1 timer=t")
		w.sleep(time.Minute)
		w.gone("w1")
	})
}

// Of one that was abandoned there is no second instance before it has returned at last
// (DMN-2), and then nothing is left of it.
func TestAbandonedAndWantedAgain_DMN2_DMN10(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("is left behind")
		calls := 0
		o := w.engage(func(h handlers) {
			h.daemon("d", func(ctx context.Context, d *daemon) error {
				if calls++; calls == 1 {
					time.Sleep(time.Minute)
					return nil
				}
				<-ctx.Done()
				return nil
			}, on.Label("run", "yes"), on.CancellationTimeout(time.Second), on.Finalize())
		})
		w.mark()
		w.create("w1", 1, label("run", "yes"))
		w.sleep(time.Second)
		w.update("w1", label("run", "no"))
		w.sleep(2 * time.Second)
		w.finalizers("w1")
		w.update("w1", label("run", "yes"))
		w.sleep(2 * time.Second)
		w.finalizers("w1", finalizer)
		o.Suspend(kopf.ErrPaused)
		o.Resume()
		w.sleep(time.Minute)
		w.expect("d w1 #0 begins +0s", "d w1 leaves: <nil> +1m0s", "d w1 #0 begins +1m0s")
		w.delete("w1")
		w.settle()
		w.gone("w1")
		o.unemployed()
	})
}

// DMN-13, B42: the exit is bounded, and what is left behind is named; T140: nothing is
// written, and finalizers stay.
func TestExit_DMN13_B42_T140(t *testing.T) {
	for name, c := range map[string]struct {
		fn    daemonFn
		opts  []on.DaemonOption
		took  time.Duration
		named bool
	}{
		"at once":             {nil, nil, 0, false},
		"slowly":              {lingering(7 * time.Second), nil, 7 * time.Second, false},
		"too slowly":          {lingering(time.Minute), nil, 10 * time.Second, true},
		"never":               {deaf(time.Hour), nil, 10 * time.Second, true},
		"abandoned":           {deaf(time.Hour), []on.DaemonOption{on.CancellationBackoff(time.Second), on.CancellationTimeout(2 * time.Second)}, 3 * time.Second, true},
		"after the backoff":   {nil, []on.DaemonOption{on.CancellationBackoff(4 * time.Second)}, 4 * time.Second, false},
		"backoff is too long": {nil, []on.DaemonOption{on.CancellationBackoff(time.Minute)}, 10 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("is left behind")
				o := w.start(func(h handlers) {
					h.daemon("d", c.fn, append(c.opts, on.Finalize())...)
					h.daemon("good", nil)
					h.timer("t", nil, on.Interval(time.Second))
				})
				w.create("w1", 1)
				w.settle()
				w.mark()
				err := o.stop()
				if got := w.since(); got != c.took {
					t.Errorf("it took %s", got)
				}
				if (err != nil) != c.named || err != nil && !strings.Contains(err.Error(), "daemon handler d on default/w1 did not return in time") {
					t.Error(err)
				}
				synctest.Wait()
				if left := contains(timeless(w.called()), "d w1 leaves: operator is exiting"); left != (c.fn == nil || !c.named) {
					t.Errorf("it has left: %t", left)
				}
				w.writes()
				w.finalizers("w1", finalizer)
				time.Sleep(2 * time.Hour) // or goroutines would be left
			})
		})
	}
}

func timeless(calls []string) []string {
	for i, call := range calls {
		calls[i], _, _ = strings.Cut(call, " +")
	}
	return calls
}

// A change lane that knows of the deletion before the observe lane does lets nothing begin
// on an object that it has let go (DMN-15).
func TestDeletionIsKnownFromAWrite_DMN3_DMN15(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.daemon("d", nil, on.Finalize())
			h.create("c", func(context.Context, *change) error {
				time.Sleep(500 * time.Millisecond)
				w.delete("w1")
				return nil
			})
		})
		w.mark()
		w.server.DelayWatches(time.Second)
		w.create("w1", 1)
		w.sleep(time.Minute)
		w.expectAnyTime("c w1 #0 →1")
		w.gone("w1")
	})
}

// SEL-6: when the version that was followed is not served any more, daemons go on in
// another one. Never are there two.
func TestVersionEndsUnderDaemons_SEL6_DMN2(t *testing.T) {
	for name, c := range map[string]struct {
		linger time.Duration
		opts   []on.DaemonOption
	}{
		"at once": {0, nil}, "slowly": {time.Minute, nil},
		"abandoned": {time.Minute, []on.DaemonOption{on.CancellationTimeout(10 * time.Second)}},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("is left behind")
				var running, most atomic.Int32
				v1, v2 := gadgets("a.example"), gadgets("a.example")
				v2.GroupVersion = "a.example/v2"
				one := w.server.Serve(v1)
				made := simulated.Object(ns, "g", nil)
				made, err := one.Create(made)
				if err != nil {
					t.Fatal(err)
				}
				o := w.engage(func(h handlers) {
					on.Daemon(func(ctx context.Context, d *kopf.Daemon[anything]) error {
						most.Store(max(most.Load(), running.Add(1)))
						defer running.Add(-1)
						w.note("begins in " + d.Object().GetAPIVersion())
						<-ctx.Done()
						time.Sleep(c.linger)
						w.note(fmt.Sprint("leaves: ", context.Cause(ctx)))
						return nil
					}, append(c.opts, on.ID("d"), on.In(h.r), on.Kind("Gadget"))...)
				})
				w.sleep(time.Minute)
				two := w.server.Serve(v2)
				again := simulated.Object(ns, "g", nil)
				again.SetUID(made.GetUID())
				if _, err := two.Adopt(again); err != nil {
					t.Fatal(err)
				}
				w.server.Mute() // what is open says nothing of the objects, which live on
				w.server.Withdraw("a.example/v1", "gadgets")
				w.server.CutWatches()
				w.sleep(2 * time.Minute)
				if most.Load() != 1 || running.Load() != 1 {
					t.Errorf("%d at a time, %d now", most.Load(), running.Load())
				}
				w.expect("begins in a.example/v1", "leaves: "+mismatchReason, "begins in a.example/v2")
				if n := o.Employed(); n != 1 {
					t.Errorf("%d objects have daemons", n)
				}
				if err := two.Delete(ns, "g"); err != nil {
					t.Fatal(err)
				}
				w.sleep(2 * time.Minute)
				w.expect("begins in a.example/v1", "leaves: "+mismatchReason, "begins in a.example/v2", "leaves: "+deletedReason)
				o.unemployed()
			})
		})
	}
}

// What a timer has read from an index is forgotten with its object, and with it the object.
func TestReadingsAreForgotten(t *testing.T) {
	var freed atomic.Bool
	scenario(t, func(w *world) {
		type precious struct{ _ [1 << 10]byte }
		memo := kopf.NewMemo(func() *precious {
			p := new(precious)
			runtime.AddCleanup(p, func(freed *atomic.Bool) { freed.Store(true) }, &freed)
			return p
		})
		var keep *indexing.Index[int, string]
		w.create("src", 1, label("kind", "source"))
		w.start(func(h handlers) {
			keep = on.Index(func(_ context.Context, s *kopf.Snapshot[*widget]) (map[int]string, error) {
				return map[int]string{s.Object.Spec.Size: s.Object.Name}, nil
			}, on.ID("names"), on.In(h.r), forWidgets, on.Label("kind", "source"))
			on.Timer(func(ctx context.Context, k *tick) error {
				memo.Of(k)
				keep.Tracked(ctx).First(k.Object.Spec.Size)
				return nil
			}, on.ID("t"), on.In(h.r), forWidgets, on.Uses(keep), on.Interval(time.Hour), on.Label("kind", "target"))
		})
		w.create("w1", 1, label("kind", "target"))
		w.sleep(time.Minute)
		w.delete("w1")
		w.sleep(time.Minute)
		for i := 0; i < 100 && !freed.Load(); i++ {
			runtime.GC()
			runtime.Gosched()
		}
		if !freed.Load() {
			t.Error("the object's memo is still there")
		}
		runtime.KeepAlive(keep)
	})
}
