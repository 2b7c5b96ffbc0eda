package on

import (
	"context"
	"reflect"
	"time"

	"github.com/kopf-go/kopf/daemons"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/typed"
)

// Daemon runs fn beside each object for as long as the object is there: one instance per
// object, in a goroutine of its own.
//
//	on.Daemon(func(ctx context.Context, d *kopf.Daemon[*Database]) error {
//		for {
//			check(ctx, d.Object())
//			select {
//			case <-ctx.Done():
//				return context.Cause(ctx)
//			case <-time.After(time.Minute):
//			}
//		}
//	})
//
// It begins when the object is there and matches the filters: when it is created, when
// the operator starts, when it matches again, but not if it is being deleted (DMN-2,
// DMN-15). It is told to stop when the object is to be deleted, does not match any more,
// or the operator stops or pauses: its context ends, with a cause that says why (see
// kopf.ErrMismatch, ErrDeleted, ErrPaused, ErrExiting). There is never a second instance
// before the first one has returned.
//
// If fn returns nil, or fails for good, by itself, that was it: it does not run again for
// this object until the operator restarts, or the object is created anew (DMN-6).
// kopf.Retry, and any other error unless Errors says otherwise, runs it again after a pause.
//
// Nothing is kept on the object, and it does not wait for the daemon to be deleted, unless
// Finalize says so. A daemon costs a goroutine, and a copy of the object.
func Daemon[T typed.Object](fn func(context.Context, *typed.Daemon[T]) error, opts ...DaemonOption) {
	d := newDraft[T](registry.Daemon, fn, fn == nil)
	take(d, opts, DaemonOption.daemon)
	d.Invoke = func(ctx context.Context, call *registry.Call) error {
		argument, err := typed.NewDaemon[T](call)
		if err == nil {
			err = call.Enter()
		}
		if err != nil {
			return err
		}
		return fn(ctx, argument)
	}
	d.register()
}

// Timer calls fn for each object again and again, as Interval, Cron or Idle say; with none
// of them, once.
//
//	on.Timer(func(ctx context.Context, t *kopf.Tick[*Database]) error {
//		return backup(ctx, t.Object)
//	}, on.Cron("0 3 * * *"))
//
// It begins and stops as a daemon does (TMR-1). The first tick is at once, or after
// InitialDelay, or at the first time of Cron (TMR-4); but see Jitter. A timer never
// overlaps with itself for one object, but may run beside other handlers of the object
// (TMR-8). An error is tried again as elsewhere, after Backoff or kopf.Retry; once the
// attempts have succeeded or failed for good, the next tick is due, which counts its
// attempts anew (TMR-2, TMR-3).
//
// Nothing is kept on the object: after a restart, timers begin anew. Between ticks a
// timer costs no goroutine.
func Timer[T typed.Object](fn func(context.Context, *typed.Tick[T]) error, opts ...TimerOption) {
	d := newDraft[T](registry.Timer, fn, fn == nil)
	d.Handler.Jitter = -1
	take(d, opts, TimerOption.timer)
	d.checkSchedule()
	d.Invoke = func(ctx context.Context, call *registry.Call) error {
		tick, err := typed.NewTick[T](call)
		if err == nil {
			err = call.Enter()
		}
		if err != nil {
			return err
		}
		return fn(ctx, tick)
	}
	d.register()
}

// InitialDelay puts off the first run of a daemon, or the first tick of a timer, by a time
// from when it begins, each time that it begins (DMN-4, TMR-4). Default: none.
func InitialDelay(delay time.Duration) BackgroundOption {
	return setting(func(d *draft) {
		d.delay("on.InitialDelay")
		if delay < 0 {
			d.mistake("on.InitialDelay(%s) is negative", delay)
		}
		d.Spawn = func(context.Context, *registry.Call) (time.Duration, error) { return delay, nil }
	})
}

// InitialDelayFunc is InitialDelay with a time that depends on the object, of which fn
// gets a copy. A negative one is none.
func InitialDelayFunc[T typed.Object](fn func(T) time.Duration) BackgroundOption {
	return setting(func(d *draft) {
		d.delay("on.InitialDelayFunc")
		switch t := reflect.TypeFor[T](); {
		case fn == nil:
			d.mistake("on.InitialDelayFunc got no function")
		case t != d.Type:
			d.mistake("on.InitialDelayFunc is for %s, the handler for %s", t, d.Type)
		}
		d.Spawn = func(_ context.Context, call *registry.Call) (time.Duration, error) {
			s, err := typed.NewSnapshot[T](call)
			if err != nil {
				return 0, err
			}
			return max(0, fn(s.Object)), nil
		}
	})
}

// delay notes that an option for the first run is given, of which there can be one.
func (d *draft) delay(option string) {
	other := map[string]string{"on.InitialDelay": "on.InitialDelayFunc", "on.InitialDelayFunc": "on.InitialDelay"}[option]
	if d.given[other] {
		d.mistake("%s does not go with %s", option, other)
	}
	d.give(option)
}

// CancellationBackoff leaves a daemon that is told to stop (see Daemon.Stopping) a time
// to leave by itself, before its context ends (DMN-10). Default: the context ends at once.
func CancellationBackoff(pause time.Duration) DaemonOption {
	return setting(func(d *draft) {
		d.give("on.CancellationBackoff")
		if pause < 0 {
			d.mistake("on.CancellationBackoff(%s) is negative", pause)
		}
		d.Cancellation.Backoff = pause
	})
}

// CancellationTimeout limits the time that a daemon is waited for once its context has
// ended. Then it is abandoned, which the log says: nothing waits for it any more, but its
// goroutine is still there, and no new instance begins before it has returned (DMN-10).
// Default: no limit, until the operator stops.
func CancellationTimeout(limit time.Duration) DaemonOption {
	return setting(func(d *draft) {
		d.positive("on.CancellationTimeout", limit, &d.Cancellation.Timeout)
	})
}

// CancellationPolling is how often the log speaks of a daemon that does not leave, if
// there is no CancellationTimeout. When it leaves, that is seen at once (DMN-11).
// Default: every minute.
func CancellationPolling(interval time.Duration) DaemonOption {
	return setting(func(d *draft) {
		d.positive("on.CancellationPolling", interval, &d.Cancellation.Polling)
	})
}

// Finalize lets a daemon hold its object: a finalizer keeps an object that is being
// deleted until the daemon has left, or is abandoned (DMN-3). It is on the object while
// the daemon is meant to run. Default: the object does not wait.
func Finalize() DaemonOption {
	return setting(func(d *draft) {
		d.give("on.Finalize")
		d.Handler.Finalize = true
	})
}

// Interval is the time from the end of a tick to the next one (TMR-2). A change of the
// object does not shorten it (TMR-6).
func Interval(interval time.Duration) TimerOption {
	return setting(func(d *draft) {
		d.positive("on.Interval", interval, &d.Schedule.Interval)
	})
}

// Sharp lets Interval count from the start of a tick, so that ticks keep their pace. If
// one takes longer than the interval, the ticks that it misses are left out (TMR-2).
func Sharp() TimerOption {
	return setting(func(d *draft) {
		d.give("on.Sharp")
		d.Schedule.Sharp = true
	})
}

// Idle lets a timer tick only when the object's last essential change is so long ago:
// one of anything but its status and the metadata other than labels and annotations
// (TMR-5). Alone, it ticks once after each such change; with Interval or Cron, ticks
// that come too early wait. Each operator counts from when it sees the object first.
func Idle(idle time.Duration) TimerOption {
	return setting(func(d *draft) {
		d.positive("on.Idle", idle, &d.Schedule.Idle)
	})
}

// Cron lets a timer tick by the calendar, as CronJobs of Kubernetes do: five fields for
// minute, hour, day of the month, month and day of the week, such as "30 3 * * 1-5", or
// @hourly, @daily and the like. Times are those of the operator's time zone, unless the
// text begins with one, as in "CRON_TZ=Europe/Berlin 30 3 * * *". Ticks that are missed,
// because the operator did not run or the one before took too long, are left out.
func Cron(text string) TimerOption {
	return setting(func(d *draft) {
		d.give("on.Cron")
		schedule, err := daemons.ParseCron(text)
		if err != nil {
			d.mistake("on.Cron: %w", err)
		}
		d.Schedule.Cron = schedule
	})
}

// Jitter spreads the ticks of many objects: those of each object are put off by an amount
// below limit, which is always the same for the object. 0 spreads nothing. Default: only
// the first tick, and only of objects that are there when the operator starts, or goes on
// after a pause, of a timer with Interval, is put off, by less than a tenth of the interval
// and than 10 seconds, so that a restart does not let all tick at once.
func Jitter(limit time.Duration) TimerOption {
	return setting(func(d *draft) {
		d.give("on.Jitter")
		if limit < 0 {
			d.mistake("on.Jitter(%s) is negative", limit)
		}
		d.Handler.Jitter = limit
	})
}

// positive takes the time of an option which is given once, and is more than nothing.
func (d *draft) positive(option string, value time.Duration, into *time.Duration) {
	d.give(option)
	if value <= 0 {
		d.mistake("%s(%s) is not positive", option, value)
	}
	*into = value
}

// checkSchedule looks at the options for ticks together.
func (d *draft) checkSchedule() {
	switch {
	case d.given["on.Cron"] && d.given["on.Interval"]:
		d.mistake("on.Cron does not go with on.Interval")
	case d.given["on.Cron"] && d.given["on.Sharp"]:
		d.mistake("on.Cron does not go with on.Sharp: its times are sharp anyway")
	case d.given["on.Sharp"] && !d.given["on.Interval"]:
		d.mistake("on.Sharp needs on.Interval")
	}
}
