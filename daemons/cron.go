package daemons

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// crontab is a schedule in cron's syntax, in one time zone.
type crontab struct {
	times *cron.SpecSchedule
	zone  *time.Location
	text  string
}

// cronFields are those of a schedule, in their order.
var cronFields = []string{"minute", "hour", "day of month", "month", "day of week"}

// cronParser is for what Kubernetes' CronJobs take.
var cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// ParseCron reads a schedule as Kubernetes' CronJobs have it, by the same library: five
// fields such as "*/10 6-18 * * mon-fri", or one of @yearly, @monthly, @weekly, @daily
// and @hourly. The times are those of the process's time zone (TZ), unless the text
// begins with one, as in "CRON_TZ=Europe/Berlin 30 2 * * *"; a program whose image has
// no time zones imports time/tzdata. An error says which field is wrong, and there is
// one also for a schedule that never comes, such as 30 February, and for @every.
//
// In the night when clocks are set forward, times that are skipped do not happen. When
// they are set back, times that come twice happen twice, an hour apart; so what must
// happen once a day is better not scheduled between one and three in the morning.
// CronJobs do the same; but where clocks change at midnight, or by half an hour, they
// miss times that happen here. No moment happens twice. To ask for the next time costs
// some microseconds.
func ParseCron(text string) (Cron, error) {
	c, err := parseCron(strings.Fields(text))
	if err != nil {
		return nil, fmt.Errorf("cron schedule %q: %w", text, err)
	}
	c.text = text
	return c, nil
}

func parseCron(fields []string) (*crontab, error) {
	zone := time.Local
	if len(fields) > 0 {
		if variable, name, set := strings.Cut(fields[0], "="); set && (variable == "CRON_TZ" || variable == "TZ") {
			var err error
			if zone, err = time.LoadLocation(name); err != nil || name == "" {
				return nil, fmt.Errorf("time zone %q is not known here (the names are those of the IANA database; import time/tzdata if the system has none)", name)
			}
			fields = fields[1:]
		}
	}
	named := len(fields) > 0 && strings.HasPrefix(fields[0], "@")
	switch {
	case named && fields[0] == "@every":
		return nil, fmt.Errorf("@every is not a time of the calendar: use an interval")
	case named && len(fields) > 1:
		return nil, fmt.Errorf("nothing can follow %s", fields[0])
	case !named && len(fields) != len(cronFields):
		return nil, fmt.Errorf("there are %d fields, not %d: %s", len(fields), len(cronFields), strings.Join(cronFields, ", "))
	}
	parsed, err := cronParser.Parse(strings.Join(fields, " "))
	if err != nil {
		return nil, blame(fields, err)
	}
	times, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("%T is not a time of the calendar", parsed)
	}
	c := &crontab{times: times, zone: zone}
	// From any day, so that what is an error does not depend on a clock.
	if times.Minute == 0 || times.Hour == 0 || c.Next(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("it never comes, there is no such day or time")
	}
	return c, nil
}

// blame finds the field that an error is about, which the library does not say.
func blame(fields []string, err error) error {
	if len(fields) != len(cronFields) {
		return err
	}
	for i, field := range fields {
		alone := []string{"*", "*", "*", "*", "*"}
		alone[i] = field
		if _, err := cronParser.Parse(strings.Join(alone, " ")); err != nil {
			return fmt.Errorf("%s: %w", cronFields[i], err)
		}
	}
	return err
}

// farthest is how many years a schedule's next time can be away: 29 February.
const farthest = 9

// Next returns the first time after another one, in the schedule's time zone. It is not
// the library's, which counts in the hours of the clock, and errs where midnight or half
// an hour is left out. Here, real time goes by, in steps that leave out nothing.
func (c *crontab) Next(after time.Time) time.Time {
	t := after.In(c.zone)
	t = t.Add(time.Minute - time.Duration(t.Second())*time.Second - time.Duration(t.Nanosecond()))
	for end := t.AddDate(farthest, 0, 0); t.Before(end); {
		hour, minute, _ := t.Clock()
		switch {
		case !c.onDay(t): // to its last hours, whatever happens to the clock meanwhile
			t = t.Add(time.Duration(max(22-hour, 1))*time.Hour - time.Duration(minute)*time.Minute)
		case c.times.Hour>>hour&1 == 0:
			t = t.Add(time.Duration(60-minute) * time.Minute)
		case c.times.Minute>>minute&1 == 0:
			t = t.Add(time.Minute)
		default:
			return t
		}
	}
	return time.Time{}
}

// anyDay is in the library's set of days if it was written as a star.
const anyDay = 1 << 63

// onDay tells whether the schedule is for a day. If both kinds of days are given, one is
// enough, as ever in cron.
func (c *crontab) onDay(t time.Time) bool {
	_, month, day := t.Date()
	if c.times.Month>>month&1 == 0 {
		return false
	}
	ofMonth, ofWeek := c.times.Dom>>day&1 == 1, c.times.Dow>>t.Weekday()&1 == 1
	if (c.times.Dom|c.times.Dow)&anyDay != 0 {
		return ofMonth && ofWeek
	}
	return ofMonth || ofWeek
}

// String returns the schedule as it was written.
func (c *crontab) String() string { return c.text }
