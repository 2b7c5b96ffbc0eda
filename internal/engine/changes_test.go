package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// Design §5: as few requests as possible.
func TestRequestsPerChange(t *testing.T) {
	status := func(_ context.Context, c *change) error {
		c.Patch.Apply(func(w *widget) { w.Status.Phase = "seen version " + c.Object.ResourceVersion })
		return nil
	}
	tests := map[string]struct {
		handlers                func(handlers)
		create, update, deleted []string
	}{
		"create and update": {
			func(h handlers) { h.create("create", nil); h.update("update", nil) },
			[]string{"patch widgets"}, []string{"patch widgets"}, nil,
		},
		"LIF-4 several handlers": {
			func(h handlers) {
				for _, id := range []string{"a", "b", "c"} {
					h.create(id, nil)
					h.update(id, nil)
				}
			},
			[]string{"patch widgets"}, []string{"patch widgets"}, nil,
		},
		"with a delete handler": {
			func(h handlers) { h.all() },
			[]string{"patch widgets", "patch widgets"}, []string{"patch widgets"}, []string{"patch widgets"},
		},
		"PAT-3 T103 with status": {
			func(h handlers) {
				h.create("create", status)
				h.update("update", status)
				h.delete("delete", nil)
			},
			[]string{"patch widgets", "patch widgets/status", "patch widgets"},
			[]string{"patch widgets/status", "patch widgets"},
			[]string{"patch widgets"},
		},
		"T086 only an update handler": {
			func(h handlers) { h.update("update", nil) },
			[]string{"patch widgets"}, []string{"patch widgets"}, nil,
		},
		"only a resume handler": { // it learns of nothing, but what is handled is known
			func(h handlers) { h.resume("resume", nil) },
			[]string{"patch widgets"}, []string{"patch widgets"}, nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				o := w.start(test.handlers)
				step := func(what string, writes []string, do func()) {
					w.Helper()
					w.mark()
					do()
					w.settle()
					w.Log(what)
					w.writes(writes...)
				}
				step("create", test.create, func() { w.create("w1", 1) })
				step("update", test.update, func() { w.resize("w1", 2) })
				step("update of a label", test.update, func() { w.update("w1", label("a", "b")) })
				step("foreign status", nil, func() { w.touchStatus("w1", "x") })
				step("foreign finalizer", nil, func() {
					w.update("w1", func(o widgetObj) { o.SetFinalizers(append(o.GetFinalizers(), "x/y")) })
				})
				step("and off", nil, func() {
					w.update("w1", func(o widgetObj) { o.SetFinalizers(o.GetFinalizers()[:len(o.GetFinalizers())-1]) })
				})
				step("quiet", nil, func() { time.Sleep(10 * time.Minute) })
				step("restart", nil, func() {
					if err := o.stop(); err != nil {
						w.Error(err)
					}
					w.start(test.handlers)
				})
				step("quiet", nil, func() { time.Sleep(10 * time.Minute) })
				step("delete", test.deleted, func() { w.delete("w1") })
				w.gone("w1")
				w.sleep(time.Minute)
			})
		})
	}
}

func TestLifeOfAnObject(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(handlers.all)
		w.mark()
		w.create("w1", 1)
		w.settle()
		w.expect("create w1 #0 →1 +0s")
		w.finalizers("w1", finalizer)
		if w.handledSize("w1") != 1 {
			t.Error("handled", w.handledSize("w1"))
		}
		w.noProgress("w1")
		w.mark()
		w.resize("w1", 2)
		w.settle()
		w.expect("update w1 #0 1→2 +0s")
		w.mark()
		w.delete("w1")
		w.settle()
		w.expect("delete w1 #0 2→2 +0s")
		w.gone("w1")
	})
}

// OUT-2: errors and what follows from them, on creation.
func TestOutcomes_OUT2_T089(t *testing.T) {
	permanent := kopf.Permanent(errFlop)
	tests := map[string]struct {
		fn    changeFn
		opts  []on.CreateOption
		calls []string
		error bool
	}{
		"retry": {
			fn:    failing(kopf.Retry(5*time.Second, errFlop), kopf.Retry(7*time.Second, nil)),
			calls: []string{"f w1 #0 →1 +0s", "f w1 #1 →1 +5s", "f w1 #2 →1 +12s"},
		},
		"default back-off": {
			fn:    failing(errFlop),
			calls: []string{"f w1 #0 →1 +0s", "f w1 #1 →1 +1m0s"},
		},
		"back-off": {
			fn: failing(errFlop, errFlop), opts: []on.CreateOption{on.Backoff(3 * time.Second)},
			calls: []string{"f w1 #0 →1 +0s", "f w1 #1 →1 +3s", "f w1 #2 →1 +6s"},
		},
		"no back-off": {
			fn: failing(errFlop, errFlop), opts: []on.CreateOption{on.Backoff(0)},
			calls: []string{"f w1 #0 →1 +0s", "f w1 #1 →1 +0s", "f w1 #2 →1 +0s"},
		},
		"retries": {
			fn: failing(errFlop, errFlop, errFlop), opts: []on.CreateOption{on.Retries(2), on.Backoff(time.Second)},
			calls: []string{"f w1 #0 →1 +0s", "f w1 #1 →1 +1s"}, error: true,
		},
		"no retries at all (OUT-4)": {
			opts: []on.CreateOption{on.Retries(0)}, error: true,
		},
		"timeout": { // the attempt at 10 s would be too late
			fn: failing(errFlop, errFlop, errFlop), opts: []on.CreateOption{on.Timeout(8 * time.Second), on.Backoff(5 * time.Second)},
			calls: []string{"f w1 #0 →1 +0s", "f w1 #1 →1 +5s"}, error: true,
		},
		"timeout in the middle (OUT-5)": {
			fn: func(ctx context.Context, _ *change) error {
				<-ctx.Done()
				return context.Cause(ctx)
			},
			opts:  []on.CreateOption{on.Timeout(8 * time.Second)},
			calls: []string{"f w1 #0 →1 +0s"}, error: true,
		},
		"permanent": {
			fn: failing(permanent, errFlop), calls: []string{"f w1 #0 →1 +0s"}, error: true,
		},
		"ignored": {
			fn: failing(errFlop, errFlop), opts: []on.CreateOption{on.Errors(on.Ignored)},
			calls: []string{"f w1 #0 →1 +0s"},
		},
		"errors are permanent": {
			fn: failing(errFlop, errFlop), opts: []on.CreateOption{on.Errors(on.Permanent)},
			calls: []string{"f w1 #0 →1 +0s"}, error: true,
		},
		"errors are permanent, but not a retry": {
			fn: failing(kopf.Retry(time.Second, errFlop)), opts: []on.CreateOption{on.Errors(on.Permanent)},
			calls: []string{"f w1 #0 →1 +0s", "f w1 #1 →1 +1s"},
		},
		"panic": {
			fn: func(_ context.Context, c *change) error {
				if c.Retry == 0 {
					panic("oops")
				}
				return nil
			},
			opts:  []on.CreateOption{on.Backoff(2 * time.Second), on.Errors(on.Ignored)},
			calls: []string{"f w1 #0 →1 +0s", "f w1 #1 →1 +2s"}, error: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.start(func(h handlers) { h.create("f", test.fn, test.opts...); h.update("u", nil) })
				if test.error {
					w.allow("handler failed for good", "handler panicked")
				}
				w.mark()
				w.create("w1", 1)
				w.sleep(10 * time.Minute)
				w.expect(test.calls...)
				w.noProgress("w1")
				if w.handledSize("w1") != 1 {
					t.Error("not handled")
				}
				if test.error && len(w.errorLogs("")) != 1 {
					t.Error("error logs:", len(w.errorLogs("")))
				}
				if n := max(1, len(test.calls)); len(w.server.Writes()) != n {
					t.Errorf("%d writes, want %d", len(w.server.Writes()), n)
				}
				w.mark()
				w.resize("w1", 2)
				w.settle()
				w.expect("u w1 #0 1→2 +0s")
			})
		})
	}
}

// PRG-1, PRG-3: what is on the object between attempts.
func TestProgressOnTheObject_PRG1_PRG3_OUT7(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("good", nil)
			h.create("bad", failing(kopf.Retry(10*time.Second, errFlop), kopf.Retry(20*time.Second, errFlop)))
		})
		begun := time.Now()
		w.create("w1", 1)
		w.sleep(15 * time.Second)
		bad, good := w.record("w1", "bad"), w.record("w1", "good")
		if bad == nil || good == nil {
			t.Fatal("no records", w.get("w1").GetAnnotations())
		}
		if bad.Retries != 2 || bad.Success || bad.Failure || bad.Message != "flop" || bad.Purpose != "create" ||
			!bad.Started.Equal(begun.UTC()) || !bad.Delayed.Equal(begun.Add(30*time.Second)) || !bad.Stopped.IsZero() {
			t.Errorf("%+v", bad)
		}
		if !good.Success || good.Retries != 1 || !good.Stopped.Equal(begun) || good.Message != "" {
			t.Errorf("%+v", good)
		}
		if w.handledSize("w1") != -1 {
			t.Error("handled too early")
		}
		w.sleep(time.Minute)
		w.noProgress("w1")
		w.writes("patch widgets", "patch widgets", "patch widgets")
	})
}

// X05, PRG-10, OUT-6: delays and counts survive the operator, be it killed or stopped.
func TestRestartBetweenAttempts_PRG10_SLP4_T070(t *testing.T) {
	for _, hard := range []bool{false, true} {
		scenario(t, func(w *world) {
			register := func(h handlers) {
				h.create("good", nil)
				h.create("bad", func(_ context.Context, c *change) error {
					if c.Retry < 2 {
						return kopf.Retry(time.Minute, errFlop)
					}
					if c.Runtime() < 2*time.Minute {
						return kopf.Permanent(errFlop)
					}
					return nil
				})
			}
			o := w.start(register)
			w.mark()
			w.create("w1", 1)
			w.sleep(20 * time.Second)
			if hard {
				o.kill()
			} else if err := o.stop(); err != nil {
				t.Error(err)
			}
			w.sleep(10 * time.Second)
			w.start(register)
			w.sleep(time.Minute)
			w.sleep(time.Minute)
			w.expect("good w1 #0 →1 +0s", "bad w1 #0 →1 +0s", "bad w1 #1 →1 +1m0s", "bad w1 #2 →1 +2m0s")
			w.noProgress("w1")
			w.writes("patch widgets", "patch widgets", "patch widgets")
		})
	}
}

// B10: a foreign write neither advances nor cancels an attempt.
func TestForeignWritesBetweenAttempts(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("f", func(_ context.Context, c *change) error {
				c.Patch.Apply(func(w *widget) { w.Status.Phase = "trying" })
				if c.Retry == 0 {
					return kopf.Retry(5*time.Second, errFlop)
				}
				return nil
			})
		})
		w.mark()
		w.create("w1", 1)
		for range 20 {
			w.sleep(400 * time.Millisecond)
			w.touchStatus("w1", time.Now().String())
		}
		w.expect("f w1 #0 →1 +0s", "f w1 #1 →1 +5s")
	})
}

// PRG-7 as decided in design §4 (B14, X02): whoever succeeded before a further change
// is told of it, and of nothing else.
func TestChangeDuringRetries_PRG7_X02(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("create", nil)
			h.update("quick", nil)
			h.update("slow", failing(kopf.Retry(5*time.Second, nil), kopf.Retry(5*time.Second, nil)))
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.resize("w1", 2)
		w.sleep(3 * time.Second)
		w.resize("w1", 3)
		w.sleep(time.Minute)
		calls := w.called()
		last := map[string]string{}
		for _, call := range calls {
			id, _, _ := strings.Cut(call, " ")
			last[id] = call
		}
		for id, call := range last {
			if !strings.Contains(call, "→3") {
				t.Errorf("%s has last seen: %s", id, call)
			}
		}
		if w.handledSize("w1") != 3 {
			t.Error("handled", w.handledSize("w1"))
		}
		if len(calls) > 5 {
			t.Error("too many calls")
		}
		w.noProgress("w1")
	})
}

// The same during a creation: what the finished handler has not seen is an update
// when all are through.
func TestChangeDuringRetriesOfCreation(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("quick", nil)
			h.create("slow", failing(kopf.Retry(5*time.Second, nil)))
			h.update("update", nil)
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(3 * time.Second)
		w.resize("w1", 2)
		w.sleep(time.Minute)
		w.expect("quick w1 #0 →1 +0s", "slow w1 #0 →1 +0s", "slow w1 #1 →2 +5s", "update w1 #0 1→2 +5s")
	})
}

// PRG-9: a creation that is modified stays a creation.
func TestChangeDuringRetryingCreation_PRG9(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("create", failing(kopf.Retry(5*time.Second, nil)))
			h.update("update", nil)
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(time.Second)
		w.resize("w1", 2)
		w.sleep(time.Minute)
		w.expect("create w1 #0 →1 +0s", "create w1 #1 →2 +5s")
		if w.handledSize("w1") != 2 {
			t.Error("handled", w.handledSize("w1"))
		}
	})
}

// X03, PRG-8 as decided: a change that is taken back leaves nothing behind. Who has
// handled it is told, and the next change begins anew.
func TestRevertDuringRetries_PRG8_X03(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("create", nil)
			h.update("good", nil)
			h.update("bad", failing(kopf.Retry(time.Minute, nil)))
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.resize("w1", 2)
		w.sleep(3 * time.Second)
		w.resize("w1", 1)
		w.settle()
		w.noProgress("w1")
		w.sleep(5 * time.Minute)
		w.expect("good w1 #0 1→2 +0s", "bad w1 #0 1→2 +0s", "good w1 #0 2→1 +3s")
		w.mark()
		w.resize("w1", 4)
		w.settle()
		w.expect("good w1 #0 1→4 +0s", "bad w1 #0 1→4 +0s")
	})
}

// B19, X04, HID-6: deletion replaces a retrying creation, also under the same id.
func TestDeletionDuringRetryingCreation_HID6_X04(t *testing.T) {
	for name, ids := range map[string][3]string{
		"different ids":           {"good", "bad", "del"},
		"id of the failing one":   {"good", "bad", "bad"},
		"id of the finished one":  {"good", "bad", "good"},
		"id of neither, in order": {"b", "a", "c"},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.start(func(h handlers) {
					h.create(ids[0], nil)
					h.create(ids[1], func(context.Context, *change) error { return kopf.Retry(time.Minute, errFlop) })
					h.delete(ids[2], nil)
				})
				w.create("w1", 1)
				w.sleep(10 * time.Second)
				w.mark()
				w.delete("w1")
				w.sleep(5 * time.Minute)
				w.expect(ids[2] + " w1 #0 →1 +0s")
				w.gone("w1")
				w.writes("patch widgets")
			})
		})
	}
}

// Records of an update are not taken for those of the deletion, nor the other way.
func TestDeletionDuringRetryingUpdate_PRG9(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("f", nil)
			h.update("f", func(context.Context, *change) error { return kopf.Retry(time.Minute, errFlop) })
			h.delete("f", failing(kopf.Retry(5*time.Second, nil)))
		})
		w.create("w1", 1)
		w.settle()
		w.resize("w1", 2)
		w.sleep(time.Second)
		w.mark()
		w.delete("w1")
		w.sleep(5 * time.Minute)
		w.expect("f w1 #0 1→2 +0s", "f w1 #1 1→2 +5s")
		w.gone("w1")
	})
}

// WCH-6: what was edited while the operator was down arrives as one update.
func TestEditsWhileDown(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.start(handlers.all)
		w.create("w1", 1)
		w.create("w2", 1)
		w.settle()
		if err := o.stop(); err != nil {
			t.Error(err)
		}
		for size := range 4 {
			w.resize("w1", 2+size)
			w.sleep(time.Second)
		}
		w.create("w3", 7)
		w.mark()
		w.start(handlers.all)
		w.sleep(time.Minute)
		got := map[string]bool{}
		for _, call := range w.called() {
			got[call] = true
		}
		for _, want := range []string{
			"update w1 #0 1→5 +0s", "resume w1 #0 1→5 +0s", // CHG-5
			"resume w2 #0 1→1 +0s", "create w3 #0 →7 +0s",
		} {
			if !got[want] {
				t.Error("missing:", want)
			}
		}
		if len(got) != 4 || len(w.called()) != 4 {
			t.Error(w.called())
		}
	})
}

// Changes made while a handler runs lead to one more update, with what it saw as old.
func TestChangesWhileHandlerRuns(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("create", func(context.Context, *change) error { time.Sleep(10 * time.Second); return nil })
			h.update("update", func(context.Context, *change) error { time.Sleep(10 * time.Second); return nil })
		})
		w.mark()
		w.create("w1", 1)
		for size := range 3 {
			w.sleep(time.Second)
			w.resize("w1", 2+size)
		}
		w.sleep(12 * time.Second)
		for size := range 3 {
			w.sleep(time.Second)
			w.resize("w1", 5+size)
		}
		w.sleep(time.Minute)
		w.expect("create w1 #0 →1 +0s", "update w1 #0 1→4 +10s", "update w1 #0 4→7 +20s")
		w.writes("patch widgets", "patch widgets", "patch widgets")
		if w.handledSize("w1") != 7 {
			t.Error("handled", w.handledSize("w1"))
		}
	})
}

// DB-2, X11: a handler's own change of the spec is one more update.
func TestOwnEditOfSpec_DB2_X11(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			edit := func(_ context.Context, c *change) error {
				c.Patch.Apply(func(w *widget) { w.Spec.Color = "red" })
				return nil
			}
			h.create("create", edit)
			h.update("update", edit)
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(time.Minute)
		w.expect("create w1 #0 →1 +0s", "update w1 #0 1→1 +0s")
		w.writes("patch widgets", "patch widgets")
	})
}

// Records of handlers that are no more are taken off with the next write.
func TestStaleRecords_HID4(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.start(func(h handlers) {
			h.create("old", func(context.Context, *change) error { return kopf.Retry(time.Hour, errFlop) })
		})
		w.create("w1", 1)
		w.settle()
		_ = o.stop()
		w.mark()
		w.start(func(h handlers) { h.create("new", nil) })
		w.expect("new w1 #0 →1 +0s")
		w.noProgress("w1")
		w.writes("patch widgets")
	})
}

// B23: annotations that came along with an exported manifest count for nothing.
func TestCopiedAnnotations(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(handlers.all)
		w.create("w1", 1)
		w.settle()
		export := w.get("w1")
		w.delete("w1")
		w.settle()
		w.gone("w1")
		w.mark()
		if _, err := w.widgets.Create(export); err != nil {
			t.Fatal(err)
		}
		export.SetName("w2")
		if _, err := w.widgets.Create(export); err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Minute)
		if calls := w.called(); len(calls) != 2 || !strings.HasPrefix(calls[0], "create") || !strings.HasPrefix(calls[1], "create") {
			t.Error(calls)
		}
		w.quiet(10 * time.Minute)
	})
}

// B17: status is not essential, unless a handler says so (ESS-5, EXF).
func TestStatusIsNoChange_ESS5(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.update("update", func(_ context.Context, c *change) error {
				c.Patch.Apply(func(w *widget) { w.Status.Phase = time.Now().String() })
				return nil
			})
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.resize("w1", 2)
		w.settle()
		for range 20 {
			w.sleep(time.Second)
			w.touchStatus("w1", time.Now().String())
		}
		w.sleep(time.Minute)
		w.expect("update w1 #0 1→2 +0s")
	})
}

// A field handler that watches the status.
func TestFieldOfStatus(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("create", nil)
			on.FieldChange("status.phase", func(_ context.Context, c *kopf.FieldChange[*widget, string]) error {
				w.note(c.Object.Name + " " + c.Old + "→" + c.New)
				return nil
			}, on.ID("phase"), on.In(h.r), forWidgets)
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.touchStatus("w1", "a")
		w.settle()
		w.touchStatus("w1", "b")
		w.settle()
		w.resize("w1", 2)
		w.settle()
		w.expect("w1 →a", "w1 a→b")
	})
}

// X21: a schema that does not keep the status is a warning, not a loop.
func TestPrunedStatus_RES3_VER1_T107_X21(t *testing.T) {
	scenario(t, func(w *world) {
		w.server.Serve(simulated.Kind{
			GroupVersion: "demo.example/v1", Kind: "Widget", Plural: "widgets", Namespaced: true, Status: true, Keeps: []string{"spec"},
		})
		w.start(func(h handlers) {
			h.create("create", func(_ context.Context, c *change) error {
				c.SetResult(map[string]any{"a": 1})
				c.Patch.Apply(func(w *widget) { w.Status.Phase = "x" })
				return nil
			})
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(time.Hour)
		w.expect("create w1 #0 →1 +0s")
		w.writes("patch widgets/status", "patch widgets")
		warnings := 0
		for _, line := range w.logs {
			if strings.Contains(line, "WARN") && strings.Contains(line, "schema") {
				warnings++
			}
		}
		if warnings != 1 {
			t.Error(warnings, "warnings")
		}
	})
}

// RES-1: results go into the status, of the handlers that have succeeded.
func TestResults_RES1(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("good", func(_ context.Context, c *change) error { c.SetResult(map[string]any{"a": 1}); return nil })
			h.create("bad", func(_ context.Context, c *change) error {
				c.SetResult(c.Retry)
				if c.Retry == 0 {
					return kopf.Retry(time.Second, nil)
				}
				return nil
			})
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(time.Minute)
		if got := fmt.Sprint(w.get("w1").Object["status"]); got != "map[bad:1 good:map[a:1]]" {
			t.Error(got)
		}
		w.writes("patch widgets/status", "patch widgets", "patch widgets/status", "patch widgets")
	})
}

// X14, CHG-6: field handlers on creation, with and without the field, and on deletion.
func TestFieldHandlers_CHG6_X14(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			on.FieldChange("spec.color", func(_ context.Context, c *kopf.FieldChange[*widget, string]) error {
				w.note(fmt.Sprintf("%s %s %q→%q", c.Reason, c.Object.Name, c.Old, c.New))
				return nil
			}, on.ID("color"), on.In(h.r), forWidgets)
			h.delete("delete", func(context.Context, *change) error { return nil })
		})
		paint := func(color string) func(widgetObj) {
			return func(o widgetObj) { set(o, color, "spec", "color") }
		}
		w.create("without", 1)
		w.create("with", 1, paint("red"))
		w.settle()
		w.expect("create with \"\"→\"red\"")
		w.mark()
		w.resize("with", 2)
		w.settle()
		w.update("with", paint("blue"))
		w.settle()
		w.update("without", paint("green"))
		w.settle()
		w.expect("update with \"red\"→\"blue\"", "update without \"\"→\"green\"")
		w.mark()
		w.delete("with")
		w.settle()
		w.expectAnyTime("delete with #0 2→2")
	})
}

// B28: large integers pass unharmed, and are no differences.
func TestLargeIntegers(t *testing.T) {
	scenario(t, func(w *world) {
		large := func(n int64) func(widgetObj) { return func(o widgetObj) { set(o, n, "spec", "id") } }
		w.start(func(h handlers) {
			edit := func(_ context.Context, c *change) error {
				c.Patch.Apply(func(w *widget) { w.Spec.Color = "red" })
				return nil
			}
			h.create("create", edit)
			h.update("update", edit)
		})
		w.create("w1", 1, large(9007199254740993))
		w.sleep(time.Minute)
		w.mark()
		w.update("w1", large(9007199254740992))
		w.sleep(time.Minute)
		w.expectAnyTime("update w1 #0 1→1")
		if id := w.get("w1").Object["spec"].(map[string]any)["id"]; id != int64(9007199254740992) {
			t.Error(id)
		}
	})
}

// B16: two operators of different names on the same objects.
func TestTwoOperators(t *testing.T) {
	scenario(t, func(w *world) {
		for _, name := range []string{"op-a", "op-b"} {
			w.startAs(name, func(h handlers) {
				h.create(name+"-create", nil)
				h.update(name+"-update", nil)
				h.delete(name+"-delete", nil)
			})
		}
		w.mark()
		w.create("w1", 1)
		w.sleep(time.Minute)
		w.resize("w1", 2)
		w.sleep(time.Minute)
		w.expectSet("op-a-create w1 #0 →1", "op-b-create w1 #0 →1", "op-a-update w1 #0 1→2", "op-b-update w1 #0 1→2")
		applied := 0
		for _, r := range w.server.Writes() {
			if r.Code == 200 {
				applied++
			}
		}
		if applied > 6 {
			t.Error(applied, "writes")
		}
		w.quiet(10 * time.Minute)
		w.mark()
		w.delete("w1")
		w.sleep(time.Minute)
		w.expectSet("op-a-delete w1 #0 2→2", "op-b-delete w1 #0 2→2")
		w.gone("w1")
	})
}

// Fault-free bursts of objects, with more of them than cycles at a time.
func TestMoreObjectsThanCycles(t *testing.T) {
	scenario(t, func(w *world) {
		w.settings.Queueing.WorkerLimit = 2
		w.start(func(h handlers) {
			h.create("create", func(context.Context, *change) error { time.Sleep(time.Second); return nil })
			h.update("update", nil)
			h.delete("delete", nil)
		})
		w.server.After(simulated.On{Verb: "patch"}, simulated.Always(simulated.Delay(10*time.Millisecond)))
		w.mark()
		names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
		for _, name := range names {
			w.create(name, 1)
		}
		w.sleep(5 * time.Second)
		if n := len(w.called()); n != len(names) {
			t.Error(n, "calls")
		}
		for _, name := range names {
			if w.handledSize(name) != 1 {
				t.Error(name, "is not handled")
			}
			w.delete(name)
		}
		w.sleep(5 * time.Second)
		for _, name := range names {
			w.gone(name)
		}
	})
}
