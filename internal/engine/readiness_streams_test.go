package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// IDX-6: what an index is made of may not be there, or not be readable. Others wait for it
// only if that passes by itself.
func TestIndexedResourceInTrouble_IDX6(t *testing.T) {
	discover, broken := simulated.On{Verb: "discover"}, new(simulated.Fault)
	list := simulated.On{Resource: "gadgets"}
	for name, c := range map[string]struct {
		on     simulated.On
		fault  *simulated.Fault
		served bool
		waits  bool
		log    string // at level error
	}{
		"forbidden":    {list, simulated.Fail(403), true, false, "index is not complete: its objects cannot be read"},
		"unauthorized": {list, simulated.Fail(401), true, true, "credentials are not accepted"},
		"failing":      {list, simulated.Fail(500), true, true, ""},
		"throttled":    {list, &simulated.Fault{Code: 429, RetryAfter: 2 * time.Second}, true, true, ""},
		"lost":         {list, simulated.Drop(), true, true, ""},
		"hanging":      {list, &simulated.Fault{Hang: true}, true, true, ""},
		"not served":   {simulated.On{Resource: "none"}, nil, false, false, "its index stays empty until it is"},
		"no discovery": {discover, simulated.Fail(503), true, true, "group cannot be read"},
		"no group":     {simulated.On{Resource: "none"}, broken, true, true, "group cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.settings.Watching.InactivityTimeout = 5 * time.Second
				w.allow(c.log, "permission is missing", "resource is not found, its handlers wait")
				if c.log == "" {
					w.allowed = nil
				}
				if c.served {
					w.put(w.server.Serve(gadgets("a.example")), "g1")
				}
				w.create("w1", 1)
				mend := w.server.Before(c.on, simulated.Always(c.fault))
				if c.fault == broken {
					mend = w.server.Break("a.example/v1")
				}
				var g *textIndex
				w.start(func(h handlers) {
					g = h.names("g", forGadgets)
					h.create("c", func(context.Context, *change) error {
						w.note(strings.Join(entriesOf(g), " "))
						return nil
					})
				})
				w.sleep(15 * time.Second)
				if c.waits {
					w.expect()
					w.expectLogged(0, "INFO", "indices are complete")
				} else {
					w.expectAnyTime("c w1 #0 →1", "")
					w.expectLogged(1, "INFO", "indices are complete")
				}
				if c.log != "" && len(w.errorLogs(c.log)) == 0 {
					t.Errorf("nothing says: %s", c.log)
				}
				w.mark()
				if !c.served {
					w.put(w.server.Serve(gadgets("a.example")), "g1")
				}
				mend()
				w.sleep(2 * time.Minute)
				w.holds(g, "g1=Gadget")
				if c.waits {
					w.expectAnyTime("c w1 #0 →1", "g1=Gadget")
				} else {
					w.expect()
				}
				w.expectLogged(1, "INFO", "indices are complete")
			})
		})
	}
}

// A resource that cannot be found for a moment is waited for; one that discovery insists
// on although it is not there, for a while.
func TestIndexedResourceIsNotFound_IDX6(t *testing.T) {
	for name, forEver := range map[string]bool{"for a moment": false, "for ever": true} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("resource is in the API's discovery, but cannot be listed and watched", "index is not complete")
				w.put(w.server.Serve(gadgets("a.example")), "g1")
				w.create("w1", 1)
				mend := w.server.Before(simulated.On{Resource: "gadgets"}, simulated.Always(simulated.Fail(404)))
				var g *textIndex
				w.start(func(h handlers) {
					g = h.names("g", forGadgets)
					h.create("c", nil)
				})
				w.expect()
				if !forEver {
					mend()
				}
				w.sleep(2 * time.Minute)
				w.expectAnyTime("c w1 #0 →1")
				if n := len(w.errorLogs("index is not complete")); (n > 0) != forEver || g.Has("g1") == forEver {
					t.Errorf("%d complaints, index %q", n, entriesOf(g))
				}
				mend()
				w.sleep(2 * time.Minute)
				w.holds(g, "g1=Gadget")
			})
		})
	}
}

func TestIndexedResourceGoesWhileItIsWaitedFor_IDX6(t *testing.T) {
	for name, slow := range map[string]bool{"list is late": true, "function is slow": false} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("resource is not served by the cluster")
				w.put(w.server.Serve(gadgets("a.example")), "g1")
				w.create("w1", 1)
				if slow {
					w.server.Before(simulated.On{Resource: "gadgets"}, simulated.Always(simulated.Delay(time.Hour)))
				}
				var g *textIndex
				w.start(func(h handlers) {
					g = on.Index(func(_ context.Context, s *kopf.Snapshot[anything]) (texts, error) {
						time.Sleep(20 * time.Second)
						return texts{s.Object.GetName(): ""}, nil
					}, on.ID("g"), on.In(h.r), forGadgets)
					h.watch("g", forGadgets)
					h.create("c", nil)
				})
				w.sleep(time.Second)
				w.expect()
				w.server.Withdraw("a.example/v1", "gadgets")
				w.sleep(time.Minute)
				w.holds(g)
				if slow {
					w.expectAnyTime("c w1 #0 →1")
				} else {
					w.expectSet("c w1 #0 →1", "g LISTED Gadget.v1.a.example g1", "g DELETED Gadget.v1.a.example g1")
				}
			})
		})
	}
}

// IDX-6: one index of several resources waits for all of them; resources, and namespaces,
// that come later are not waited for, and do not close anything again.
func TestResourcesThatComeLater_IDX6_ORC3(t *testing.T) {
	scenario(t, func(w *world) {
		a := w.server.Serve(gadgets("a.example"))
		w.put(a, "a1")
		w.put(w.server.Serve(gadgets("b.example")), "b1")
		w.late("gadgets", 20*time.Second) // the first of the two
		w.create("w1", 1)
		var g *textIndex
		w.launch(func(h handlers) {
			g = h.names("g", on.Kind("Gadget"), on.Group("a.example"))
			h.names("g", on.Kind("Gadget"), on.Group("b.example"))
			h.names("g", on.Category("things"))
			h.create("c", nil)
		})
		w.sleep(19 * time.Second)
		w.expect()
		w.sleep(2 * time.Second)
		w.expectAnyTime("c w1 #0 →1")
		w.holds(g, "a1=Gadget", "b1=Gadget")
		w.mark()
		w.late("gadgets", time.Minute)
		w.put(w.server.Serve(gadgets("c.example", categories("things"))), "c1")
		w.sleep(10 * time.Second)
		w.create("w2", 2)
		w.sleep(time.Second)
		w.expectAnyTime("c w2 #0 →2")
		w.holds(g, "a1=Gadget", "b1=Gadget")
		w.sleep(time.Minute)
		w.holds(g, "a1=Gadget", "b1=Gadget", "c1=Gadget")
		w.expectLogged(1, "INFO", "indices are complete")
	})
}

// IDX-6: all namespaces that are there are waited for, also those that patterns find.
func TestNamespacesOfIndices_IDX6(t *testing.T) {
	scenario(t, func(w *world) {
		w.spaces = []string{"team-*", "exact"}
		for _, name := range []string{"team-a", "team-b", "other", "exact"} {
			o := simulated.Object(name, "w-"+name, map[string]any{"spec": map[string]any{"size": int64(1)}})
			if _, err := w.widgets.Create(o); err != nil {
				t.Fatal(err)
			}
		}
		w.late("namespaces", 5*time.Second)
		w.server.Before(simulated.On{Resource: "widgets", Namespace: "team-b", Times: 1}, simulated.Always(simulated.Delay(10*time.Second)))
		var x *textIndex
		w.launch(func(h handlers) {
			x = h.index("x", sizes)
			h.create("c", nil)
		})
		w.sleep(14 * time.Second)
		w.expect()
		w.holds(x, "w-exact=1", "w-team-a=1")
		w.sleep(2 * time.Second)
		w.expectSet("c w-exact #0 →1", "c w-team-a #0 →1", "c w-team-b #0 →1")
		w.mark()
		w.server.Before(simulated.On{Resource: "widgets", Namespace: "team-c", Times: 1}, simulated.Always(simulated.Delay(10*time.Second)))
		if _, err := w.widgets.Create(simulated.Object("team-c", "w-team-c", nil)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.widgets.Create(simulated.Object("team-a", "w2", nil)); err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Second)
		w.expectAnyTime("c w2 #0 →0")
		w.sleep(10 * time.Second)
		w.expectAnyTime("c w2 #0 →0", "c w-team-c #0 →0")
		w.holds(x, "w-exact=1", "w-team-a=1", "w-team-b=1", "w-team-c=0", "w2=0")
	})
}

// A namespace that goes while it is waited for, and one that cannot be looked for.
func TestNamespacesInTrouble_IDX6(t *testing.T) {
	scenario(t, func(w *world) {
		w.spaces = []string{"team-*"}
		if _, err := w.widgets.Create(simulated.Object("team-a", "w1", nil)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.widgets.Create(simulated.Object("team-b", "w2", nil)); err != nil {
			t.Fatal(err)
		}
		w.server.Before(simulated.On{Resource: "widgets", Namespace: "team-b"}, simulated.Always(simulated.Fail(500)))
		var x *textIndex
		o := w.start(func(h handlers) {
			x = h.index("x", sizes)
			h.create("c", nil)
		})
		w.sleep(time.Minute)
		w.expect()
		if err := w.server.Collection("v1", "namespaces").Delete("", "team-b"); err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Minute)
		w.expectAnyTime("c w1 #0 →0")
		w.holds(x, "w1=0")
		if err := o.stop(); err != nil {
			t.Error(err)
		}
		w.allow("permission is missing")
		w.server.Before(simulated.On{Resource: "namespaces"}, simulated.Always(simulated.Fail(403)))
		w.spaces = []string{"team-a", "team-*"}
		w.mark()
		w.start(func(h handlers) {
			x = h.index("x", sizes)
			h.resume("r", nil)
		})
		w.expectAnyTime("r w1 #0 0→0")
		w.holds(x, "w1=0")
	})
}

// An operator may run again, with its indices from the start, and they are empty in between. Two
// at a time cannot have the same ones.
func TestIndicesBelongToOneOperatorAtATime_IDX1(t *testing.T) {
	scenario(t, func(w *world) {
		w.create("w1", 1)
		var x *textIndex
		r := kopf.NewRegistry()
		register := func(h handlers) {
			if x == nil {
				x = handlers{w, r}.index("x", sizes)
			}
		}
		register(handlers{})
		op, err := kopf.New(kopf.Options{Registry: r, Config: w.server.Config()})
		if err != nil {
			t.Fatal(err)
		}
		other, err := kopf.New(kopf.Options{Registry: r, Config: w.server.Config()})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			w.holds(x)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- op.Run(ctx) }()
			w.settle()
			w.holds(x, "w1=1")
			for again, says := range map[*kopf.Operator]string{op: "the operator runs already", other: "index x is filled by another operator that runs"} {
				if err := again.Run(ctx); err == nil || !strings.Contains(err.Error(), says) {
					t.Error(err)
				}
			}
			w.holds(x, "w1=1")
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			w.holds(x)
			op, other = other, op
		}
	})
}
