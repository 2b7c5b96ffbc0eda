package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/settings"
)

// LIF-1, LIF-4, T088: what a lifecycle picks runs in a cycle of its own, with a write
// after it; all selected handlers have a record from the first one on.
func TestLifecycles_LIF4_T088(t *testing.T) {
	for name, c := range map[string]struct {
		lifecycle settings.Lifecycle
		writes    int
		calls     string
	}{
		"default":     {nil, 2, "a b c b"},
		"all at once": {settings.AllAtOnce, 2, "a b c b"},
		"one by one":  {settings.OneByOne, 4, "a b c b"},
		"asap":        {settings.ASAP, 4, "a b c b"},
		"shuffled":    {settings.Shuffled, 2, ""},
		"randomized":  {settings.Randomized, 4, ""},
		"last first":  {func(due []settings.Due) []settings.Due { return due[len(due)-1:] }, 4, "c b a b"},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.settings.Execution.Lifecycle = c.lifecycle
				w.start(func(h handlers) {
					h.create("a", nil)
					h.create("b", failing(kopf.Retry(time.Second, nil)))
					h.create("c", nil)
				})
				w.create("w1", 1)
				w.sleep(time.Minute)
				var ids []string
				for _, call := range w.called() {
					ids = append(ids, call[:1])
				}
				if got := strings.Join(ids, " "); c.calls != "" && got != c.calls || len(ids) != 4 {
					t.Errorf("called %s, want %s", got, c.calls)
				}
				if n := len(w.server.Writes()); n != c.writes {
					t.Errorf("%d writes, want %d", n, c.writes)
				}
				w.noProgress("w1")
				w.quiet(time.Hour)
			})
		})
	}
}

// LIF-4: one that waits for its turn has a record without attempts, as in B.3.4.
func TestLifecycleRecords_LIF4(t *testing.T) {
	scenario(t, func(w *world) {
		w.settings.Execution.Lifecycle = settings.OneByOne
		w.start(func(h handlers) {
			h.create("a", failing(kopf.Retry(time.Hour, nil)))
			h.create("b", sleeping(time.Minute))
		})
		w.create("w1", 1)
		w.settle()
		if r := w.record("w1", "b"); r == nil || r.Retries != 0 || r.Started.IsZero() || r.Finished() || r.Purpose != "create" {
			t.Errorf("%+v", r)
		}
	})
}

// LIF-1: a lifecycle that picks nobody is asked again later, without writes meanwhile.
func TestLifecyclePicksNobody(t *testing.T) {
	scenario(t, func(w *world) {
		asked := 0
		w.settings.Execution.Lifecycle = func(due []settings.Due) []settings.Due {
			if asked++; asked <= 3 {
				return nil
			}
			return due
		}
		w.start(func(h handlers) { h.create("a", nil) })
		w.create("w1", 1)
		w.sleep(10 * time.Minute)
		w.expect("a w1 #0 →1 +2m0.01s") // the second time after its own write
		w.writes("patch widgets", "patch widgets")
	})
}

// LIF-3, SUB-4: sub-handlers have the lifecycle of their parents.
func TestLifecycleOfSubhandlers_LIF3_SUB4(t *testing.T) {
	scenario(t, func(w *world) {
		w.settings.Execution.Lifecycle = settings.ASAP
		w.start(func(h handlers) {
			h.create("parent", func(_ context.Context, c *change) error {
				h.sub(c, "a", nil)
				h.sub(c, "b", nil)
				return nil
			})
		})
		w.create("w1", 1)
		w.settle()
		w.expectAnyTime("parent w1 #0 →1", "  a w1 #0 →1", "parent w1 #1 →1", "  b w1 #0 →1")
		w.writes("patch widgets", "patch widgets")
	})
}
