package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/kopf-go/kopf/on"
)

// OUT-6: the timeout counts from the first attempt's start. A handler
// behind a slow one does not fail without ever being called.
func TestTimeoutBehindSlowHandler_OUT6(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("long", sleeping(time.Hour))
			h.create("limited", nil, on.Timeout(time.Minute))
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(2 * time.Hour)
		w.expectAnyTime("long w1 #0 →1", "limited w1 #0 →1")
	})
}

// As with the last-handled state: a record of progress that is not readable must not hold
// an object for ever.
func TestSpoiltRecordsAndDeletion_DB6(t *testing.T) {
	for _, id := range []string{"create", "delete"} {
		t.Run(id, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("handling failed, will be tried again")
				o := w.start(handlers.all)
				w.create("w1", 1)
				w.settle()
				_ = o.stop()
				w.update("w1", annotation("kopf.zalando.org/"+id, "{spoilt"))
				w.delete("w1")
				w.mark()
				w.start(handlers.all)
				w.sleep(time.Hour)
				w.expectAnyTime("delete w1 #0 1→1")
				w.gone("w1")
			})
		})
	}
}

// RES-1, PAT-6, design §4: one result that does not encode, or one patch function that
// panics, is a failure of that handler, and everything else is written.
func TestWhatCannotBeComposedBlocksNothingElse(t *testing.T) {
	for name, spoil := range map[string]func(*change){
		"result": func(c *change) { c.SetResult(make(chan int)) },
		"patch":  func(c *change) { c.Patch.Apply(func(*widget) { panic("oops") }) },
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("")
				first := true
				w.start(func(h handlers) {
					h.create("create", func(_ context.Context, c *change) error {
						if first {
							spoil(c)
						}
						first = false
						return nil
					})
					h.update("update", nil)
				})
				w.create("w1", 1)
				w.sleep(time.Hour)
				w.resize("w1", 2)
				w.sleep(time.Hour)
				if n := w.handledSize("w1"); n != 2 {
					t.Errorf("handled is %d, with %d errors", n, len(w.errorLogs("")))
				}
			})
		})
	}
}
