package daemons_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kopf-go/kopf/daemons"
)

// However often it is started, there is one instance, after the initial delay.
func TestStartsOnce_DMN2_DMN4_T135(t *testing.T) {
	bubble(t, func(c *chore) {
		c.first = after(5 * time.Second)
		for range 3 {
			c.Start()
			time.Sleep(time.Second)
		}
		c.is(false, true, false)
		time.Sleep(time.Hour)
		c.Start()
		c.is(true, false, false)
		c.expect("run@5s")
	})
}

// The delay is for each instance, and a stop while it lasts is the end of it.
func TestEachInstanceHasItsDelay_DMN4(t *testing.T) {
	bubble(t, func(c *chore) {
		c.first = after(5 * time.Second)
		c.Start()
		time.Sleep(4 * time.Second)
		c.Stop(daemons.ErrMismatch)
		c.is(false, true, false)
		time.Sleep(time.Minute)
		c.expect()
		c.Start()
		time.Sleep(time.Minute)
		c.expect("run@1m9s")
	})
}

// What has finished on its own is not started again.
func TestDoneForGood_DMN6_T136(t *testing.T) {
	bubble(t, func(c *chore) {
		c.run = func(context.Context, <-chan struct{}) daemons.Result {
			time.Sleep(3 * time.Second)
			return daemons.Result{Done: true}
		}
		c.Start()
		time.Sleep(123 * time.Second)
		c.is(false, true, true)
		c.Start()
		c.Wake()
		c.Stop(daemons.ErrMismatch)
		c.Start()
		time.Sleep(time.Hour)
		c.is(false, true, true)
		c.expect("run@0s", "left@3s")
	})
}

// Each run says when the next one is; the last one is done.
func TestRunsAgain_T136_T137_T146(t *testing.T) {
	for _, delay := range []time.Duration{3450 * time.Millisecond, 1230 * time.Millisecond} {
		bubble(t, func(c *chore) {
			runs := 0
			c.run = func(context.Context, <-chan struct{}) daemons.Result {
				if runs++; runs == 3 {
					return daemons.Result{Done: true}
				}
				return daemons.Result{Next: time.Now().Add(delay)}
			}
			c.Start()
			time.Sleep(time.Hour)
			c.expect("run@0s", "run@"+delay.String(), "run@"+(2*delay).String(), "left@"+(2*delay).String())
		})
	}
}

// What was told to stop is not done, whatever it returns, and may begin again.
func TestStoppedIsNotDone_DMN7(t *testing.T) {
	bubble(t, func(c *chore) {
		c.run = func(_ context.Context, stopping <-chan struct{}) daemons.Result {
			<-stopping
			return daemons.Result{Done: true}
		}
		c.Start()
		time.Sleep(time.Second)
		c.Stop(daemons.ErrPaused)
		c.is(false, true, false)
		time.Sleep(time.Minute)
		c.expect("run@0s", "left@1s")
		c.Start()
		c.is(true, false, false)
		c.expect("run@1m1s")
	})
}

// Sleeps are interrupted by stopping (TMR-6), and by whoever asks for a run.
func TestWake(t *testing.T) {
	bubble(t, func(c *chore) {
		c.first = after(time.Hour)
		c.run = every(time.Hour)
		c.Wake() // not wanted
		c.Start()
		time.Sleep(time.Second)
		c.Wake()
		synctest.Wait()
		time.Sleep(time.Second)
		c.Wake()
		time.Sleep(2 * time.Hour)
		c.expect("run@1s", "run@2s", "run@1h0m2s", "run@2h0m2s")
		c.Stop(daemons.ErrPaused)
		c.Wake()
		time.Sleep(2 * time.Hour)
		c.expect()
	})
}

// Asked for while it is about to begin, it is that run.
func TestWakeWhileAsked(t *testing.T) {
	bubble(t, func(c *chore) {
		c.first = func(now time.Time) time.Time {
			c.Wake()
			return now.Add(time.Hour)
		}
		c.due = func(now time.Time) time.Time {
			c.Wake()
			return now
		}
		c.run = every(time.Minute)
		c.Start()
		time.Sleep(90 * time.Second)
		c.expect("run@0s", "run@1m0s")
	})
}

// While one is going on, there is another one after it, but only one.
func TestWakeWhileRunning_TMR8(t *testing.T) {
	bubble(t, func(c *chore) {
		c.run = func(context.Context, <-chan struct{}) daemons.Result {
			time.Sleep(10 * time.Second)
			return daemons.Result{Next: time.Now().Add(time.Hour)}
		}
		c.Start()
		for range 5 {
			time.Sleep(time.Second)
			c.Wake()
		}
		time.Sleep(30 * time.Minute)
		c.expect("run@0s", "run@10s")
	})
}

// What was asked for of an instance that was stopped is not for the next one; what is
// asked for when the next one is wanted already, is.
func TestWakeOfSuccessor(t *testing.T) {
	bubble(t, func(c *chore) {
		c.first = after(time.Minute)
		c.run = func(_ context.Context, stopping <-chan struct{}) daemons.Result {
			<-stopping
			time.Sleep(10 * time.Second)
			return daemons.Result{}
		}
		c.Start()
		time.Sleep(time.Hour)
		c.expect("run@1m0s")
		c.Wake()
		c.Stop(daemons.ErrMismatch)
		c.Wake()
		c.Start()
		time.Sleep(time.Hour)
		c.expect("left@1h0m10s", "run@1h1m10s")
		c.Stop(daemons.ErrMismatch)
		c.Start()
		c.Wake()
		time.Sleep(time.Hour)
		c.expect("left@2h0m10s", "run@2h0m10s")
	})
}

// A run whose time has come can be put off, also one that was asked for.
func TestDuePutsOff_TMR2_TMR6(t *testing.T) {
	bubble(t, func(c *chore) {
		c.due = func(now time.Time) time.Time {
			c.note("due")
			if now.Before(c.begin.Add(2 * time.Second)) {
				return c.begin.Add(3 * time.Second)
			}
			return c.begin.Add(5 * time.Second)
		}
		c.run = every(10 * time.Second)
		c.Start()
		time.Sleep(time.Second)
		c.Wake()
		time.Sleep(5 * time.Second)
		c.expect("due@0s", "due@1s", "due@3s", "due@5s", "run@5s")
	})
}

// A run that ends its goroutine is over as well.
func TestCut(t *testing.T) {
	bubble(t, func(c *chore) {
		c.run = func(context.Context, <-chan struct{}) daemons.Result {
			c.cut.Next = time.Now().Add(time.Second)
			runtime.Goexit()
			return daemons.Result{Done: true}
		}
		c.Start()
		time.Sleep(1500 * time.Millisecond)
		c.expect("run@0s", "cut@0s", "run@1s", "cut@1s")
		c.is(false, true, false)
	})
}

// When told that the instance has left, one may start or stop the worker.
func TestCalledFromLeft(t *testing.T) {
	bubble(t, func(c *chore) {
		again := true
		c.left = func() {
			if !c.Lets() || c.Running() {
				t.Error("it has left, and runs")
			}
			if again {
				c.Start()
			}
			again = false
		}
		c.Start()
		synctest.Wait()
		c.Stop(daemons.ErrMismatch)
		c.is(true, false, false)
		c.Stop(daemons.ErrMismatch)
		c.expect("run@0s", "left@0s", "run@0s", "left@0s")
		c.left = func() { c.Stop(daemons.ErrDeleted) }
		c.run = func(_ context.Context, stopping <-chan struct{}) daemons.Result {
			<-stopping
			time.Sleep(time.Second)
			return daemons.Result{}
		}
		c.Start()
		synctest.Wait()
		c.Stop(daemons.ErrMismatch)
		c.Start() // and when it has left, not any more
		time.Sleep(time.Hour)
		c.is(false, true, false)
		c.expect("run@0s", "left@1s")
	})
}

// One that always wants to run again at once neither recurses nor piles up goroutines,
// and does not keep others from running.
func TestAtOnceOverAndOver_TMR8(t *testing.T) {
	bubble(t, func(c *chore) {
		const times = 5_000
		other := &chore{t: t, host: c.host, begin: c.begin, run: every(time.Minute)}
		other.Worker = daemons.NewWorker(c.host, other)
		depth, runs := 0, 0
		c.run = func(context.Context, <-chan struct{}) daemons.Result {
			callers := runtime.Callers(0, make([]uintptr, 1000))
			if runs == 0 {
				depth = callers
			}
			if callers != depth {
				t.Errorf("run %d has %d callers, the first had %d", runs, callers, depth)
				return daemons.Result{Done: true}
			}
			if runs == times/2 {
				other.Start()
			}
			runs++
			return daemons.Result{Done: runs == times}
		}
		c.Start()
		c.is(false, true, true)
		if runs != times {
			t.Errorf("%d runs", runs)
		}
		other.expect("run@0s")
		other.Stop(daemons.ErrExiting)
	})
}

// What waits has no goroutine.
func TestWaitingTakesNoGoroutine(t *testing.T) {
	bubble(t, func(c *chore) {
		before := runtime.NumGoroutine()
		for range 1000 {
			other := &chore{t: t, host: c.host, begin: c.begin, first: after(time.Hour)}
			other.Worker = daemons.NewWorker(c.host, other)
			other.Start()
			defer other.Stop(daemons.ErrExiting)
		}
		if more := runtime.NumGoroutine() - before; more > 0 { // some of others may end meanwhile
			t.Errorf("%d goroutines more", more)
		}
	})
}
