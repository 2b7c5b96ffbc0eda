package daemons_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kopf-go/kopf/daemons"
)

// host lives in a bubble: its timers are those of virtual time.
type host struct {
	ctx     context.Context
	mu      sync.Mutex
	closed  bool
	pending int    // timers
	late    bool   // what is cancelled is called all the same, as if it had been about to be
	going   func() // called before a goroutine is given, or refused
	running sync.WaitGroup
}

func (h *host) Context() context.Context { return h.ctx }

func (h *host) At(at time.Time, f func()) func() {
	h.count(1)
	var gone atomic.Bool
	fire := func() {
		if !gone.Swap(true) {
			h.count(-1)
		} else if !h.late {
			return
		}
		f()
	}
	stop := func() bool { return true }
	if in := time.Until(at); in > 0 {
		stop = time.AfterFunc(in, fire).Stop
	} else {
		go fire() // Go 1.26 crashes now and then, with -race, when goroutines of a bubble set timers of no time at once
	}
	return func() {
		if !gone.Swap(true) {
			h.count(-1)
		}
		if !h.late {
			stop()
		}
	}
}

// count counts timers, and returns how many there are.
func (h *host) count(more int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending += more
	return h.pending
}

func (h *host) Go(f func()) bool {
	if h.going != nil {
		h.going()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.running.Go(f)
	return true
}

// close refuses goroutines from now on, or not any more.
func (h *host) close(closed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = closed
}

// chore is work that notes what happens to it, and when.
type chore struct {
	*daemons.Worker
	t     *testing.T
	host  *host
	begin time.Time

	first        func(now time.Time) time.Time // nil: at once
	due          func(now time.Time) time.Time // nil: now
	run          func(ctx context.Context, stopping <-chan struct{}) daemons.Result
	cut          daemons.Result
	cancellation daemons.Cancellation
	left         func() // nil: nothing

	mu    sync.Mutex
	busy  int
	notes []string
}

// bubble runs f in virtual time with work that runs until it is told to stop. What f
// leaves behind is stopped, and expected to leave.
func bubble(t *testing.T, f func(c *chore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		c := &chore{t: t, host: &host{ctx: ctx}, begin: time.Now(), run: untilStopping}
		c.Worker = daemons.NewWorker(c.host, c)
		f(c)
		c.Stop(daemons.ErrExiting)
		end()
		synctest.Wait()
		c.host.running.Wait()
		if !c.Lets() || c.Running() {
			t.Error("something runs at the end")
		}
		if n := c.host.count(0); n != 0 {
			t.Errorf("%d timers are left at the end", n)
		}
	})
}

func (c *chore) First(now time.Time) time.Time {
	if c.first == nil {
		return time.Time{}
	}
	return c.first(now)
}

func (c *chore) Due(now time.Time) time.Time {
	if c.due == nil {
		return now
	}
	return c.due(now)
}

func (c *chore) Run(ctx context.Context, stopping <-chan struct{}) daemons.Result {
	c.mu.Lock()
	c.busy++
	if c.busy > 1 {
		c.t.Error("two runs at the same time")
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.busy--
	}()
	c.note("run")
	return c.run(ctx, stopping)
}

func (c *chore) Cut() daemons.Result {
	c.note("cut")
	return c.cut
}

func (c *chore) Cancellation() daemons.Cancellation { return c.cancellation }

func (c *chore) Lingers(since time.Duration, abandoned bool) {
	if abandoned {
		c.note("abandoned after %s", since)
		return
	}
	c.note("lingers for %s", since)
}

func (c *chore) Left() {
	c.note("left")
	if c.left != nil {
		c.left()
	}
}

func (c *chore) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes = append(c.notes, fmt.Sprintf(format, args...)+"@"+time.Since(c.begin).String())
}

// expect waits until nothing moves, and compares what was noted since it was asked last.
func (c *chore) expect(want ...string) {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.notes, want) {
		c.t.Errorf("got  %q\nwant %q", c.notes, want)
	}
	c.notes = nil
}

// is compares what the worker says of itself.
func (c *chore) is(running, lets, done bool) {
	c.t.Helper()
	synctest.Wait()
	if c.Running() != running || c.Lets() != lets || c.Done() != done {
		c.t.Errorf("running %t, lets %t, done %t; want %t, %t, %t", c.Running(), c.Lets(), c.Done(), running, lets, done)
	}
}

// What runs do.

func untilStopping(_ context.Context, stopping <-chan struct{}) daemons.Result {
	<-stopping
	return daemons.Result{}
}

// every is a run that takes no time, with the next one some time later.
func every(d time.Duration) func(context.Context, <-chan struct{}) daemons.Result {
	return func(context.Context, <-chan struct{}) daemons.Result {
		return daemons.Result{Next: time.Now().Add(d)}
	}
}

func after(d time.Duration) func(time.Time) time.Time {
	return func(now time.Time) time.Time { return now.Add(d) }
}
