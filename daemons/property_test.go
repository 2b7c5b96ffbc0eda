package daemons_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kopf-go/kopf/daemons"
)

// restless is work that does anything at random, and a model of its worker. The worker
// is called when nothing moves, so the model is exact.
type restless struct {
	*chore
	r *rand.Rand // of the runs and the questions, under mu

	wanted, done bool
	runs         int
	told         error // the cause, of the run that was told to stop
	abandoned    bool
	lefts, owed  int // calls of Left, and those that are to come of what has happened
}

func newRestless(c *chore, seed uint64) *restless {
	m := &restless{chore: c, r: rand.New(rand.NewPCG(seed, 0))}
	c.first = func(now time.Time) time.Time { return now.Add(m.pause()) }
	c.due = func(now time.Time) time.Time {
		if m.chance(4) == 0 {
			return now.Add(m.pause())
		}
		return time.Time{}
	}
	c.run = m.anything
	c.left = func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.lefts++
	}
	return m
}

func (m *restless) chance(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.r.IntN(n)
}

// pause is no time, or some.
func (m *restless) pause() time.Duration {
	return time.Duration(m.chance(4)) * time.Duration(m.chance(2000)) * time.Millisecond
}

// anything is one run.
func (m *restless) anything(ctx context.Context, stopping <-chan struct{}) (result daemons.Result) {
	m.mu.Lock()
	m.runs++
	m.mu.Unlock()
	ended := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		m.watch(ctx, stopping, ended)
	}()
	defer func() {
		close(ended)
		<-watched
		m.over(&result)
	}()
	switch m.chance(5) {
	case 0:
		<-stopping
	case 1:
		<-ctx.Done()
	case 2:
		time.Sleep(m.pause())
	case 3:
		<-stopping
		time.Sleep(m.pause() * 3)
	}
	if m.chance(4) == 0 {
		runtime.Goexit() // what is cut off has no result
	}
	if m.chance(40) == 0 {
		return daemons.Result{Done: true}
	}
	return daemons.Result{Next: time.Now().Add(m.pause())}
}

// watch looks at how a run is stopped.
func (m *restless) watch(ctx context.Context, stopping, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	select {
	case <-stopping:
	default:
		m.t.Error("the context ended before the run was told to stop")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if cause := context.Cause(ctx); cause != m.told {
		m.t.Errorf("the context ended by %v, the first cause was %v", cause, m.told)
	}
}

// over is when a run is.
func (m *restless) over(result *daemons.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.told == nil && result.Done {
		m.done, m.wanted = true, false
		m.owed++
	}
	m.told, m.abandoned = nil, false
}

func (m *restless) Cancellation() daemons.Cancellation {
	c := daemons.Cancellation{Polling: time.Second}
	if m.chance(2) == 0 {
		c.Backoff = m.pause() / 4
	}
	if m.chance(2) == 0 {
		c.Timeout = m.pause() / 4
	}
	return c
}

func (m *restless) Lingers(_ time.Duration, abandoned bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.told == nil || m.abandoned {
		m.t.Error("what was not told to stop lingers, or what is abandoned")
	}
	m.abandoned = m.abandoned || abandoned
}

// step calls the worker, or lets time go by.
func (m *restless) step(r *rand.Rand, number int) {
	switch r.IntN(6) {
	case 0, 1:
		if !m.done {
			m.wanted = true
		}
		m.Start()
	case 2, 3:
		m.stop(fmt.Errorf("stop %d", number))
	case 4:
		m.Wake()
	case 5:
		time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
	}
}

// stop stops the worker.
func (m *restless) stop(cause error) {
	m.mu.Lock()
	if m.busy > 0 && m.told == nil {
		m.told = cause
		m.owed++
	}
	m.wanted = false
	m.mu.Unlock()
	m.Stop(cause)
}

// check compares the worker with the model, when nothing moves.
func (m *restless) check(step int) {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	timers := 0
	switch {
	case m.busy > 0 && m.told != nil && !m.abandoned, // for what comes if it does not leave
		m.busy == 0 && m.wanted: // for the next run
		timers = 1
	}
	if n := m.host.count(0); n != timers {
		m.t.Errorf("step %d: %d timers, not %d", step, n, timers)
	}
	if running := m.busy > 0; m.Running() != running || m.Lets() != (!running || m.abandoned) || m.Done() != m.done {
		m.t.Errorf("step %d: running %t, lets %t, done %t", step, m.Running(), m.Lets(), m.Done())
	}
	leaving := 0
	if m.told != nil && !m.abandoned {
		leaving = 1
	}
	if m.lefts+leaving != m.owed {
		m.t.Errorf("step %d: Left was called %d times, not %d", step, m.lefts, m.owed-leaving)
	}
}

// Whatever is done to it, and whatever its runs do: never two at a time; it waits or
// runs if and only if it is wanted and not done; who is stopped leaves once, for the
// first cause, and was told before its context ended.
func TestWorkerAgainstModel_DMN2_DMN6_DMN7_DMN10_TMR8(t *testing.T) {
	runs := 0
	for seed := range uint64(60) {
		bubble(t, func(c *chore) {
			c.host.late = seed%2 == 1
			m := newRestless(c, seed)
			m.Worker = daemons.NewWorker(m.host, m)
			r := rand.New(rand.NewPCG(seed, 1))
			for step := range 500 {
				m.step(r, step)
				m.check(step)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			m.stop(daemons.ErrExiting)
			time.Sleep(time.Hour)
			m.check(-1)
			runs += m.runs
		})
	}
	if runs < 1000 {
		t.Errorf("there were %d runs only", runs)
	}
}

// The same calls from many goroutines at once: what can be said then still holds.
func TestWorkerConcurrently_DMN2_TMR8(t *testing.T) {
	causes := []error{daemons.ErrMismatch, daemons.ErrDeleted, daemons.ErrPaused}
	for seed := range uint64(20) {
		bubble(t, func(c *chore) {
			c.host.late = seed%7 == 1
			c.cancellation = daemons.Cancellation{Backoff: time.Duration(seed%2) * time.Second, Timeout: time.Duration(seed%3) * time.Second}
			c.first = after(time.Duration(seed%4) * 500 * time.Millisecond)
			c.run = func(ctx context.Context, stopping <-chan struct{}) daemons.Result {
				<-ctx.Done()
				select {
				case <-stopping:
				default:
					t.Error("the context ended before the run was told to stop")
				}
				if cause := context.Cause(ctx); !slices.Contains(causes, cause) {
					t.Errorf("it was stopped by %v", cause)
				}
				time.Sleep(time.Duration(seed%5) * 700 * time.Millisecond)
				return daemons.Result{Done: true}
			}
			var callers sync.WaitGroup
			for caller := range uint64(6) {
				callers.Go(func() {
					r := rand.New(rand.NewPCG(seed, caller))
					for range 100 {
						switch r.IntN(4) {
						case 0:
							c.Start()
						case 1:
							c.Stop(causes[r.IntN(len(causes))])
						case 2:
							c.Wake()
						case 3:
							time.Sleep(time.Duration(r.IntN(8)) * 250 * time.Millisecond)
						}
						if c.Lets() && c.Done() {
							t.Error("it is done, and was always stopped")
						}
					}
				})
			}
			callers.Wait()
			c.Stop(daemons.ErrMismatch)
			time.Sleep(time.Hour)
			c.is(false, true, false)
			if n := c.host.count(0); n != 0 {
				t.Errorf("%d timers are left", n)
			}
			c.Start() // and it still works
			time.Sleep(time.Minute)
			c.is(true, false, false)
			c.Stop(daemons.ErrMismatch)
			time.Sleep(time.Minute)
			c.is(false, true, false)
		})
	}
}
