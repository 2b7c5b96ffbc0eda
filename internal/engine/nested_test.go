package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/on"
)

// sub declares a sub-handler that notes its calls.
func (h handlers) sub(c *change, id string, fn changeFn, opts ...on.SubhandlerOption) {
	on.Subhandler(c, id, h.change("  "+id, fn), opts...)
}

// SUB-1, SUB-3, T095: sub-handlers of two levels run after their parent, depth first,
// in one cycle, and one request tells it all.
func TestNested_SUB1_SUB3_SUB8_HID3_T095(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("parent", func(_ context.Context, c *change) error {
				h.sub(c, "a", func(_ context.Context, c *change) error {
					h.sub(c, "x", nil)
					h.sub(c, "y", nil)
					c.SetResult("a is done")
					return nil
				})
				h.sub(c, "b", nil)
				c.SetResult("all done")
				return nil
			})
		})
		w.create("w1", 1)
		w.settle()
		w.expectAnyTime("parent w1 #0 →1", "  a w1 #0 →1", "  x w1 #0 →1", "  y w1 #0 →1", "  b w1 #0 →1")
		w.writes("patch widgets/status", "patch widgets")
		w.noProgress("w1")
		status, _ := w.get("w1").Object["status"].(map[string]any)
		if status["parent"] != "all done" || status["parent/a"] != "a is done" { // SUB-8
			t.Error(status)
		}
	})
}

// SUB-4, SUB-5, SUB-7: each sub-handler has retries of its own, and what has succeeded
// does not run again; the parent is called again to declare them.
func TestNestedRetries_SUB5_SUB7(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.start(nested(failing(kopf.Retry(time.Hour, nil))))
		w.create("w1", 1)
		w.settle()
		w.expectAnyTime("parent w1 #0 →1", "  a w1 #0 →1", "  b w1 #0 →1", "  c w1 #0 →1")
		w.writes("patch widgets")
		parent := w.record("w1", "parent")
		if parent == nil || parent.Finished() || parent.Message != "None" || parent.Retries != 1 ||
			!slices.Equal(parent.Subrefs, []string{"parent/a", "parent/b", "parent/c"}) {
			t.Fatalf("%+v", parent)
		}
		if b := w.record("w1", "parent.b"); b == nil || b.Finished() || b.Retries != 1 {
			t.Errorf("%+v", b)
		}
		if a := w.record("w1", "parent.a"); a == nil || !a.Success || a.Purpose != "create" {
			t.Errorf("%+v", a)
		}
		for name, restart := range map[string]func(){
			"running": func() {},
			"killed":  func() { o.kill(); o = w.start(nested(nil)) },
		} {
			w.mark()
			restart()
			w.quiet(10 * time.Minute)
			if calls := w.called(); len(calls) != 0 {
				t.Errorf("%s: %s", name, calls)
			}
		}
		w.mark()
		w.sleep(time.Hour)
		w.expectAnyTime("parent w1 #1 →1", "  b w1 #1 →1")
		w.noProgress("w1")
		if w.handledSize("w1") != 1 {
			t.Error("not handled")
		}
	})
}

// nested registers a parent of three, the second of which does what b does.
func nested(b changeFn, opts ...on.CreateOption) func(handlers) {
	return func(h handlers) {
		h.create("parent", func(_ context.Context, c *change) error {
			h.sub(c, "a", nil)
			h.sub(c, "b", b)
			h.sub(c, "c", nil)
			return nil
		}, opts...)
	}
}

// SUB-5: being called again for sub-handlers uses up no attempts of the parent, though
// they are counted.
func TestNestedPassesAreNoRetries_SUB5(t *testing.T) {
	scenario(t, func(w *world) {
		again := kopf.Retry(time.Second, nil)
		w.start(nested(failing(again, again, again), on.Retries(2)))
		w.create("w1", 1)
		w.sleep(10 * time.Second)
		if got := w.called(); !strings.HasPrefix(got[len(got)-1], "  b w1 #3") {
			t.Error(got)
		}
		w.noProgress("w1")
	})
}

// SUB-6: one that has failed for good is finished; the parent succeeds.
func TestNestedFailure_SUB6(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("failed for good")
		w.start(nested(failing(kopf.Permanent(errFlop))))
		w.create("w1", 1)
		w.settle()
		w.expectAnyTime("parent w1 #0 →1", "  a w1 #0 →1", "  b w1 #0 →1", "  c w1 #0 →1")
		w.quiet(time.Hour)
		w.noProgress("w1")
	})
}

// SUB-10: one that is not declared any more blocks nothing, and its record goes.
func TestNestedDisappears_SUB10(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("parent", func(_ context.Context, c *change) error {
				for i := range c.New.Spec.Size {
					h.sub(c, fmt.Sprint(i), failing(kopf.Retry(time.Minute, nil)))
				}
				return nil
			})
		})
		w.create("w1", 2)
		w.settle()
		w.resize("w1", 0)
		w.sleep(2 * time.Minute)
		if got := w.called(); len(got) != 4 || !strings.HasPrefix(got[3], "parent w1 #1 →0") {
			t.Error(got)
		}
		w.noProgress("w1")
	})
}

// SUB-2: explicit execution in the middle of the parent, which goes on with the
// outcome.
func TestExecute_SUB2(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("failed for good")
		w.start(func(h handlers) {
			flaky := failing(kopf.Retry(time.Second, nil))
			h.create("parent", func(ctx context.Context, c *change) error {
				on.Subhandlers(c, map[string]func(context.Context, *change) error{
					"b": h.change("  b", flaky),
					"a": h.change("  a", func(_ context.Context, c *change) error { c.SetResult(7); return nil }),
				}, on.Retries(5))
				h.sub(c, "c", failing(kopf.Permanent(errFlop)))
				outcomes, err := on.Execute(ctx, c)
				for _, o := range outcomes {
					w.note(fmt.Sprintf("  %s %t %v %v", o.ID, o.Finished, o.Err, o.Result))
				}
				if err != nil {
					return err
				}
				h.sub(c, "last", nil)
				return nil
			})
		})
		w.create("w1", 1)
		w.sleep(5 * time.Second)
		w.expectAnyTime(
			"parent w1 #0 →1", "  a w1 #0 →1", "  b w1 #0 →1", "  c w1 #0 →1",
			"  a true <nil> 7", "  b false not ready yet <nil>", "  c true flop <nil>",
			"parent w1 #1 →1", "  b w1 #1 →1",
			"  a true <nil> <nil>", "  b true <nil> <nil>", "  c true flop <nil>",
			"  last w1 #0 →1")
		w.noProgress("w1")
	})
}

// SUB-2: a parent that does not care for the outcome is not finished all the same.
func TestExecuteIgnored(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			b := failing(kopf.Retry(time.Second, nil))
			h.create("parent", func(ctx context.Context, c *change) error {
				h.sub(c, "b", b)
				_, _ = on.Execute(ctx, c)
				return nil
			})
		})
		w.create("w1", 1)
		w.sleep(5 * time.Second)
		w.expectAnyTime("parent w1 #0 →1", "  b w1 #0 →1", "parent w1 #1 →1", "  b w1 #1 →1")
	})
}

// SUB-4: filters of sub-handlers; of those of an update handler the field must have
// changed.
func TestNestedFilters_SUB4(t *testing.T) {
	scenario(t, func(w *world) {
		declare := func(h handlers) changeFn {
			return func(_ context.Context, c *change) error {
				h.sub(c, "size", nil, on.Field("spec.size"))
				h.sub(c, "color", nil, on.Field("spec.color"))
				h.sub(c, "gold", nil, on.Label("tier", "gold"))
				h.sub(c, "plain", nil, on.Label("tier", filters.Absent))
				h.sub(c, "when", nil, on.When(func(_ context.Context, s *kopf.Snapshot[*widget]) bool { return s.Object.Spec.Size > 1 }))
				return nil
			}
		}
		w.start(func(h handlers) {
			h.create("create", declare(h))
			h.update("update", declare(h))
		})
		w.create("w1", 1, func(o widgetObj) { set(o, "red", "spec", "color") })
		w.settle()
		w.expectAnyTime("create w1 #0 →1", "  size w1 #0 →1", "  color w1 #0 →1", "  plain w1 #0 →1")
		w.mark()
		w.resize("w1", 2)
		w.settle()
		w.expectAnyTime("update w1 #0 1→2", "  size w1 #0 1→2", "  plain w1 #0 1→2", "  when w1 #0 1→2")
		w.noProgress("w1")
	})
}

// FLT-2, T096: mistakes in sub-handlers are the parent's failure, with their place.
func TestNestedMistakes_T096(t *testing.T) {
	for name, c := range map[string]struct {
		declare func(handlers, *change)
		want    string
	}{
		"old in a create handler": {func(h handlers, c *change) {
			h.sub(c, "a", nil, on.Field("spec.size"), on.Old(1))
		}, "on.Old and on.New are for sub-handlers of update and field handlers"},
		"unknown field":  {func(h handlers, c *change) { h.sub(c, "a", nil, on.Field("spec.sise")) }, `did you mean "size"?`},
		"declared twice": {func(h handlers, c *change) { h.sub(c, "a", nil); h.sub(c, "a", nil) }, "declared twice"},
		"without an id":  {func(h handlers, c *change) { h.sub(c, "", nil) }, "its id is empty"},
		"without a function": {func(h handlers, c *change) {
			on.Subhandler[*widget](c, "a", nil)
		}, "it has no function"},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.start(func(h handlers) {
					h.create("parent", func(_ context.Context, x *change) error { c.declare(h, x); return nil })
				})
				w.create("w1", 1)
				w.settle()
				record := w.record("w1", "parent")
				if record == nil || !strings.Contains(record.Message, c.want) || !strings.Contains(record.Message, "nested_test.go:") {
					t.Errorf("%+v", record)
				}
				w.expectAnyTime("parent w1 #0 →1")
			})
		})
	}
}

// SUB-9: where no operator has called the handler, nothing is executed.
func TestExecuteOutside_SUB9(t *testing.T) {
	c := &change{}
	on.Subhandler(c, "a", func(context.Context, *change) error { return errors.New("executed") })
	if _, err := on.Execute(context.Background(), c); err == nil || strings.Contains(err.Error(), "executed") {
		t.Error(err)
	}
}

// PRG-7 for sub-handlers: one that is through is called again for what was changed
// before its siblings were.
func TestNestedLaterChange_PRG7(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			bad := failing(kopf.Retry(5*time.Second, nil), kopf.Retry(5*time.Second, nil))
			h.create("create", nil)
			h.update("parent", func(_ context.Context, c *change) error {
				h.sub(c, "good", nil)
				h.sub(c, "bad", bad)
				return nil
			})
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.resize("w1", 2)
		w.sleep(7 * time.Second)
		w.resize("w1", 3)
		w.sleep(time.Minute)
		w.expect("parent w1 #0 1→2 +0s", "  good w1 #0 1→2 +0s", "  bad w1 #0 1→2 +0s",
			"parent w1 #1 1→2 +5s", "  bad w1 #1 1→2 +5s",
			"parent w1 #2 1→3 +10s", "  good w1 #0 2→3 +10s", "  bad w1 #2 1→3 +10s")
		w.noProgress("w1")
		w.quiet(time.Hour)
	})
}

// SUB-4, OUT-1: a timeout of its own, counted from its own start, also ends its context.
func TestNestedTimeout_SUB4(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("failed for good")
		w.start(func(h handlers) {
			h.create("parent", func(_ context.Context, c *change) error {
				h.sub(c, "slow", sleeping(time.Hour), on.Timeout(time.Minute))
				h.sub(c, "quick", nil)
				return nil
			})
		})
		w.create("w1", 1)
		w.sleep(2 * time.Minute)
		w.expect("parent w1 #0 →1 +10ms", "  slow w1 #0 →1 +10ms", "  quick w1 #0 →1 +1m0.01s")
		w.noProgress("w1")
	})
}

// Design §3.6: sub-handlers that have finished are recorded while others still run, so
// that a crash does not repeat them.
func TestNestedCheckpoint(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) {
			h.create("parent", func(_ context.Context, c *change) error {
				h.sub(c, "quick", nil)
				h.sub(c, "slow", sleeping(time.Minute))
				return nil
			})
		}
		o := w.start(register)
		w.create("w1", 1)
		w.sleep(30 * time.Second)
		o.kill()
		w.mark()
		w.start(register)
		w.sleep(2 * time.Minute)
		w.expectAnyTime("parent w1 #0 →1", "  slow w1 #0 →1")
		w.noProgress("w1")
	})
}

// B19 for sub-handlers: a deletion replaces the creation with all of them.
func TestNestedSuperseded(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			nested(failing(kopf.Retry(time.Hour, nil)))(h)
			h.delete("parent", func(_ context.Context, c *change) error {
				h.sub(c, "a", nil)
				return nil
			})
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.delete("w1")
		w.settle()
		w.expectAnyTime("parent w1 #0 →1", "  a w1 #0 →1")
		w.gone("w1")
	})
}

// SUB-1: field handlers are parents, too, and their sub-handlers want changes of their
// fields.
func TestNestedInFieldHandler_SUB1(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("create", nil)
			on.FieldChange("spec", func(_ context.Context, c *kopf.FieldChange[*widget, widgetSpec]) error {
				on.Subhandler(c, "grown", h.change("grown", nil), on.Field("spec.size"), on.Old(1), on.New(filters.Not(1)))
				on.Subhandler(c, "shrunk", h.change("shrunk", nil), on.Field("spec.size"), on.New(1))
				on.Subhandler(c, "painted", h.change("painted", nil), on.Field("spec.color"))
				return nil
			}, on.ID("spec"), on.In(h.r), forWidgets)
		})
		w.create("w1", 1)
		w.settle()
		w.expectAnyTime("create w1 #0 →1", "shrunk w1 #0 →1")
		w.mark()
		w.resize("w1", 2)
		w.settle()
		w.expectAnyTime("grown w1 #0 1→2")
		w.noProgress("w1")
	})
}
