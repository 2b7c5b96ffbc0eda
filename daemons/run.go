package daemons

import (
	"context"
	"time"
)

// run is one call of the work that is going on. The worker's lock is for it as well.
type run struct {
	ctx      context.Context
	end      context.CancelCauseFunc
	stopping chan struct{} // closed when it is told to stop

	stopped      bool // it was told to stop, at a time, for a cause
	abandoned    bool // and is not waited for any more
	since        time.Time
	cause        error
	cancellation Cancellation
	cancel       func() // the host's timer, for what comes next if it does not leave
}

// newRun is the run that comes now.
func (w *Worker) newRun() *run {
	r := &run{stopping: make(chan struct{})}
	r.ctx, r.end = context.WithCancelCause(w.host.Context())
	w.phase, w.run, w.woken = running, r, false
	return r
}

// perform is a run's goroutine. What it takes to leave is deferred, for the work may
// end the goroutine. That covers a panic too, which nobody recovers here.
func (w *Worker) perform(r *run) {
	var result Result
	returned := false
	defer func() {
		if !returned {
			result = w.work.Cut()
		}
		w.leave(r, result)
	}()
	w.mu.Lock()
	late := r.stopped
	w.mu.Unlock()
	if !late {
		result = w.work.Run(r.ctx, r.stopping)
	}
	returned = true
}

// leave is when a run is over. If it was told to stop, the instance ends with it,
// whatever the run has come to: a new one may begin (DMN-7).
func (w *Worker) leave(r *run, result Result) {
	w.mu.Lock()
	w.clear(r)
	switch {
	case r.stopped:
		w.mu.Unlock()
		if !r.abandoned {
			w.work.Left()
		}
		w.begin()
	case result.Done:
		w.done, w.wanted, w.woken = true, false, false
		w.mu.Unlock()
		w.work.Left()
	default:
		w.wait(result.Next)
		w.mu.Unlock()
	}
}

// refused is when the host has no goroutines any more: the instance is over, and no
// other one begins by itself.
func (w *Worker) refused(r *run) {
	w.mu.Lock()
	w.clear(r)
	w.wanted, w.woken = false, false
	w.mu.Unlock()
	if r.stopped && !r.abandoned {
		w.work.Left()
	}
}

// clear forgets a run.
func (w *Worker) clear(r *run) {
	if r.cancel != nil {
		r.cancel()
		r.cancel = nil
	}
	r.end(r.cause)
	w.phase, w.run = idle, nil
}

// stopRun tells the run to stop (DMN-10).
func (w *Worker) stopRun(cause error, cancellation Cancellation) {
	r := w.run
	r.stopped, r.since, r.cause, r.cancellation = true, time.Now(), cause, cancellation.valid()
	close(r.stopping)
	if backoff := r.cancellation.Backoff; backoff > 0 {
		w.next(r, backoff, w.cancelRun)
	} else {
		w.cancelRun(r)
	}
}

// cancelRun ends the context of a run that was told to stop.
func (w *Worker) cancelRun(r *run) func() {
	r.end(r.cause)
	if timeout := r.cancellation.Timeout; timeout > 0 {
		w.next(r, r.cancellation.Backoff+timeout, w.abandon)
	} else {
		w.next(r, r.cancellation.Backoff+r.cancellation.Polling, w.poll)
	}
	return nil
}

// poll is when a run has not left for a while, and is waited for nevertheless.
func (w *Worker) poll(r *run) func() {
	since := time.Since(r.since)
	w.next(r, since+r.cancellation.Polling, w.poll)
	return func() { w.work.Lingers(since, false) }
}

// abandon is when a run has not left for too long. Its goroutine goes on, and keeps a
// new instance from beginning, but the object from nothing.
func (w *Worker) abandon(r *run) func() {
	r.abandoned = true
	since := time.Since(r.since)
	return func() {
		w.work.Lingers(since, true)
		w.work.Left()
	}
}

// next takes a step, some time after the run was told to stop, unless it has left by
// then. What the step returns is called without the lock.
func (w *Worker) next(r *run, after time.Duration, step func(*run) func()) {
	r.cancel = w.host.At(r.since.Add(after), func() {
		w.mu.Lock()
		if w.run != r {
			w.mu.Unlock()
			return
		}
		r.cancel = nil
		say := step(r)
		w.mu.Unlock()
		if say != nil {
			say()
		}
	})
}
