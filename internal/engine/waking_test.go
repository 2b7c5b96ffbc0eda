package engine_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

type colours = kopf.Index[int, string]

var forTargets = on.Label("kind", "target")

// colours registers an index of the colours of sources, by their sizes.
func (h handlers) colours() *colours { return h.coloursOf("source") }

func (h handlers) coloursOf(kind string) *colours {
	return on.Index(func(_ context.Context, s *kopf.Snapshot[*widget]) (map[int]string, error) {
		return map[int]string{s.Object.Spec.Size: s.Object.Spec.Color}, nil
	}, on.ID("colours-of-"+kind), on.In(h.r), forWidgets, on.Label("kind", kind))
}

// see notes what a handler sees of an index, such as "see t1 index #0 red", and does
// something else then.
func (h handlers) see(id string, index *colours, then changeFn) changeFn {
	return func(ctx context.Context, c *change) error {
		colour, _ := index.Tracked(ctx).First(c.New.Spec.Size)
		h.w.note(strings.TrimSpace(fmt.Sprintf("%s %s %s #%d %s", id, c.Object.Name, c.Reason, c.Retry, colour)))
		if c.Reason == kopf.ReasonIndex && (c.Old == nil || !reflect.DeepEqual(c.Old.Spec, c.New.Spec) || len(c.Diff) > 0) {
			h.w.Errorf("%s is told of a change: %v, %v", id, c.Old, c.Diff)
		}
		if then == nil {
			return nil
		}
		return then(ctx, c)
	}
}

// seer registers a create handler that sees the colour of its size.
func (h handlers) seer(then changeFn, opts ...on.CreateOption) *colours {
	index := h.colours()
	on.Create(h.see("see", index, then), append(opts, on.ID("see"), on.In(h.r), forWidgets, forTargets, on.Uses(index))...)
	return index
}

func (w *world) source(name string, size int, colour string) {
	w.Helper()
	w.create(name, size, label("kind", "source"), func(o widgetObj) { set(o, colour, "spec", "color") })
}

func (w *world) target(name string, size int, more ...func(widgetObj)) {
	w.Helper()
	w.create(name, size, append(more, label("kind", "target"))...)
}

// gets compares the number of reads since the mark.
func (w *world) gets(want int) {
	w.Helper()
	if got := w.server.Count(simulated.On{Verb: "get"}); got != want {
		w.Errorf("%d reads, want %d", got, want)
	}
}

// notes are how many facts of an index somebody waits for to change.
func notes[K comparable, V any](index *kopf.Index[K, V]) int64 {
	return reflect.ValueOf(index).Elem().FieldByName("notes").FieldByName("count").FieldByName("v").Int()
}

// What a handler has read wakes it, and nothing else. It costs one read of the object, and
// no write. After a restart it is called once.
func TestUsesWakes(t *testing.T) {
	scenario(t, func(w *world) {
		w.source("a", 1, "red")
		w.source("b", 2, "red")
		w.target("t", 1)
		o := w.start(func(h handlers) { h.seer(nil) })
		w.expect("see t create #0 red")
		w.mark()
		w.paint("b", "blue")
		w.touchStatus("a", "busy")
		w.settle()
		w.expect()
		w.gets(0)
		w.paint("a", "green")
		w.settle()
		w.expect("see t index #0 green")
		w.gets(1)
		w.writes()
		for name, end := range map[string]func(){"stopped": func() { _ = o.stop() }, "killed": func() { o.kill() }} {
			w.mark()
			end()
			o = w.start(func(h handlers) { h.seer(nil) })
			w.expect("see t index #0 green")
			w.gets(0)
			w.writes()
			w.touchStatus("t", name)
			w.quiet(time.Hour)
			w.expect("see t index #0 green")
		}
		w.mark()
		w.delete("a")
		w.settle()
		w.expect("see t index #0")
	})
}

// Each handler is woken by what it has read itself.
func TestTwoHandlersUseTwoIndices(t *testing.T) {
	scenario(t, func(w *world) {
		w.source("a", 1, "red")
		w.create("b", 1, label("kind", "other"))
		w.target("t", 1)
		w.start(func(h handlers) {
			one, other := h.colours(), h.coloursOf("other")
			on.Create(h.see("one", one, nil), on.ID("one"), on.In(h.r), forWidgets, forTargets, on.Uses(one))
			on.Create(h.see("other", other, func(ctx context.Context, c *change) error {
				one.Tracked(ctx).First(1) // it does not say that it uses it
				return nil
			}), on.ID("other"), on.In(h.r), forWidgets, forTargets, on.Uses(other))
			on.Create(h.see("both", one, func(ctx context.Context, c *change) error {
				other.Tracked(ctx).Has(2)
				return nil
			}), on.ID("both"), on.In(h.r), forWidgets, forTargets, on.Uses(one), on.Uses(other))
		})
		w.mark()
		w.paint("a", "green")
		w.settle()
		w.expectSet("one t index #0 green", "both t index #0 green")
		w.mark()
		w.paint("b", "blue")
		w.settle()
		w.expect("other t index #0 blue")
		w.mark()
		w.resize("b", 2)
		w.settle()
		w.expectSet("other t index #0", "both t index #0 green")
		w.writes()
	})
}

// An object that is indexed itself, and whose handler edits it, is called once more if
// that changes what it has read, and no more.
func TestOwnEntries(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			index := h.coloursOf("target")
			on.Create(h.see("see", index, func(_ context.Context, c *change) error {
				c.Patch.Apply(func(o *widget) { o.Spec.Color, o.Status.Phase = "red", "Seen" })
				return nil
			}), on.ID("see"), on.In(h.r), forWidgets, forTargets, on.Uses(index))
		})
		w.target("t", 1)
		w.sleep(time.Hour)
		w.expect("see t create #0", "see t index #0 red")
		w.mark()
		w.paint("t", "green")
		w.sleep(time.Hour)
		w.expect("see t index #0 green", "see t index #0 red")
	})
}

// The last call is what counts: what it has not read any more wakes nobody, what it has
// read in addition does.
func TestLastCallCounts(t *testing.T) {
	scenario(t, func(w *world) {
		w.source("a", 1, "red")
		w.source("b", 2, "red")
		w.source("c", 3, "red")
		keys := [][]int{{1}, {2, 3}, {3}}
		var index *colours
		w.start(func(h handlers) {
			index = h.colours()
			on.Create(func(ctx context.Context, c *change) error {
				for _, key := range keys[0] {
					index.Tracked(ctx).Has(key)
					index.Tracked(ctx).First(key)
				}
				h.w.note(fmt.Sprint(keys[0]))
				keys = keys[1:]
				return nil
			}, on.ID("see"), on.In(h.r), forWidgets, forTargets, on.Uses(index))
		})
		w.target("t", 1)
		for _, step := range []struct{ source, calls string }{
			{"b", ""}, {"a", "[2 3]"}, {"a", ""}, {"c", "[3]"}, {"b", ""},
		} {
			w.settle()
			w.mark()
			w.paint(step.source, w.get(step.source).GetResourceVersion())
			w.settle()
			if got := strings.Join(w.called(), " "); got != step.calls {
				t.Errorf("%s: %s, want %s", step.source, got, step.calls)
			}
		}
		if n := notes(index); n != 2 {
			t.Errorf("%d notes", n)
		}
	})
}

// A handler that reads nothing in a way that can be noted is told so, once.
func TestReadsNothing(t *testing.T) {
	scenario(t, func(w *world) {
		w.source("a", 1, "red")
		w.start(func(h handlers) {
			index := h.colours()
			h.create("blind", func(context.Context, *change) error { index.First(1); return nil }, forTargets, on.Uses(index))
		})
		w.target("t1", 1)
		w.target("t2", 1)
		w.settle()
		w.mark()
		w.paint("a", "green")
		w.settle()
		w.expect()
		warned := 0
		for _, text := range w.logs {
			if strings.Contains(text, "has read nothing from the index") {
				warned++
			}
		}
		if warned != 1 {
			t.Errorf("warned %d times", warned)
		}
	})
}

// Notes go with the objects, and with the calls that made them.
func TestNotesGoWithTheirObjects(t *testing.T) {
	scenario(t, func(w *world) {
		w.source("a", 1, "red")
		var index *colours
		var mu sync.Mutex
		var views []func()
		o := w.start(func(h handlers) {
			index = h.seer(func(ctx context.Context, c *change) error {
				mu.Lock()
				defer mu.Unlock()
				views = append(views, func() { index.Tracked(ctx).Has(77) })
				return nil
			})
			h.timer("tick", func(ctx context.Context, c *tick) error {
				index.Tracked(ctx).First(c.Object.Spec.Size)
				return nil
			}, on.Interval(time.Minute), forTargets, on.Uses(index))
			h.delete("end", func(ctx context.Context, c *change) error {
				index.Tracked(ctx).First(c.Object.Spec.Size)
				return nil
			}, on.Uses(index), on.Label("held", ""))
		})
		for round := range 3 {
			for i := range 100 {
				labels := map[string]string{"kind": "target"}
				if i%2 == 0 {
					labels["held"] = ""
				}
				w.create(fmt.Sprint("t", i), i%5, func(o widgetObj) { o.SetLabels(labels) })
			}
			w.sleep(2 * time.Minute)
			if n := notes(index); n != 200 {
				t.Errorf("%d notes of 200 readings", n)
			}
			w.paint("a", fmt.Sprint(round))
			w.settle()
			for i := range 100 {
				w.delete(fmt.Sprint("t", i))
			}
			w.settle()
			for _, look := range views { // somebody has kept them
				look()
			}
			if n := notes(index); n != 0 {
				t.Errorf("%d notes are left", n)
			}
		}
		if err := o.stop(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}
