package daemons_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kopf-go/kopf/daemons"
)

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

// When there are no goroutines any more, that is the end, and nothing turns in circles.
func TestShuttingDown_DMN13(t *testing.T) {
	bubble(t, func(c *chore) {
		c.run = every(time.Second)
		c.Start()
		time.Sleep(1500 * time.Millisecond)
		c.host.close(true)
		time.Sleep(time.Hour)
		c.is(false, true, false)
		c.Wake()
		time.Sleep(time.Hour)
		c.expect("run@0s", "run@1s")
		c.Start() // is refused, once
		time.Sleep(time.Hour)
		c.is(false, true, false)
		c.host.close(false)
		c.Start()
		c.expect("run@3h0m1.5s")
	})
}

// A run that is stopped before its goroutine is there does not run, and has left.
func TestStoppedBeforeItRuns_DMN10(t *testing.T) {
	for _, closed := range []bool{false, true} {
		bubble(t, func(c *chore) {
			c.host.close(closed)
			c.host.going = func() {
				c.Stop(daemons.ErrDeleted)
				if c.Lets() {
					t.Error("it lets go of the object, and its run is on the way")
				}
			}
			c.Start()
			c.is(false, true, false)
			c.expect("left@0s")
		})
	}
}

// A context ends with its run, or what hangs on it would stay for ever: by the cause of
// the stop, if there was one.
func TestContextEndsWithRun(t *testing.T) {
	bubble(t, func(c *chore) {
		contexts := make(chan context.Context, 2)
		c.cancellation.Backoff = time.Hour
		c.run = func(ctx context.Context, stopping <-chan struct{}) daemons.Result {
			contexts <- ctx
			select {
			case <-stopping:
			case <-time.After(time.Second):
			}
			return daemons.Result{Next: time.Now().Add(time.Second)}
		}
		c.Start()
		time.Sleep(2500 * time.Millisecond)
		first, second := <-contexts, <-contexts
		if cause := context.Cause(first); cause != context.Canceled {
			t.Errorf("the cause is %v", cause)
		}
		if second.Err() != nil {
			t.Error("the second run has no context of its own")
		}
		c.Stop(daemons.ErrPaused)
		synctest.Wait()
		if cause := context.Cause(second); cause != daemons.ErrPaused {
			t.Errorf("the cause is %v", cause)
		}
		c.expect("run@0s", "run@2s", "left@2.5s")
	})
}
