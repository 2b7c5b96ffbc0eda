package daemons_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/kopf-go/kopf/daemons"
)

// crowd is a host whose timers cost nothing but what the worker hands over.
type crowd struct {
	ctx     context.Context
	mu      sync.Mutex
	rings   []func()
	running sync.WaitGroup
}

func (h *crowd) Context() context.Context { return h.ctx }

func (h *crowd) At(_ time.Time, f func()) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rings = append(h.rings, f)
	return noCancel
}

func noCancel() {}

func (h *crowd) Go(f func()) bool {
	h.running.Go(f)
	return true
}

// ring lets the time of everybody come.
func (h *crowd) ring() {
	h.mu.Lock()
	rings := h.rings
	h.rings = h.rings[:0:0]
	h.mu.Unlock()
	for _, f := range rings {
		f()
	}
}

// patient is work that runs until its context ends. It is one word, so that only the
// worker is measured.
type patient struct{ started *sync.WaitGroup }

func (p *patient) First(now time.Time) time.Time { return now.Add(time.Hour) }
func (p *patient) Due(time.Time) time.Time       { return time.Time{} }
func (p *patient) Run(ctx context.Context, _ <-chan struct{}) daemons.Result {
	p.started.Done()
	<-ctx.Done()
	return daemons.Result{}
}
func (p *patient) Cut() daemons.Result                { return daemons.Result{} }
func (p *patient) Cancellation() daemons.Cancellation { return daemons.Cancellation{} }
func (p *patient) Lingers(time.Duration, bool)        {}
func (p *patient) Left()                              {}

// used is the memory in use: heap, and stacks.
func used() (heap, stacks uint64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.StackInuse
}

const many = 10_000

// start starts many workers, and returns them.
func start(h *crowd, work *patient) []*daemons.Worker {
	workers := make([]*daemons.Worker, many)
	h.rings = make([]func(), 0, many)
	for i := range workers {
		workers[i] = daemons.NewWorker(h, work)
		workers[i].Start()
	}
	return workers
}

// What a worker costs that waits, besides the host's timer.
func BenchmarkWaiting(b *testing.B) {
	for b.Loop() {
		h := &crowd{ctx: b.Context()}
		before, _ := used()
		workers := start(h, &patient{})
		after, _ := used()
		b.ReportMetric(float64(after-before)/many-2*8, "B/worker") // without the benchmark's own two lists
		runtime.KeepAlive(workers)
		runtime.KeepAlive(h)
	}
}

// What one costs that runs, with its goroutine, all in all.
func BenchmarkRunning(b *testing.B) {
	for b.Loop() {
		h := &crowd{ctx: b.Context()}
		work := &patient{started: &sync.WaitGroup{}}
		work.started.Add(many)
		heapBefore, stacksBefore := used()
		workers := start(h, work)
		h.ring()
		work.started.Wait()
		heap, stacks := used()
		b.ReportMetric(float64(heap-heapBefore)/many-8, "B/worker")
		b.ReportMetric(float64(stacks-stacksBefore)/many, "stack-B/worker")
		for _, w := range workers {
			w.Stop(daemons.ErrExiting)
		}
		h.running.Wait()
	}
}

// What it takes from one run to the next.
func BenchmarkRun(b *testing.B) {
	h := &crowd{ctx: b.Context()}
	w := daemons.NewWorker(h, &brief{})
	w.Start()
	b.ReportAllocs()
	for b.Loop() {
		h.ring()
		h.running.Wait()
	}
	w.Stop(daemons.ErrExiting)
}

// brief is work that is over at once, and comes again.
type brief struct{ patient }

func (*brief) Run(context.Context, <-chan struct{}) daemons.Result { return daemons.Result{} }

func BenchmarkCronNext(b *testing.B) {
	for _, text := range []string{"*/5 * * * *", "30 2 * * *", "0 0 29 2 *"} {
		b.Run(text, func(b *testing.B) {
			c := mustCron(b, "CRON_TZ=Europe/Berlin "+text)
			at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			b.ReportAllocs()
			for b.Loop() {
				c.Next(at)
			}
		})
	}
}

func BenchmarkSpread(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		daemons.Spread("3f0ae0ec-6d4c-4d4c-9c45-6c2a4be2a54b", time.Hour)
	}
}
