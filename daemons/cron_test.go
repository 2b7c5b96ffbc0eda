package daemons_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"

	"github.com/kopf-go/kopf/daemons"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func mustCron(t testing.TB, text string) daemons.Cron {
	t.Helper()
	c, err := daemons.ParseCron(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// times are the next times of a schedule, with their offsets from UTC.
func times(c daemons.Cron, after time.Time, n int) string {
	var found []string
	for range n {
		after = c.Next(after)
		found = append(found, after.Format("01-02 15:04 -07"))
	}
	return strings.Join(found, ", ")
}

func TestCronTimes(t *testing.T) {
	from := time.Date(2026, 1, 30, 10, 20, 30, 1, time.UTC)
	for text, want := range map[string]string{
		"*/20 * * * *":                      "01-30 10:40 +00, 01-30 11:00 +00, 01-30 11:20 +00",
		"  0   6-8/2 *\t* * ":               "01-31 06:00 +00, 01-31 08:00 +00, 02-01 06:00 +00",
		"0 0 1 * fri":                       "02-01 00:00 +00, 02-06 00:00 +00, 02-13 00:00 +00", // either day
		"0 0 */2 * fri":                     "01-31 00:00 +00, 02-01 00:00 +00, 02-03 00:00 +00",
		"0 0 * JAN,mar SUN":                 "03-01 00:00 +00, 03-08 00:00 +00, 03-15 00:00 +00",
		"@hourly":                           "01-30 11:00 +00, 01-30 12:00 +00, 01-30 13:00 +00",
		"@daily":                            "01-31 00:00 +00, 02-01 00:00 +00, 02-02 00:00 +00",
		"@weekly":                           "02-01 00:00 +00, 02-08 00:00 +00, 02-15 00:00 +00",
		"@monthly":                          "02-01 00:00 +00, 03-01 00:00 +00, 04-01 00:00 +00",
		"@yearly":                           "01-01 00:00 +00, 01-01 00:00 +00, 01-01 00:00 +00",
		"CRON_TZ=Asia/Tokyo 0 8 * * *":      "01-31 08:00 +09, 02-01 08:00 +09, 02-02 08:00 +09",
		"TZ=America/New_York 30 5 * * 1":    "02-02 05:30 -05, 02-09 05:30 -05, 02-16 05:30 -05",
		"CRON_TZ=UTC @daily":                "01-31 00:00 +00, 02-01 00:00 +00, 02-02 00:00 +00",
		"CRON_TZ=Asia/Kathmandu 0 0 31 * *": "01-31 00:00 +05, 03-31 00:00 +05, 05-31 00:00 +05",
	} {
		if !strings.Contains(text, "TZ=") {
			text = "CRON_TZ=UTC " + text
		}
		if got := times(mustCron(t, text), from, 3); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// A time that it is now is not the next one, and one that is less than a second away is.
func TestCronNextIsLater(t *testing.T) {
	c := mustCron(t, "CRON_TZ=UTC 0 12 * * *")
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, at := range []struct {
		after, want time.Time
	}{
		{noon.Add(-time.Nanosecond), noon},
		{noon.Add(-time.Second), noon},
		{noon, noon.AddDate(0, 0, 1)},
		{noon.Add(time.Nanosecond), noon.AddDate(0, 0, 1)},
	} {
		if got := c.Next(at.after); !got.Equal(at.want) {
			t.Errorf("after %s comes %s, not %s", at.after, got, at.want)
		}
	}
}

// 29 February, also over a year that leaves it out.
func TestCronLeapDays(t *testing.T) {
	c := mustCron(t, "CRON_TZ=UTC 0 9 29 2 *")
	at := time.Date(2089, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, year := range []int{2092, 2096, 2104, 2108} {
		if at = c.Next(at); !at.Equal(time.Date(year, 2, 29, 9, 0, 0, 0, time.UTC)) {
			t.Errorf("got %s in place of %d", at, year)
		}
	}
}

// Without a time zone, it is the one of the process, wherever the given time is.
func TestCronIsLocal(t *testing.T) {
	before := time.Local
	defer func() { time.Local = before }()
	time.Local = zone(t, "Europe/Berlin")
	c := mustCron(t, "0 8 * * *")
	got := c.Next(time.Date(2026, 7, 1, 0, 0, 0, 0, zone(t, "Asia/Tokyo")))
	if want := time.Date(2026, 7, 1, 6, 0, 0, 0, time.UTC); !got.Equal(want) || got.Location() != time.Local {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The nights when clocks change: what is skipped does not happen, what comes twice
// happens twice.
func TestCronWhenClocksChange(t *testing.T) {
	for _, c := range []struct {
		text  string
		after time.Time
		want  string
	}{
		{"CRON_TZ=Europe/Berlin 30 2 * * *", time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC), "03-28 02:30 +01, 03-30 02:30 +02, 03-31 02:30 +02"},
		{"CRON_TZ=Europe/Berlin 30 2 * * *", time.Date(2026, 10, 24, 0, 0, 0, 0, time.UTC), "10-24 02:30 +02, 10-25 02:30 +02, 10-25 02:30 +01, 10-26 02:30 +01"},
		{"CRON_TZ=Europe/Berlin 0 3 * * *", time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC), "03-29 03:00 +02, 03-30 03:00 +02"},
		{"CRON_TZ=Europe/Berlin 0 * * * *", time.Date(2026, 3, 28, 23, 59, 0, 0, time.UTC), "03-29 01:00 +01, 03-29 03:00 +02"},
		{"CRON_TZ=Europe/Berlin */30 * * * *", time.Date(2026, 10, 25, 0, 10, 0, 0, time.UTC), "10-25 02:30 +02, 10-25 02:00 +01, 10-25 02:30 +01, 10-25 03:00 +01"},
		{"CRON_TZ=America/New_York 30 2 * * *", time.Date(2026, 3, 7, 0, 0, 0, 0, time.UTC), "03-07 02:30 -05, 03-09 02:30 -04"},
		{"CRON_TZ=America/New_York 30 1 * * *", time.Date(2026, 10, 31, 0, 0, 0, 0, time.UTC), "10-31 01:30 -04, 11-01 01:30 -04, 11-01 01:30 -05, 11-02 01:30 -05"},
		// Midnight is left out, and half an hour: the library has the 6th, and nothing.
		{"CRON_TZ=America/Santiago 0 9 5 9 *", time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC), "09-05 09:00 -04"},
		{"CRON_TZ=Africa/Cairo 0 9 * * fri", time.Date(2026, 4, 22, 0, 0, 0, 0, time.UTC), "04-24 09:00 +03"},
		{"CRON_TZ=Australia/Lord_Howe 0 9 * * sun", time.Date(2026, 10, 3, 0, 0, 0, 0, time.UTC), "10-04 09:00 +11"},
	} {
		n := strings.Count(c.want, ",") + 1
		if got := times(mustCron(t, c.text), c.after, n); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.text, got, c.want)
		}
	}
}

// Over a year, a schedule has each moment that it is for once, and no other.
func TestCronOverAYear(t *testing.T) {
	matches := map[string]func(time.Time) bool{
		"30 2 * * *":  func(at time.Time) bool { return at.Hour() == 2 && at.Minute() == 30 },
		"30 1 * * *":  func(at time.Time) bool { return at.Hour() == 1 && at.Minute() == 30 },
		"0 0 * * *":   func(at time.Time) bool { return at.Hour() == 0 && at.Minute() == 0 },
		"15 * * * *":  func(at time.Time) bool { return at.Minute() == 15 },
		"0 9 * * sun": func(at time.Time) bool { return at.Hour() == 9 && at.Minute() == 0 && at.Weekday() == time.Sunday },
		"0 9 4-6 * *": func(at time.Time) bool {
			return at.Hour() == 9 && at.Minute() == 0 && at.Day() >= 4 && at.Day() <= 6
		},
	}
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Africa/Cairo", "Australia/Lord_Howe"} {
		z := zone(t, name)
		begin, end := time.Date(2026, 1, 1, 0, 0, 0, 0, z), time.Date(2027, 1, 1, 0, 0, 0, 0, z)
		next, schedules := map[string]time.Time{}, map[string]daemons.Cron{}
		for text := range matches {
			schedules[text] = mustCron(t, "CRON_TZ="+name+" "+text)
			next[text] = schedules[text].Next(begin.Add(-1))
		}
		for at := begin; at.Before(end); at = at.Add(15 * time.Minute) { // between, there is none that matches
			for text, match := range matches {
				if is := next[text].Equal(at); is != match(at) {
					t.Fatalf("%s, %s: at %s it is %t, the next was %s", name, text, at, is, next[text])
				}
				if match(at) {
					next[text] = schedules[text].Next(at)
				}
			}
		}
	}
}

// Where clocks change as in Europe and America, it is to the second what CronJobs do.
func TestCronIsThatOfCronJobs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	field := func(low, high int) string {
		a, b := low+r.IntN(high-low+1), low+r.IntN(high-low+1)
		return []string{"*", fmt.Sprint(a), fmt.Sprintf("%d,%d", a, b), fmt.Sprintf("%d-%d", min(a, b), max(a, b)), fmt.Sprintf("*/%d", 1+r.IntN(7))}[r.IntN(5)]
	}
	for range 400 {
		name := []string{"Europe/Berlin", "America/New_York", "UTC", "Asia/Kathmandu"}[r.IntN(4)]
		text := fmt.Sprintf("CRON_TZ=%s %s %s %s %s %s", name, field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 6))
		ours := mustCron(t, text)
		theirs, err := cron.ParseStandard(text)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Date(2026, time.Month(1+r.IntN(12)), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1e9), time.UTC)
		for range 20 {
			got, want := ours.Next(at), theirs.Next(at)
			if !got.Equal(want) {
				t.Fatalf("%s: after %s comes %s, not %s", text, at, got, want)
			}
			at = got
		}
	}
}

func TestCronMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "there are 0 fields, not 5: minute, hour, day of month, month, day of week",
		"* * * *":                        "there are 4 fields, not 5",
		"0 * * * * *":                    "there are 6 fields, not 5",
		"60 * * * *":                     "minute: end of range (60) above maximum (59): 60",
		"* 5-3 * * *":                    "hour: beginning of range (5) beyond end of range (3): 5-3",
		"* * 0 * *":                      "day of month: beginning of range (0) below minimum (1): 0",
		"* * * brumaire *":               "month: failed to parse int from brumaire",
		"* * * * 7":                      "day of week: end of range (7) above maximum (6): 7",
		"*/0 * * * *":                    "minute: step of range should be a positive number: */0",
		", * * * *":                      "it never comes",
		"0 0 30 2 *":                     "it never comes",
		"@every 5m":                      "use an interval",
		"CRON_TZ=UTC @every 5m":          "use an interval",
		"@fortnightly":                   "unrecognized descriptor: @fortnightly",
		"@daily 5":                       "nothing can follow @daily",
		"CRON_TZ=Mars/Olympus * * * * *": `time zone "Mars/Olympus" is not known here`,
		"TZ=":                            `time zone "" is not known here`,
		"TZ=UTC":                         "there are 0 fields",
		"CRON_TZ=UTC TZ=UTC":             "there are 1 fields",
	} {
		c, err := daemons.ParseCron(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), fmt.Sprintf("cron schedule %q: ", text)) {
			t.Errorf("%q: got %v, %v; want %s", text, c, err, want)
		}
	}
}

// Whatever is written, there is an error or there are times, each after the last one.
func FuzzParseCron(f *testing.F) {
	for _, text := range []string{"* * * * *", "@daily", "TZ=UTC 1 2 3 4 5", "CRON_TZ=x", "TZ=UTC TZ=UTC * * * *", "*/7,3-5 ? 1 jan sun", "0 0 29 2 *", ",", "1-2-3 * * * *", "@every 1s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := daemons.ParseCron(text)
		if err != nil {
			return
		}
		if fmt.Sprint(c) != text {
			t.Errorf("%q is %v", text, c)
		}
		at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		for range 3 {
			next := c.Next(at)
			if !next.After(at) {
				t.Fatalf("%q: after %s comes %s", text, at, next)
			}
			at = next
		}
	})
}
