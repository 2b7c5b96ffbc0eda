package engine_test

import (
	"context"

	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// space makes a namespace, or labels it anew: "on=yes".
func (w *world) space(name string, labels ...string) {
	w.Helper()
	having := map[string]string{}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		having[key] = value
	}
	spaces := w.server.Collection("v1", "namespaces")
	if spaces.Get("", name) == nil {
		if _, err := spaces.Create(simulated.Object("", name, nil)); err != nil {
			w.Fatal(err)
		}
	}
	if _, err := spaces.Update("", name, func(o widgetObj) { o.SetLabels(having) }); err != nil {
		w.Fatal(err)
	}
}

// lists counts the requests that list widgets, beside those of streams.
func (w *world) lists() (n int) {
	for _, r := range w.server.Requests(simulated.On{Verb: "list", Resource: "widgets"}) {
		if strings.Contains(r.Query, "limit=500") && !strings.Contains(r.Query, "resourceVersion") {
			n++
		}
	}
	return n
}

// B50: a namespace begins to match, stops to match and matches again.
func TestLabelledNamespace_B50(t *testing.T) {
	scenario(t, func(w *world) {
		w.create("w2", 1)
		w.start(handlers.all).stop() // w2 was handled earlier
		w.create("w1", 1)
		w.selector = "on=yes"
		w.start(handlers.all)
		idle := w.server.Watches()
		w.mark()
		w.quiet(time.Minute)
		w.expect()
		w.space(ns, "on=yes")
		w.settle()
		w.expectSet("create w1 #0 →1", "resume w2 #0 1→1")
		w.mark()
		w.resize("w1", 2)
		w.settle()
		w.expectAnyTime("update w1 #0 1→2")
		w.mark()
		w.space(ns)
		w.settle()
		w.resize("w1", 3)
		w.quiet(time.Minute)
		w.expect()
		w.writes("patch widgets", "patch widgets") // the finalizers
		w.finalizers("w1")
		w.finalizers("w2")
		w.noProgress("w1")
		if w.handledSize("w1") != 2 || w.handledSize("w2") != 1 {
			t.Error("the state that was handled last is another one")
		}
		if n := w.server.Watches(); n != idle {
			t.Errorf("%d watches, %d before the namespace was labelled", n, idle)
		}
		if n := w.server.Count(simulated.On{Verb: "get"}); n != 0 {
			t.Errorf("%d objects were read one by one", n)
		}
		w.mark()
		w.space(ns, "on=yes")
		w.settle()
		w.expectSet("update w1 #0 2→3", "resume w1 #0 2→3", "resume w2 #0 1→1")
		w.finalizers("w1", finalizer)
	})
}

// What is in namespaces without the label is nobody's business, and names count, too.
func TestNamesAndLabels(t *testing.T) {
	scenario(t, func(w *world) {
		w.spaces, w.selector = []string{"team-*,!team-x", "other"}, "on"
		for _, name := range []string{"team-a", "team-b", "team-x", "other", "x"} {
			if name != "team-b" {
				w.space(name, "on=")
			}
			widget := simulated.Object(name, "in-"+name, nil)
			if _, err := w.widgets.Create(widget); err != nil {
				t.Fatal(err)
			}
		}
		w.start(func(h handlers) { h.create("create", nil) })
		w.expectSet("create in-team-a #0 →0", "create in-other #0 →0")
		for _, r := range w.server.Requests(simulated.On{Resource: "namespaces"}) {
			if !strings.Contains(r.Accept, "as=PartialObjectMetadata") {
				t.Errorf("more than the metadata of namespaces was read: %s", r.Accept)
			}
		}
	})
}

// All that is ours goes, with one list and one write for each object that has something.
func TestEverythingIsReleased_ORC2(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("handler failed")
		w.selector = "on=yes"
		w.space(ns, "on=yes")
		w.space("next", "on=yes")
		w.create("held", 1)
		w.create("failing", 1, label("fail", "yes"))
		w.create("bare", 1, label("bare", "yes"))
		if _, err := w.widgets.Create(simulated.Object("next", "neighbour", nil)); err != nil {
			t.Fatal(err)
		}
		var index *textIndex
		memo := kopf.NewMemo(func() *int { return new(int) })
		w.start(func(h handlers) {
			index = h.index("sizes", sizes)
			h.create("fails", failing(times(100, kopf.Retry(time.Minute, errFlop))...), on.Label("fail", "yes"))
			h.create("create", func(_ context.Context, c *change) error {
				*memo.Of(c)++
				c.Log.Info("remembered", "times", *memo.Of(c))
				return nil
			})
			h.delete("delete", nil, on.Label("bare", filters.Absent))
			h.daemon("d", nil, on.Finalize(), on.Label("bare", filters.Absent))
			h.timer("t", nil, on.Interval(time.Hour))
			h.events()
		})
		w.sleep(time.Second)
		w.holds(index, "bare=1", "failing=1", "held=1", "neighbour=0")
		if w.record("failing", "fails") == nil {
			t.Error("no progress")
		}
		w.mark()
		w.space(ns)
		w.sleep(time.Second)
		w.expectSet("d held leaves: object does not match the filters of the daemon any more", "d failing leaves: object does not match the filters of the daemon any more")
		w.holds(index, "neighbour=0")
		for _, name := range []string{"held", "failing", "bare"} {
			w.finalizers(name)
			w.noProgress(name)
		}
		if w.handledSize("held") != 1 || w.handledSize("failing") != -1 {
			t.Error("the state that was handled last is another one")
		}
		if n := len(w.server.Writes()); n != 2 && n != 3 { // progress may go before the daemon has left
			t.Errorf("%d writes", n)
		}
		if n := w.lists(); n != 1 {
			t.Errorf("%d lists", n)
		}
		w.mark()
		w.resize("held", 2)
		w.create("new", 1)
		w.quiet(2 * time.Hour) // no retry, no tick
		w.expectAnyTime("t neighbour #0 0", "t neighbour #0 0")
		w.mark()
		w.space(ns, "on=yes")
		w.sleep(time.Second)
		w.holds(index, "bare=1", "failing=1", "held=2", "neighbour=0", "new=1")
		got := w.called()
		for _, call := range []string{"d held #0 begins", "d failing #0 begins", "d new #0 begins", "fails failing #0 →1", "event held LISTED 2", "event bare LISTED 1"} {
			if !slices.ContainsFunc(got, func(c string) bool { return strings.HasPrefix(c, call) }) {
				t.Errorf("not called: %s", call)
			}
		}
	})
}

// What runs comes to its end, and what it has come to is written, but nothing follows.
func TestHandlersRunWhileTheirNamespaceGoes_ORC2(t *testing.T) {
	for name, c := range map[string]struct {
		result  error
		handled int
	}{
		"well":  {nil, 1},
		"badly": {errFlop, -1},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.selector = "on=yes"
				w.space(ns, "on=yes")
				w.create("w1", 1)
				w.start(func(h handlers) {
					h.create("create", func(context.Context, *change) error { time.Sleep(time.Hour); return c.result })
					h.update("update", nil)
					h.delete("delete", nil)
				})
				w.space(ns)
				w.resize("w1", 2)
				w.sleep(time.Minute)
				w.finalizers("w1", finalizer)
				w.sleep(time.Hour)
				w.quiet(3 * time.Hour)
				w.expect("create w1 #0 →1 +0s")
				w.finalizers("w1")
				w.noProgress("w1")
				if got := w.handledSize("w1"); got != c.handled {
					t.Errorf("size %d is handled", got)
				}
				if n := w.server.Watches(); n != 2 { // of namespaces and CRDs
					t.Errorf("%d watches", n)
				}
			})
		})
	}
}

// An object that is being deleted is let go without further calls, whether its delete
// handlers were to be tried again or never called, and so is one that slips away.
func TestDeletionsInANamespaceThatIsLeft(t *testing.T) {
	scenario(t, func(w *world) {
		w.selector = "on=yes"
		w.space(ns, "on=yes")
		w.create("w1", 1)
		w.create("w2", 1, finalizedBy("other"))
		w.start(func(h handlers) {
			h.delete("delete", failing(times(100, kopf.Retry(time.Minute, errFlop))...))
			h.delete("optional", nil, on.Optional())
		})
		w.delete("w1")
		w.settle()
		w.expectSet("delete w1 #0 1→1", "optional w1 #0 1→1")
		w.mark()
		w.space(ns)
		w.settle()
		w.delete("w2")
		w.sleep(time.Hour)
		w.expect()
		w.gone("w1")
		w.finalizers("w2", "other")
		w.noProgress("w2")
	})
}

// What goes wrong while objects are released is tried again.
func TestReleaseIsDisturbed(t *testing.T) {
	forbidden := &simulated.Fault{Code: 403, Message: `widgets is forbidden: User "op" cannot do that`}
	for name, c := range map[string]struct {
		on    simulated.On
		fault *simulated.Fault
		said  string
	}{
		"list fails":         {simulated.On{Verb: "list", Times: 3}, simulated.Fail(500), ""},
		"list is too long":   {simulated.On{Verb: "list", Times: 1}, &simulated.Fault{Hang: true}, ""},
		"list is lost":       {simulated.On{Verb: "list", Times: 2}, simulated.Drop(), ""},
		"list is forbidden":  {simulated.On{Verb: "list", Times: 5}, forbidden, "cannot be released: grant the verb verb=list"},
		"list is throttled":  {simulated.On{Verb: "list", Times: 2}, simulated.Fail(429), ""},
		"write fails":        {simulated.On{Verb: "patch", Times: 4}, simulated.Fail(500), "handling failed"},
		"write is lost":      {simulated.On{Verb: "patch", Times: 3}, simulated.Drop(), "handling failed"},
		"write conflicts":    {simulated.On{Verb: "patch", Times: 3}, simulated.Fail(409), ""},
		"write is forbidden": {simulated.On{Verb: "patch", Times: 4}, forbidden, "permission is missing: verb patch"},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.selector = "on=yes"
				w.space(ns, "on=yes")
				w.create("w1", 1)
				w.create("w2", 1)
				w.start(handlers.all)
				if c.said != "" {
					w.allow(c.said)
				}
				c.on.Resource = "widgets"
				w.server.Before(c.on, simulated.Always(c.fault))
				w.mark()
				w.space(ns)
				w.sleep(10 * time.Minute)
				w.expect()
				w.finalizers("w1")
				w.finalizers("w2")
				if n := w.server.Watches(); n != 2 {
					t.Errorf("%d watches", n)
				}
				if n := len(w.errorLogs(c.said)); c.on.Verb == "list" && c.said != "" && n != 1 {
					t.Errorf("said %d times", n)
				}
				w.space(ns, "on=yes")
				w.settle()
				w.expectSet("resume w1 #0 1→1", "resume w2 #0 1→1")
			})
		})
	}
}

// The object that the list shows is changed before it can be released.
func TestReleaseOfWhatIsChanged(t *testing.T) {
	scenario(t, func(w *world) {
		w.selector = "on=yes"
		w.space(ns, "on=yes")
		w.create("w1", 1)
		w.start(handlers.all)
		w.server.Before(simulated.On{Verb: "patch", Resource: "widgets", Times: 3}, func(simulated.Request) *simulated.Fault {
			w.update("w1", func(o widgetObj) { o.SetFinalizers(append(o.GetFinalizers(), "x/"+o.GetResourceVersion())) })
			return nil
		})
		w.mark()
		w.space(ns)
		w.sleep(time.Second)
		w.expect()
		if f := w.get("w1").GetFinalizers(); len(f) != 3 || f[0] == finalizer {
			t.Errorf("finalizers: %q", f)
		}
	})
}

// A process that ends while it releases leaves something behind, which another one takes over
// when the namespace matches again, and releases when it does not any more.
func TestKilledWhileReleasing(t *testing.T) {
	scenario(t, func(w *world) {
		w.selector = "on=yes"
		w.space(ns, "on=yes")
		w.create("w1", 1)
		w.create("w2", 1)
		o := w.start(handlers.all)
		w.server.Before(simulated.On{Verb: "patch", Resource: "widgets", Skip: 1, Times: 1}, func(simulated.Request) *simulated.Fault {
			return simulated.Delay(time.Minute)
		})
		w.space(ns)
		w.settle()
		o.kill()
		w.start(handlers.all)
		w.mark()
		w.resize("w2", 2)
		w.sleep(time.Hour)
		w.expect()
		w.space(ns, "on=yes")
		w.settle()
		w.expectSet("resume w1 #0 1→1", "update w2 #0 1→2", "resume w2 #0 1→2")
		w.space(ns)
		w.settle()
		w.finalizers("w1")
		w.finalizers("w2")
	})
}

// Relabelled while a daemon still leaves: it begins again when it has left, and nothing is
// taken off in between.
func TestRelabelledWhileReleasing_B50(t *testing.T) {
	scenario(t, func(w *world) {
		w.selector = "on=yes"
		w.space(ns, "on=yes")
		w.create("w1", 1)
		w.create("w2", 1, label("plain", "yes"))
		w.start(func(h handlers) {
			h.daemon("d", lingering(10*time.Second), on.Finalize(), on.Label("plain", filters.Absent))
			h.daemon("done", func(context.Context, *daemon) error { return nil }, on.Label("plain", filters.Absent))
			h.update("update", nil)
			h.resume("resume", nil)
		})
		w.mark()
		w.space(ns)
		w.sleep(time.Second)
		w.resize("w1", 2)
		w.space(ns, "on=yes")
		w.sleep(time.Second)
		w.finalizers("w1", finalizer)
		w.sleep(time.Minute)
		w.expectSet("update w1 #0 1→2", "resume w1 #0 1→2", "resume w2 #0 1→1", "done w1 #0 begins", "done w1 leaves: <nil>",
			"d w1 leaves: object does not match the filters of the daemon any more", "d w1 #0 begins")
		w.finalizers("w1", finalizer)
		w.mark()
		w.delete("w1")
		w.sleep(time.Minute)
		w.gone("w1")
	})
}

// What has gone while nobody looked, for the namespace was being released and then matched
// again, is gone.
func TestGoneBetweenReleaseAndReturn(t *testing.T) {
	scenario(t, func(w *world) {
		w.selector = "on=yes"
		w.space(ns, "on=yes")
		w.create("w1", 1)
		w.create("w2", 1)
		w.start(func(h handlers) {
			h.daemon("d", lingering(8*time.Second))
			h.create("create", nil)
		})
		w.space(ns)
		w.sleep(time.Second)
		w.server.Before(simulated.On{Verb: "watch", Resource: "widgets", Times: 1}, func(simulated.Request) *simulated.Fault {
			if err := w.widgets.Vanish(ns, "w1"); err != nil {
				t.Error(err)
			}
			return nil
		})
		w.mark()
		w.space(ns, "on=yes")
		w.sleep(5 * time.Minute)
		w.expectSet("d w1 leaves: object does not match the filters of the daemon any more",
			"d w2 leaves: object does not match the filters of the daemon any more", "d w2 #0 begins")
		w.mu.Lock()
		defer w.mu.Unlock()
		if !slices.ContainsFunc(w.logs, func(l string) bool {
			return strings.Contains(l, "watching resource=widgets.demo.example namespace=default objects=1")
		}) {
			t.Error("w1 is remembered")
		}
	})
}

// B33 for a namespace that is being released when it is deleted, and its successor.
func TestDeletedWhileReleasing_B33(t *testing.T) {
	scenario(t, func(w *world) {
		w.selector = "on=yes"
		w.space("team", "on=yes")
		make := func() {
			if _, err := w.widgets.Create(simulated.Object("team", "w1", nil)); err != nil {
				t.Fatal(err)
			}
		}
		make()
		w.start(func(h handlers) {
			h.create("create", nil)
			h.daemon("d", lingering(10*time.Second), on.Finalize())
		})
		w.sleep(time.Second)
		w.mark()
		w.space("team")
		w.sleep(time.Second)
		spaces := w.server.Collection("v1", "namespaces")
		if err := w.widgets.Vanish("team", "w1"); err != nil {
			t.Fatal(err)
		}
		if err := spaces.Delete("", "team"); err != nil {
			t.Fatal(err)
		}
		w.space("team", "on=yes")
		make()
		w.sleep(time.Minute)
		w.expectSet("create w1 #0 →0", "d w1 #0 begins", "d w1 leaves: object does not match the filters of the daemon any more")
		if n := w.server.Watches(); n != 3 {
			t.Errorf("%d watches", n)
		}
	})
}

// What is said must be written though the namespace is left: the state that is handled, too,
// or the handlers were called again later.
func TestUnwrittenOutcomeOfANamespaceThatIsLeft(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("handling failed")
		w.selector = "on=yes"
		w.space(ns, "on=yes")
		w.start(func(h handlers) {
			h.create("create", func(_ context.Context, c *change) error {
				c.Patch.Apply(func(o *widget) { o.Status.Phase = "made" })
				return nil
			})
		})
		w.server.Before(simulated.On{Verb: "patch", Times: 2}, simulated.Always(simulated.Fail(500)))
		w.create("w1", 1)
		w.settle()
		w.space(ns)
		w.sleep(time.Minute)
		if w.handledSize("w1") != 1 {
			t.Error("nothing is handled")
		}
		w.space(ns, "on=yes")
		w.sleep(time.Minute)
		w.expectAnyTime("create w1 #0 →1")
	})
}

// Without permission to look at namespaces, exact names are used, and that is said once (NS-6).
func TestNamespacesAreForbidden_NS6_T041(t *testing.T) {
	for name, c := range map[string]struct {
		spaces   []string
		selector string
		disabled bool
		said     string
		called   []string
	}{
		"names":              {[]string{"team-a", "other"}, "", false, "", []string{"create in-team-a #0 →0", "create in-other #0 →0"}},
		"a pattern too":      {[]string{"team-*", "other"}, "", false, "patterns of namespaces match nothing: grant list and watch, or give exact names resource=namespaces", []string{"create in-other #0 →0"}},
		"a selector":         {nil, "on=yes", false, "the selector of namespaces matches nothing: grant list and watch", nil},
		"both":               {[]string{"team-a"}, "on=yes", false, "the selector of namespaces matches nothing: grant list and watch", nil},
		"no scans":           {[]string{"team-*", "other"}, "", true, "scanning is disabled, patterns and the selector of namespaces match nothing", []string{"create in-other #0 →0"}},
		"no scans, selector": {nil, "on=yes", true, "scanning is disabled, patterns and the selector of namespaces match nothing", nil},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.spaces, w.selector, w.settings.Scanning.Disabled = c.spaces, c.selector, c.disabled
				permit := w.server.Before(simulated.On{Resource: "namespaces"}, simulated.Always(simulated.Fail(403)))
				for _, name := range []string{"team-a", "other"} {
					w.space(name, "on=yes")
					if _, err := w.widgets.Create(simulated.Object(name, "in-"+name, nil)); err != nil {
						t.Fatal(err)
					}
				}
				if c.said != "" {
					w.allow(c.said)
				}
				w.start(func(h handlers) { h.index("sizes", sizes); h.create("create", nil) })
				w.sleep(time.Hour)
				w.expectSet(c.called...)
				if n := len(w.errorLogs(c.said)); c.said != "" && n != 1 {
					t.Errorf("said %d times", n)
				}
				permit()
				w.sleep(5 * time.Minute)
				if all := len(w.called()); !c.disabled && all != 2 && name != "both" {
					t.Errorf("%d are handled when it is permitted", all)
				}
			})
		})
	}
}

// NS-6: what is known stays when only watching is forbidden.
func TestOnlyWatchingNamespacesIsForbidden_NS6(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("namespaces that come, go or change are not noticed")
		w.selector = "on=yes"
		w.space(ns, "on=yes")
		w.server.Before(simulated.On{Verb: "watch", Resource: "namespaces"}, simulated.Always(simulated.Fail(403)))
		w.create("w1", 1)
		w.start(func(h handlers) { h.create("create", nil) })
		w.create("w2", 1)
		w.sleep(time.Minute)
		w.expectAnyTime("create w1 #0 →1", "create w2 #0 →1")
	})
}
