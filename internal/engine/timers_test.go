package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// inTimers runs f in virtual time with timers that run.
func inTimers(t *testing.T, f func(t *testing.T, timers *timers)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		timers := newTimers()
		var running sync.WaitGroup
		running.Go(func() { timers.run(ctx) })
		f(t, timers)
		stop()
		running.Wait()
	})
}

// diary notes what happens at which second.
type diary struct {
	mu    sync.Mutex
	begin time.Time
	text  []string
}

func newDiary() *diary { return &diary{begin: time.Now()} }

func (d *diary) note(what string) func() {
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.text = append(d.text, fmt.Sprintf("%s@%s", what, time.Since(d.begin)))
	}
}

func (d *diary) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.text, want) {
		t.Errorf("got %q, want %q", d.text, want)
	}
}

func in(d time.Duration) time.Time { return time.Now().Add(d) }

// Entries fire in the order of their times, each at its time, whatever the order in
// which they were put in; an earlier one wakes the clock.
func TestTimersFireInOrder(t *testing.T) {
	inTimers(t, func(t *testing.T, timers *timers) {
		d := newDiary()
		timers.at(in(3*time.Second), d.note("c"))
		timers.at(in(time.Second), d.note("a"))
		synctest.Wait() // the clock is set to a
		timers.at(in(5*time.Hour), d.note("e"))
		timers.at(in(2*time.Second), d.note("b"))
		timers.at(in(500*time.Millisecond), d.note("0"))
		timers.at(in(10*time.Second), d.note("d"))
		time.Sleep(24 * time.Hour)
		d.expect(t, "0@500ms", "a@1s", "b@2s", "c@3s", "d@10s", "e@5h0m0s")
	})
}

func TestTimersFireAtOnce(t *testing.T) {
	inTimers(t, func(t *testing.T, timers *timers) {
		d := newDiary()
		timers.at(in(0), d.note("now"))
		d.expect(t, "now@0s")
		timers.at(in(-time.Hour), d.note("past"))
		d.expect(t, "now@0s", "past@0s")
	})
}

func TestTimersBeforeTheyRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		timers := newTimers()
		timers.at(in(time.Second), d.note("a"))
		time.Sleep(2 * time.Second)
		ctx, stop := context.WithCancel(t.Context())
		go timers.run(ctx)
		d.expect(t, "a@2s")
		stop()
	})
}

func TestTimersStop(t *testing.T) {
	inTimers(t, func(t *testing.T, timers *timers) {
		d := newDiary()
		first := timers.at(in(time.Second), d.note("first"))
		middle := timers.at(in(2*time.Second), d.note("middle"))
		last := timers.at(in(3*time.Second), d.note("last"))
		timers.at(in(4*time.Second), d.note("kept"))
		timers.stop(nil)
		timers.stop(first)
		timers.stop(first) // again
		time.Sleep(1500 * time.Millisecond)
		timers.stop(last)
		time.Sleep(time.Second)
		timers.stop(middle) // has fired
		time.Sleep(time.Hour)
		d.expect(t, "middle@2s", "kept@4s")
		timers.mu.Lock()
		defer timers.mu.Unlock()
		if n := len(timers.entries); n != 0 {
			t.Errorf("%d entries are left", n)
		}
	})
}

// A function may set and stop timers.
func TestTimersFromTimers(t *testing.T) {
	inTimers(t, func(t *testing.T, timers *timers) {
		d := newDiary()
		victim := timers.at(in(5*time.Second), d.note("victim"))
		timers.at(in(time.Second), func() {
			timers.stop(victim)
			timers.at(in(0), d.note("at once"))
			timers.at(in(time.Second), d.note("later"))
		})
		time.Sleep(time.Minute)
		d.expect(t, "at once@1s", "later@2s")
	})
}

// Nothing fires once the context has ended.
func TestTimersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		timers := newTimers()
		ctx, stop := context.WithCancel(t.Context())
		go timers.run(ctx)
		timers.at(in(time.Second), d.note("a"))
		synctest.Wait()
		stop()
		time.Sleep(time.Minute)
		timers.at(in(0), d.note("b")) // does not block
		d.expect(t)
	})
}

// Thousands, in any order, some of them stopped.
func TestManyTimers(t *testing.T) {
	inTimers(t, func(t *testing.T, timers *timers) {
		r := rand.New(rand.NewPCG(1, 2))
		begin := time.Now()
		var mu sync.Mutex
		var last time.Duration
		fired, stopped := 0, 0
		var all []*timer
		for range 3_000 {
			due := time.Duration(r.Int64N(int64(time.Hour)))
			all = append(all, timers.at(begin.Add(due), func() {
				mu.Lock()
				defer mu.Unlock()
				if at := time.Since(begin); at != due || at < last {
					t.Errorf("fired at %s, due at %s, after %s", at, due, last)
				}
				last = due
				fired++
			}))
		}
		for _, i := range r.Perm(len(all))[:1000] {
			timers.stop(all[i])
			stopped++
		}
		timers.mu.Lock()
		for i, entry := range timers.entries {
			if entry.index != i {
				t.Errorf("entry %d believes to be %d", i, entry.index)
			}
		}
		timers.mu.Unlock()
		time.Sleep(2 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if fired+stopped != len(all) {
			t.Errorf("%d fired, %d were stopped", fired, stopped)
		}
	})
}

// For the race detector, in real time.
func TestTimersConcurrently(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	timers := newTimers()
	var running, users sync.WaitGroup
	running.Go(func() { timers.run(ctx) })
	var fired, stopped atomic.Int64
	for range 8 {
		users.Go(func() {
			for i := range 500 {
				var once atomic.Bool
				entry := timers.at(in(time.Duration(i%5)*time.Microsecond), func() {
					if once.Swap(true) {
						t.Error("fired twice")
					}
					fired.Add(1)
				})
				if i%3 == 0 {
					timers.stop(entry)
					stopped.Add(1)
				}
			}
		})
	}
	users.Wait()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		timers.mu.Lock()
		left := len(timers.entries)
		timers.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d entries never fired", left)
		}
	}
	stop()
	running.Wait()
	if n := fired.Load(); n < 8*500-stopped.Load() || n > 8*500 {
		t.Errorf("%d fired, %d were stopped", n, stopped.Load())
	}
}
