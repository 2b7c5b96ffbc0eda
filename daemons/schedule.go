package daemons

import (
	"math/bits"
	"time"
)

// Schedule says when a timer ticks. With neither an interval nor a cron schedule nor an
// idle time, it ticks once. With both an interval and a cron schedule, the interval
// counts. A schedule is a value, and does not know what time it is.
type Schedule struct {
	Interval time.Duration // from the end of a tick to the next one; zero: none
	Sharp    bool          // the interval counts from the start of a tick
	Idle     time.Duration // no tick before the object has not changed for so long; zero: any time
	Cron     Cron          // nil: none
}

// Cron is a schedule by the calendar, such as ParseCron's. It must be safe for
// concurrent use.
type Cron interface {
	// Next returns the first time after another one; zero: never.
	Next(time.Time) time.Time
}

// Run is one run of some work.
type Run struct{ Started, Ended time.Time }

// never is in place of a time that First does not know.
const never = 100 * 365 * 24 * time.Hour

// First returns the time of the first tick of a timer that begins at a time: after a
// delay, zero being at once (TMR-4). By a cron schedule, it is the first of its times
// from then on, that very moment included; a schedule that has none is put off by a
// hundred years.
func (s Schedule) First(spawned time.Time, delay time.Duration) time.Time {
	from := spawned.Add(max(delay, 0))
	if s.Cron == nil || s.Interval > 0 {
		return from
	}
	if first := s.Cron.Next(from.Add(-1)); !first.IsZero() {
		return first
	}
	return from.Add(never)
}

// Next returns the time of the tick after one that has ended, well or for good (TMR-2,
// TMR-3); a tick that is to be tried again has its own time. There may be no more.
//
// Ticks that could not happen because the last one took too long do not pile up. A
// sharp interval keeps its beat: the next tick is a multiple of the interval after the
// start of the last one, the first after its end. One that took exactly one interval is
// followed by another whole one, as in Kopf. With an idle time alone, it is now, and
// Due puts it off.
func (s Schedule) Next(last Run) (at time.Time, more bool) {
	switch {
	case s.Interval > 0 && s.Sharp:
		took := max(last.Ended.Sub(last.Started), 0)
		return last.Ended.Add(s.Interval - took%s.Interval), true
	case s.Interval > 0:
		return last.Ended.Add(s.Interval), true
	case s.Cron != nil:
		after := last.Ended
		if last.Started.After(after) { // the clock was set back, and this was the tick of the time to come
			after = last.Started
		}
		at = s.Cron.Next(after)
		return at, !at.IsZero()
	case s.Idle > 0:
		return last.Ended, true
	}
	return time.Time{}, false
}

// Due returns when a tick may happen whose time is now: not after now if it may. The
// idle time has to pass since the object was changed, and what the timer waits for is
// not shortened by changes (TMR-5, TMR-6). With an idle time alone, there is one tick
// after each change: until there is one after the start of the last run that has ended,
// the tick is put off by the idle time over and over. The last run is the zero one
// before the first has ended.
func (s Schedule) Due(now time.Time, last Run, changed time.Time) time.Time {
	if s.Idle <= 0 {
		return now
	}
	alone := s.Interval <= 0 && s.Cron == nil
	if alone && !last.Started.IsZero() && !changed.After(last.Started) {
		return now.Add(s.Idle)
	}
	return changed.Add(s.Idle)
}

// Spread returns a time from zero up to another one, and less than that, by which work
// is put off that would begin together with all other work, after a restart, say. It is
// the same for a key, such as an object's UID, in each process and each version of this
// package, and evenly spread among keys. It costs some nanoseconds per byte of the key.
func Spread(key string, within time.Duration) time.Duration {
	if within <= 0 {
		return 0
	}
	hash := uint64(14695981039346656037) // FNV-1a
	for i := range len(key) {
		hash = (hash ^ uint64(key[i])) * 1099511628211
	}
	hash = (hash ^ hash>>33) * 0xff51afd7ed558ccd // or the upper bits would hardly know the last bytes
	hash = (hash ^ hash>>33) * 0xc4ceb9fe1a85ec53
	hash ^= hash >> 33
	part, _ := bits.Mul64(hash, uint64(within))
	return time.Duration(part)
}
