// Package daemons is work in the background: when it runs, that there is never more
// than one of a kind, and how it is stopped.
//
// A Worker keeps one piece of work going, for one object, say. It begins an instance of
// it when it is started, which runs once, or again and again, until the work is done
// for good or the worker is stopped. While an instance waits for its next run it is an
// entry among the host's timers, and no goroutine. Nothing here survives a restart.
package daemons

import (
	"context"
	"time"
)

// Host is where workers live. Its methods are safe for concurrent use and do not block.
type Host interface {
	// Context is what the contexts of runs are made from. It is to end after the workers
	// were stopped: who waits for stopping only does not learn of it.
	Context() context.Context
	// At calls a function, which does not block, at a time, unless cancelled before; a time
	// that has passed is now. It never calls it before it has returned, and neither At nor
	// cancel waits for locks under which a worker is called. To cancel what was called
	// already has no effect.
	At(time.Time, func()) (cancel func())
	// Go runs a function in a goroutine; false: not any more, because all is shutting down.
	Go(func()) bool
}

// Work is what a worker does. Its methods are called without locks held. Run and Cut
// are never called twice at the same time; the others may be, and do not block, for
// they are called by whoever calls the worker, or by the host's timers. A panic of any
// of them is not recovered.
type Work interface {
	// First says when the first run of an instance is; the zero time: at once.
	First(now time.Time) time.Time
	// Due may put off a run whose time has come: until a later time, when it is asked
	// again. Any other time, also the zero one, lets it run.
	Due(now time.Time) time.Time
	// Run does the work. Its context ends when it has to leave, with the cause; stopping
	// is closed when it is told to, which may be before that.
	Run(ctx context.Context, stopping <-chan struct{}) Result
	// Cut is what a run amounts to that has ended its goroutine instead of returning
	// (runtime.Goexit). It is called in that goroutine.
	Cut() Result
	// Cancellation says how a run is stopped. It is asked whenever the worker is stopped.
	Cancellation() Cancellation
	// Lingers is called from time to time while a run does not leave that was told to
	// stop, with the time since then, and a last time when it is abandoned.
	Lingers(since time.Duration, abandoned bool)
	// Left is called once for an instance that was stopped while it ran: when it is no
	// more, or is abandoned, after the last Lingers. And it is called when one is done for
	// good. It is not called for one that was stopped while nothing ran: see Worker.Lets.
	// It may call the worker.
	Left()
}

// Result is what a run has come to.
type Result struct {
	Next time.Time // when the next run is; zero, or past: at once
	Done bool      // there is none: the work is done for good
}
