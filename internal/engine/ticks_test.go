package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// taking is a tick that takes some time.
func taking(d time.Duration) tickFn {
	return func(ctx context.Context, _ *tick) error { return sleeping(d)(ctx, nil) }
}

// failingTick returns the errors in turn, then nil.
func failingTick(errs ...error) tickFn {
	fn := failing(errs...)
	return func(ctx context.Context, _ *tick) error { return fn(ctx, nil) }
}

func TestTicks_TMR2_TMR3_TMR4_TMR8_T144_T145_T146(t *testing.T) {
	delay := 3450 * time.Millisecond
	for name, c := range map[string]struct {
		fn   tickFn
		opts []on.TimerOption
		want string // in the first 24 seconds
	}{
		"interval":         {taking(300 * time.Millisecond), []on.TimerOption{on.Interval(10 * time.Second)}, "#0 +0s, #0 +10.3s, #0 +20.6s"},
		"sharp":            {taking(300 * time.Millisecond), []on.TimerOption{on.Interval(10 * time.Second), on.Sharp()}, "#0 +0s, #0 +10s, #0 +20s"},
		"sharp, too long":  {taking(11 * time.Second), []on.TimerOption{on.Interval(10 * time.Second), on.Sharp()}, "#0 +0s, #0 +20s"},
		"slow":             {taking(11 * time.Second), []on.TimerOption{on.Interval(time.Second)}, "#0 +0s, #0 +12s, #0 +24s"},
		"delay":            {nil, []on.TimerOption{on.Interval(11 * time.Second), on.InitialDelay(5 * time.Second)}, "#0 +5s, #0 +16s"},
		"delay as it says": {nil, []on.TimerOption{on.Interval(11 * time.Second), on.InitialDelayFunc(func(o *widget) time.Duration { return time.Duration(o.Spec.Size) * time.Second })}, "#0 +1s, #0 +12s, #0 +23s"},
		"delay panics":     {nil, []on.TimerOption{on.Interval(20 * time.Second), on.InitialDelayFunc(func(o *widget) time.Duration { panic("no delay") })}, "#0 +0s, #0 +20s"},
		"idle":             {nil, []on.TimerOption{on.Idle(7 * time.Second)}, "#0 +7s"},
		"idle, interval":   {nil, []on.TimerOption{on.Idle(7 * time.Second), on.Interval(9 * time.Second)}, "#0 +7s, #0 +16s"},
		"idle, delay":      {nil, []on.TimerOption{on.Idle(7 * time.Second), on.InitialDelay(8 * time.Second)}, "#0 +8s"},
		"one shot":         {nil, []on.TimerOption{on.InitialDelay(2 * time.Second)}, "#0 +2s"},
		"3 attempts":       {failingTick(times(9, kopf.Retry(delay, nil))...), []on.TimerOption{on.Interval(time.Minute), on.Retries(3)}, "#0 +0s, #1 +3.45s, #2 +6.9s"},
		"10 seconds":       {failingTick(times(9, kopf.Retry(delay, nil))...), []on.TimerOption{on.Interval(time.Minute), on.Timeout(10 * time.Second)}, "#0 +0s, #1 +3.45s, #2 +6.9s"},
		"the next tick":    {failingTick(times(4, kopf.Retry(2*time.Second, nil))...), []on.TimerOption{on.Interval(11 * time.Second), on.Retries(2)}, "#0 +0s, #1 +2s, #0 +13s, #1 +15s"},
		"permanent":        {failingTick(kopf.Permanent(errFlop), errFlop), []on.TimerOption{on.Interval(11 * time.Second), on.Errors(on.Permanent)}, "#0 +0s, #0 +11s, #0 +22s"},
		"permanent, once":  {failingTick(kopf.Permanent(errFlop)), nil, "#0 +0s"},
		"permanent, idle":  {failingTick(kopf.Permanent(errFlop)), []on.TimerOption{on.Idle(3 * time.Second)}, "#0 +3s"},
		"retry, once":      {failingTick(kopf.Retry(delay, nil)), nil, "#0 +0s, #1 +3.45s"},
		"retry, idle":      {failingTick(kopf.Retry(delay, nil)), []on.TimerOption{on.Idle(7 * time.Second)}, "#0 +7s, #1 +10.45s"},
		"retry, cron":      {failingTick(kopf.Retry(delay, nil)), []on.TimerOption{on.Cron("* * * * *")}, "#0 +0s, #1 +3.45s"},
		"ignored":          {failingTick(errFlop), []on.TimerOption{on.Interval(20 * time.Second), on.Errors(on.Ignored)}, "#0 +0s, #0 +20s"},
		"panic":            {func(_ context.Context, k *tick) error { panic("help") }, []on.TimerOption{on.Interval(3 * time.Second), on.Backoff(12 * time.Second), on.Retries(2)}, "#0 +0s, #1 +12s, #0 +15s"},
		"ends goroutine": {func(context.Context, *tick) error { runtime.Goexit(); return nil }, []on.TimerOption{on.Interval(3 * time.Second), on.Backoff(12 * time.Second), on.Retries(2)},
			"#0 +0s, #1 +12s, #0 +15s"},
		"sharp, ends goroutine": {func(context.Context, *tick) error { time.Sleep(time.Second); runtime.Goexit(); return nil },
			[]on.TimerOption{on.Interval(10 * time.Second), on.Sharp(), on.Errors(on.Permanent), on.Retries(1)}, "#0 +0s, #0 +10s, #0 +20s"},
		"timeout ends context": {func(ctx context.Context, _ *tick) error { <-ctx.Done(); return context.Cause(ctx) },
			[]on.TimerOption{on.Interval(3 * time.Second), on.Timeout(8 * time.Second)}, "#0 +0s, #0 +11s, #0 +22s"},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("failed for good", "ignored", "panicked", "initial delay is not known")
				w.start(func(h handlers) {
					on.Timer(func(ctx context.Context, k *tick) error {
						w.note(fmt.Sprintf("#%d +%s", k.Retry, w.since()))
						if c.fn == nil {
							return nil
						}
						return c.fn(ctx, k)
					}, append(c.opts, on.ID("t"), on.In(h.r), forWidgets)...)
				})
				w.sleep(time.Minute - 10*time.Millisecond) // to a full minute
				w.mark()
				w.create("w1", 1)
				w.sleep(24 * time.Second)
				if got := strings.Join(w.called(), ", "); got != c.want {
					t.Errorf("\n got %s\nwant %s", got, c.want)
				}
				w.writes()
			})
		})
	}
}

// TMR-5: only essential changes of the object reset the idle time, whether there are
// handlers that keep a last-handled state or not; TMR-6: changes shorten nothing.
func TestIdle_TMR5_TMR6(t *testing.T) {
	for name, handling := range map[string]bool{"alone": false, "with change handlers": true} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.start(func(h handlers) {
					on.Timer(func(_ context.Context, k *tick) error {
						w.note(fmt.Sprintf("idle %d +%s", k.Object.Spec.Size, w.since()))
						k.SetResult(map[string]any{"at": w.since().String()}) // is no essential change
						return nil
					}, on.ID("t"), on.In(h.r), forWidgets, on.Idle(10*time.Second))
					on.Timer(func(_ context.Context, k *tick) error {
						w.note(fmt.Sprintf("both %d +%s", k.Object.Spec.Size, w.since()))
						return nil
					}, on.ID("both"), on.In(h.r), forWidgets, on.Idle(10*time.Second), on.Interval(time.Minute))
					if handling {
						on.Update(func(context.Context, *change) error { return kopf.Retry(2*time.Second, nil) },
							on.ID("u"), on.In(h.r), forWidgets, on.Retries(3))
						on.Create(func(context.Context, *change) error { return nil }, on.ID("c"), on.In(h.r), forWidgets)
					}
				})
				w.allow("failed for good")
				w.mark()
				w.create("w1", 1)
				for i := range 40 { // +12s
					w.sleep(300 * time.Millisecond)
					w.touchStatus("w1", fmt.Sprint(i))
				}
				w.resize("w1", 2)
				w.sleep(4 * time.Second)
				w.update("w1", annotation("a", "b")) // +16s
				w.sleep(4 * time.Second)
				w.update("w1", finalizedBy("example.com/other")) // is not essential
				w.sleep(10 * time.Second)
				w.sleep(35 * time.Second) // +65s
				w.resize("w1", 3)
				w.sleep(time.Minute)
				got := w.called()
				slices.Sort(got)
				want := []string{"both 1 +10s", "both 2 +1m10s", "idle 1 +10s", "idle 2 +26s", "idle 3 +1m15s"}
				want[1] = "both 3 +1m15s"
				if !slices.Equal(got, want) {
					t.Errorf("\n got %q\nwant %q", got, want)
				}
			})
		})
	}
}

// A timer's own patch resets its idle time if it is an essential change, and else not.
func TestIdleAndOwnPatch_TMR5_X13(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			on.Timer(func(_ context.Context, k *tick) error {
				w.note(fmt.Sprintf("size %d +%s", k.Object.Spec.Size, w.since()))
				k.Patch.Apply(func(o *widget) {
					o.Spec.Size = min(o.Spec.Size+1, 3)
					o.Status.Phase = w.since().String()
				})
				time.Sleep(time.Millisecond)
				return nil
			}, on.ID("t"), on.In(h.r), forWidgets, on.Idle(10*time.Second))
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(time.Hour)
		w.expect("size 1 +10s", "size 2 +20.001s", "size 3 +30.002s")
	})
}

// A change while a tick waits for its repetition does not get lost, nor does it let the
// tick come too early.
func TestIdleAndRetry_TMR2_TMR5(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.timer("t", failingTick(times(2, kopf.Retry(20*time.Second, nil))...), on.Idle(10*time.Second))
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(25 * time.Second)
		w.resize("w1", 2)
		w.sleep(time.Hour)
		w.expect("t w1 #0 1 +10s", "t w1 #1 2 +35s", "t w1 #2 2 +55s")
	})
}

// The calendar's times, in the operator's minutes.
func TestCronTicks_TMR2_TMR4(t *testing.T) {
	scenario(t, func(w *world) { // it is five past something
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(65 * time.Minute)))
		w.start(func(h handlers) {
			h.timer("t", taking(90*time.Minute), on.Cron("CRON_TZ=UTC 15,45 * * * *"))
			h.timer("later", nil, on.Cron("CRON_TZ=UTC 15 * * * *"), on.InitialDelay(10*time.Minute))
			h.timer("idle", nil, on.Cron("CRON_TZ=UTC 15 * * * *"), on.Idle(30*time.Minute))
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(2*time.Hour + 30*time.Minute)
		got := w.called()
		slices.Sort(got)
		want := []string{
			"idle w1 #0 1 +1h9m59.99s", "idle w1 #0 1 +2h9m59.99s", "idle w1 #0 1 +30m0s",
			"later w1 #0 1 +1h9m59.99s", "later w1 #0 1 +2h9m59.99s", "t w1 #0 1 +2h9m59.99s", "t w1 #0 1 +9m59.99s",
		}
		if !slices.Equal(got, want) {
			t.Errorf("\n got %q\nwant %q", got, want)
		}
		w.writes()
	})
}

// After a restart, what was listed ticks spread over a tenth of the interval, each object
// at the same place again; what is created ticks at once. A delay that is given counts.
func TestFirstTicksAreSpread_TMR4(t *testing.T) {
	scenario(t, func(w *world) {
		const n = 1000
		for i := range n {
			w.create(fmt.Sprint("w", i), i)
		}
		at := func() map[string]time.Duration {
			first := map[string]time.Duration{}
			for _, call := range w.called() {
				name, when, _ := strings.Cut(call, " ")
				d, err := time.ParseDuration(when)
				if _, known := first[name]; err != nil || known {
					t.Errorf("ticked twice, or %v", err)
				}
				first[name] = d
			}
			return first
		}
		var before map[string]time.Duration
		for range 2 {
			w.mark()
			o := w.start(func(h handlers) {
				on.Timer(func(_ context.Context, k *tick) error {
					w.note(k.Object.Name + " " + w.since().String())
					return nil
				}, on.ID("t"), on.In(h.r), forWidgets, on.Interval(50*time.Second))
			})
			w.sleep(5 * time.Second)
			first := at()
			tenths := make([]int, 10)
			for name, d := range first {
				tenths[min(9, d/(500*time.Millisecond))]++
				if was, known := before[name]; known && was != d {
					t.Fatalf("%s: %s, and %s before", name, d, was)
				}
			}
			if len(first) != n || slices.Min(tenths) < 60 || slices.Max(tenths) > 140 {
				t.Errorf("%d, in half seconds %v", len(first), tenths)
			}
			before = first
			w.mark()
			w.create("new", 1)
			w.settle()
			if _, ticked := at()["new"]; !ticked {
				t.Error("it is put off")
			}
			w.delete("new")
			if err := o.stop(); err != nil {
				t.Error(err)
			}
			w.writes()
		}
	})
}

// With Jitter, ticks by the calendar are put off as well, each object's always as much.
func TestCronWithJitter_TMR2(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			on.Timer(func(ctx context.Context, k *tick) error {
				w.note(fmt.Sprint(k.Object.Name, " ", time.Since(time.Now().Truncate(time.Hour))))
				return sleeping(time.Minute)(ctx, nil)
			}, on.ID("t"), on.In(h.r), forWidgets, on.Cron("CRON_TZ=UTC @hourly"), on.Jitter(20*time.Minute))
		})
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(90 * time.Minute)))
		const n = 20
		for i := range n {
			w.create(fmt.Sprint("w", i), i)
		}
		w.mark()
		w.sleep(24 * time.Hour)
		counts := map[string]int{}
		for _, call := range w.called() {
			counts[call]++
		}
		places := map[string]bool{}
		for call, count := range counts {
			_, place, _ := strings.Cut(call, " ")
			places[place] = true
			if d, err := time.ParseDuration(place); err != nil || d < 0 || d >= 20*time.Minute || count != 24 {
				t.Errorf("%s: %d times", call, count)
			}
		}
		if len(counts) != n || len(places) != n {
			t.Errorf("%d objects at %d places", len(counts), len(places))
		}
	})
}

// A timer that patches nothing costs no requests at all, whatever its object goes through.
func TestQuietTimers_TMR7(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.timer("t", nil, on.Interval(time.Minute))
			h.timer("idle", nil, on.Idle(time.Hour))
			h.timer("once", nil)
			h.timer("cron", nil, on.Cron("@hourly"))
			h.timer("sets what is there", func(_ context.Context, k *tick) error {
				k.Patch.Apply(func(o *widget) { o.Status.Phase = "idle" })
				return nil
			}, on.Interval(time.Hour))
			h.daemon("d", nil)
		})
		w.create("w1", 1, label("a", "b"))
		w.touchStatus("w1", "idle")
		w.sleep(time.Second)
		w.mark()
		w.sleep(24 * time.Hour)
		for _, r := range w.server.Requests(simulated.On{}) {
			if r.Verb != "watch" {
				t.Errorf("%s %s at %s", r.Verb, r.Resource, r.At)
			}
		}
		if n := len(w.called()); n < 24*60 {
			t.Errorf("%d ticks", n)
		}
		w.touchStatus("w1", "busy")
		w.sleep(time.Hour)
		w.writes("patch widgets/status")
	})
}

// TMR-7: a result is written when it is another one, and only if the tick has succeeded.
func TestResults_TMR7_RES1(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("failed for good")
		n := 0
		w.start(func(h handlers) {
			h.timer("t", func(_ context.Context, k *tick) error {
				n++
				k.SetResult(map[string]any{"n": n / 3})
				if n%3 == 0 {
					return kopf.Permanent(errFlop)
				}
				return nil
			}, on.Interval(time.Minute))
			h.daemon("d", func(_ context.Context, d *daemon) error {
				d.SetResult("one")
				if d.Retry == 0 {
					return kopf.Retry(time.Second, nil)
				}
				d.SetResult("two")
				return nil
			})
		})
		w.create("w1", 1)
		w.sleep(30 * time.Second)
		w.writes("patch widgets/status", "patch widgets/status") // of the timer, and of the daemon
		w.mark()
		w.sleep(2 * time.Minute) // 0, 1 but failed
		w.writes()
		w.sleep(time.Minute)
		w.writes("patch widgets/status")
		status, _ := w.get("w1").Object["status"].(map[string]any)
		if got := fmt.Sprint(status); got != "map[d:two t:map[n:1]]" {
			t.Error(got)
		}
	})
}

// A timer is woken by what it has read from an index, but not while its object is busy,
// and never beside itself.
func TestTimerIsWoken_TMR6(t *testing.T) {
	scenario(t, func(w *world) {
		w.create("src", 1, label("kind", "source"))
		o := w.engage(func(h handlers) {
			colours := on.Index(func(_ context.Context, s *kopf.Snapshot[*widget]) (map[int]string, error) {
				return map[int]string{s.Object.Spec.Size: s.Object.Spec.Color}, nil
			}, on.ID("colours"), on.In(h.r), forWidgets, on.Label("kind", "source"))
			h.timer("t", func(ctx context.Context, k *tick) error {
				v, _ := colours.Tracked(ctx).First(k.Object.Spec.Size)
				w.note(fmt.Sprintf("%s %q", k.Object.Name, v))
				time.Sleep(time.Second)
				return nil
			}, on.Interval(time.Hour), on.Uses(colours), on.Label("kind", "target"))
		})
		paint := func(color string) { w.update("src", func(o widgetObj) { set(o, color, "spec", "color") }) }
		w.mark()
		w.create("w1", 1, label("kind", "target"))
		w.sleep(10 * time.Second)
		paint("red")
		w.sleep(500 * time.Millisecond)
		paint("blue")
		paint("green")
		w.sleep(10 * time.Second)
		w.expectAnyTime("t w1 #0 1", `w1 ""`, "t w1 #0 1", `w1 "red"`, "t w1 #0 1", `w1 "green"`)
		w.mark()
		w.delete("w1")
		w.settle()
		paint("black")
		w.sleep(2 * time.Hour)
		w.expect()
		w.delete("src")
		w.settle()
		o.unemployed()
	})
}
