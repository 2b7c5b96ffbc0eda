package daemons

import (
	"sync"
	"time"
)

// Worker keeps one piece of work going, with never more than one run at a time (DMN-2,
// TMR-8). Its methods are safe for concurrent use, and none of them blocks; they may
// call First and Cancellation of the work.
//
// A worker that waits costs about 100 bytes besides the host's timer, one that runs
// some 650 bytes and its goroutine. It is forgotten at a restart, as are its instances.
type Worker struct {
	host Host
	work Work

	mu     sync.Mutex
	phase  phase
	wanted bool
	done   bool
	woken  bool   // a run is asked for that could not begin yet
	turn   uint32 // of the wait, or of the question to the work: what belongs to an earlier one is void
	cancel func() // the host's timer, while waiting
	run    *run   // while running
}

// phase is what a worker is about.
type phase uint8

const (
	idle    phase = iota // there is no instance
	asking               // the work is asked for the time of a run
	waiting              // for the time of a run
	running              // and perhaps told to stop, or abandoned
)

// NewWorker returns a worker of some work, which is not wanted yet.
func NewWorker(host Host, work Work) *Worker { return &Worker{host: host, work: work} }

// Start says that the work is wanted from now on. An instance of it begins, with its
// first run at Work.First. When an earlier one that was stopped has not left yet,
// abandoned or not, the new one begins as soon as it has (DMN-2, DMN-7). There is no
// effect if the work is wanted already, or done for good (DMN-6).
func (w *Worker) Start() {
	w.mu.Lock()
	if w.wanted || w.done {
		w.mu.Unlock()
		return
	}
	w.wanted = true
	w.mu.Unlock()
	w.begin()
}

// Stop says that the work is not wanted any more. If nothing runs, that was it. A run
// is stopped as Work.Cancellation says, without waiting for it here, and its context
// ends with this cause. There is no effect if the work is not wanted: the first cause
// is the one that counts.
func (w *Worker) Stop(cause error) {
	cancellation := w.work.Cancellation()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted, w.woken = false, false
	switch w.phase {
	case asking, waiting:
		w.rest()
	case running:
		if !w.run.stopped {
			w.stopRun(cause, cancellation)
		}
	}
}

// Wake asks for a run at once if the next one has to wait for its time. While one is
// going on, there will be another one right after it, one however often it was asked
// for. Work.Due may put it off all the same. There is no effect if the work is not
// wanted, or done for good.
func (w *Worker) Wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.wanted || w.done:
	case w.phase == waiting:
		w.rest()
		w.wait(time.Now())
	default:
		w.woken = true
	}
}

// Lets tells whether the work lets its object go: nothing runs, or what runs is
// abandoned. Once the worker is stopped, it does so now, or Work.Left will be called.
func (w *Worker) Lets() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.run == nil || w.run.abandoned
}

// Running tells whether a run is going on, be it told to stop or abandoned.
func (w *Worker) Running() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.run != nil
}

// Done tells whether the work is done for good: a run has said so by itself, and was
// not told to stop before (DMN-6). Only another worker does the work again.
func (w *Worker) Done() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

// begin begins an instance, if one is wanted and there is none.
func (w *Worker) begin() {
	w.mu.Lock()
	if !w.wanted || w.phase != idle {
		w.mu.Unlock()
		return
	}
	turn := w.ask()
	w.mu.Unlock()

	first := w.work.First(time.Now())

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.turn == turn {
		w.wait(first)
	}
}

// ask is before the work is asked something, without the lock. The answer is void if
// the turn is another one by then.
func (w *Worker) ask() (turn uint32) {
	w.phase = asking
	w.turn++
	return w.turn
}

// wait waits for the time of a run, or, if one was asked for, does not.
func (w *Worker) wait(at time.Time) {
	if w.woken || at.IsZero() {
		at, w.woken = time.Now(), false
	}
	w.phase = waiting
	w.turn++
	turn := w.turn
	w.cancel = w.host.At(at, func() { w.ring(turn) })
}

// rest ends a wait or a question.
func (w *Worker) rest() {
	if w.cancel != nil {
		w.cancel()
	}
	w.cancel = nil
	w.phase = idle
	w.turn++
}

// ring is when the time of a run has come. Each run has a goroutine of its own, and
// comes by way of the host's timers: one that asks for the next one at once keeps
// nobody from having theirs.
func (w *Worker) ring(turn uint32) {
	w.mu.Lock()
	if w.turn != turn {
		w.mu.Unlock()
		return
	}
	w.cancel = nil
	turn = w.ask()
	w.mu.Unlock()

	now := time.Now()
	due := w.work.Due(now)

	w.mu.Lock()
	switch {
	case w.turn != turn: // stopped meanwhile
		w.mu.Unlock()
	case due.After(now):
		w.wait(due)
		w.mu.Unlock()
	default:
		r := w.newRun()
		w.mu.Unlock()
		if !w.host.Go(func() { w.perform(r) }) {
			w.refused(r)
		}
	}
}
