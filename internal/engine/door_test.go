package engine_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// slow is a spec during whose decoding the lease runs out, as when the process is stopped in
// that moment, and goes on later.
type slow struct{ Size int }

var runsOut atomic.Pointer[atomic.Bool] // when it is decoded; nil: it does not

func (s *slow) UnmarshalJSON(raw []byte) error {
	if over := runsOut.Load(); over != nil {
		over.Store(true)
	}
	var plain struct{ Size int }
	err := json.Unmarshal(raw, &plain)
	s.Size = plain.Size
	return err
}

// B43: the clock is asked as the last thing before a handler is called, when its argument is
// made: what was asked before that may be long ago. Nothing counts as an attempt.
func TestTheClockIsAskedAtTheDoor_B43(t *testing.T) {
	type object = kopf.Resource[slow, widgetStatus]
	for name, register := range map[string]func(h handlers, called func(string)){
		"change": func(h handlers, called func(string)) {
			on.Create(func(context.Context, *kopf.Change[*object]) error {
				called("create")
				return nil
			}, on.ID("h"), on.In(h.r), forWidgets)
		},
		"field": func(h handlers, called func(string)) {
			on.FieldChange("spec", func(context.Context, *kopf.FieldChange[*object, slow]) error {
				called("field")
				return nil
			}, on.ID("h"), on.In(h.r), forWidgets)
		},
		"timer": func(h handlers, called func(string)) {
			on.Timer(func(context.Context, *kopf.Tick[*object]) error {
				called("tick")
				return nil
			}, on.ID("h"), on.In(h.r), forWidgets)
		},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				o := w.assemble(func(h handlers) { register(h, w.note) }, true)
				w.run(o)
				w.create("w1", 1)
				w.sleep(time.Second)
				var over atomic.Bool
				runsOut.Store(&over)
				defer runsOut.Store(nil)
				o.Lead(func() bool { return !over.Load() })
				w.sleep(time.Minute)
				w.expect()
				if !over.Load() {
					t.Error("the object was not decoded")
				}
				<-o.StepDown(kopf.ErrPaused)
				if n := len(w.server.Writes()); n != 0 {
					t.Errorf("%d writes", n)
				}
				runsOut.Store(nil)
				w.mark()
				o.Lead(nil)
				w.sleep(time.Minute)
				if n := len(w.called()); n != 1 {
					t.Errorf("%d calls by the next term", n)
				}
			})
		})
	}
}
