package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

type (
	snapshot  = kopf.Snapshot[*widget]
	texts     = map[string]string
	textIndex = kopf.Index[string, string]
	indexFn   = func(context.Context, *snapshot) (texts, error)
)

// index registers an index function of widgets. Without one, widgets are found by color.
func (h handlers) index(id string, fn indexFn, opts ...on.IndexOption) *textIndex {
	if fn == nil {
		fn = byColor
	}
	return on.Index(fn, append(opts, on.ID(id), on.In(h.r), forWidgets)...)
}

func byColor(_ context.Context, s *snapshot) (texts, error) {
	return texts{s.Object.Spec.Color: s.Object.Name}, nil
}

func sizes(_ context.Context, s *snapshot) (texts, error) {
	return texts{s.Object.Name: strconv.Itoa(s.Object.Spec.Size)}, nil
}

// names registers an index of whatever is selected, by name.
func (h handlers) names(id string, opts ...on.IndexOption) *textIndex {
	return on.Index(func(_ context.Context, s *kopf.Snapshot[anything]) (texts, error) {
		return texts{s.Object.GetName(): s.Object.GetKind()}, nil
	}, append(opts, on.ID(id), on.In(h.r))...)
}

func inColor(color string) func(widgetObj) {
	return func(o widgetObj) { set(o, color, "spec", "color") }
}

func (w *world) paint(name, color string) { w.Helper(); w.update(name, inColor(color)) }

// holds compares an index with its entries, such as "red=w1".
func (w *world) holds(x *textIndex, want ...string) {
	w.Helper()
	if got := entriesOf(x); !slices.Equal(got, want) {
		w.Errorf("index: got %q, want %q", got, want)
	}
}

func entriesOf(x *textIndex) (entries []string) {
	for key, value := range x.All() {
		entries = append(entries, key+"="+value)
	}
	slices.Sort(entries)
	return entries
}

func TestIndexFeedsHandlers_IDX2_IDX6(t *testing.T) {
	scenario(t, func(w *world) {
		for i := range 100 {
			w.create(fmt.Sprintf("old%d", i), i%10)
		}
		var bySize *kopf.Index[int, string]
		w.start(func(h handlers) {
			bySize = on.Index(func(_ context.Context, s *snapshot) (map[int]string, error) {
				return map[int]string{s.Object.Spec.Size: s.Object.Name}, nil
			}, on.ID("by-size"), on.In(h.r), forWidgets)
			h.create("c", func(context.Context, *change) error {
				h.w.note(fmt.Sprint(bySize.Len()))
				return nil
			}, on.Label("new", ""))
		})
		w.mark()
		w.create("w1", 77, label("new", ""))
		w.settle()
		w.expectAnyTime("c w1 #0 →77", "11")
		w.delete("w1")
		w.settle()
		if bySize.Has(77) || bySize.Len() != 10 {
			t.Error("not removed")
		}
	})
}

// IDX-2: whoever is called for a version of an object finds that version in the index,
// also in filters; while it is being deleted, too, and not any more once it is gone.
func TestObjectIsIndexedBeforeItIsHandled_IDX2_IDX10_KW3(t *testing.T) {
	scenario(t, func(w *world) {
		indexed := map[string]int{} // by version
		w.create("old", 1)
		w.start(func(h handlers) {
			x := h.index("x", func(ctx context.Context, s *snapshot) (texts, error) {
				w.mu.Lock()
				indexed[s.Object.Name+s.Object.ResourceVersion]++
				w.mu.Unlock()
				return sizes(ctx, s)
			})
			saw := func(who, name string, size int) {
				if value, _ := x.First(name); value != strconv.Itoa(size) {
					w.Errorf("%s of %s sees %q in the index, not %d", who, name, value, size)
				}
			}
			look := func(_ context.Context, c *change) error {
				saw(string(c.Reason), c.Object.Name, c.Object.Spec.Size)
				return nil
			}
			when := on.When(func(_ context.Context, s *snapshot) bool {
				saw("filter", s.Object.Name, s.Object.Spec.Size)
				return true
			})
			h.create("create", func(ctx context.Context, c *change) error {
				c.Patch.Apply(func(o *widget) { o.Status.Phase = "own" })
				return look(ctx, c)
			}, when)
			h.update("update", look, when)
			h.resume("resume", look, when)
			h.delete("delete", look)
			h.daemon("daemon", func(ctx context.Context, d *daemon) error {
				saw("daemon", d.Object().Name, d.Object().Spec.Size)
				<-ctx.Done()
				return nil
			}, when)
			h.timer("timer", func(_ context.Context, t *tick) error {
				saw("timer", t.Object.Name, t.Object.Spec.Size)
				return nil
			}, on.Interval(time.Minute))
			on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
				switch {
				case e.Type == kopf.EventDeleted && x.Has(e.Object.Name):
					w.Error("a deleted object is in the index")
				case e.Type == kopf.EventDeleted, e.Object.DeletionTimestamp != nil: // it may be gone when this is told
					return nil
				}
				saw("event", e.Object.Name, e.Object.Spec.Size)
				return nil
			}, on.ID("event"), on.In(h.r), forWidgets)
		})
		w.create("w1", 1)
		w.settle()
		w.resize("w1", 2)
		w.settle()
		w.resize("old", 7)
		w.sleep(2 * time.Minute)
		w.delete("w1")
		w.settle()
		w.gone("w1")
		versions, _ := w.widgets.History(0)
		for _, v := range versions {
			if n := indexed[v.Object.GetName()+v.Object.GetResourceVersion()]; n != 1 && v.Type != "DELETED" {
				t.Errorf("version %s of %s was indexed %d times", v.Object.GetResourceVersion(), v.Object.GetName(), n)
			}
		}
	})
}

// IDX-2, T149: what is gone is not in the index, however it went.
func TestDeletedObjectsLeaveTheIndex_IDX2_T149(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"seen":   func(w *world) { w.delete("w1") },
		"missed": func(w *world) { unwatched(w, func() { w.delete("w1") }) },
		"namespace": func(w *world) {
			if err := w.server.Collection("v1", "namespaces").Delete("", ns); err != nil {
				w.Fatal(err)
			}
		},
		"resource": func(w *world) { w.server.Withdraw("demo.example/v1", "widgets") },
		"resource, before the objects": func(w *world) {
			w.server.Mute()
			w.server.CutWatches()
			stop := w.server.Before(simulated.On{Resource: "widgets"}, simulated.Always(simulated.Fail(503)))
			w.server.Withdraw("demo.example/v1", "widgets")
			w.sleep(20 * time.Second)
			stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("resource is not served by the cluster")
				w.spaces = []string{"def*"}
				w.create("w1", 1, inColor("red"))
				var x *textIndex
				w.start(func(h handlers) {
					x = h.index("x", nil)
					h.events()
				})
				w.sleep(time.Second)
				w.holds(x, "red=w1")
				w.mark()
				end(w)
				w.sleep(time.Minute)
				w.holds(x)
				w.expectAnyTime("event w1 DELETED " + map[bool]string{true: "1", false: "0"}[name == "seen" || name == "resource"])
			})
		})
	}
}

// unwatched lets something happen in a gap between two lists.
func unwatched(w *world, happen func()) {
	stop := w.server.Before(simulated.On{Resource: "widgets"}, simulated.Always(simulated.Fail(503)))
	w.server.CutWatches()
	w.settle()
	happen()
	w.server.Compact()
	stop()
	w.sleep(time.Minute)
}

func TestRecreatedObjectInIndex_IDX5(t *testing.T) {
	for name, between := range map[string]func(w *world, happen func()){
		"seen": func(_ *world, happen func()) { happen() }, "missed": unwatched,
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.create("w1", 1, inColor("red"))
				var x *textIndex
				w.start(func(h handlers) { x = h.index("x", nil) })
				between(w, func() {
					w.delete("w1")
					w.create("w1", 1, inColor("blue"))
				})
				w.settle()
				w.holds(x, "blue=w1")
				w.delete("w1")
				w.settle()
				w.holds(x)
			})
		})
	}
}

func TestIndexFollowsTheObject_IDX3_IDX4_IDX5_T148(t *testing.T) {
	scenario(t, func(w *world) {
		said := map[string]texts{
			"two": {"a": "1", "b": "1"}, "other": {"b": "2", "c": "2"}, "none": {}, "same": nil, "zero": {"": ""},
		}
		var x *textIndex
		w.start(func(h handlers) {
			x = h.index("x", func(_ context.Context, s *snapshot) (texts, error) { return said[s.Object.Spec.Color], nil })
		})
		w.create("w1", 1, inColor("two"))
		w.create("w2", 1, inColor("two"))
		for _, c := range []struct{ color, want string }{
			{"two", "a=1 a=1 b=1 b=1"}, {"other", "a=1 b=1 b=2 c=2"}, {"same", "a=1 b=1 b=2 c=2"}, {"none", "a=1 b=1"},
			{"same", "a=1 b=1"}, {"zero", "= a=1 b=1"}, {"two", "a=1 a=1 b=1 b=1"},
		} {
			w.paint("w1", c.color)
			w.settle()
			w.holds(x, strings.Fields(c.want)...)
		}
		w.delete("w2")
		w.settle()
		w.holds(x, "a=1", "b=1")
	})
}

// IDX-4, T149: who leaves the filters leaves the index, and comes back with them.
func TestFiltersOfIndices_IDX4_T149(t *testing.T) {
	for name, c := range map[string]struct {
		filter    on.IndexOption
		out, into func(widgetObj)
	}{
		"label":      {on.Label("in", filters.Present), label("out", ""), label("in", "")},
		"annotation": {on.Annotation("in", "yes"), annotation("in", "no"), annotation("in", "yes")},
		"field": {on.Field("spec.rev"), func(o widgetObj) { delete(o.Object["spec"].(map[string]any), "rev") },
			func(o widgetObj) { set(o, int64(5), "spec", "rev") }},
		"function": {on.When(func(_ context.Context, s *snapshot) bool { return s.Object.Spec.Size > 10 }),
			func(o widgetObj) { set(o, int64(1), "spec", "size") }, func(o widgetObj) { set(o, int64(11), "spec", "size") }},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.create("w1", 1, c.into, inColor("red"))
				w.create("w2", 1, c.into, inColor("red"))
				w.create("w3", 1, c.out, inColor("red"))
				var x *textIndex
				w.start(func(h handlers) { x = h.index("x", nil, c.filter) })
				for range 2 {
					w.holds(x, "red=w1", "red=w2")
					w.update("w1", c.out)
					w.settle()
					w.holds(x, "red=w2")
					w.update("w1", c.into)
					w.settle()
				}
				w.update("w1", c.out)
				w.delete("w1")
				w.settle()
				w.holds(x, "red=w2")
			})
		})
	}
}

// IDX-1: functions of one id feed one index, and each of them answers for its entries only.
func TestSeveralFunctionsFeedAnIndex_IDX1(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("resource is not served by the cluster")
		collection := w.server.Serve(gadgets("a.example"))
		w.create("w1", 1, inColor("red"), label("second", ""))
		w.put(collection, "w1")
		var x *textIndex
		w.start(func(h handlers) {
			x = h.index("x", nil)
			h.index("x", func(_ context.Context, s *snapshot) (texts, error) {
				return texts{s.Object.Spec.Color: "also " + s.Object.Name, "second": s.Object.Name}, nil
			}, on.Label("second", ""))
			h.names("x", on.Kind("Gadget"))
		})
		w.holds(x, "red=also w1", "red=w1", "second=w1", "w1=Gadget")
		w.paint("w1", "blue")
		w.settle()
		w.holds(x, "blue=also w1", "blue=w1", "second=w1", "w1=Gadget")
		w.update("w1", label("second", "not any more"))
		w.settle()
		w.holds(x, "blue=w1", "w1=Gadget")
		w.update("w1", label("second", ""))
		w.delete("w1")
		w.settle()
		w.holds(x, "w1=Gadget")
		w.server.Withdraw("a.example/v1", "gadgets")
		w.sleep(time.Minute)
		w.holds(x)
	})
}

// A resource that is followed in another version from now on has its objects in the
// index once.
func TestIndexOfAnotherVersion(t *testing.T) {
	scenario(t, func(w *world) {
		w.server.Serve(gadgets("a.example"))
		old := w.server.Serve(gadgets("a.example", func(k *simulated.Kind) { k.GroupVersion = "a.example/v1beta1" }))
		w.server.Prefer("a.example/v1beta1")
		w.put(old, "g1")
		w.put(old, "g2")
		var x *textIndex
		w.start(func(h handlers) { x = h.names("x", on.Kind("Gadget")) })
		w.sleep(time.Minute)
		w.holds(x, "g1=Gadget", "g2=Gadget")
		w.server.Mute() // nobody hears of the end of the old ones
		w.server.Withdraw("a.example/v1beta1", "gadgets")
		w.server.CutWatches()
		now := w.server.Collection("a.example/v1", "gadgets")
		w.put(now, "g2")
		w.sleep(time.Minute)
		w.holds(x, "g2=Gadget")
	})
}

// IDX-10, KW-2: indices are read in all kinds of filters, and by functions of other indices.
func TestIndicesInFilters_IDX10_KW2(t *testing.T) {
	scenario(t, func(w *world) {
		w.create("source", 1, inColor("red"))
		var x, y *textIndex
		w.start(func(h handlers) {
			x = h.index("x", nil, on.Label("color", filters.Absent))
			y = h.index("y", func(_ context.Context, s *snapshot) (texts, error) {
				source, _ := x.First(s.Object.Labels["color"])
				return texts{s.Object.Name: source}, nil
			}, on.Label("color", filters.Present))
			h.create("by-label", nil, on.Label("color", func(color string) bool { return x.Has(color) }))
			h.create("by-function", nil, on.When(func(_ context.Context, s *snapshot) bool { return x.Has(s.Object.Labels["color"]) }))
			h.create("by-value", nil, on.Field("spec.color"), on.Value(func(color string) bool { return x.Has(color) }), on.Label("color", "none"))
		})
		w.create("w1", 1, label("color", "red"))
		w.create("w2", 2, label("color", "blue"))
		w.create("w3", 3, label("color", "none"), inColor("red"))
		w.settle()
		w.expectSet("by-label w1 #0 →1", "by-function w1 #0 →1", "by-value w3 #0 →3")
		w.holds(y, "w1=source", "w2=", "w3=")
	})
}
