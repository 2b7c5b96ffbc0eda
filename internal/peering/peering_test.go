package peering_test

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kopf-go/kopf/internal/peering"
	"github.com/kopf-go/kopf/internal/simulated"
)

type unstructuredObject = unstructured.Unstructured

func mandatory(o *peering.Options) { o.Mandatory = true }

// What a peer's record means for an operator of priority 5, and what becomes of it.
func TestPeers_PEER6_T158(t *testing.T) {
	second := time.Second
	for name, c := range map[string]struct {
		record   func() any
		state    string // of the operator
		warnings int
		stays    bool
	}{
		"T158 a higher priority": {func() any { return record(6, 60, 10*second) }, "pause: in favour of peer (priority 6)", 0, true},
		"T158 a lower priority":  {func() any { return record(4, 60, 10*second) }, "continue", 0, true},
		"T158 the same priority": {func() any { return record(5, 60, 10*second) }, "pause: as there are operators of the same priority, which pause, too: peer (priority 5)", 1, true},
		"T158 its time is over":  {func() any { return record(6, 60, 60*second) }, "continue", 0, false},
		"in the last moment":     {func() any { return record(6, 60, 59*second) }, "pause: in favour of", 0, true},
		"no lifetime":            {func() any { return record(6, 0, 0) }, "continue", 0, false},
		"an unknown field":       {func() any { r := record(6, 60, 0); r["namespace"] = "x"; return r }, "pause: in favour of", 0, true},
		"PEER-11 with a message": {func() any { r := record(6, 60, 0); r["message"] = "upgrade"; return r }, "pause: in favour of peer (priority 6: upgrade)", 0, true},
		"no priority means 0":    {func() any { r := record(6, 60, 0); delete(r, "priority"); return r }, "continue", 0, true},
		"no lifetime means 60":   {func() any { r := record(6, 0, 59*second); delete(r, "lifetime"); return r }, "pause: in favour of", 0, true},
		"nor is it 61":           {func() any { r := record(6, 0, 60*second); delete(r, "lifetime"); return r }, "continue", 0, false},
		"no last sign means now": {func() any { return map[string]any{"priority": 6} }, "pause: in favour of", 0, true},
		"nothing at all":         {func() any { return map[string]any{} }, "continue", 0, true},
		"numbers in texts":       {func() any { r := record(6, 60, 10*second); r["lifetime"] = "60"; r["priority"] = "6"; return r }, "pause: in favour of", 0, true},
		"a fraction":             {func() any { r := record(6, 60, 10*second); r["priority"] = 6.5; return r }, "pause: in favour of peer (priority 6)", 0, true},
		"a time without an offset": {func() any {
			r := record(6, 60, 10*second)
			r["lastseen"] = strings.TrimSuffix(r["lastseen"].(string), "+00:00")
			return r
		}, "pause: in favour of", 0, true},
		"a time of another zone": {func() any {
			r := record(6, 60, 0)
			r["lastseen"] = time.Now().In(time.FixedZone("", 7200)).Format(time.RFC3339Nano)
			return r
		}, "pause: in favour of", 0, true},
		"a time with a blank": {func() any {
			r := record(6, 60, 10*second)
			r["lastseen"] = strings.Replace(r["lastseen"].(string), "T", " ", 1)
			return r
		}, "pause: in favour of", 0, true},
		"a time that is none":       {func() any { r := record(6, 60, 0); r["lastseen"] = "soon"; return r }, "continue", 1, true},
		"a priority that is none":   {func() any { r := record(6, 60, 0); r["priority"] = "high"; return r }, "continue", 1, true},
		"a lifetime that is none":   {func() any { r := record(6, 60, 0); r["lifetime"] = []any{1}; return r }, "continue", 1, true},
		"no record":                 {func() any { return "yes" }, "continue", 1, true},
		"a lifetime without end":    {func() any { r := record(6, 60, 0); r["lifetime"] = int64(1) << 62; return r }, "pause: in favour of", 0, true},
		"a clock that is far ahead": {func() any { return record(6, 60, -time.Hour) }, "pause: in favour of", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.with(map[string]any{"peer": c.record()})
				op := w.start("me", func(o *peering.Options) { o.Priority = 5 })
				op.expect("+0s " + c.state)
				if n := len(w.said(slog.LevelWarn, "")); n != c.warnings {
					t.Errorf("%d warnings", n)
				}
				want := []string{"me"}
				if c.stays {
					want = append(want, "peer")
				}
				w.identities(want...)
				// More events of the object change nothing, and are not warned of again.
				w.put("other", record(-1, 60, 0))
				w.put("other", record(-2, 60, 0))
				w.settle()
				op.expect()
				if n := len(w.said(slog.LevelWarn, "")); n != c.warnings {
					t.Errorf("%d warnings after more events", n)
				}
			})
		})
	}
}

// PEER-6: objects of other names are not looked at, and no object means no peers.
func TestOtherNames_PEER3_PEER6_T158(t *testing.T) {
	scenario(t, func(w *world) {
		w.with(map[string]any{"peer": record(100, 3600, 0)})
		w.create(w.objects, "", "other", nil)
		w.start("other", func(o *peering.Options) { o.Name = "other" }).expect("+0s continue")
		w.start("absent", func(o *peering.Options) { o.Name = "absent" }).expect("+0s continue")
		w.put("peer", record(100, 3600, 0))
		w.settle()
		for _, op := range w.all {
			op.expect()
		}
		if records := w.recordsIn(w.objects, "", "other"); len(records) != 1 || records["other"] == nil {
			t.Error(records)
		}
	})
}

// PEER-1: cluster-wide operators meet in objects of the cluster, in both groups.
func TestClusterWide_PEER1(t *testing.T) {
	scenario(t, func(w *world) {
		ours, old := w.serve("kopf.dev", true), w.serve("zalando.org", true)
		namespaced := w.serve("kopf.dev", false)
		w.create(ours, "", "default", nil)
		w.create(old, "", "default", nil)
		w.create(namespaced, "default", "default", map[string]any{"peer": record(100, 60, 0)})
		op := w.start("me")
		op.expect("+0s continue")
		for _, c := range []*simulated.Collection{ours, old} {
			if w.recordsIn(c, "", "default")["me"] == nil {
				t.Error("no record in one of the groups")
			}
		}
		w.putIn(old, "", "default", "python", record(100, 60, 0))
		w.settle()
		op.expect("+0s pause: in favour of python (priority 100) in clusterkopfpeerings.zalando.org/default")
		w.putIn(old, "", "default", "python", nil)
		w.settle()
		op.expect("+0s continue")
		op.stop()
		if a, b := w.recordsIn(ours, "", "default"), w.recordsIn(old, "", "default"); len(a) != 0 || len(b) != 0 {
			t.Error("records are left", a, b)
		}
	})
}

// PEER-1, PEER-8, X20: others meet in each namespace that they serve, and one conflict is
// enough.
func TestNamespaced_PEER1_PEER8_X20(t *testing.T) {
	scenario(t, func(w *world) {
		w.serve("kopf.dev", true)
		objects := w.serve("kopf.dev", false)
		for _, namespace := range []string{"a", "b", "c", "d"} {
			w.create(objects, namespace, "default", nil)
		}
		names, changed := []string(nil), make(chan struct{})
		op := w.start("me", func(o *peering.Options) {
			o.Namespaces = func() ([]string, <-chan struct{}) { return names, changed }
		})
		op.expect() // it is not known which there are
		serve := func(now ...string) {
			was := changed
			names, changed = append([]string{}, now...), make(chan struct{})
			close(was)
			w.settle()
		}
		serve("a", "b")
		op.expect("+0s continue")
		w.putIn(objects, "c", "default", "peer", record(100, 3600, 0))
		w.settle()
		op.expect()
		w.putIn(objects, "b", "default", "peer", record(100, 3600, 0))
		w.settle()
		op.expect("+0s pause: in favour of peer (priority 100) in kopfpeerings.kopf.dev/default in namespace b")
		serve("a", "d") // b is not served any more
		op.expect("+0s continue")
		serve("a", "c")
		op.expect("+0s pause: in favour of peer (priority 100) in kopfpeerings.kopf.dev/default in namespace c")
		serve()
		op.expect("+0s continue")
		for _, namespace := range []string{"a", "b", "c", "d"} {
			if w.recordsIn(objects, namespace, "default")["me"] != nil {
				t.Error("a record is left in", namespace)
			}
		}
		serve("b")
		op.expect("+0s pause")
		serve()
		serve("a")
		serve()
		serve("a") // while the record of before is being removed
		if w.recordsIn(objects, "a", "default")["me"] == nil {
			t.Error("no record where it was served again")
		}
	})
}

// PEER-2: standalone operators ask for nothing.
func TestStandalone_PEER2(t *testing.T) {
	scenario(t, func(w *world) {
		w.with(map[string]any{"peer": record(100, 60, 0)})
		op := w.start("me", func(o *peering.Options) { o.Standalone = true })
		w.sleep(time.Hour)
		op.expect("+0s continue")
		if n := w.server.Count(simulated.On{}); n != 0 {
			t.Error(n, "requests")
		}
	})
}

// PEER-2: optional peering needs neither kind nor object, and takes part when they come.
func TestOptional_PEER2(t *testing.T) {
	scenario(t, func(w *world) {
		op := w.start("me")
		op.expect("+0s continue")
		w.objects = w.serve("kopf.dev", true)
		w.sleep(time.Minute)
		op.expect()
		if found := w.said(slog.LevelDebug, "keep-alive: not found"); len(found) == 0 {
			t.Error("that there is no object is not said")
		}
		w.create(w.objects, "", "default", nil)
		w.settle()
		w.identities("me") // at once, not when the next keep-alive is due
		w.put("peer", record(1, 60, 0))
		w.settle()
		op.expect("+1m0s pause")
		if err := w.objects.Delete("", "default"); err != nil {
			t.Fatal(err)
		}
		w.settle()
		op.expect("+1m0s continue")
		w.create(w.objects, "", "default", map[string]any{"peer": record(1, 60, 0)})
		w.settle()
		op.expect("+1m0s pause")
		w.identities("me", "peer")
		if found := w.said(slog.LevelWarn, ""); len(found) > 0 {
			t.Error(found)
		}
	})
}

// PEER-2, T044: mandatory peering needs both.
func TestMandatory_PEER2_T044(t *testing.T) {
	for name, blind := range map[string]bool{"definitions are watched": false, "they cannot be watched": true} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				if blind {
					w.server.Before(simulated.On{Resource: "customresourcedefinitions"}, simulated.Always(simulated.Fail(403)))
				}
				op := w.start("me", mandatory)
				op.expect("+0s pause: because the cluster has no kind of peering objects, clusterkopfpeerings.kopf.dev or clusterkopfpeerings.zalando.org")
				w.sleep(time.Hour)
				op.expect()
				w.objects = w.serve("kopf.dev", true)
				w.sleep(10 * time.Second)
				op.expect()
				if found := w.said(slog.LevelError, "there is no clusterkopfpeerings.kopf.dev/default: create it"); len(found) != 1 {
					t.Error(found)
				}
				w.create(w.objects, "", "default", nil)
				w.settle()
				op.expect("+1h0m10s continue")
				w.identities("me")
				w.server.Withdraw("kopf.dev/v1", "clusterkopfpeerings")
				w.sleep(2 * time.Minute)
				op.expect("+1h0m10s pause: because there is no clusterkopfpeerings.kopf.dev/default")
				if found := w.said(slog.LevelError, "the cluster has no kind of peering objects"); len(found) != 2 {
					t.Error(found)
				}
			})
		})
	}
}

// PEER-2: at the start, nobody goes on before it is known what others do; later, a namespace
// that comes interrupts nobody, unless what is there has to.
func TestNotKnownYet_PEER2(t *testing.T) {
	scenario(t, func(w *world) {
		objects := w.serve("kopf.dev", false)
		for _, namespace := range []string{"a", "b", "c"} {
			w.create(objects, namespace, "default", nil)
		}
		w.server.Before(simulated.On{Resource: "kopfpeerings"}, simulated.Always(simulated.Delay(5*time.Second)))
		names, changed := []string{"a"}, make(chan struct{})
		op := w.start("me", mandatory, func(o *peering.Options) {
			o.Namespaces = func() ([]string, <-chan struct{}) { return names, changed }
		})
		op.expect()
		w.sleep(20 * time.Second)
		op.expect("+5s continue")
		was := changed
		names, changed = []string{"a", "b", "x"}, nil
		close(was)
		w.sleep(time.Second)
		op.expect()
		w.sleep(20 * time.Second)
		op.expect("+25s pause: because there is no kopfpeerings.kopf.dev/default in namespace x")
	})
}

// PEER-5: what is written, and when.
func TestKeepAlive_PEER5(t *testing.T) {
	for name, c := range map[string]struct {
		lifetime, atLeast, atMost time.Duration
	}{
		"by default":     {0, 50 * time.Second, 55 * time.Second},
		"a long life":    {time.Hour, time.Hour - 10*time.Second, time.Hour - 5*time.Second},
		"a short life":   {8 * time.Second, time.Second, 3 * time.Second},
		"the shortest":   {time.Second, time.Second, time.Second},
		"as long as six": {6 * time.Second, time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.with(nil)
				op := w.start("me", func(o *peering.Options) { o.Lifetime, o.Priority = c.lifetime, 7 })
				w.sleep(50 * c.atMost)
				op.stop()
				records, at := w.keepAlives("me")
				if len(records) < 51 || records[len(records)-1] != nil {
					t.Fatal("the last is not the removal:", records)
				}
				w.identities()
				pauses := map[time.Duration]bool{}
				for i := range len(records) - 1 {
					lifetime := max(c.lifetime, 0)
					if lifetime == 0 {
						lifetime = time.Minute
					}
					want := map[string]any{
						"priority": 7.0, "lifetime": lifetime.Seconds(),
						"lastseen": at[i].UTC().Format("2006-01-02T15:04:05.000000+00:00"),
					}
					if !maps.Equal(records[i], want) {
						t.Errorf("wrote %v, want %v", records[i], want)
					}
					if pause := at[i+1].Sub(at[i]); i+2 < len(records) {
						pauses[pause] = true
						if pause < c.atLeast || pause > c.atMost {
							t.Error("after", pause)
						}
					}
				}
				if byChance := c.atMost > c.atLeast; byChance != (len(pauses) > 1) {
					t.Errorf("pauses are not by chance: %v", slices.Collect(maps.Keys(pauses)))
				}
				op.expect("+0s continue")
			})
		})
	}
}

// PEER-5: where the resource has an endpoint for its status, it is written there.
func TestStatusEndpoint_PEER5(t *testing.T) {
	scenario(t, func(w *world) {
		w.objects = w.serve("kopf.dev", true, func(k *simulated.Kind) { k.Status = true })
		w.create(w.objects, "", "default", nil)
		op := w.start("me")
		w.identities("me")
		// It is taken away while the operator runs.
		w.serve("kopf.dev", true)
		w.sleep(2 * time.Minute)
		w.identities("me")
		if n := w.server.Count(simulated.On{Verb: "patch", Resource: "clusterkopfpeerings"}); n == 0 {
			t.Error("nothing is written where it has to be now")
		}
		op.expect("+0s continue")
		op.stop()
		w.identities()
	})
}

// PEER-7: when the time of those in the way is over, the operator says that it is alive, and
// what it learns by that counts.
func TestDeadline_PEER7_T158(t *testing.T) {
	scenario(t, func(w *world) {
		w.with(map[string]any{"long": record(3, 100, 0), "short": record(2, 30, 0), "lower": record(-1, 10, 0)})
		op := w.start("me")
		op.expect("+0s pause: in favour of long (priority 3) in")
		w.sleep(29 * time.Second)
		_, at := w.keepAlives("me")
		w.sleep(2 * time.Second)
		_, later := w.keepAlives("me")
		if len(at) != 1 || len(later) != 2 || later[1].Sub(w.begun) != 30*time.Second {
			t.Error("keep-alives", at, later)
		}
		w.identities("long", "me")
		w.sleep(68 * time.Second)
		op.expect()
		w.sleep(2 * time.Second)
		op.expect("+1m40s continue")
		w.identities("me")
	})
}

// PEER-10: keep-alives are left out of the log, but not that there is nothing to meet in.
func TestStealth_PEER10(t *testing.T) {
	scenario(t, func(w *world) {
		w.with(nil)
		stealthy := func(o *peering.Options) { o.Stealth = true }
		w.start("loud").stop()
		w.start("silent", stealthy).stop()
		w.start("lost", stealthy, func(o *peering.Options) { o.Name = "absent" }).stop()
		for text, want := range map[string]int{"loud": 1, "silent": 0, "lost": 1} {
			n := 0
			for _, line := range w.said(slog.LevelDebug, " keep-alive") {
				if strings.HasPrefix(line, "DEBUG "+text) {
					n++
				}
			}
			if n != want {
				t.Errorf("%s: %d", text, n)
			}
		}
	})
}
