// Package daemons is work in the background: when it runs, that there is never more
// than one of a kind, and how it is stopped.
package daemons

import (
	"context"
	"time"
)

// Host is where workers live.
type Host interface {
	// Context is what the contexts of runs are made from.
	Context() context.Context
	// At calls a function, which does not block, at a time, unless cancelled before.
	At(time.Time, func()) (cancel func())
	// Go runs a function in a goroutine; false: not any more.
	Go(func()) bool
}

// Work is what a worker does. Its methods are called without locks held; Run and what
// comes of it are never called twice at the same time.
type Work interface {
	// First says when the first run of an instance is; the zero time: at once.
	First(now time.Time) time.Time
	// Due may put off a run whose time has come: until a later time.
	Due(now time.Time) time.Time
	// Run does the work. Its context ends when it has to leave, with the cause; stopping
	// is closed when it is told to, which may be before that.
	Run(ctx context.Context, stopping <-chan struct{}) Result
	// Cut is what a run amounts to that has ended its goroutine instead of returning.
	Cut() Result
	// Cancellation says how a run is stopped.
	Cancellation() Cancellation
	// Lingers is called from time to time while a run does not leave, and a last time
	// when it is abandoned.
	Lingers(since time.Duration, abandoned bool)
	// Left is called when an instance that was stopped is no more, or is abandoned, and
	// when one is through by itself.
	Left()
}

// Result is what a run has come to.
type Result struct {
	Next time.Time // when the next run is
	Done bool      // there is none: the work is done for good
}
