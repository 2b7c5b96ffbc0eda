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

// Work that heeds its context leaves in no time, and knows why. The first cause counts.
func TestLeavesAtOnce_DMN10_T138_T139_T140_T147(t *testing.T) {
	for _, cause := range []error{daemons.ErrMismatch, daemons.ErrDeleted, daemons.ErrPaused, daemons.ErrExiting} {
		bubble(t, func(c *chore) {
			c.run = func(ctx context.Context, stopping <-chan struct{}) daemons.Result {
				<-ctx.Done()
				select {
				case <-stopping:
				default:
					t.Error("the context has ended, and nobody told the run to stop")
				}
				c.note("%v", context.Cause(ctx))
				return daemons.Result{}
			}
			c.Start()
			time.Sleep(time.Second)
			c.Stop(cause)
			c.Stop(context.DeadlineExceeded)
			c.is(false, true, false)
			c.expect("run@0s", cause.Error()+"@1s", "left@1s")
		})
	}
}

// With a backoff, it may leave before its context ends.
func TestLeavesDuringBackoff_DMN10_T141(t *testing.T) {
	bubble(t, func(c *chore) {
		c.cancellation = daemons.Cancellation{Backoff: 1230 * time.Millisecond, Timeout: 10 * time.Second}
		c.run = func(ctx context.Context, stopping <-chan struct{}) daemons.Result {
			<-stopping
			time.Sleep(time.Second)
			c.note("error %v", ctx.Err())
			return daemons.Result{}
		}
		c.Start()
		synctest.Wait()
		c.Stop(daemons.ErrDeleted)
		c.is(true, false, false)
		time.Sleep(time.Hour)
		c.is(false, true, false)
		c.expect("run@0s", "error <nil>@1s", "left@1s")
	})
}

func TestCancelledAfterBackoff_DMN10_T141(t *testing.T) {
	bubble(t, func(c *chore) {
		c.cancellation = daemons.Cancellation{Backoff: 1230 * time.Millisecond, Timeout: 10 * time.Second}
		c.run = func(ctx context.Context, stopping <-chan struct{}) daemons.Result {
			<-stopping
			c.note("told")
			<-ctx.Done()
			c.note("%v", context.Cause(ctx))
			return daemons.Result{}
		}
		c.Start()
		time.Sleep(time.Second)
		c.Stop(daemons.ErrDeleted)
		time.Sleep(time.Hour)
		c.expect("run@0s", "told@1s", "deletion of the object was requested@2.23s", "left@2.23s")
	})
}

// It may take its time after that, but not for ever.
func TestSlowExit_DMN10_T142(t *testing.T) {
	bubble(t, func(c *chore) {
		c.cancellation = daemons.Cancellation{Backoff: 1230 * time.Millisecond, Timeout: 10 * time.Second}
		c.run = func(ctx context.Context, _ <-chan struct{}) daemons.Result {
			<-ctx.Done()
			time.Sleep(4560 * time.Millisecond)
			return daemons.Result{}
		}
		c.Start()
		synctest.Wait()
		c.Stop(daemons.ErrDeleted)
		time.Sleep(time.Hour)
		c.expect("run@0s", "left@5.79s")
	})
}

func TestAbandoned_DMN10_DMN13_T142(t *testing.T) {
	bubble(t, func(c *chore) {
		c.cancellation = daemons.Cancellation{Backoff: 1230 * time.Millisecond, Timeout: 10 * time.Second}
		c.run = func(context.Context, <-chan struct{}) daemons.Result {
			time.Sleep(time.Minute)
			return daemons.Result{Done: true}
		}
		c.Start()
		synctest.Wait()
		c.Stop(daemons.ErrDeleted)
		time.Sleep(11 * time.Second)
		c.is(true, false, false)
		time.Sleep(time.Second)
		c.is(true, true, false)
		c.expect("run@0s", "abandoned after 11.23s@11.23s", "left@11.23s")
		time.Sleep(time.Hour)
		c.is(false, true, false)
		c.expect()
	})
}

// Without a timeout it is waited for without limit, which is not done in silence.
func TestLingers_DMN10_TMR1(t *testing.T) {
	bubble(t, func(c *chore) {
		c.cancellation.Backoff = 5 * time.Second
		c.run = func(ctx context.Context, _ <-chan struct{}) daemons.Result {
			<-ctx.Done()
			c.note("cancelled")
			time.Sleep(150 * time.Second)
			return daemons.Result{}
		}
		c.Start()
		time.Sleep(time.Second)
		c.Stop(daemons.ErrMismatch)
		time.Sleep(time.Hour)
		c.expect("run@0s", "cancelled@6s", "lingers for 1m5s@1m6s", "lingers for 2m5s@2m6s", "left@2m36s")
		c.cancellation = daemons.Cancellation{Backoff: -1, Timeout: -1, Polling: time.Hour}
		c.Start()
		synctest.Wait()
		c.Stop(daemons.ErrMismatch)
		time.Sleep(time.Hour)
		c.expect("run@1h0m1s", "cancelled@1h0m1s", "left@1h2m31s")
	})
}

// One that is wanted again before it has left begins when it has, with its delay.
func TestSuccessorWaits_DMN2_DMN7(t *testing.T) {
	bubble(t, func(c *chore) {
		c.first = after(time.Second)
		c.run = func(_ context.Context, stopping <-chan struct{}) daemons.Result {
			<-stopping
			time.Sleep(10 * time.Second)
			return daemons.Result{}
		}
		c.Start()
		time.Sleep(2 * time.Second)
		c.Stop(daemons.ErrMismatch)
		c.Start()
		c.Stop(daemons.ErrPaused) // wanted and not wanted, as often as you like
		c.Start()
		time.Sleep(time.Hour)
		c.expect("run@1s", "left@12s", "run@13s")
		c.Stop(daemons.ErrPaused)
		c.Start()
		c.Stop(daemons.ErrDeleted)
		time.Sleep(time.Hour)
		c.expect("left@1h0m12s")
	})
}

// An abandoned one, too, keeps the next one from beginning.
func TestSuccessorOfAbandoned_DMN2(t *testing.T) {
	bubble(t, func(c *chore) {
		c.cancellation.Timeout = time.Second
		c.run = func(_ context.Context, stopping <-chan struct{}) daemons.Result {
			<-stopping
			time.Sleep(10 * time.Second)
			return daemons.Result{}
		}
		c.Start()
		synctest.Wait()
		c.Stop(daemons.ErrMismatch)
		time.Sleep(2 * time.Second)
		c.is(true, true, false)
		c.Start()
		c.is(true, true, false)
		time.Sleep(time.Hour)
		c.is(true, false, false)
		c.expect("run@0s", "abandoned after 1s@1s", "left@1s", "run@10s")
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
		c.Wake()
		time.Sleep(2 * time.Hour)
		c.expect("run@1s", "run@2s", "run@1h0m2s", "run@2h0m2s")
		c.Stop(daemons.ErrPaused)
		c.Wake()
		time.Sleep(2 * time.Hour)
		c.expect()
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

// Stopped while it is asked for its first time or whether it is due, nothing runs.
func TestStoppedWhileAsked(t *testing.T) {
	bubble(t, func(c *chore) {
		c.first = func(now time.Time) time.Time {
			c.note("first")
			c.Stop(daemons.ErrMismatch)
			return now
		}
		c.Start()
		c.is(false, true, false)
		c.first = nil
		c.due = func(now time.Time) time.Time {
			c.note("due")
			c.Stop(daemons.ErrMismatch)
			return now
		}
		c.Start()
		time.Sleep(time.Hour)
		c.is(false, true, false)
		c.expect("first@0s", "due@0s")
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
		again = true
		c.left = func() { c.Stop(daemons.ErrDeleted) }
		c.Start()
		synctest.Wait()
		c.Stop(daemons.ErrMismatch)
		c.Start()
		c.is(false, true, false)
		c.expect("run@0s", "left@0s")
	})
}

// When there are no goroutines any more, that is the end, and nothing turns in circles.
func TestShuttingDown_DMN13(t *testing.T) {
	bubble(t, func(c *chore) {
		c.run = every(time.Second)
		c.Start()
		time.Sleep(1500 * time.Millisecond)
		c.host.close()
		time.Sleep(time.Hour)
		c.is(false, true, false)
		c.Wake()
		time.Sleep(time.Hour)
		c.expect("run@0s", "run@1s")
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
