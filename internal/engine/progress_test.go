package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/internal/stream"
)

// Whether a change-set is through, and when its next attempt is due.
func TestProgressOfChangeSets(t *testing.T) {
	record := func(delay time.Duration, finished bool) func() state.Record {
		return func() state.Record { return state.Record{Delayed: time.Now().Add(delay), Success: finished} }
	}
	begun := func() state.Record { return state.Record{} }
	failed := func() state.Record { return state.Record{Failure: true} }
	for _, c := range []struct {
		name    string
		records []func() state.Record
		done    bool
		delay   time.Duration
	}{
		{"T068 nothing to do", nil, true, 0},
		{"T072 finished ones have no delay", []func() state.Record{record(time.Second, true), failed}, true, 0},
		{"T072 not begun", []func() state.Record{begun}, false, 0},
		{"T072 due in the past", []func() state.Record{record(-time.Minute, false)}, false, 0},
		{"T072 due now", []func() state.Record{record(0, false)}, false, 0},
		{"T072 due later", []func() state.Record{record(time.Minute, false)}, false, time.Minute},
		{"T072 the earliest counts", []func() state.Record{
			record(time.Second, true), record(time.Hour, false), record(time.Minute, false), failed}, false, time.Minute},
		{"T072 one is due", []func() state.Record{record(time.Hour, false), begun}, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var of cycle
				for _, record := range c.records {
					of.tasks = append(of.tasks, &task{handler: new(registry.Handler), record: record()})
				}
				done, delay := of.progress(of.tasks)
				// What is due at once has the shortest delay, for with none no cycle would follow.
				if done != c.done || delay.Truncate(time.Microsecond) != c.delay || (delay == 0) != done {
					t.Errorf("done %t, delay %s", done, delay)
				}
			})
		})
	}
}

// Pauses after errors: one after the other, then the last one again and again.
func TestErrorDelays_THR1_T130_T131(t *testing.T) {
	for _, c := range []struct {
		name   string
		delays []time.Duration
		want   []time.Duration
	}{
		{"two", []time.Duration{1, 5}, []time.Duration{1, 5, 5, 5}},
		{"one", []time.Duration{3}, []time.Duration{3, 3}},
		{"none stand for the default, not for silence", nil, []time.Duration{
			1 * time.Second, 1 * time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 8 * time.Second, 13 * time.Second,
			21 * time.Second, 34 * time.Second, 55 * time.Second, 89 * time.Second, 144 * time.Second, 233 * time.Second,
			377 * time.Second, 610 * time.Second, 610 * time.Second, 610 * time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Settings{ErrorDelays: c.delays}.WithDefaults()
			for i, want := range c.want {
				if got := s.errorDelay(i + 1); got != want {
					t.Errorf("after error %d: %s, want %s", i+1, got, want)
				}
			}
		})
	}
}

// The news that an object is gone is believed at once, whatever own write it should be
// held against: nobody waits for that write to be seen.
func TestNothingHoldsDeletionsUp_CON5_T112(t *testing.T) {
	for _, handlers := range [][]*registry.Handler{nil, {{Kind: registry.Create}}} {
		o := actor()
		k := o.kind
		k.changeHandlers = handlers
		k.objects, k.complaints = map[types.UID]*object{"u": o}, map[types.UID]string{}
		o.uid = "u"
		o.learn(version("10")) // an own write
		o.work = nil           // and nothing else is going on
		o.offer(stream.Event{Type: stream.Deleted, Body: version("7")})
		if len(k.objects) != 0 || len(handlers) > 0 && !o.gone {
			t.Errorf("%d change handlers: gone %t, %d objects are known", len(handlers), o.gone, len(k.objects))
		}
	}
}
