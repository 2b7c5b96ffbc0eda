package engine

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A loop that does not come to the end of a round is stuck; one that waits for something to
// happen, or goes on request by request, is not, however long that takes.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{})
		d := newDirector(e)
		e.director.Store(d)
		for range 10 {
			d.pulse.work()
			e.timers.pulse.work()
			e.timers.pulse.rest()
			time.Sleep(directorLimit / 2)
			d.reader.beat()
		}
		d.pulse.rest()
		time.Sleep(24 * time.Hour)
		if err := e.Alive(); err != nil {
			t.Error(err)
		}
		d.pulse.work()
		e.timers.pulse.work()
		time.Sleep(directorLimit + time.Second)
		if err := e.Alive(); err == nil || strings.Count(err.Error(), "10m1s") != 2 {
			t.Error(err)
		}
	})
}
