package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

type (
	daemon   = kopf.Daemon[*widget]
	daemonFn = func(context.Context, *daemon) error
	tick     = kopf.Tick[*widget]
	tickFn   = func(context.Context, *tick) error
)

// daemon registers a daemon that notes when it begins and why it leaves. Without a function
// it leaves when its context ends.
func (h handlers) daemon(id string, fn daemonFn, opts ...on.DaemonOption) {
	on.Daemon(func(ctx context.Context, d *daemon) error {
		name := d.Object().Name
		h.w.note(fmt.Sprintf("%s %s #%d begins +%s", id, name, d.Retry, h.w.since()))
		var err error
		if fn != nil {
			err = fn(ctx, d)
		} else {
			<-ctx.Done()
			err = context.Cause(ctx)
		}
		h.w.note(fmt.Sprintf("%s %s leaves: %v +%s", id, name, err, h.w.since()))
		return err
	}, append(opts, on.ID(id), on.In(h.r), forWidgets)...)
}

// timer registers a timer that notes its ticks.
func (h handlers) timer(id string, fn tickFn, opts ...on.TimerOption) {
	on.Timer(func(ctx context.Context, t *tick) error {
		h.w.note(fmt.Sprintf("%s %s #%d %d +%s", id, t.Object.Name, t.Retry, t.Object.Spec.Size, h.w.since()))
		if fn == nil {
			return nil
		}
		return fn(ctx, t)
	}, append(opts, on.ID(id), on.In(h.r), forWidgets)...)
}

func TestDaemonLivesAsLongAsItsObject_DMN2(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) { h.daemon("d", nil) })
		w.mark()
		w.create("w1", 1)
		w.settle()
		w.resize("w1", 2)
		w.touchStatus("w1", "x")
		w.settle()
		w.delete("w1")
		w.settle()
		w.expect("d w1 #0 begins +0s", "d w1 leaves: deletion of the object was requested +20ms")
		w.writes()
		w.gone("w1")
	})
}

func TestFinalizeHoldsUntilTheDaemonHasLeft_DMN11_X08(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.daemon("d", func(ctx context.Context, d *daemon) error {
				<-ctx.Done()
				time.Sleep(300 * time.Millisecond)
				return nil
			}, on.Finalize())
			h.delete("del", nil)
		})
		w.create("w1", 1)
		w.settle()
		w.finalizers("w1", finalizer)
		w.mark()
		w.delete("w1")
		w.sleep(299 * time.Millisecond)
		w.finalizers("w1", finalizer)
		w.sleep(2 * time.Millisecond)
		w.gone("w1")
		w.expectSet("del w1 #0 1→1", "d w1 leaves: <nil>")
		w.writes("patch widgets", "patch widgets")
	})
}

func TestOnlyADaemonFinalizes_DMN3_DMN16(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.daemon("d", func(ctx context.Context, d *daemon) error {
				<-ctx.Done()
				time.Sleep(300 * time.Millisecond)
				return nil
			}, on.Finalize(), on.Label("run", "yes"))
		})
		w.create("w1", 1, label("run", "yes"))
		w.create("w2", 1)
		w.settle()
		w.finalizers("w1", finalizer)
		w.finalizers("w2")
		w.writes("patch widgets")
		w.mark()
		w.update("w1", label("run", "no"))
		w.sleep(200 * time.Millisecond)
		w.finalizers("w1", finalizer)
		w.sleep(200 * time.Millisecond)
		w.finalizers("w1")
		w.writes("patch widgets")
		w.update("w1", label("run", "yes"))
		w.settle()
		w.delete("w1")
		w.sleep(400 * time.Millisecond)
		w.gone("w1")
	})
}

func TestFlippedLabel_B42(t *testing.T) {
	scenario(t, func(w *world) {
		var running, most atomic.Int32
		w.start(func(h handlers) {
			h.daemon("d", func(ctx context.Context, d *daemon) error {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				<-ctx.Done()
				time.Sleep(7 * time.Millisecond)
				return nil
			}, on.Label("run", "yes"))
		})
		w.create("w1", 1, label("run", "no"))
		for i := range 101 {
			w.update("w1", label("run", []string{"yes", "no"}[i%2]))
			time.Sleep(time.Millisecond)
		}
		w.sleep(time.Second)
		if most.Load() != 1 || running.Load() != 1 {
			t.Errorf("%d at most, %d in the end", most.Load(), running.Load())
		}
	})
}

func TestTimerTicks_TMR2_T144(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.timer("plain", func(ctx context.Context, t *tick) error { time.Sleep(300 * time.Millisecond); return nil }, on.Interval(time.Second))
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(3 * time.Second)
		w.expect("plain w1 #0 1 +0s", "plain w1 #0 1 +1.3s", "plain w1 #0 1 +2.6s")
		w.mark()
		w.delete("w1")
		w.sleep(time.Hour)
		w.expect()
		w.writes()
	})
}

func TestTimerPatches_TMR7(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.timer("t", func(ctx context.Context, t *tick) error {
				t.Patch.Apply(func(o *widget) { o.Status.Phase = "Ticking" })
				t.SetResult(map[string]any{"n": 1})
				return nil
			}, on.Interval(time.Minute))
		})
		w.create("w1", 1)
		w.sleep(10 * time.Minute)
		w.writes("patch widgets/status")
	})
}

func TestDaemonsAreStoppedAtExit_DMN13(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.start(func(h handlers) {
			h.daemon("good", nil)
			h.daemon("deaf", func(context.Context, *daemon) error { time.Sleep(time.Minute); return nil })
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		err := o.stop()
		if err == nil || w.since() > 11*time.Second {
			t.Error(err, w.since())
		}
		w.expectAnyTime("good w1 leaves: operator is exiting")
		time.Sleep(time.Minute)
		t.Log(err)
	})
}
