package engine_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// Design §4 "panics": a handler that ends its goroutine ends neither its object's lanes
// nor takes places from others.
func TestGoexit(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("runtime.Goexit")
		w.settings.Queueing.WorkerLimit = 1
		w.start(func(h handlers) {
			exits := 2
			h.create("create", func(context.Context, *change) error {
				if exits--; exits >= 0 {
					runtime.Goexit()
				}
				return nil
			})
			on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
				w.note("event " + e.Object.Name)
				if e.Type == kopf.EventAdded {
					runtime.Goexit()
				}
				return nil
			}, on.ID("event"), on.In(h.r), forWidgets)
		})
		w.create("w1", 1)
		w.sleep(time.Minute)
		w.expectSet("create w1 #0 →1", "create w1 #0 →1", "create w1 #0 →1", "event w1", "event w1")
		w.noProgress("w1")
		w.mark()
		w.create("w2", 1)
		w.settle()
		w.expectSet("create w2 #0 →1", "event w2", "event w2")
	})
}
