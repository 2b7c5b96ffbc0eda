package engine_test

import (
	"errors"
	"testing"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// LOG-6, LOG-7: what is said of one cycle. Texts are always the same; what differs is in
// attributes: the object, the handler's id, the reason, the attempt.
func TestLinesOfACycle_LOG6_LOG7(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("good", nil)
			h.create("soon", failing(kopf.Retry(0, errFlop)))
			h.create("never", failing(kopf.Permanent(errors.New("no"))), on.Errors(on.Permanent))
		})
		w.allow("handler failed for good")
		w.create("w1", 1)
		w.settle()
		const of = " resource=widgets.demo.example object=default/w1 "
		w.expectLogged(1, "INFO", "handler succeeded"+of+"handler=good reason=create attempt=1")
		w.expectLogged(1, "WARN", "handler failed, will be tried again"+of+"handler=soon reason=create attempt=1 error=flop in=0s")
		w.expectLogged(1, "INFO", "handler succeeded"+of+"handler=soon reason=create attempt=2")
		w.expectLogged(1, "ERROR", "handler failed for good"+of+"handler=never reason=create attempt=1 error=no")
		w.expectLogged(2, "DEBUG", "change is being handled"+of+"reason=create")
	})
}
