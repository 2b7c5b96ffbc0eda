package kopf

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/kopf-go/kopf/on"
)

// MEM-2, MEM-4: what startup handlers put into the operator's memos is there for all handlers, until
// the operator stops.
func TestMemosOfActivities_MEM2_MEM4(t *testing.T) {
	onBench(t, func(b *bench) {
		memo := NewMemo(func() *[]string { return new([]string) })
		add := func(h Memoized, what string) { *memo.Operator(h) = append(*memo.Operator(h), what) }
		on.Startup(func(_ context.Context, a *Activity) error { add(a, "startup"); return nil }, b.in)
		on.Login(func(_ context.Context, l *Login) (*Credentials, error) { add(l, "login"); return l.Default() }, b.in)
		on.Create(func(_ context.Context, c *Change[*widget]) error { add(c, "create"); return nil }, widgets, b.in)
		on.Probe(func(_ context.Context, p *Probe) (int, error) { add(p, "probe"); return 0, nil }, b.in)
		on.Cleanup(func(_ context.Context, a *Activity) error {
			if !slices.Equal(*memo.Of(a), []string{"startup", "create", "probe"}) { // Options.Config serves as long as it is not refused
				b.Error(*memo.Of(a))
			}
			return nil
		}, b.in)
		op := b.operator()
		for _, name := range []string{"v", "w"} {
			b.create(name, 1)
			r := b.start(op)
			b.pass(time.Minute)
			b.alive(op)
			r.ends(b)
		}
	})
}

// EMB-1: an operator that runs does not run a second time beside itself.
func TestRunsOnce_EMB1(t *testing.T) {
	onBench(t, func(b *bench) {
		r := b.start(b.operator())
		b.pass(time.Second)
		if err := r.Run(b.Context()); err == nil || err.Error() != "the operator runs already" {
			b.Error(err)
		}
		r.ends(b)
		r = b.start(r.Operator)
		b.pass(time.Second)
		r.ends(b)
	})
}

// EMB-5: several operators run side by side in one process, each with its registry, settings and memos.
func TestSeveralOperators_EMB5(t *testing.T) {
	onBench(t, func(b *bench) {
		memo := NewMemo(func() *int { return new(int) })
		var all []*running
		for _, name := range []string{"one", "two"} {
			reg := NewRegistry()
			in := on.In(reg)
			on.Startup(b.activity(name+" starts", func(_ context.Context, a *Activity) error {
				*memo.Of(a)++
				a.Settings.Execution.DefaultBackoff = time.Second
				return nil
			}), in)
			on.Create(func(_ context.Context, c *Change[*widget]) error {
				if *memo.Operator(c) != 1 {
					b.Error(*memo.Operator(c))
				}
				return nil
			}, on.ID(name), widgets, in)
			on.Cleanup(b.activity(name+" stops", nil), in)
			all = append(all, b.start(b.operator(func(o *Options) { o.Name, o.Registry = name, reg })))
			b.pass(time.Second)
		}
		b.create("w", 1)
		b.pass(time.Second)
		notes := b.kind.Get("default", "w").GetAnnotations()
		for i, name := range []string{"one", "two"} {
			if notes[name+".kopf.zalando.org/last-handled-configuration"] == "" {
				b.Error(name, notes)
			}
			all[i].ends(b)
			b.pass(time.Second)
		}
		b.noted("one starts 0s", "two starts 1s", "one stops 3s", "two stops 4s")
	})
}

// EMB-6: starts and stops leave nothing behind, whatever the operator does: the bubble has no goroutine left at
// its end, nor has the heap grown.
func TestStartsAndStopsLeaveNothing_EMB6(t *testing.T) {
	onBench(t, func(b *bench) {
		cycles := 0
		on.Startup(func(context.Context, *Activity) error { cycles++; return nil }, b.in)
		on.Cleanup(func(context.Context, *Activity) error { return nil }, b.in)
		on.Login(func(context.Context, *Login) (*Credentials, error) { return &Credentials{Config: b.config("a")}, nil }, b.in)
		on.Probe(func(context.Context, *Probe) (int, error) { return 1, nil }, b.in)
		on.Index(func(_ context.Context, s *Snapshot[*widget]) (map[string]int, error) {
			return map[string]int{"x": 1}, nil
		}, widgets, b.in, on.ID("i"))
		on.Resume(handled[*widget], widgets, b.in)
		on.Create(handled[*widget], on.ID("create"), widgets, b.in)
		on.Daemon(func(ctx context.Context, _ *Daemon[*widget]) error { <-ctx.Done(); return nil }, widgets, b.in)
		on.Timer(func(context.Context, *Tick[*widget]) error { return nil }, on.Interval(time.Second), widgets, b.in)
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			b.create(name, 1)
		}
		op := b.operator(func(o *Options) { o.Config = nil })
		cycle := func() {
			r := b.start(op)
			b.pass(3 * time.Second)
			if got := b.alive(op); got != `200 {"TestStartsAndStopsLeaveNothing_EMB6.func1.4":1}` {
				b.Error(got)
			}
			r.ends(b)
			b.server.Forget()
			b.mu.Lock()
			b.logs.Reset()
			b.mu.Unlock()
		}
		for range 10 {
			cycle()
		}
		before, goroutines := heap(), runtime.NumGoroutine()
		for range 50 {
			cycle()
		}
		if grown := int64(heap()) - int64(before); grown > 512<<10 {
			b.Errorf("the heap has grown by %d bytes in 50 cycles", grown)
		}
		if n := runtime.NumGoroutine(); n > goroutines || cycles != 60 {
			b.Errorf("%d goroutines, %d before; %d cycles", n, goroutines, cycles)
		}
	})
}

// heap is what is in use.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
