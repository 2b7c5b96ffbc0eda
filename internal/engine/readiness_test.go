package engine_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// everything registers a handler of each kind. They and their filters note that they are
// called.
func (h handlers) everything() {
	when := on.When(func(_ context.Context, s *snapshot) bool {
		h.w.note("filter of " + s.Object.Name)
		return true
	})
	h.create("create", nil, when)
	h.update("update", nil, when)
	h.delete("delete", nil, when)
	h.resume("resume", nil, when)
	h.events()
	h.daemon("daemon", nil, when)
	h.timer("timer", nil, on.Interval(time.Hour), when)
}

var forGadgets = on.Resource("a.example/v1", "gadgets")

// late has the first request for a resource take some time.
func (w *world) late(resource string, by time.Duration) {
	w.server.Before(simulated.On{Resource: resource, Times: 1}, simulated.Always(simulated.Delay(by)))
}

// kinds are the calls, without filters, by their first words.
func (w *world) kinds() (kinds []string) {
	for _, call := range w.called() {
		if kind, _, _ := strings.Cut(call, " "); kind != "filter" {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// IDX-6, T151: nobody but index functions is called, nor any filter, before all objects
// of all indices are indexed; those that are not indexed are not even listed. Then
// everything begins.
func TestNothingRunsBeforeIndicesAreComplete_IDX6_T151(t *testing.T) {
	for name, own := range map[string]bool{"own index": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.put(w.server.Serve(gadgets("a.example")), "g1")
				w.late("gadgets", 35*time.Second)
				w.create("new", 1)
				w.create("leaving", 1, finalizedBy(finalizer))
				w.delete("leaving")
				var g *textIndex
				w.launch(func(h handlers) {
					h.everything()
					g = h.names("g", forGadgets)
					if own {
						h.index("own", nil)
					}
				})
				w.sleep(34 * time.Second)
				w.create("late", 1)
				w.resize("new", 2)
				w.sleep(900 * time.Millisecond)
				w.expect()
				if n := w.server.Count(simulated.On{Resource: "widgets"}); (n > 0) != own {
					t.Errorf("widgets were asked for %d times", n)
				}
				w.writes()
				w.expectLogged(3, "WARN", "indices are not complete yet, no other handler is called before that indices=g resources=gadgets.a.example objects to index=0")
				w.expectLogged(0, "INFO", "indices are complete")
				w.sleep(time.Second)
				w.holds(g, "g1=Gadget")
				w.expectLogged(1, "INFO", "indices are complete took=35s")
				if got := gauge(t, "kopf_indices_ready_seconds"); math.Abs(got-35) > 0.1 {
					t.Errorf("indices are said to be ready after %v s", got)
				}
				if o := w.widgets.Get(ns, "leaving"); o != nil {
					t.Error("a deletion was not handled")
				}
				w.sleep(time.Minute) // timers begin one after the other
				if got, want := fmt.Sprint(w.kinds()), "[create daemon delete event timer]"; got != want {
					t.Errorf("called: %s, want %s", got, want)
				}
				w.expectLogged(3, "WARN", "indices are not complete")
			})
		})
	}
}

func gauge(t *testing.T, name string) float64 {
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// IDX-7: events that came before are told in order, also those of objects that are gone
// again; and later ones do not overtake them.
func TestParkedEventsStayInOrder_IDX7_T151(t *testing.T) {
	scenario(t, func(w *world) {
		w.server.Serve(gadgets("a.example"))
		w.late("gadgets", 10*time.Second)
		w.create("w1", 1)
		w.create("w2", 1)
		var x *textIndex
		w.start(func(h handlers) {
			x = h.index("x", sizes)
			h.names("g", forGadgets)
			on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
				if e.Object.Name == "w1" {
					w.note(fmt.Sprint(e.Type, " ", e.Object.Spec.Size))
				}
				w.resizeOnce(e)
				return nil
			}, on.ID("event"), on.In(h.r), forWidgets)
			h.create("c", nil)
		})
		for i := range 5 {
			w.resize("w1", i+2)
			w.settle()
		}
		w.delete("w2")
		w.create("w2", 7)
		w.settle()
		w.expect()
		w.holds(x, "w1=6", "w2=7")
		w.sleep(10 * time.Second)
		var events []string
		for _, call := range w.called() {
			if !strings.HasPrefix(call, "c ") {
				events = append(events, call)
			}
		}
		events = slices.Compact(events) // there are own writes, too
		if got, want := fmt.Sprint(events), "[LISTED 1 MODIFIED 2 MODIFIED 3 MODIFIED 4 MODIFIED 5 MODIFIED 6 MODIFIED 100]"; got != want {
			t.Errorf("events: %s", got)
		}
		var created []string
		for _, call := range w.called() {
			if strings.HasPrefix(call, "c w2 #0 →7") { // who is quick sees the first one, too
				created = append(created, call)
			}
		}
		if len(created) != 1 {
			t.Errorf("created: %q", created)
		}
	})
}

// resizeOnce writes in the middle of the events that were parked.
func (w *world) resizeOnce(e *kopf.Event[*widget]) {
	if e.Object.Name == "w1" && e.Object.Spec.Size == 3 {
		_, _ = w.widgets.Update(ns, "w1", func(o widgetObj) { set(o, int64(100), "spec", "size") })
	}
}

// B08, IDX-11: indexing takes no place of those who work on objects.
func TestMoreObjectsThanWorkers_IDX11_B08(t *testing.T) {
	scenario(t, func(w *world) {
		collection := w.server.Serve(gadgets("a.example"))
		for i := range 100 {
			w.put(collection, fmt.Sprint("g", i))
		}
		for i := range 3 {
			w.create(fmt.Sprint("w", i), i)
		}
		w.settings.Queueing.WorkerLimit = 1
		w.start(func(h handlers) {
			x := on.Index(func(_ context.Context, s *kopf.Snapshot[anything]) (texts, error) {
				time.Sleep(time.Millisecond)
				return texts{s.Object.GetName(): ""}, nil
			}, on.ID("x"), on.In(h.r), forGadgets)
			h.index("own", sizes)
			h.create("c", func(context.Context, *change) error {
				if n := x.Len(); n != 100 {
					t.Errorf("the index has %d entries", n)
				}
				time.Sleep(100 * time.Millisecond)
				return nil
			})
		})
		w.sleep(time.Second)
		w.expectSet("c w0 #0 →0", "c w1 #0 →1", "c w2 #0 →2")
	})
}

// An index function that does not return keeps everything from beginning, is named, and
// does not keep the operator from ending.
func TestIndexFunctionHangs_IDX6(t *testing.T) {
	for name, deaf := range map[string]bool{"hears": false, "deaf": true} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.create("w1", 1)
				w.create("w2", 1)
				release := make(chan struct{})
				var x *textIndex
				o := w.start(func(h handlers) {
					x = h.index("x", func(ctx context.Context, s *snapshot) (texts, error) {
						if s.Object.Name == "w1" && deaf {
							<-release
						} else if s.Object.Name == "w1" {
							<-ctx.Done()
							return nil, context.Cause(ctx)
						}
						return sizes(ctx, s)
					})
					h.everything()
				})
				w.sleep(41 * time.Second)
				w.expect()
				w.expectLogged(4, "WARN", "objects to index=1")
				w.expectLogged(4, "WARN", "running=index handler x on default/w1")
				w.mark()
				err := o.stop()
				if deaf {
					if err == nil || !strings.Contains(err.Error(), "index handler x on default/w1") || w.since() != 10*time.Second {
						t.Error(err, w.since())
					}
					w.holds(x)
					close(release)
					synctest.Wait()
				} else if err != nil || w.since() > time.Millisecond {
					t.Error(err, w.since())
				}
				w.holds(x) // what comes after the end is nobody's
				w.expect()
			})
		})
	}
}

// IDX-6: what happens after everything was listed is not waited for, however much it is.
func TestBusyObjectsDoNotKeepIndicesFromBeingComplete_IDX6(t *testing.T) {
	scenario(t, func(w *world) {
		for i := range 3 {
			w.create(fmt.Sprint("w", i), 0)
		}
		w.launch(func(h handlers) {
			h.index("x", func(ctx context.Context, s *snapshot) (texts, error) {
				time.Sleep(50 * time.Millisecond)
				return sizes(ctx, s)
			})
			h.create("c", func(context.Context, *change) error { return nil }, on.Label("never", ""))
			h.events()
		})
		for i := range 100 {
			w.resize(fmt.Sprint("w", i%3), i+1)
			time.Sleep(10 * time.Millisecond)
		}
		w.expectLogged(1, "INFO", "indices are complete took=50ms")
		w.sleep(10 * time.Second)
	})
}

// Parked objects have no goroutines, and nothing of them is left when the operator stops.
func TestStopWhileParked_IDX6(t *testing.T) {
	scenario(t, func(w *world) {
		w.server.Serve(gadgets("a.example"))
		w.late("gadgets", time.Hour)
		o := w.start(func(h handlers) {
			h.index("x", sizes)
			h.names("g", forGadgets)
			h.everything()
		})
		before := runtime.NumGoroutine()
		for i := range 1000 {
			w.create(fmt.Sprint("w", i), i)
		}
		w.settle()
		if n := runtime.NumGoroutine() - before; n > 20 {
			t.Errorf("%d goroutines for 1,000 parked objects", n)
		}
		w.mark()
		if err := o.stop(); err != nil || w.since() > time.Second {
			t.Error(err, w.since())
		}
		w.expect()
		w.writes()
	})
}

// What is only indexed is not kept until the others may be called.
func TestStopWhileListing_IDX6(t *testing.T) {
	scenario(t, func(w *world) {
		w.create("w1", 1)
		w.server.Before(simulated.On{Resource: "widgets"}, simulated.Always(&simulated.Fault{Hang: true}))
		o := w.start(func(h handlers) {
			h.index("x", sizes)
			h.everything()
		})
		w.mark()
		if err := o.stop(); err != nil || w.since() > time.Second {
			t.Error(err, w.since())
		}
		w.expect()
	})
}

// An operator without indices waits for nothing, and one whose indices are of resources
// without objects neither.
func TestNoIndicesNoGate_IDX6(t *testing.T) {
	scenario(t, func(w *world) {
		w.create("w1", 1)
		o := w.start(func(h handlers) { h.create("c", nil) })
		w.expectAnyTime("c w1 #0 →1")
		w.expectLogged(0, "INFO", "indices are complete")
		if err := o.stop(); err != nil {
			t.Error(err)
		}
		w.server.Serve(gadgets("a.example"))
		w.mark()
		w.create("w2", 1)
		w.start(func(h handlers) {
			h.names("g", forGadgets)
			h.create("c", nil)
		})
		w.expectAnyTime("c w2 #0 →1")
		w.expectLogged(1, "INFO", "indices are complete took=0s")
	})
}
