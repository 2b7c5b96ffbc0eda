package engine_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// attempts are the counters of a handler by outcome, as they are served.
func attempts(t *testing.T, handler string) map[string]int {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, family := range families {
		if family.GetName() != "kopf_handler_attempts_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["handler"] == handler && labels["kind"] == "widgets.demo.example" {
				counts[labels["outcome"]] = int(m.GetCounter().GetValue())
			}
		}
	}
	return counts
}

// Design §7: handlers are counted by kind, handler and outcome, sub-handlers as their
// parents.
func TestAttemptsAreCounted(t *testing.T) {
	id := fmt.Sprintf("counted-%d", time.Now().UnixNano())
	scenario(t, func(w *world) {
		w.allow("failed for good")
		w.start(func(h handlers) {
			flaky := failing(kopf.Retry(time.Second, nil), errFlop)
			h.create(id, func(_ context.Context, c *change) error {
				h.sub(c, "flaky", flaky, on.Errors(on.Ignored))
				h.sub(c, "bad", failing(kopf.Permanent(nil)))
				return nil
			})
		})
		w.create("w1", 1)
		w.sleep(time.Minute)
		want := map[string]int{"waiting": 1, "succeeded": 1, "retried": 1, "ignored": 1, "failed": 1}
		if got := attempts(t, id); !maps.Equal(got, want) {
			t.Error(got)
		}
	})
}
