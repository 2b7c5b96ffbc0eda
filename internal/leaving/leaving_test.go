package leaving_test

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/internal/leaving"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/internal/stream"
	"github.com/kopf-go/kopf/storage"
)

const finalizer = "kopf.zalando.org/KopfFinalizerMarker"

var gvr = schema.GroupVersionResource{Group: "demo.example", Version: "v1", Resource: "widgets"}

type world struct {
	*testing.T
	server  *simulated.Server
	widgets *simulated.Collection
	cleaner *leaving.Cleaner
}

func newWorld(t *testing.T, policy leaving.Policy) *world {
	server := simulated.New()
	w := &world{T: t, server: server, widgets: server.Serve(simulated.Kind{
		GroupVersion: "demo.example/v1", Kind: "Widget", Plural: "widgets", Namespaced: true, Status: true,
	})}
	client, err := stream.NewClient(server.Config(), nil)
	if err != nil {
		t.Fatal(err)
	}
	naming := state.Default()
	store, err := state.NewStore(state.Config{Naming: naming, Progress: storage.Multi(
		storage.AnnotationsProgress(naming.Prefix, storage.AnnotationsOptions{}), storage.StatusProgress(storage.StatusOptions{}),
	)})
	if err != nil {
		t.Fatal(err)
	}
	w.cleaner = &leaving.Cleaner{Client: client, Store: store, Naming: naming, Policy: policy, Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)}
	return w
}

func (w *world) create(name string, finalizers ...string) {
	w.Helper()
	o := simulated.Object("ns", name, map[string]any{"spec": map[string]any{"size": 1}})
	o.SetFinalizers(finalizers)
	o.SetAnnotations(map[string]string{
		"kopf.zalando.org/last-handled-configuration": `{"spec":{"size":1}}`, "kopf.zalando.org/last-handled-uid": "1",
		"kopf.zalando.org/create_fn":    `{"started":"2026-11-30T01:11:37.000000+00:00","retries":1}`,
		"kopf.zalando.org/kopf-managed": "yes", "kopf.zalando.org/touch-dummy": "x", "theirs": "stays",
	})
	if _, err := w.widgets.Create(o); err != nil {
		w.Fatal(err)
	}
	if _, err := w.widgets.UpdateStatus("ns", name, func(o *unstructured.Unstructured) {
		o.Object["status"] = map[string]any{"phase": "Ready", "kopf": map[string]any{"progress": map[string]any{"create_fn": map[string]any{"retries": 1}}}}
	}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) clean() *leaving.Report {
	w.Helper()
	return w.cleaner.Clean(w.Context(), []leaving.Resource{{GVR: gvr, Status: true}})
}

func (w *world) is(name, finalizers, annotations, status string) {
	w.Helper()
	o := w.widgets.Get("ns", name)
	if o == nil {
		w.Fatalf("%s is gone", name)
	}
	names := slices.Sorted(maps.Keys(o.GetAnnotations()))
	if got := strings.Join(o.GetFinalizers(), " "); got != finalizers {
		w.Errorf("%s: finalizers %q, want %q", name, got, finalizers)
	}
	if got := strings.Join(names, " "); got != annotations {
		w.Errorf("%s: annotations %q, want %q", name, got, annotations)
	}
	if got := fmt.Sprint(o.Object["status"]); got != status {
		w.Errorf("%s: status %s, want %s", name, got, status)
	}
}

func expect(t *testing.T, r *leaving.Report, seen, released, cleaned int, left ...string) {
	t.Helper()
	var got []string
	for _, l := range r.Sorted() {
		got = append(got, l.Name+": "+l.Why)
	}
	if r.Seen != seen || r.Released != released || r.Cleaned != cleaned || len(got) != len(left) || len(r.Failed) > 0 {
		t.Errorf("seen %d released %d cleaned %d left %q failed %v", r.Seen, r.Released, r.Cleaned, got, r.Failed)
	}
	for i := range min(len(got), len(left)) {
		if !strings.Contains(got[i], left[i]) {
			t.Errorf("left %q, want %q", got[i], left[i])
		}
	}
}

// bare is a status without records; the mapping that held them stays, as it does in Kopf.
const bare = "map[kopf:map[progress:map[]] phase:Ready]"

func TestEverythingOfOursGoes(t *testing.T) {
	w := newWorld(t, leaving.Policy{})
	w.create("a", finalizer, "theirs/finalizer")
	w.create("b")
	o := simulated.Object("ns", "c", map[string]any{"spec": map[string]any{}})
	if _, err := w.widgets.Create(o); err != nil {
		t.Fatal(err)
	}
	expect(t, w.clean(), 3, 1, 2)
	w.is("a", "theirs/finalizer", "theirs", bare)
	w.is("b", "", "theirs", bare)
	w.is("c", "", "", "<nil>")

	w.server.Forget()
	expect(t, w.clean(), 3, 0, 0)
	if n := len(w.server.Writes()); n != 0 {
		t.Errorf("the second time writes %d times", n)
	}
}

func TestPagesAreReadToTheEnd(t *testing.T) {
	w := newWorld(t, leaving.Policy{})
	for i := range 1203 {
		o := simulated.Object("ns", fmt.Sprintf("w%d", i), nil)
		o.SetFinalizers([]string{finalizer})
		if _, err := w.widgets.Create(o); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, w.clean(), 1203, 1203, 0)
	if n := w.server.Count(simulated.On{Verb: "list", Resource: "widgets"}); n != 3 {
		t.Errorf("%d lists", n)
	}
}

func TestDeletionsAreWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		policy   leaving.Policy
		released int
		left     []string
	}{
		"unless they are abandoned": {leaving.Policy{Abandon: true}, 1, nil},
		"by default":                {leaving.Policy{}, 0, []string{"a: it is being deleted"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.policy)
			w.create("a", finalizer)
			if err := w.widgets.Delete("ns", "a"); err != nil {
				t.Fatal(err)
			}
			expect(t, w.clean(), 1, c.released, c.released, c.left...)
			switch o := w.widgets.Get("ns", "a"); {
			case c.policy.Abandon && o != nil:
				t.Error("it is still there")
			case !c.policy.Abandon && o.GetAnnotations()["kopf.zalando.org/create_fn"] == "":
				t.Error("progress of an unfinished deletion was taken away")
			}
		})
	}
}

func TestWhatIsToBeKeptIs(t *testing.T) {
	w := newWorld(t, leaving.Policy{KeepState: true})
	w.create("a", finalizer)
	before := len(w.widgets.Get("ns", "a").GetAnnotations())
	expect(t, w.clean(), 1, 1, 0)
	if o := w.widgets.Get("ns", "a"); len(o.GetFinalizers()) != 0 || len(o.GetAnnotations()) != before {
		t.Errorf("left %v, %v", o.GetFinalizers(), o.GetAnnotations())
	}

	w = newWorld(t, leaving.Policy{KeepFinalizers: true})
	w.create("a", finalizer)
	expect(t, w.clean(), 1, 0, 1, "a: it keeps its finalizer")
	w.is("a", finalizer, "theirs", bare)

	w = newWorld(t, leaving.Policy{DryRun: true})
	w.create("a", finalizer)
	expect(t, w.clean(), 1, 1, 1)
	if n := len(w.server.Writes()); n != 0 {
		t.Errorf("a dry run writes %d times", n)
	}
}

// Others write, delete and create anew meanwhile, and the API server says no.
func TestFaults(t *testing.T) {
	patch := simulated.On{Verb: "patch", Resource: "widgets", Name: "a", Times: 1}
	for name, c := range map[string]struct {
		before func(w *world)
		want   func(t *testing.T, w *world, r *leaving.Report)
	}{
		"somebody else is faster": {
			func(w *world) {
				w.server.Before(patch, func(simulated.Request) *simulated.Fault {
					if _, err := w.widgets.Update("ns", "a", func(o *unstructured.Unstructured) {
						o.SetFinalizers(append(o.GetFinalizers(), "late/finalizer"))
					}); err != nil {
						w.Error(err)
					}
					return nil
				})
			},
			func(t *testing.T, w *world, r *leaving.Report) {
				expect(t, r, 1, 1, 1)
				w.is("a", "late/finalizer", "theirs", bare)
			},
		},
		"it is created anew": {
			func(w *world) {
				w.server.Before(patch, func(simulated.Request) *simulated.Fault {
					if err := w.widgets.Vanish("ns", "a"); err != nil {
						w.Error(err)
					}
					w.create("a", finalizer)
					return nil
				})
			},
			func(t *testing.T, w *world, r *leaving.Report) {
				expect(t, r, 1, 0, 0)
				if o := w.widgets.Get("ns", "a"); len(o.GetFinalizers()) != 1 {
					t.Error("another object was changed")
				}
			},
		},
		"it goes": {
			func(w *world) {
				w.server.Before(patch, func(simulated.Request) *simulated.Fault {
					if err := w.widgets.Vanish("ns", "a"); err != nil {
						w.Error(err)
					}
					return nil
				})
			},
			func(t *testing.T, _ *world, r *leaving.Report) { expect(t, r, 1, 0, 0) },
		},
		"it is refused": {
			func(w *world) { w.server.Before(patch, simulated.Always(simulated.Fail(403))) },
			func(t *testing.T, _ *world, r *leaving.Report) { expect(t, r, 1, 0, 0, "a: ") },
		},
		"nothing may be read": {
			func(w *world) {
				w.server.Before(simulated.On{Verb: "list"}, simulated.Always(simulated.Fail(403)))
			},
			func(t *testing.T, _ *world, r *leaving.Report) {
				if len(r.Failed) != 1 || !strings.Contains(r.Failed[0].Error(), "widgets.demo.example") {
					t.Errorf("failed: %v", r.Failed)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, leaving.Policy{})
			w.create("a", finalizer)
			c.before(w)
			c.want(t, w, w.clean())
		})
	}
}
