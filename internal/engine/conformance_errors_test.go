package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
)

// A success between errors begins the pauses anew, be it the end of a change or not.
func TestErrorPausesBeginAnew_T130(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("handling failed, will be tried again")
		w.settings.Queueing.ErrorDelays = []time.Duration{time.Second, 10 * time.Second}
		w.start(func(h handlers) { h.create("create", failing(kopf.Retry(time.Hour, errFlop))); h.update("update", nil) })
		for _, step := range []struct {
			do   func()
			call string
		}{
			{func() { w.create("w1", 1) }, "create w1 #0 →1"},
			{func() { w.sleep(time.Hour - time.Minute) }, "create w1 #1 →1"}, // since the attempt a minute ago
			{func() { w.resize("w1", 2) }, "update w1 #0 1→2"},
		} {
			w.server.Before(simulated.On{Verb: "patch", Times: 3}, simulated.Always(simulated.Fail(500)))
			w.mark()
			step.do()
			w.sleep(time.Minute)
			var pauses []time.Duration
			writes := w.server.Writes()
			for i := range writes[1:] {
				pauses = append(pauses, writes[i+1].At.Sub(writes[i].At).Round(time.Second))
			}
			if want := []time.Duration{time.Second, 10 * time.Second, 10 * time.Second}; !slices.Equal(pauses, want) {
				t.Errorf("%s: pauses are %v", step.call, pauses)
			}
			w.expectAnyTime(step.call)
		}
	})
}

// The end of the operator is no error of an object: what is being written is written,
// and nothing is logged as an error, nor tried again.
func TestStopDuringWriteIsNoError_THR4_T133(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) { h.create("create", nil) }
		o := w.start(register)
		w.server.Before(simulated.On{Verb: "patch", Times: 1}, simulated.Always(simulated.Delay(3*time.Second)))
		w.mark()
		w.create("w1", 1)
		w.settle()
		if err := o.stop(); err != nil {
			t.Error(err)
		}
		if d := w.since(); d != 3*time.Second {
			t.Error("stopped after", d)
		}
		w.start(register)
		w.sleep(time.Hour)
		w.expectAnyTime("create w1 #0 →1")
		w.writes("patch widgets")
	})
}
