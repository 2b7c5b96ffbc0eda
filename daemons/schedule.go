package daemons

import "time"

// Schedule says when a timer ticks. With neither an interval nor a cron schedule nor an
// idle time, it ticks once.
type Schedule struct {
	Interval time.Duration // from the end of a tick to the next one; zero: none
	Sharp    bool          // the interval counts from the start of a tick
	Idle     time.Duration // no tick before the object has not changed for so long; zero: any time
	Cron     Cron          // nil: none
}

// Cron is a schedule by the calendar.
type Cron interface {
	// Next returns the first time after another one; zero: never.
	Next(time.Time) time.Time
}

// Run is one run of some work.
type Run struct{ Started, Ended time.Time }
