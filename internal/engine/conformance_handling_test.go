package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/on"
)

// written are the annotations in each write since the mark, by name, without the
// prefix and with null for those that are taken off.
func (w *world) written() (all []map[string]any) {
	w.Helper()
	for _, r := range w.server.Writes() {
		var patch struct {
			Metadata struct{ Annotations map[string]any }
		}
		if err := json.Unmarshal(r.Body, &patch); err != nil {
			w.Fatal(err)
		}
		short := map[string]any{}
		for name, value := range patch.Metadata.Annotations {
			short[strings.TrimPrefix(name, "kopf.zalando.org/")] = value
		}
		all = append(all, short)
	}
	return all
}

// keys are the names, sorted.
func keys(m map[string]any) string { return strings.Join(slices.Sorted(maps.Keys(m)), " ") }

// line finds the first line after another one that contains a text.
func line(lines []string, after int, text string) int {
	for i := after + 1; i < len(lines); i++ {
		if strings.Contains(lines[i], text) {
			return i
		}
	}
	return -1
}

// One handler, at once successful: it is called once, what is written is what counts
// as handled, and no progress. The log tells it in this order.
func TestOneQuickHandler_T082_PRG5(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) { h.create("create", nil); h.update("update", nil) })
		for _, step := range []struct {
			reason string
			do     func()
			call   string
		}{
			{"create", func() { w.create("w1", 1) }, "create w1 #0 →1"},
			{"update", func() { w.resize("w1", 2) }, "update w1 #0 1→2"},
		} {
			said := len(w.logsOf("w1"))
			w.mark()
			step.do()
			w.sleep(time.Minute)
			w.expectAnyTime(step.call)
			w.writes("patch widgets")
			names := "last-handled-configuration"
			if step.reason == "create" {
				names += " last-handled-uid"
			}
			if got := keys(w.written()[0]); got != names {
				t.Errorf("%s: written is %s", step.reason, got)
			}
			lines := w.logsOf("w1")[said:]
			begins := line(lines, -1, "change is being handled")
			ends := line(lines, begins, "handler succeeded")
			if begins < 0 || ends < 0 {
				t.Errorf("%s: logged is %q", step.reason, lines)
			}
		}
	})
}

// The diff is logged if there is one, and something that it leads from.
func TestDiffInLogs_T097(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.start(handlers.all)
		steps := []struct {
			name string
			do   func()
			diff bool
		}{
			{"creation", func() { w.create("w1", 1) }, false},
			{"update", func() { w.resize("w1", 2) }, true},
			{"resumption", func() { _ = o.stop(); w.start(handlers.all) }, false},
			{"deletion", func() { w.delete("w1") }, false},
		}
		for _, step := range steps {
			said := len(w.logsOf("w1"))
			step.do()
			w.settle()
			lines := w.logsOf("w1")[said:]
			i := line(lines, -1, "change is being handled")
			if i < 0 || strings.Contains(lines[i], "diff=") != step.diff {
				t.Errorf("%s: %q", step.name, lines)
			}
		}
	})
}

// A deletion is one request, which lets go of the object. What counts as handled is
// not written again: nobody is going to ask for it.
func TestDeletionIsOneRequest_T083_DB4(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) { h.create("create", nil); h.delete("delete", nil) })
		w.create("w1", 1, finalizedBy("x/y"))
		w.settle()
		w.mark()
		w.delete("w1")
		w.settle()
		w.resize("w1", 2) // while somebody else still holds it
		w.sleep(time.Minute)
		w.expectAnyTime("delete w1 #0 1→1")
		w.writes("patch widgets")
		w.finalizers("w1", "x/y")
		if got := w.written(); len(got[0]) > 0 || w.handledSize("w1") != 1 {
			t.Errorf("written is %v, handled %d", got, w.handledSize("w1"))
		}
	})
}

// Two create handlers, a finalizer and a retry: what is requested, from the first to
// the last write. Kopf needs two more writes, for it runs one handler in a cycle.
func TestRequestsOfCreation_X01_LIF4(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("c1", func(_ context.Context, c *change) error { c.SetResult(map[string]any{"a": 1}); return nil })
			h.create("c2", failing(kopf.Retry(time.Second, errFlop)))
			h.delete("d", nil)
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(time.Minute)
		w.expect("c1 w1 #0 →1 +0s", "c2 w1 #0 →1 +0s", "c2 w1 #1 →1 +1s")
		w.writes("patch widgets", "patch widgets/status", "patch widgets", "patch widgets")
		var got []string
		for _, annotations := range w.written() {
			got = append(got, keys(annotations))
		}
		want := []string{
			"",                             // the finalizer
			"",                             // the result
			"c1 c2 last-handled-uid seen-", // the progress, and what c1 has seen
			"c1 c2 last-handled-configuration seen-",
		}
		for i := range got {
			got[i] = regexp.MustCompile(`seen-[0-9a-f]+`).ReplaceAllString(got[i], "seen-")
		}
		if !slices.Equal(got, want) {
			t.Errorf("annotations are %q", got)
		}
		last := w.written()[3]
		if last["c1"] != nil || last["c2"] != nil {
			t.Error("progress is written at the end:", last)
		}
	})
}

// Only what differs is written: the record of the one that was tried again.
func TestOnlyChangedRecordsAreWritten_PRG4(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("quick", nil)
			h.create("seconds", failing(kopf.Retry(10*time.Second, errFlop), kopf.Retry(10*time.Second, errFlop)))
			h.create("hours", failing(kopf.Retry(time.Hour, errFlop)))
		})
		w.create("w1", 1)
		w.sleep(time.Second)
		w.mark()
		w.sleep(10 * time.Second)
		w.writes("patch widgets")
		if got := keys(w.written()[0]); got != "seconds" {
			t.Errorf("written is %s", got)
		}
	})
}

// stored makes an object with records on it, as another process has left them.
func stored(records map[string]state.Record) func(widgetObj) {
	return func(o widgetObj) {
		for id, r := range records {
			annotation("kopf.zalando.org/"+id, r.Encode())(o)
		}
	}
}

// Records decide only about the handlers that are selected; others, of handlers that
// are not for this change or are no more, hold nothing up and go in the end.
func TestRecordsOfOthers_PRG2_T069_T079(t *testing.T) {
	scenario(t, func(w *world) {
		now := time.Now()
		w.create("w1", 1, stored(map[string]state.Record{
			"selected":   {Started: now.Add(-time.Hour), Retries: 3, Purpose: "create"},
			"elsewhere":  {Started: now, Delayed: now.Add(time.Hour), Retries: 1, Purpose: "create"},
			"update":     {Started: now, Delayed: now.Add(time.Hour), Retries: 1, Purpose: "update"},
			"former":     {Started: now, Delayed: now.Add(time.Hour), Retries: 1, Purpose: "create"},
			"former.sub": {Started: now, Success: true, Retries: 1, Purpose: "create"},
			"parent":     {Started: now, Success: true, Retries: 1, Purpose: "create", Subrefs: []string{"parent/sub"}},
			"parent.sub": {Started: now, Success: true, Retries: 1, Purpose: "create"},
		}))
		w.mark()
		w.start(func(h handlers) {
			h.create("selected", nil)
			h.create("elsewhere", nil, on.Label("none", "such"))
			h.create("parent", nil)
			h.update("update", nil)
		})
		w.sleep(time.Minute)
		w.expectAnyTime("selected w1 #3 →1")
		w.noProgress("w1")
		w.writes("patch widgets")
	})
}

// Deletion begins while records of the creation say succeeded, failed and delayed: the
// delete handler alone decides when it is over.
func TestRecordsOfCreationAtDeletion_T077(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("handler failed for good")
		w.start(func(h handlers) {
			h.create("succeeded", nil)
			h.create("failed", failing(kopf.Permanent(errFlop)))
			h.create("delayed", failing(kopf.Retry(time.Hour, errFlop)))
			h.delete("delete", failing(kopf.Retry(5*time.Second, errFlop)))
		})
		w.create("w1", 1)
		w.settle()
		for id, want := range map[string][2]bool{"succeeded": {true, false}, "failed": {false, true}, "delayed": {false, false}} {
			if r := w.record("w1", id); r == nil || r.Success != want[0] || r.Failure != want[1] {
				t.Fatalf("%s: %+v", id, r)
			}
		}
		w.mark()
		w.delete("w1")
		w.sleep(time.Second)
		if r := w.record("w1", "delete"); r == nil || r.Purpose != "delete" || r.Retries != 1 {
			t.Errorf("record of the delete handler: %+v", r)
		}
		w.sleep(2 * time.Hour)
		w.expect("delete w1 #0 →1 +0s", "delete w1 #1 →1 +5s")
		w.gone("w1")
		w.writes("patch widgets", "patch widgets")
	})
}

// The time of the next attempt is kept without any write: not until it comes, however
// long it takes, and not for waking up.
func TestWaitingWritesNothing_T090_SLP2(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) { h.create("create", failing(kopf.Retry(26*time.Hour, errFlop))) })
		w.mark()
		w.create("w1", 1)
		w.sleep(26*time.Hour - time.Second)
		w.expect("create w1 #0 →1 +0s")
		w.writes("patch widgets")
		w.sleep(2 * time.Second)
		w.expect("create w1 #0 →1 +0s", "create w1 #1 →1 +26h0m0s")
		w.writes("patch widgets", "patch widgets")
		for _, annotations := range w.written() {
			if _, touched := annotations["touch-dummy"]; touched {
				t.Error("the object was touched")
			}
		}
	})
}

// An attempt whose time has come while nobody was there is made at once, with the right
// number.
func TestOverdueAttempt_T091(t *testing.T) {
	scenario(t, func(w *world) {
		now := time.Now()
		w.create("w1", 1, stored(map[string]state.Record{
			"due":     {Started: now.Add(-time.Hour), Delayed: now.Add(-time.Minute), Retries: 4, Purpose: "create", Message: "flop"},
			"not-yet": {Started: now.Add(-time.Hour), Delayed: now.Add(time.Minute), Retries: 2, Purpose: "create", Message: "flop"},
		}))
		w.mark()
		w.start(func(h handlers) { h.create("due", nil); h.create("not-yet", nil) })
		w.sleep(10 * time.Minute)
		w.expect("due w1 #4 →1 +0s", "not-yet w1 #2 →1 +1m0s")
		w.noProgress("w1")
	})
}

// Limits are looked at before an attempt, also those of a record from long ago.
func TestLimitsBeforeTheAttempt_T092_OUT1(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("handler failed for good")
		begun := time.Now().Add(-time.Hour)
		w.create("w1", 1, stored(map[string]state.Record{
			"late": {Started: begun, Retries: 1, Purpose: "create"},
			"many": {Started: begun, Retries: 3, Purpose: "create"},
			"fine": {Started: begun, Retries: 1, Purpose: "create"},
		}))
		w.mark()
		w.start(func(h handlers) {
			h.create("late", nil, on.Timeout(time.Minute))
			h.create("many", nil, on.Retries(3))
			h.create("fine", nil, on.Retries(3), on.Timeout(2*time.Hour))
		})
		w.sleep(time.Minute)
		w.expectAnyTime("fine w1 #1 →1")
		if n := len(w.errorLogs("handler failed for good")); n != 2 {
			t.Error(n, "failures are logged")
		}
		w.noProgress("w1")
		if w.handledSize("w1") != 1 {
			t.Error("not handled")
		}
	})
}

// A retry without a pause follows at once. Nothing but its outcome is written for it.
func TestRetryWithoutPause_T099_SLP3_OUT8(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) { h.create("create", failing(kopf.Retry(0, errFlop), kopf.Retry(0, errFlop))) })
		w.mark()
		w.create("w1", 1)
		w.sleep(time.Minute)
		w.expect("create w1 #0 →1 +0s", "create w1 #1 →1 +0s", "create w1 #2 →1 +0s")
		var got []string
		for _, annotations := range w.written() {
			got = append(got, keys(annotations))
		}
		if want := []string{"create last-handled-uid", "create", "create last-handled-configuration"}; !slices.Equal(got, want) {
			t.Errorf("written is %q", got)
		}
	})
}

// What a Python operator has woken itself with goes along with the next write, and is
// no reason for one.
func TestTouchOfPython_SLP1(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) { h.create("create", nil); h.update("update", nil) })
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.update("w1", annotation("kopf.zalando.org/touch-dummy", "2026-11-30T01:32:58"))
		w.sleep(time.Minute)
		w.writes()
		w.resize("w1", 2)
		w.sleep(time.Minute)
		w.expectAnyTime("update w1 #0 1→2")
		w.writes("patch widgets")
		if value, ok := w.written()[0]["touch-dummy"]; !ok || value != nil {
			t.Errorf("written is %v", w.written())
		}
		w.noProgress("w1")
	})
}

// Event handlers hear of everything, whatever else happens to the object. Their errors
// are logged, and nothing is written for them.
func TestEventHandlersHearEverything_T093_OUT3(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("event handler failed")
		w.create("w0", 5)
		w.mark()
		w.start(func(h handlers) {
			on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
				w.note(fmt.Sprintf("%s %s %d", e.Object.Name, e.Type, e.Object.Spec.Size))
				if e.Type == "DELETED" {
					panic("oops")
				}
				return errFlop
			}, on.ID("event"), on.In(h.r), forWidgets)
		})
		w.create("w1", 1, finalizedBy("x/y"))
		w.settle()
		w.resize("w1", 2)
		w.settle()
		w.touchStatus("w1", "x")
		w.settle()
		w.delete("w1")
		w.settle()
		w.update("w1", finalizedBy())
		w.sleep(10 * time.Minute)
		want := []string{"w0 LISTED 5", "w1 ADDED 1", "w1 MODIFIED 2", "w1 MODIFIED 2", "w1 MODIFIED 2", "w1 DELETED 2"}
		w.expect(want...)
		w.writes()
		if n := len(w.errorLogs("event handler failed")); n != len(want) {
			t.Error(n, "errors are logged")
		}
	})
}

// The value of on.Param comes to the handler, and nothing if there is none.
func TestParam_T094(t *testing.T) {
	scenario(t, func(w *world) {
		params := map[string]any{}
		keep := func(id string) changeFn {
			return func(_ context.Context, c *change) error { params[id] = c.Param; return nil }
		}
		w.start(func(h handlers) {
			h.create("with", keep("with"), on.Param(5))
			h.create("without", keep("without"))
			on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
				w.note(fmt.Sprint(e.Param))
				return nil
			}, on.ID("event"), on.In(h.r), forWidgets, on.Param("of the event"))
		})
		w.create("w1", 1)
		w.settle()
		if params["with"] != 5 || params["without"] != nil || len(params) != 2 {
			t.Error(params)
		}
		if !slices.Contains(w.called(), "of the event") {
			t.Error(w.called())
		}
	})
}

// When the state of an object begins to count as handled: when all handlers of a
// change are through, well or not, or if there are none for it; and only if it differs.
func TestWhatCountsAsHandled_DB1_DB3(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("handler failed for good")
		w.start(func(h handlers) {
			h.create("retried", failing(kopf.Retry(10*time.Second, errFlop)))
			h.update("fails", failing(kopf.Permanent(errFlop)), on.Field("spec.size"), on.New(2))
			h.update("rarely", nil, on.Field("spec.size"), on.New(99))
		})
		w.create("w1", 1)
		w.sleep(5 * time.Second)
		if n := w.handledSize("w1"); n != -1 {
			t.Error("handled before the last attempt:", n)
		}
		w.sleep(10 * time.Second)
		if n := w.handledSize("w1"); n != 1 {
			t.Error("handled after the last attempt:", n)
		}
		w.resize("w1", 2)
		w.settle()
		if n := w.handledSize("w1"); n != 2 {
			t.Error("handled after a failure for good:", n)
		}
		w.mark()
		w.resize("w1", 3)
		w.settle()
		if n := w.handledSize("w1"); n != 3 {
			t.Error("handled without handlers for it:", n)
		}
		w.expect()
		w.writes("patch widgets")
		w.mark()
		w.update("w1", func(o widgetObj) { o.SetOwnerReferences(nil); o.SetFinalizers([]string{"x/y"}) })
		w.sleep(time.Minute)
		w.writes()
	})
}

// Handlers of all kinds of changes may store results, under their full ids.
func TestResultsOfAllKinds_RES2(t *testing.T) {
	scenario(t, func(w *world) {
		result := func(text string) changeFn {
			return func(_ context.Context, c *change) error { c.SetResult(text); return nil }
		}
		register := func(h handlers) {
			h.create("create", result("created"))
			h.update("update", result("updated"), on.Field("spec.size"))
			h.delete("delete", result("deleted"))
			h.resume("resume", result("resumed"))
			on.FieldChange("spec.color", func(_ context.Context, c *kopf.FieldChange[*widget, string]) error {
				c.SetResult(c.New)
				return nil
			}, on.ID("color"), on.In(h.r), forWidgets)
		}
		o := w.start(register)
		w.create("w1", 1, finalizedBy("x/y"))
		w.settle()
		w.update("w1", func(o widgetObj) { set(o, "red", "spec", "color"); set(o, int64(2), "spec", "size") })
		w.settle()
		_ = o.stop()
		w.start(register)
		w.delete("w1")
		w.settle()
		got := fmt.Sprint(w.get("w1").Object["status"])
		want := "map[color/spec.color:red create:created delete:deleted resume:resumed update/spec.size:updated]"
		if got != want {
			t.Errorf("got %s", got)
		}
	})
}
