package daemons_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kopf-go/kopf/daemons"
)

// at is a time of the tests: some time after their epoch.
func at(d time.Duration) time.Time {
	return time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC).Add(d)
}

// calendar is a schedule of a cron's kind, with a last time.
type calendar []time.Duration

func (c calendar) Next(after time.Time) time.Time {
	for _, d := range c {
		if at(d).After(after) {
			return at(d)
		}
	}
	return time.Time{}
}

func TestFirst_TMR4_T145(t *testing.T) {
	const s = time.Second
	cron := calendar{10 * s, 20 * s}
	for _, c := range []struct {
		schedule    daemons.Schedule
		spawned     time.Duration
		delay, want time.Duration
	}{
		{daemons.Schedule{}, 3 * s, 0, 3 * s},
		{daemons.Schedule{Interval: s}, 3 * s, 5 * s, 8 * s},
		{daemons.Schedule{Interval: s, Sharp: true, Idle: s}, 3 * s, 5 * s, 8 * s},
		{daemons.Schedule{Interval: s}, 3 * s, -s, 3 * s},
		{daemons.Schedule{Cron: cron}, 3 * s, 0, 10 * s},
		{daemons.Schedule{Cron: cron}, 3 * s, 7*s - 1, 10 * s},
		{daemons.Schedule{Cron: cron}, 3 * s, 7 * s, 10 * s}, // that very moment counts
		{daemons.Schedule{Cron: cron}, 10 * s, 0, 10 * s},
		{daemons.Schedule{Cron: cron}, 3 * s, 7*s + 1, 20 * s},
		{daemons.Schedule{Cron: cron}, 10 * s, 1, 20 * s},
		{daemons.Schedule{Cron: cron}, 21 * s, 0, 21*s + 100*365*24*time.Hour}, // never
		{daemons.Schedule{Cron: cron, Interval: s}, 3 * s, 0, 3 * s},           // the interval counts
	} {
		if got := c.schedule.First(at(c.spawned), c.delay); !got.Equal(at(c.want)) {
			t.Errorf("%+v spawned at %s with a delay of %s: first at %s, want %s", c.schedule, c.spawned, c.delay, got.Sub(at(0)), c.want)
		}
	}
}

func TestNext_TMR2_TMR3_T144(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	cron := calendar{10 * s, 20 * s}
	sharp := daemons.Schedule{Interval: s, Sharp: true}
	for _, c := range []struct {
		schedule             daemons.Schedule
		started, ended, want time.Duration // negative: no more
	}{
		{daemons.Schedule{}, 0, s, -1},
		{daemons.Schedule{Sharp: true}, 0, s, -1},
		{daemons.Schedule{Interval: s}, 0, 300 * ms, 1300 * ms},
		{daemons.Schedule{Interval: s, Idle: 5 * s, Cron: cron}, 0, 0, s},
		{sharp, 0, 0, s},
		{sharp, 0, 300 * ms, s},
		{sharp, 5 * s, 5*s + 999*ms, 6 * s},
		{sharp, 0, s, 2 * s}, // on the border
		{sharp, 0, s + 1, 2 * s},
		{sharp, 0, 2300 * ms, 3 * s},
		{sharp, 0, 1000*s + 1, 1001 * s},
		{sharp, 5 * s, 4 * s, 5 * s}, // the clock was set back
		{daemons.Schedule{Idle: 5 * s}, 0, s, s},
		{daemons.Schedule{Cron: cron}, 0, s, 10 * s},
		{daemons.Schedule{Cron: cron, Idle: s}, 10 * s, 10*s + 1, 20 * s},
		{daemons.Schedule{Cron: cron}, 5 * s, 15 * s, 20 * s}, // what was missed is
		{daemons.Schedule{Cron: cron}, 10 * s, 9 * s, 20 * s}, // the clock was set back
		{daemons.Schedule{Cron: cron}, 20 * s, 20 * s, -1},
	} {
		got, more := c.schedule.Next(daemons.Run{Started: at(c.started), Ended: at(c.ended)})
		switch {
		case more != (c.want >= 0):
			t.Errorf("%+v from %s to %s: more is %t", c.schedule, c.started, c.ended, more)
		case more && !got.Equal(at(c.want)):
			t.Errorf("%+v from %s to %s: next at %s, want %s", c.schedule, c.started, c.ended, got.Sub(at(0)), c.want)
		}
	}
}

func TestDue_TMR2_TMR5(t *testing.T) {
	const s = time.Second
	cron := calendar{10 * s, 20 * s}
	never := daemons.Run{}
	last := daemons.Run{Started: at(50 * s), Ended: at(55 * s)}
	for _, c := range []struct {
		schedule  daemons.Schedule
		now       time.Duration
		last      daemons.Run
		changed   time.Duration
		want      time.Duration // what is not later than now lets it tick
		postponed bool
	}{
		{daemons.Schedule{}, 100 * s, last, 100 * s, 100 * s, false},
		{daemons.Schedule{Interval: s}, 100 * s, last, 100 * s, 100 * s, false},
		{daemons.Schedule{Interval: s, Idle: 10 * s}, 100 * s, last, 90*s + 1, 100*s + 1, true},
		{daemons.Schedule{Interval: s, Idle: 10 * s}, 100 * s, last, 90 * s, 100 * s, false},
		{daemons.Schedule{Interval: s, Idle: 10 * s}, 100 * s, last, 0, 10 * s, false},
		{daemons.Schedule{Cron: cron, Idle: 10 * s}, 100 * s, last, 0, 10 * s, false},
		{daemons.Schedule{Idle: 10 * s}, 100 * s, never, 95 * s, 105 * s, true},
		{daemons.Schedule{Idle: 10 * s}, 100 * s, never, 0, 10 * s, false},
		{daemons.Schedule{Idle: 10 * s}, 100 * s, last, 50 * s, 110 * s, true}, // no change since: in steps
		{daemons.Schedule{Idle: 10 * s}, 100 * s, last, 50*s + 1, 60*s + 1, false},
		{daemons.Schedule{Idle: 10 * s}, 100 * s, last, 92 * s, 102 * s, true},
	} {
		got := c.schedule.Due(at(c.now), c.last, at(c.changed))
		if !got.Equal(at(c.want)) || got.After(at(c.now)) != c.postponed {
			t.Errorf("%+v at %s, changed at %s: due at %s, want %s", c.schedule, c.now, c.changed, got.Sub(at(0)), c.want)
		}
	}
}

// The place of a key is the same for ever, or all objects would move at an update.
func TestSpreadIsStable(t *testing.T) {
	for key, want := range map[string]time.Duration{
		"": 3372370014205, "a": 1837060263563, "3f0ae0ec-6d4c-4d4c-9c45-6c2a4be2a54b": 2744054095791,
	} {
		if got := daemons.Spread(key, time.Hour); got != want {
			t.Errorf("the place of %q is %d, want %d", key, got, want)
		}
	}
	for _, none := range []time.Duration{0, -1} {
		if got := daemons.Spread("a", none); got != 0 {
			t.Errorf("within %d it is %d", none, got)
		}
	}
}

// Keys that hardly differ are spread as evenly as others: by chi-squared, of 99 degrees.
func TestSpreadIsEven(t *testing.T) {
	for name, key := range map[string]func(int) string{
		"numbers":  func(i int) string { return fmt.Sprint(i) },
		"suffixes": func(i int) string { return fmt.Sprintf("3f0ae0ec-6d4c-4d4c-9c45-%012x", i) },
		"prefixes": func(i int) string { return fmt.Sprintf("%08x-6d4c-4d4c-9c45-6c2a4be2a54b", i) },
	} {
		const keys, places = 100_000, 100
		var found [places]float64
		for i := range keys {
			place := daemons.Spread(key(i), places*time.Minute)
			if place < 0 || place >= places*time.Minute {
				t.Fatalf("%q is at %s", key(i), place)
			}
			found[place/time.Minute]++
		}
		var chi float64
		for _, n := range found {
			chi += (n - keys/places) * (n - keys/places) / (keys / places)
		}
		if chi > 160 { // one in 10,000
			t.Errorf("%s: chi-squared is %.0f: %v", name, chi, found)
		}
	}
}
