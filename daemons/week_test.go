package daemons_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kopf-go/kopf/daemons"
)

// timer is a worker on a schedule, as the engine has it.
type timer struct {
	*chore
	schedule daemons.Schedule
	delay    time.Duration
	takes    func(tick int) time.Duration // nil: no time
	last     daemons.Run
	changed  time.Time
	ticks    []time.Duration // when each one began
}

// ticking starts a timer.
func ticking(c *chore, schedule daemons.Schedule) *timer {
	tm := &timer{chore: c, schedule: schedule, changed: c.begin}
	c.first = func(now time.Time) time.Time { return tm.schedule.First(now, tm.delay) }
	c.due = func(now time.Time) time.Time {
		tm.mu.Lock()
		defer tm.mu.Unlock()
		return tm.schedule.Due(now, tm.last, tm.changed)
	}
	c.run = tm.tick
	return tm
}

func (tm *timer) tick(ctx context.Context, _ <-chan struct{}) daemons.Result {
	started := time.Now()
	tm.mu.Lock()
	tm.ticks = append(tm.ticks, started.Sub(tm.begin))
	n := len(tm.ticks)
	tm.mu.Unlock()
	if tm.takes != nil {
		select {
		case <-time.After(tm.takes(n)):
		case <-ctx.Done():
		}
	}
	tm.mu.Lock()
	defer tm.mu.Unlock()
	tm.last = daemons.Run{Started: started, Ended: time.Now()}
	next, more := tm.schedule.Next(tm.last)
	return daemons.Result{Next: next, Done: !more}
}

// touch is a change of the object.
func (tm *timer) touch() {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	tm.changed = time.Now()
}

// ticked compares all ticks so far.
func (tm *timer) ticked(want ...time.Duration) {
	tm.t.Helper()
	synctest.Wait()
	tm.mu.Lock()
	defer tm.mu.Unlock()
	if !slices.Equal(tm.ticks, want) {
		tm.t.Errorf("%d ticks, not %d:\ngot  %v\nwant %v", len(tm.ticks), len(want), tm.ticks, want)
	}
}

const week = 7 * 24 * time.Hour

// beats are the times of a beat that begins at a time, as long as they are before the
// end of the week.
func beats(first, every time.Duration) (all []time.Duration) {
	for d := first; d < week; d += every {
		all = append(all, d)
	}
	return all
}

func TestIntervalOverAWeek_TMR2_TMR8_T144_T145(t *testing.T) {
	for _, c := range []struct {
		delay, interval, takes time.Duration
		want                   []time.Duration
	}{
		{0, time.Hour, 0, beats(0, time.Hour)},
		{5 * time.Second, time.Second * 60, 300 * time.Millisecond, beats(5*time.Second, 60300*time.Millisecond)},
		{3 * time.Hour, time.Hour, 90 * time.Minute, beats(3*time.Hour, 150*time.Minute)},
	} {
		bubble(t, func(ch *chore) {
			tm := ticking(ch, daemons.Schedule{Interval: c.interval})
			tm.delay = c.delay
			tm.takes = func(int) time.Duration { return c.takes }
			tm.Start()
			time.Sleep(week - 1)
			tm.ticked(c.want...)
		})
	}
}

// The beat stays, whatever single ticks take: what is missed is missed.
func TestSharpOverAWeek_TMR2_TMR8_T144(t *testing.T) {
	bubble(t, func(ch *chore) {
		tm := ticking(ch, daemons.Schedule{Interval: time.Hour, Sharp: true})
		tm.delay = 10 * time.Minute
		tm.takes = func(tick int) time.Duration {
			switch {
			case tick%24 == 1: // over the next two beats
				return 138 * time.Minute
			case tick%24 == 2: // exactly to the next beat, which is missed then
				return time.Hour
			}
			return 100 * time.Millisecond
		}
		tm.Start()
		time.Sleep(week - 1)
		var want []time.Duration
		for d, tick := 10*time.Minute, 1; d < week; tick++ {
			want = append(want, d)
			switch {
			case tick%24 == 1:
				d += 3 * time.Hour
			case tick%24 == 2:
				d += 2 * time.Hour
			default:
				d += time.Hour
			}
		}
		tm.ticked(want...)
	})
}

// Changes put ticks off; the interval counts from the tick that was.
func TestIdleAndIntervalOverAWeek_TMR2_TMR5_TMR6(t *testing.T) {
	bubble(t, func(ch *chore) {
		tm := ticking(ch, daemons.Schedule{Interval: time.Hour, Idle: 10 * time.Minute})
		tm.Start()
		var want []time.Duration
		first := 10 * time.Minute // idle since it began
		for day := range 7 {
			begin := time.Duration(day) * 24 * time.Hour
			// 20 hours of peace, then a change every 5 minutes for an hour.
			time.Sleep(begin + 20*time.Hour - time.Since(tm.begin))
			for d := first; d < begin+20*time.Hour; d += time.Hour {
				want = append(want, d)
			}
			for range 13 {
				tm.touch()
				time.Sleep(5 * time.Minute)
			}
			first = begin + 21*time.Hour + 10*time.Minute
		}
		time.Sleep(week - 1 - time.Since(tm.begin))
		want = append(want, first, first+time.Hour, first+2*time.Hour)
		tm.ticked(want...)
	})
}

// With an idle time alone, there is a tick after each change, and after several that
// follow one another closely; and none else.
func TestIdleAloneOverAWeek_TMR2_TMR5_TMR6(t *testing.T) {
	bubble(t, func(ch *chore) {
		tm := ticking(ch, daemons.Schedule{Idle: 10 * time.Minute})
		tm.takes = func(int) time.Duration { return time.Minute }
		tm.Start()
		want := []time.Duration{10 * time.Minute}
		for day := range 7 {
			begin := time.Duration(day) * 24 * time.Hour
			time.Sleep(begin + 8*time.Hour + 123*time.Millisecond - time.Since(tm.begin))
			tm.touch()
			want = append(want, time.Since(tm.begin)+10*time.Minute)
			time.Sleep(5 * time.Hour)
			for range 50 {
				tm.touch()
				time.Sleep(9*time.Minute + 59*time.Second)
			}
			want = append(want, time.Since(tm.begin)+time.Second)
			time.Sleep(31 * time.Second)
			tm.touch() // while it ticks
			want = append(want, time.Since(tm.begin)+10*time.Minute)
		}
		time.Sleep(week - time.Since(tm.begin))
		tm.ticked(want...)
	})
}

// With nothing, it ticks once, after the object was left alone if that is asked for.
func TestOneShot_TMR2_TMR4(t *testing.T) {
	bubble(t, func(ch *chore) {
		tm := ticking(ch, daemons.Schedule{})
		tm.delay = 5 * time.Second
		tm.Start()
		time.Sleep(week)
		tm.ticked(5 * time.Second)
		tm.is(false, true, true)
	})
}

// Each time of the calendar has its tick, in the weeks when clocks change too, but for
// those that are missed while a tick lasts.
func TestCronOverTwoNights_TMR2_TMR8(t *testing.T) {
	for name, nights := range map[string][2]string{
		"Europe/Berlin":    {"2026-03-29", "2026-10-25"},
		"America/New_York": {"2026-03-08", "2026-11-01"},
	} {
		for season, night := range nights {
			bubble(t, func(ch *chore) {
				z := zone(t, name)
				begin, err := time.ParseInLocation(time.DateOnly, night, z)
				if err != nil {
					t.Fatal(err)
				}
				begin = begin.Add(-60 * time.Hour)
				time.Sleep(time.Until(begin))
				ch.begin = begin
				schedule := mustCron(t, fmt.Sprintf("CRON_TZ=%s 30 1-2 * * *", name))
				tm := ticking(ch, daemons.Schedule{Cron: schedule})
				tm.takes = func(int) time.Duration { return 10 * time.Second }
				tm.Start()
				time.Sleep(week - 1)
				var want []time.Duration
				for at := begin; at.Before(begin.Add(week)); at = at.Add(time.Minute) {
					if wall := at.In(z); wall.Minute() == 30 && (wall.Hour() == 1 || wall.Hour() == 2) {
						want = append(want, at.Sub(begin))
					}
				}
				if n := 14 + []int{-1, 1}[season]; len(want) != n {
					t.Errorf("there are %d times in the week of %s, not %d", len(want), night, n)
				}
				tm.ticked(want...)
			})
		}
	}
	bubble(t, func(ch *chore) {
		tm := ticking(ch, daemons.Schedule{Cron: mustCron(t, "CRON_TZ=UTC */10 * * * *")})
		tm.takes = func(int) time.Duration { return 25 * time.Minute }
		tm.Start()
		time.Sleep(week - 1)
		tm.ticked(beats(0, 30*time.Minute)...) // bubbles begin at a midnight
	})
}

// Stopped and started again, it begins with its delay.
func TestTimerStartsAnew_TMR1_TMR4(t *testing.T) {
	bubble(t, func(ch *chore) {
		tm := ticking(ch, daemons.Schedule{Interval: time.Hour})
		tm.delay = time.Minute
		tm.takes = func(int) time.Duration { return 10 * time.Minute }
		tm.Start()
		time.Sleep(75 * time.Minute) // in the second tick
		tm.Stop(daemons.ErrMismatch)
		tm.is(false, true, false)
		tm.Start()
		time.Sleep(2 * time.Hour)
		tm.ticked(time.Minute, 71*time.Minute, 76*time.Minute, 146*time.Minute)
	})
}
