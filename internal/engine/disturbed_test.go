package engine_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// CON-1: after an own write, older events are no reason to handle anything again.
func TestOwnWrites_CON1(t *testing.T) {
	tests := map[string]struct {
		disturb func(*world)
		end     time.Duration
	}{
		"echo before the answer": {func(w *world) {
			w.server.After(simulated.On{Verb: "patch"}, simulated.Always(simulated.Delay(2*time.Second)))
		}, 0},
		"echo after the answer": {func(w *world) { w.server.DelayWatches(2 * time.Second) }, 0},
		"both late": {func(w *world) {
			w.server.DelayWatches(2 * time.Second)
			w.server.After(simulated.On{Verb: "patch"}, simulated.Always(simulated.Delay(2*time.Second)))
		}, 0},
		"very late": {func(w *world) { w.server.DelayWatches(time.Minute) }, 0},
		// B13: somebody else writes all the time while the watch lags.
		"foreign writes": {func(w *world) {
			w.server.DelayWatches(time.Second)
			go func() {
				for i := range 100 {
					time.Sleep(100 * time.Millisecond)
					_, _ = w.widgets.Update(ns, "w1", annotation("foreign", fmt.Sprint(i)))
				}
			}()
		}, 15 * time.Second},
		"foreign status writes": {func(w *world) {
			w.server.DelayWatches(time.Second)
			go func() {
				for i := range 100 {
					time.Sleep(100 * time.Millisecond)
					_, _ = w.widgets.UpdateStatus(ns, "w1", func(o widgetObj) { set(o, fmt.Sprint(i), "status", "phase") })
				}
			}()
		}, 15 * time.Second},
		"foreign write right before each of ours": {func(w *world) {
			n := 0
			w.server.Before(simulated.On{Verb: "patch", Times: 8}, func(simulated.Request) *simulated.Fault {
				n++
				w.update("w1", annotation("foreign", fmt.Sprint(n)))
				return nil
			})
		}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("the object has been modified")
				w.start(func(h handlers) { h.create("create", nil); h.update("update", nil); h.delete("delete", nil) })
				test.disturb(w)
				w.mark()
				w.create("w1", 1)
				w.sleep(5 * time.Minute)
				creations, sizes := 0, 0
				for _, call := range w.called() {
					if strings.HasPrefix(call, "create") {
						creations++
					}
					if strings.HasPrefix(call, "update") && !strings.Contains(call, "1→1") {
						sizes++
					}
				}
				if creations != 1 || sizes != 0 {
					t.Error(w.called())
				}
				w.mark()
				w.resize("w1", 2)
				w.sleep(5 * time.Minute)
				if calls := w.called(); len(calls) != 1 || !strings.HasPrefix(calls[0], "update w1 #0 1→2") {
					t.Error(calls)
				}
				w.quiet(10 * time.Minute)
			})
		})
	}
}

// A write fails after the handler has run: its outcome is written later, and it is not
// called again. The bookkeeping of each kind of cycle is disturbed in each way.
func TestFailedWrites_CON7_PAT4_PAT5_T104(t *testing.T) {
	faults := map[string]func(w *world, on simulated.On){
		"answer lost": func(w *world, on simulated.On) { w.server.After(on, simulated.Always(simulated.Drop())) },
		"answers lost": func(w *world, on simulated.On) {
			on.Times = 3
			w.server.After(on, simulated.Always(simulated.Drop()))
		},
		"request lost": func(w *world, on simulated.On) { w.server.Before(on, simulated.Always(simulated.Drop())) },
		"no answer":    func(w *world, on simulated.On) { w.server.Before(on, simulated.Always(&simulated.Fault{Hang: true})) },
		"conflict":     func(w *world, on simulated.On) { w.server.Before(on, simulated.Always(simulated.Fail(409))) },
		"server error": func(w *world, on simulated.On) { w.server.Before(on, simulated.Always(simulated.Fail(500))) },
		"forbidden":    func(w *world, on simulated.On) { w.server.Before(on, simulated.Always(simulated.Fail(403))) },
		"invalid":      func(w *world, on simulated.On) { w.server.Before(on, simulated.Always(simulated.Fail(422))) },
		"throttled": func(w *world, on simulated.On) {
			w.server.Before(on, simulated.Always(&simulated.Fault{Code: 429, RetryAfter: 2 * time.Second}))
		},
		"failed after": func(w *world, on simulated.On) { w.server.After(on, simulated.Always(simulated.Fail(500))) },
		"foreign write": func(w *world, on simulated.On) {
			w.server.Before(on, func(simulated.Request) *simulated.Fault {
				w.update("w1", func(o widgetObj) {
					if o.GetDeletionTimestamp() == nil {
						o.SetFinalizers(append(o.GetFinalizers(), fmt.Sprintf("x/%d", len(o.GetFinalizers()))))
					} else {
						o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == "x/y" }))
					}
				})
				return nil
			})
		},
		"lost and changed": func(w *world, on simulated.On) { // somebody wrote after our lost write
			w.server.After(on, func(simulated.Request) *simulated.Fault {
				if w.widgets.Get(ns, "w1") != nil {
					w.update("w1", annotation("kopf.zalando.org/foreign-kopf-managed", "x"))
				}
				return simulated.Drop()
			})
		},
	}
	for fault, disturb := range faults {
		for _, resource := range []string{"widgets", "widgets/status"} {
			t.Run(fault+" on "+resource, func(t *testing.T) {
				scenario(t, func(w *world) {
					w.allow("handling failed, will be tried again")
					patch := func(_ context.Context, c *change) error {
						reason := string(c.Reason)
						c.Patch.Apply(func(w *widget) {
							w.Status.Phase = reason
							w.Finalizers = append(slices.DeleteFunc(w.Finalizers, func(f string) bool { return f == "x/"+reason }), "x/"+reason)
						})
						return nil
					}
					w.start(func(h handlers) {
						h.create("create", patch)
						h.update("update", patch)
						h.delete("delete", func(_ context.Context, c *change) error {
							c.Patch.Apply(func(w *widget) { w.Status.Phase = "delete" })
							return nil
						})
					})
					once := simulated.On{Verb: "patch", Resource: resource, Times: 1}
					skipped := once
					if resource == "widgets" {
						skipped.Skip = 1 // putting the finalizer on
					}
					w.mark()
					disturb(w, skipped)
					w.create("w1", 1, finalizedBy("x/y"))
					w.sleep(5 * time.Minute)
					w.expectAnyTime("create w1 #0 →1")
					if w.handledSize("w1") != 1 {
						t.Error("handled", w.handledSize("w1"))
					}
					w.noProgress2("w1")
					phase(w, "create")
					w.mark()
					disturb(w, once)
					w.resize("w1", 2)
					w.sleep(5 * time.Minute)
					w.expectAnyTime("update w1 #0 1→2")
					if w.handledSize("w1") != 2 {
						t.Error("handled", w.handledSize("w1"))
					}
					phase(w, "update")
					w.mark()
					disturb(w, once)
					w.delete("w1")
					w.sleep(5 * time.Minute)
					w.expectAnyTime("delete w1 #0 2→2")
					phase(w, "delete")
					if slices.Contains(w.get("w1").GetFinalizers(), finalizer) {
						t.Error("it is still held", w.get("w1").GetFinalizers())
					}
					w.quiet(10 * time.Minute)
				})
			})
		}
	}
}

func phase(w *world, want string) {
	w.Helper()
	if got, _, _ := unstructured.NestedString(w.get("w1").Object, "status", "phase"); got != want {
		w.Errorf("phase %q, want %q", got, want)
	}
}

// noProgress2 is noProgress, but for what a test put there.
func (w *world) noProgress2(name string) {
	w.Helper()
	for _, id := range []string{"create", "update", "delete"} {
		if w.record(name, id) != nil {
			w.Errorf("%s has a leftover: %s", name, id)
		}
	}
}

// A retrying handler's outcome can't be written: its delay counts all the same.
func TestFailedWriteOfRetry(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("handling failed, will be tried again")
		w.start(func(h handlers) {
			h.create("create", failing(kopf.Retry(10*time.Second, errFlop), kopf.Retry(time.Minute, errFlop)))
		})
		w.server.Before(simulated.On{Verb: "patch", Times: 3}, simulated.Always(simulated.Fail(500)))
		w.mark()
		w.create("w1", 1)
		w.sleep(3 * time.Minute)
		w.expect("create w1 #0 →1 +0s", "create w1 #1 →1 +10s", "create w1 #2 →1 +1m10s")
		w.noProgress("w1")
	})
}

// Edits arrive while the outcome of the handlers for the one before can't be written:
// they are updates, with what the handlers saw as the old state.
func TestEditWhileWritesFail(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("handling failed, will be tried again")
		w.start(handlers.all)
		w.create("w1", 1)
		w.settle()
		stop := w.server.Before(simulated.On{Verb: "patch"}, simulated.Always(simulated.Fail(500)))
		w.mark()
		w.resize("w1", 2)
		w.sleep(500 * time.Millisecond)
		w.resize("w1", 3)
		w.sleep(20 * time.Second)
		w.resize("w1", 4)
		stop()
		w.sleep(10 * time.Minute)
		w.expectAnyTime("update w1 #0 1→2", "update w1 #0 2→3", "update w1 #0 3→4")
		w.noProgress("w1")
		if w.handledSize("w1") != 4 {
			t.Error("handled", w.handledSize("w1"))
		}
	})
}

// The answer to the write that says that an edit is handled gets lost, and there is
// another edit by then.
func TestEditAndLostAnswer(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("handling failed, will be tried again")
		w.start(handlers.all)
		w.create("w1", 1)
		w.settle()
		w.server.After(simulated.On{Verb: "patch", Times: 1}, func(simulated.Request) *simulated.Fault {
			w.resize("w1", 3)
			return simulated.Drop()
		})
		w.mark()
		w.resize("w1", 2)
		w.sleep(10 * time.Minute)
		w.expectAnyTime("update w1 #0 1→2", "update w1 #0 2→3")
		w.writes("patch widgets 0", "patch widgets")
	})
}

// An edit is handled, that can't be written, and the edit is taken back meanwhile.
func TestRevertWhileWritesFail(t *testing.T) {
	for _, retry := range []bool{false, true} {
		scenario(t, func(w *world) {
			w.allow("handling failed, will be tried again")
			var errs []error
			if retry {
				errs = []error{nil, kopf.Retry(5*time.Second, nil), kopf.Retry(5*time.Second, nil)}
			}
			w.start(func(h handlers) {
				h.create("create", nil)
				h.update("update", failing(errs...))
			})
			w.create("w1", 1)
			w.settle()
			w.server.Before(simulated.On{Verb: "patch", Times: 3}, simulated.Always(simulated.Fail(500)))
			w.mark()
			w.resize("w1", 2)
			w.sleep(500 * time.Millisecond)
			w.resize("w1", 1)
			w.sleep(10 * time.Minute)
			if retry {
				w.expectAnyTime("update w1 #0 1→2", "update w1 #0 2→1", "update w1 #1 2→1", "update w1 #2 2→1")
			} else {
				w.expectAnyTime("update w1 #0 1→2", "update w1 #0 2→1")
			}
			w.noProgress("w1")
			if w.handledSize("w1") != 1 {
				t.Error("handled", w.handledSize("w1"))
			}
		})
	}
}

// A carried outcome survives what else there is to do first, such as a finalizer.
func TestFinalizerNeededWhileWritesFail(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("handling failed, will be tried again")
		w.start(func(h handlers) {
			h.create("create", func(_ context.Context, c *change) error {
				c.Patch.Apply(func(w *widget) { w.Status.Phase = "created" })
				return nil
			})
			h.delete("delete", nil, on.Label("held", "yes"))
		})
		w.server.Before(simulated.On{Verb: "patch", Times: 1}, simulated.Always(simulated.Fail(500)))
		w.mark()
		w.create("w1", 1)
		w.sleep(500 * time.Millisecond)
		w.update("w1", label("held", "yes"))
		w.sleep(10 * time.Minute)
		w.expectAnyTime("create w1 #0 →1")
		w.finalizers("w1", finalizer)
		phase(w, "created")
	})
}

// THR-1, X16: errors that are not a handler's back off per object and need no event to
// be tried again; other objects go on.
func TestErrorBackoff_THR1_THR3_T130_X16(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("handling failed, will be tried again")
		w.start(func(h handlers) { h.create("create", nil) })
		w.server.Before(simulated.On{Verb: "patch", Name: "bad", Times: 7}, simulated.Always(simulated.Fail(500)))
		w.mark()
		begun := time.Now()
		w.create("bad", 1)
		w.sleep(2 * time.Second)
		w.create("good", 1)
		w.settle()
		if w.handledSize("good") != 1 {
			t.Error("the good object has to wait")
		}
		w.sleep(5 * time.Minute)
		var pauses []time.Duration
		last := begun
		for _, r := range w.server.Requests(simulated.On{Verb: "patch", Name: "bad"}) {
			pauses = append(pauses, r.At.Sub(last)/time.Second)
			last = r.At
		}
		if want := []time.Duration{0, 1, 1, 2, 3, 5, 8, 13}; !slices.Equal(pauses, want) {
			t.Errorf("pauses %v, want %v", pauses, want)
		}
		if n := len(w.errorLogs("bad")); n != 7 {
			t.Error(n, "error logs")
		}
		w.expectAnyTime("create bad #0 →1", "create good #0 →1")
		if w.handledSize("bad") != 1 {
			t.Error("the bad object is not handled")
		}
	})
}

// THR-2: while an object backs off, its events wait; then the newest counts.
func TestEventsDuringErrorBackoff_THR2_T132(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("handling failed, will be tried again")
		w.settings.Queueing.ErrorDelays = []time.Duration{20 * time.Second}
		w.start(func(h handlers) {
			h.create("create", nil)
			h.delete("delete", nil)
		})
		w.server.Before(simulated.On{Verb: "patch", Times: 1}, simulated.Always(simulated.Fail(500)))
		w.mark()
		w.create("w1", 1)
		for size := range 5 {
			w.sleep(time.Second)
			w.resize("w1", size+2)
		}
		if n := len(w.server.Writes()); n != 1 {
			t.Error(n, "writes during the back-off")
		}
		w.sleep(time.Minute)
		w.expect("create w1 #0 →6 +20s")
	})
}

// B01, X17: the watch is interrupted and can't go on from where it was.
func TestExpiredVersion_WCH5_X17(t *testing.T) {
	for _, compact := range []bool{false, true} {
		scenario(t, func(w *world) {
			w.start(func(h handlers) { h.all(); h.events() })
			for _, name := range []string{"w1", "w2", "w3", "w4"} {
				w.create(name, 1)
			}
			w.settle()
			w.mark()
			refuse := w.server.Before(simulated.On{Verb: "watch"}, simulated.Always(simulated.Drop()))
			w.server.CutWatches()
			w.resize("w1", 2)
			w.update("w3", finalizedBy())
			w.delete("w3")
			w.delete("w4")
			w.create("w5", 1)
			if compact {
				w.server.Compact()
			}
			refuse()
			w.sleep(5 * time.Minute)
			counts := map[string]int{}
			for _, call := range w.called() {
				call, _, _ = strings.Cut(call, " +")
				counts[call]++
			}
			for _, want := range []string{"update w1 #0 1→2", "delete w4 #0 1→1", "create w5 #0 →1", "event w4 DELETED 1"} {
				if counts[want] != 1 {
					t.Errorf("%q happened %d times", want, counts[want])
				}
			}
			if counts["event w3 DELETED 0"]+counts["event w3 DELETED 1"] != 1 {
				t.Error("the deletion of w3 was missed")
			}
			for call := range counts {
				if strings.HasPrefix(call, "resume") || strings.HasPrefix(call, "event w2") || strings.HasPrefix(call, "delete w3") {
					t.Error("it happened:", call)
				}
			}
			w.gone("w4")
			if !compact {
				return
			}
			w.quiet(10 * time.Minute)
		})
	}
}

// B02: a connection over which nothing comes any more.
func TestHalfDeadWatch(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(handlers.all)
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.server.Mute()
		w.resize("w1", 2)
		w.sleep(10 * time.Minute)
		w.expectAnyTime("update w1 #0 1→2")
	})
}

// X26: an object whose record does not fit on it is an error that says so, and no
// other object's business.
func TestRecordDoesNotFit_X26(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("too large")
		w.start(func(h handlers) { h.create("create", nil); h.update("update", nil) })
		w.mark()
		w.create("big", 1, func(o widgetObj) { set(o, strings.Repeat("x", 262000), "metadata", "annotations", "note") })
		w.create("small", 1)
		w.sleep(time.Hour)
		if n := slices.Index(w.called(), "create small #0 →1 +0s"); n < 0 {
			t.Error(w.called())
		}
		calls := 0
		for _, call := range w.called() {
			if strings.HasPrefix(call, "create big") {
				calls++
			}
		}
		if calls != 1 {
			t.Errorf("%d calls for the big one", calls)
		}
		if len(w.errorLogs("262144")) == 0 {
			t.Error("no error says what is wrong")
		}
	})
}

// B04: an object that does not decode into the handlers' type.
func TestUndecodable(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("cannot be handled until it is changed", "event handler failed", "handler failed for good")
		bad := func(o widgetObj) { set(o, "large", "spec", "size") }
		w.create("bad", 1, bad)
		w.create("hopeless", 1, bad)
		w.create("good", 1)
		w.mark()
		w.start(func(h handlers) { h.all(); h.events() })
		w.sleep(time.Minute)
		w.expectSet("event good LISTED 1", "create good #0 →1", "event good MODIFIED 1", "event good MODIFIED 1")
		events := w.server.Events()
		warnings := 0
		for _, e := range events {
			if e.Type == "Warning" && e.InvolvedObject.Name == "bad" && e.InvolvedObject.UID == w.get("bad").GetUID() {
				warnings++
			}
		}
		if warnings != 1 {
			t.Errorf("%d warning events: %v", warnings, events)
		}
		w.mark()
		w.resize("bad", 3)
		w.settle()
		w.expectSet("event bad MODIFIED 3", "create bad #0 →3", "event bad MODIFIED 3")
		w.delete("hopeless")
		w.sleep(time.Minute)
		w.gone("hopeless")
	})
}

// An object becomes undecodable, and readable again.
func TestBecomesUndecodable(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("cannot be handled until it is changed")
		o := w.start(handlers.all)
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.update("w1", func(o widgetObj) { set(o, "large", "spec", "size") })
		w.sleep(time.Hour)
		if n := len(w.server.Events()); n != 1 {
			t.Error(n, "events")
		}
		w.writes()
		_ = o.stop()
		w.start(handlers.all)
		w.sleep(time.Minute)
		w.resize("w1", 2)
		w.settle()
		w.expectSet("resume w1 #0 1→2", "update w1 #0 1→2")
	})
}

// A panic in a filter is a failure for that object, and tried again.
func TestPanicInFilter_FLT5(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("handling failed, will be tried again")
		panics := 2
		w.start(func(h handlers) {
			h.create("create", nil, on.When(func(_ context.Context, s *kopf.Snapshot[*widget]) bool {
				if s.Object.Name == "bad" && panics > 0 {
					panics--
					panic("oops")
				}
				return true
			}))
		})
		w.mark()
		w.create("bad", 1)
		w.create("good", 1)
		w.sleep(time.Minute)
		w.expect("create good #0 →1 +0s", "create bad #0 →1 +2s")
	})
}

// PAT-6: a panic in a patch function is a failure of its handler, and takes nothing else
// down.
func TestPanicInPatch(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("panicked")
		w.start(func(h handlers) {
			h.create("create", func(_ context.Context, c *change) error {
				if c.Object.Name == "bad" {
					c.Patch.Apply(func(*widget) { panic("oops") })
				}
				return nil
			})
		})
		w.mark()
		w.create("bad", 1)
		w.create("good", 1)
		w.sleep(time.Minute)
		if w.handledSize("good") != 1 {
			t.Error("the good object is not handled")
		}
		if r := w.record("bad", "create"); r == nil || !strings.Contains(r.Message, "oops") || r.Retries != 2 {
			t.Errorf("%+v", r)
		}
		w.expectSet("create bad #0 →1", "create good #0 →1", "create bad #1 →1")
	})
}

// API-1, design §4: a missing permission is named, and is no storm of requests.
func TestForbidden(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("permission is missing")
		w.start(func(h handlers) { h.create("create", nil) })
		w.server.Before(simulated.On{Verb: "patch"}, simulated.Always(simulated.Fail(http.StatusForbidden)))
		w.mark()
		w.create("w1", 1)
		w.sleep(time.Minute)
		if len(w.errorLogs("verb patch on widgets")) == 0 {
			t.Error("no error names the permission")
		}
		if n := len(w.server.Writes()); n > 10 {
			t.Error(n, "writes in a minute")
		}
		w.expect("create w1 #0 →1 +0s")
	})
}

// A missing permission is said once, with the verb, the resource and the handlers that
// need it, and mended without a restart (design §4).
func TestListIsForbidden(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("permission is missing")
		var grants []func()
		for _, verb := range []string{"list", "watch"} {
			grants = append(grants, w.server.Before(simulated.On{Verb: verb}, simulated.Always(&simulated.Fault{Code: http.StatusForbidden})))
		}
		w.start(handlers.all)
		w.create("w1", 1)
		w.sleep(10 * time.Minute)
		w.expect()
		logs := w.errorLogs("permission is missing")
		if len(logs) == 0 || len(logs) > 2 {
			t.Fatalf("said %d times, once for a verb is right: %q", len(logs), logs)
		}
		for _, part := range []string{"verb=", "widgets", "create,update,delete,resume"} {
			if !strings.Contains(logs[0], part) {
				t.Errorf("%q does not name %s", logs[0], part)
			}
		}
		for _, grant := range grants {
			grant()
		}
		w.sleep(2 * time.Minute)
		w.expectAnyTime("create w1 #0 →1")
	})
}
