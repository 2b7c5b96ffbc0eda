package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// failingDaemon returns a daemon's function that returns the errors in turn, then nil.
func failingDaemon(errs ...error) daemonFn {
	fn := failing(errs...)
	return func(ctx context.Context, _ *daemon) error { return fn(ctx, nil) }
}

func times(n int, err error) (errs []error) {
	for range n {
		errs = append(errs, err)
	}
	return errs
}

// lingering leaves some time after its context has ended.
func lingering(d time.Duration) daemonFn {
	return func(ctx context.Context, _ *daemon) error {
		<-ctx.Done()
		time.Sleep(d)
		return context.Cause(ctx)
	}
}

func TestDaemonBeginsOnce_DMN2_DMN4_T135(t *testing.T) {
	for name, c := range map[string]struct {
		delay on.BackgroundOption
		want  string
	}{
		"at once":     {on.InitialDelay(0), "d w1 #0 begins +0s"},
		"later":       {on.InitialDelay(5 * time.Second), "d w1 #0 begins +5s"},
		"as it says":  {on.InitialDelayFunc(func(o *widget) time.Duration { return time.Duration(o.Spec.Size) * time.Second }), "d w1 #0 begins +3s"},
		"negative":    {on.InitialDelayFunc(func(*widget) time.Duration { return -time.Second }), "d w1 #0 begins +0s"},
		"its panic":   {on.InitialDelayFunc(func(*widget) time.Duration { panic("no delay") }), "d w1 #0 begins +0s"},
		"ends itself": {on.InitialDelayFunc(func(*widget) time.Duration { runtime.Goexit(); return time.Hour }), "d w1 #0 begins +0s"},
		"takes time":  {on.InitialDelayFunc(func(*widget) time.Duration { time.Sleep(2 * time.Second); return 3 * time.Second }), "d w1 #0 begins +3s"},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("initial delay is not known, there is none")
				w.start(func(h handlers) { h.daemon("d", nil, c.delay) })
				w.mark()
				w.create("w1", 3)
				for i := range 100 {
					w.sleep(100 * time.Millisecond)
					w.touchStatus("w1", fmt.Sprint(i))
				}
				w.expect(c.want)
				w.writes()
			})
		})
	}
}

// The delay applies each time that the daemon begins, and does not keep it from being
// stopped (DMN-4).
func TestInitialDelayIsEachTime_DMN4(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) { h.daemon("d", nil, on.InitialDelay(5*time.Second), on.Label("run", "yes")) })
		w.mark()
		w.create("w1", 1, label("run", "yes"))
		w.sleep(4 * time.Second)
		w.update("w1", label("run", "no"))
		w.sleep(4 * time.Second)
		w.update("w1", label("run", "yes"))
		w.sleep(6 * time.Second)
		w.delete("w1")
		w.sleep(time.Minute)
		w.expect("d w1 #0 begins +13s", "d w1 leaves: deletion of the object was requested +14s")
	})
}

// Daemons begin for what was there at the start as for what comes, but not for what is
// being deleted (DMN-2, DMN-15).
func TestDaemonsAtStart_DMN2_DMN15(t *testing.T) {
	scenario(t, func(w *world) {
		w.create("w1", 1)
		w.create("w2", 1, finalizedBy("example.com/other"))
		w.delete("w2")
		for range 2 {
			w.mark()
			o := w.start(func(h handlers) { h.daemon("d", nil) })
			w.resize("w2", 2)
			w.sleep(time.Minute)
			w.expect("d w1 #0 begins +0s")
			if err := o.stop(); err != nil {
				t.Error(err)
			}
			w.writes()
		}
		w.finalizers("w2", "example.com/other")
	})
}

// Daemons come after the event handlers, which may fill what they need.
func TestDaemonsComeAfterEventHandlers_DMN2(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.daemon("d", nil)
			on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
				time.Sleep(time.Second)
				w.note(fmt.Sprintf("event %s +%s", e.Type, w.since()))
				return nil
			}, on.ID("event"), on.In(h.r), forWidgets)
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(2 * time.Second)
		w.delete("w1")
		w.sleep(2 * time.Second)
		w.expect("event ADDED +1s", "d w1 #0 begins +1s", "event DELETED +3s", "d w1 leaves: deletion of the object was requested +3s")
	})
}

func TestDaemonErrors_DMN5_DMN6_DMN17_T136_T137(t *testing.T) {
	delay := 1230 * time.Millisecond
	for name, c := range map[string]struct {
		errs []error
		opts []on.DaemonOption
		want []string
	}{
		"success":            {nil, nil, []string{"#0 +0s"}},
		"permanent error":    {times(9, kopf.Permanent(errFlop)), nil, []string{"#0 +0s"}},
		"errors permanent":   {times(9, errFlop), []on.DaemonOption{on.Errors(on.Permanent)}, []string{"#0 +0s"}},
		"errors ignored":     {times(9, errFlop), []on.DaemonOption{on.Errors(on.Ignored)}, []string{"#0 +0s"}},
		"retry":              {[]error{kopf.Retry(3450*time.Millisecond, nil)}, nil, []string{"#0 +0s", "#1 +3.45s"}},
		"retry, 9 times":     {times(2, kopf.Retry(0, nil)), nil, []string{"#0 +0s", "#1 +0s", "#2 +0s"}},
		"arbitrary":          {times(1, errFlop), []on.DaemonOption{on.Backoff(delay)}, []string{"#0 +0s", "#1 +1.23s"}},
		"arbitrary, default": {times(1, errFlop), nil, []string{"#0 +0s", "#1 +1m0s"}},
		"retry beats errors": {times(1, kopf.Retry(delay, nil)), []on.DaemonOption{on.Errors(on.Permanent)}, []string{"#0 +0s", "#1 +1.23s"}},
		"3 attempts":         {times(9, kopf.Retry(delay, errFlop)), []on.DaemonOption{on.Retries(3)}, []string{"#0 +0s", "#1 +1.23s", "#2 +2.46s"}},
		"4 seconds": {times(9, kopf.Retry(delay, errFlop)), []on.DaemonOption{on.Timeout(4 * time.Second)},
			[]string{"#0 +0s", "#1 +1.23s", "#2 +2.46s", "#3 +3.69s"}},
		"no attempt": {nil, []on.DaemonOption{on.Retries(0)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("failed for good", "failed, which is ignored")
				w.start(func(h handlers) {
					fn := failing(c.errs...)
					on.Daemon(func(ctx context.Context, d *daemon) error {
						w.note(fmt.Sprintf("#%d +%s", d.Retry, w.since()))
						return fn(ctx, nil)
					}, append(c.opts, on.ID("d"), on.In(h.r), forWidgets)...)
				})
				w.mark()
				w.create("w1", 1)
				w.sleep(123 * time.Second)
				w.resize("w1", 2) // what is done is done for good
				w.sleep(time.Hour)
				w.expect(c.want...)
				w.writes()
			})
		})
	}
}

// A daemon that is done for good begins again with the next operator, or for the next
// object of the name, and not when it matches again, or at a new listing (DMN-6).
func TestDoneForGood_DMN6(t *testing.T) {
	for name, err := range map[string]error{"success": nil, "failure": kopf.Permanent(errFlop)} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("failed for good")
				register := func(h handlers) {
					h.daemon("d", func(context.Context, *daemon) error { return err }, on.Label("run", "yes"))
				}
				o := w.start(register)
				w.mark()
				w.create("w1", 1, label("run", "yes"))
				w.settle()
				w.update("w1", label("run", "no"))
				w.settle()
				w.update("w1", label("run", "yes"))
				w.settle()
				w.server.Compact()
				w.server.CutWatches()
				w.sleep(time.Minute)
				once := []string{"d w1 #0 begins", fmt.Sprint("d w1 leaves: ", err)}
				w.expectAnyTime(once...)
				w.delete("w1")
				w.create("w1", 1, label("run", "yes"))
				w.settle()
				w.expectAnyTime(append(once, once...)...)
				if err := o.stop(); err != nil {
					t.Error(err)
				}
				w.start(register)
				w.expectAnyTime(append(append(once, once...), once...)...)
			})
		})
	}
}

// Stopped, it begins again when it matches again, its attempts anew (DMN-7).
func TestRematch_DMN7_DMN9_T138(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.daemon("d", nil, on.Label("run", "yes"))
			h.daemon("other", nil, on.Label("run", "never"))
		})
		w.mark()
		w.create("w1", 1, label("run", "yes"))
		for _, value := range []string{"no", "yes", "no", "yes"} {
			w.sleep(time.Second)
			w.update("w1", label("run", value))
		}
		w.settle()
		const leaves = "d w1 leaves: object does not match the filters of the daemon any more"
		w.expect("d w1 #0 begins +0s", leaves+" +1s", "d w1 #0 begins +2s", leaves+" +3s", "d w1 #0 begins +4s")
		w.writes()
	})
}

// While it leaves, the next one waits (DMN-2), and how it ends means nothing (DMN-7).
func TestRematchWhileLeaving_DMN2_DMN7(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.daemon("d", func(ctx context.Context, _ *daemon) error {
				<-ctx.Done()
				time.Sleep(time.Minute)
				return nil
			}, on.Label("run", "yes"))
		})
		w.mark()
		w.create("w1", 1, label("run", "yes"))
		w.settle()
		for _, value := range []string{"no", "yes", "no", "yes"} {
			w.update("w1", label("run", value))
			w.sleep(time.Second)
		}
		w.sleep(time.Minute)
		w.expectAnyTime("d w1 #0 begins", "d w1 leaves: <nil>", "d w1 #0 begins")
		w.update("w1", label("run", "no"))
		w.sleep(time.Second)
		w.update("w1", label("run", "yes"))
		w.sleep(time.Second)
		w.update("w1", label("run", "no"))
		w.sleep(2 * time.Minute)
		w.expectAnyTime("d w1 #0 begins", "d w1 leaves: <nil>", "d w1 #0 begins", "d w1 leaves: <nil>")
	})
}

// Design §4 "panics": a panic is a passing failure, and so is a daemon that ends its
// goroutine.
func TestDaemonPanics_DMN5(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("panicked", "runtime.Goexit")
		w.start(func(h handlers) {
			on.Daemon(func(ctx context.Context, d *daemon) error {
				w.note(fmt.Sprintf("#%d +%s", d.Retry, w.since()))
				d.Patch.Apply(func(o *widget) { o.Status.Phase = fmt.Sprint("attempt ", d.Retry) })
				switch d.Retry {
				case 0:
					panic("help")
				case 1:
					runtime.Goexit()
				}
				<-ctx.Done()
				return nil
			}, on.ID("d"), on.In(h.r), forWidgets, on.Errors(on.Permanent), on.Backoff(3*time.Second))
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(time.Minute)
		w.expect("#0 +0s", "#1 +3s", "#2 +6s")
	})
}

// A filter that fails is tried again (design §4 "panics"); what runs goes on.
func TestFilterOfDaemonPanics_FLT5(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("filter failed", "handling failed")
		var broken atomic.Bool
		broken.Store(true)
		w.start(func(h handlers) {
			h.daemon("d", nil, on.When(func(_ context.Context, s *kopf.Snapshot[*widget]) bool {
				if broken.Load() {
					panic("no filter")
				}
				return s.Object.Spec.Size > 0
			}))
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(30 * time.Second)
		broken.Store(false)
		w.sleep(30 * time.Second)
		w.expect("d w1 #0 begins +1m0s")
		broken.Store(true)
		w.resize("w1", 2)
		w.sleep(time.Second)
		w.resize("w1", 0)
		w.sleep(time.Second)
		w.expect("d w1 #0 begins +1m0s")
		broken.Store(false)
		w.sleep(time.Minute)
		w.expectAnyTime("d w1 #0 begins", "d w1 leaves: object does not match the filters of the daemon any more")
		broken.Store(true)
		w.create("w2", 1)
		w.settle()
		w.delete("w2")
		broken.Store(false)
		w.sleep(time.Hour)
		w.expectAnyTime("d w1 #0 begins", "d w1 leaves: object does not match the filters of the daemon any more")
	})
}

// T147: what a daemon sees of its object, and of being told to stop.
func TestDaemonSeesTheNewest_DMN8_T147(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			on.Daemon(func(ctx context.Context, d *daemon) error {
				for {
					w.note(fmt.Sprintf("size %d %s +%s", d.Object().Spec.Size, d.Object().Status.Phase, w.since()))
					select {
					case <-d.Changed():
					case <-d.Stopping():
						w.note(fmt.Sprintf("stopping, %v +%s", context.Cause(ctx), w.since()))
						<-ctx.Done()
						w.note(fmt.Sprintf("cancelled, %t +%s", errors.Is(context.Cause(ctx), kopf.ErrDeleted), w.since()))
						return nil
					}
				}
			}, on.ID("d"), on.In(h.r), forWidgets, on.CancellationBackoff(2*time.Second))
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(time.Second)
		w.touchStatus("w1", "busy") // no essential change
		w.sleep(time.Second)
		w.resize("w1", 2)
		w.sleep(time.Second)
		w.update("w1", annotation("a", "b"))
		w.sleep(time.Second)
		w.delete("w1")
		w.sleep(time.Minute)
		w.expect("size 1  +0s", "size 2 busy +2s", "size 2 busy +3s", "stopping, <nil> +4s", "cancelled, true +6s")
	})
}

// A daemon that is called again sees what it has written itself, though the watch is late.
func TestDaemonSeesItsOwnPatch_DMN5(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			on.Daemon(func(ctx context.Context, d *daemon) error {
				size := d.Object().Spec.Size
				w.note(fmt.Sprintf("size %d +%s", size, w.since()))
				if size > 3 {
					return nil
				}
				d.Patch.Apply(func(o *widget) { o.Spec.Size++ })
				return kopf.Retry(0, nil)
			}, on.ID("d"), on.In(h.r), forWidgets)
		})
		w.mark()
		w.create("w1", 1)
		w.server.DelayWatches(time.Minute)
		w.sleep(time.Second)
		w.expect("size 1 +0s", "size 2 +0s", "size 3 +0s", "size 4 +0s")
		w.writes("patch widgets", "patch widgets", "patch widgets")
		w.sleep(time.Hour)
		w.expect("size 1 +0s", "size 2 +0s", "size 3 +0s", "size 4 +0s")
	})
}

// DMN-19: the log tells of a daemon's end whether it was asked to leave; of its beginning
// it says nothing.
func TestWhatIsLogged_DMN19(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.daemon("asked", nil)
			h.daemon("by itself", failingDaemon())
		})
		w.create("w1", 1)
		w.settle()
		w.expectLogged(1, "INFO", "has ended by itself resource=widgets.demo.example object=default/w1 daemon=by itself")
		w.expectLogged(0, "DEBUG", "daemon=asked")
		w.delete("w1")
		w.settle()
		w.expectLogged(1, "DEBUG", "has left on request resource=widgets.demo.example object=default/w1 daemon=asked why="+deletedReason)
		w.expectLogged(0, "DEBUG", "has left on request resource=widgets.demo.example object=default/w1 daemon=by itself")
	})
}

// B04: an object that does not decode is complained of once, and its daemons and timers
// begin as soon as it does.
func TestUndecodableForDaemons_B04(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("object cannot be handled until it is changed")
		w.start(func(h handlers) {
			h.daemon("d", nil, on.Finalize())
			h.daemon("delayed", nil, on.InitialDelayFunc(func(*widget) time.Duration { return time.Second }))
			h.timer("t", nil, on.Interval(time.Hour))
			h.timer("idle", nil, on.Idle(time.Minute))
		})
		w.mark()
		w.create("w1", 1, func(o widgetObj) { set(o, "large", "spec", "size") })
		w.sleep(10*time.Minute + 30*time.Second)
		w.expect()
		w.expectLogged(1, "ERROR", "object cannot be handled until it is changed")
		w.resize("w1", 2)
		w.sleep(time.Second)
		w.expectSet("d w1 #0 begins", "delayed w1 #0 begins", "t w1 #0 2")
		w.mark()
		w.update("w1", func(o widgetObj) { set(o, "large", "spec", "size") }) // those who run go on
		w.sleep(2 * time.Hour)
		w.expect()
		w.delete("w1")
		w.settle()
		w.gone("w1")
		w.expectSet("d w1 leaves: "+deletedReason, "delayed w1 leaves: "+deletedReason)
	})
}
