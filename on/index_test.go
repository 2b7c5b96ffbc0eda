package on_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/indexing"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/on"
)

func podNames(_ context.Context, s *kopf.Snapshot[*corev1.Pod]) (map[int32]string, error) {
	return map[int32]string{1: s.Object.Name}, nil
}

func podCounts(context.Context, *kopf.Snapshot[*corev1.Pod]) (map[int32]int, error) { return nil, nil }

// operator makes an operator that runs nowhere.
func operator(reg *kopf.Registry) error {
	_, err := kopf.New(kopf.Options{Registry: reg, Config: &rest.Config{Host: "http://127.0.0.1:1"}})
	return err
}

// IDX-1: the id has no field in it, and all that is common to handlers holds.
func TestIndexOptions_IDX1(t *testing.T) {
	h := only(t, func(in on.AnyOption) {
		on.Index(byReplicas, on.Field("spec.replicas"), on.Value(3), on.Label("a", "b"), on.Annotation("c", "d"), on.When(always),
			on.Kind("Deployment"), on.Retries(1), on.Timeout(2), on.Backoff(3), on.Errors(on.Temporary), on.Param(4), in)
	})
	if h.ID != "byReplicas" || h.Field.String() != "spec.replicas" || h.Value == nil || len(h.Labels) != 1 || len(h.Annotations) != 1 ||
		h.When == nil || h.Selector.Name != "Deployment" || h.Retries != 1 || h.Timeout != 2 || h.Backoff != 3 ||
		h.Errors != registry.ErrorsTemporary || h.Param != 4 || h.Keeps() || h.Background() {
		t.Errorf("got %+v", h)
	}
}

// IDX-1: functions with one id feed one index.
func TestOneIndexForAnID_IDX1(t *testing.T) {
	reg := kopf.NewRegistry()
	in := on.In(reg)
	a := on.Index(byReplicas, on.ID("x"), in)
	on.Create(scaled, on.ID("x"), in)
	other := on.Index(byReplicas, on.ID("y"), in)
	b := on.Index(podNames, on.ID("x"), in) // of objects of another type
	elsewhere := on.Index(byReplicas, on.ID("x"), on.In(kopf.NewRegistry()))
	if err := reg.Err(); err != nil {
		t.Fatal(err)
	}
	if a != b || a == other || a == elsewhere {
		t.Errorf("got %p and %p for one id, %p for another one, %p in another registry", a, b, other, elsewhere)
	}
	handlers := reg.Handlers()
	if handlers[0].Index != handlers[3].Index || handlers[0].Index == handlers[2].Index {
		t.Error("the writers are not those of the ids")
	}
	if feeds := []int{handlers[0].Feed, handlers[2].Feed, handlers[3].Feed}; !slices.Equal(feeds, []int{0, 0, 1}) {
		t.Errorf("feeds are %v", feeds)
	}
}

// IDX-1: what has one id must have one type. The place of the other is told, and nothing
// else is wrong because of that.
func TestIndexOfAnotherType_IDX1(t *testing.T) {
	reg := kopf.NewRegistry()
	in := on.In(reg)
	names := on.Index(podNames, on.ID("x"), in)
	first := reg.Handlers()[0].Source
	want := below(1)
	counts := on.Index(podCounts, on.ID("x"), in)
	on.Update(scaled, on.Uses(names), on.Uses(counts), in)
	on.Create(scaled, on.Inject(&struct {
		X *kopf.Index[int32, string] `index:"x"`
	}{}), in)
	err := operator(reg)
	if err == nil || err.Error() != want+": index handler x: its entries are map[int32]int, those of the index x at "+first+
		" are map[int32]string: name one of them with on.ID" {
		t.Errorf("got %v", err)
	}
	if counts == nil || counts.Len() != 0 || counts.Has(1) {
		t.Error("the index that nothing feeds cannot be read")
	}
}

// IDX-3, IDX-4: what a function returns goes to the index by what the call has then.
func TestIndexEntries_IDX3_IDX4(t *testing.T) {
	reg := kopf.NewRegistry()
	failure := errors.New("mine")
	var result map[string]int
	var failed error
	index := on.Index(func(_ context.Context, s *kopf.Snapshot[*Dep]) (map[string]int, error) {
		if s.Object.Name != "x" || s.Param != 5 {
			t.Errorf("got %+v", s)
		}
		return result, failed
	}, on.ID("x"), on.In(reg))
	h := reg.Handlers()[0]
	invoke := func(entries map[string]int, err error) *registry.Call {
		t.Helper()
		result, failed = entries, err
		call := &registry.Call{Body: parse(t, `{"metadata":{"name":"x"}}`), Param: 5}
		if got := h.Invoke(t.Context(), call); !errors.Is(got, err) {
			t.Fatalf("got %v, want %v", got, err)
		}
		return call
	}
	holds := func(want map[string]int) {
		t.Helper()
		if got := maps.Collect(index.All()); !maps.Equal(got, want) {
			t.Errorf("the index has %v, want %v", got, want)
		}
	}
	call := invoke(map[string]int{"a": 1, "b": 2}, nil)
	holds(nil) // the engine says of whom they are
	call.Entries("owner")
	holds(map[string]int{"a": 1, "b": 2})
	if invoke(nil, nil).Entries != nil {
		t.Error("nil is not what is there already")
	}
	if invoke(map[string]int{"c": 3}, failure).Entries != nil {
		t.Error("a failure has entries")
	}
	invoke(map[string]int{"b": 4, "c": 3}, nil).Entries("owner")
	holds(map[string]int{"b": 4, "c": 3})
	invoke(map[string]int{}, nil).Entries("owner")
	holds(nil)

	var undecodable *registry.DecodeError
	if err := h.Invoke(t.Context(), &registry.Call{Body: parse(t, `{"spec":[]}`)}); !errors.As(err, &undecodable) {
		t.Errorf("an object that does not decode is %v", err)
	}
}

func TestMistakesOfIndices(t *testing.T) {
	reg := kopf.NewRegistry()
	in := on.In(reg)
	type nothing struct{ X *kopf.Index[string, string] }
	checkMistakes(t, reg, []mistake{
		{"no function", lines(), func() { on.Index[*Dep, string, int](nil, in) }, "index handler : it has no function"},
		{"no function, of another type", lines(), func() { on.Index[*Dep, string, string](nil, in) }, "index handler : it has no function"},
		{"no id", lines(), func() { on.Index(byReplicas, on.ID(""), in) }, "index handler byReplicas: on.ID is empty"},
		{"unknown field", lines(), func() { on.Index(byReplicas, on.ID("m1"), on.Field("spec.replica"), in) }, `no field "replica"`},
		{"nil option", lines(), func() { on.Index(byReplicas, on.ID("m2"), nil, in) }, "an option is nil"},

		{"uses nothing", lines(), func() { on.Update(scaled, on.ID("m10"), on.Uses[string, int](nil), in) }, "update handler m10: on.Uses got no index"},
		{"injects nothing", lines(), func() { on.Create(scaled, on.ID("m11"), on.Inject(nil), in) }, "create handler m11: on.Inject needs a pointer to a struct, not <nil>"},
		{"injects into a struct", lines(), func() { on.Create(scaled, on.ID("m12"), on.Inject(nothing{}), in) }, "on.Inject needs a pointer to a struct, not on_test.nothing"},
		{"injects into something else", lines(), func() { on.Event(seen, on.ID("m13"), on.Inject(new(int)), in) }, "on.Inject needs a pointer to a struct, not *int"},
		{"injects into nil", lines(), func() { on.Daemon(watch, on.ID("m14"), on.Inject((*nothing)(nil)), in) }, "on.Inject got no struct, but a nil *on_test.nothing"},
		{"no tag", lines(), func() { on.Timer(tick, on.ID("m15"), on.Inject(&nothing{}), in) },
			"on.Inject: no field of on_test.nothing has a tag such as `index:\"pods-by-node\"`"},
		{"empty tag", lines(), func() {
			on.Create(scaled, on.ID("m16"), on.Inject(&struct {
				X *kopf.Index[string, string] `index:""`
			}{}), in)
		}, "X has a tag that names no index"},
		{"not exported", lines(), func() {
			on.Create(scaled, on.ID("m17"), on.Inject(&struct {
				x *kopf.Index[string, string] `index:"x"`
			}{x: nil}), in)
		}, "x is not exported, so that it cannot be set"},
		{"no index", lines(), func() {
			on.Index(byReplicas, on.ID("m18"), on.Inject(&struct {
				X *kopf.Registry `index:"x"`
			}{}), in)
		}, "X is *registry.Registry, not a *kopf.Index[K, V]"},
		{"no pointer", lines(), func() {
			on.Create(scaled, on.ID("m19"), on.Inject(&struct {
				X map[string]string `index:"x"`
			}{}), in)
		}, "X is map[string]string, not a *kopf.Index[K, V]"},
		{"another type of the package", lines(), func() {
			on.Create(scaled, on.ID("m20"), on.Inject(&struct {
				X *indexing.Writer[string, string] `index:"x"`
			}{}), in)
		}, "not a *kopf.Index[K, V]"},
	})
}

// injected has fields for indices of its own, and of an embedded struct.
type injected struct {
	Replicas *kopf.Index[int32, string] `index:"replicas" json:"-"`
	Other    *kopf.Index[int32, string]
	embedded
}

type embedded struct {
	Names *kopf.Index[int32, string] `index:"names"`
}

// KW-2: fields get their index when the operator is made, whatever was registered first.
func TestInject_KW2(t *testing.T) {
	reg := kopf.NewRegistry()
	in := on.In(reg)
	fields := new(injected)
	on.Create(scaled, on.Inject(fields), in)
	on.Event(seen, on.Inject(fields), in)
	on.Daemon(watch, on.Inject(fields), on.Inject(new(injected)), in)
	replicas := on.Index(byReplicas, on.ID("replicas"), on.Inject(fields), in)
	names := on.Index(podNames, on.ID("names"), in)
	if err := reg.Err(); err != nil || fields.Replicas != nil {
		t.Fatalf("got %+v, %v before the operator is made", fields, err)
	}
	for range 2 { // an operator may be made again
		if err := operator(reg); err != nil {
			t.Fatal(err)
		}
		if fields.Replicas != replicas || fields.Names != names || fields.Other != nil {
			t.Errorf("got %+v", fields)
		}
	}
}

// What is wrong with an injection is found when all indices are known, told with the place
// of the registration, and keeps all fields as they are.
func TestMistakesOfInjections(t *testing.T) {
	reg := kopf.NewRegistry()
	in := on.In(reg)
	var want []string
	expect := func(place, text string) { want = append(want, place+": create handler scaled: on.Inject: field "+text) }
	right := new(injected)
	on.Update(scaled, on.Inject(right), in)
	on.Index(byReplicas, on.ID("replicas"), in)
	at := reg.Handlers()[1].Source
	on.Index(podNames, on.ID("names"), in)

	type misspelt struct {
		X *kopf.Index[int32, string] `index:"replica"`
	}
	type unknown struct {
		X *kopf.Index[int32, string] `index:"completely-different"`
	}
	type ofOthers struct {
		X *kopf.Index[string, []int] `index:"replicas"`
	}
	expect(below(1), `on_test.misspelt.X: there is no index "replica" (did you mean "replicas"?) in the handler's registry, but names, replicas`)
	on.Create(scaled, on.Inject(new(misspelt)), in)
	expect(below(1), `on_test.unknown.X: there is no index "completely-different" in the handler's registry, but names, replicas`)
	on.Create(scaled, on.Kind("Deployment"), on.Inject(new(unknown)), in)
	expect(below(1), `on_test.ofOthers.X is for entries map[string][]int, those of the index replicas at `+at+` are map[int32]string`)
	on.Create(scaled, on.Plural("deployments"), on.Inject(new(ofOthers)), in)
	expect(below(1), `on_test.injected.Replicas has another index already: give each registry a struct of its own`)
	on.Create(scaled, on.Singular("deployment"), on.Inject(&injected{Replicas: indexing.NewWriter[int32, string]().Index()}), in)
	err := operator(reg)
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("got %v\nwant %s", err, strings.Join(want, "\n"))
	}
	if right.Replicas != nil || right.Names != nil {
		t.Error("a field was set although there are mistakes")
	}
}

func TestInjectionWithoutAnyIndex(t *testing.T) {
	reg := kopf.NewRegistry()
	on.Create(scaled, on.Inject(new(injected)), on.In(reg))
	if err := operator(reg); err == nil || strings.Count(err.Error(), "\n") != 1 ||
		!strings.Contains(err.Error(), `there is no index "names", nor any other, in the handler's registry`) {
		t.Errorf("got %v", err)
	}
}

// Two registries cannot have one struct: the fields lead to one index only.
func TestInjectionOfTwoRegistries(t *testing.T) {
	fields := new(injected)
	for i := range 2 {
		reg := kopf.NewRegistry()
		on.Create(scaled, on.Inject(fields), on.In(reg))
		on.Index(byReplicas, on.ID("replicas"), on.In(reg))
		on.Index(podNames, on.ID("names"), on.In(reg))
		if err := operator(reg); (err != nil) != (i == 1) || i == 1 && !strings.Contains(err.Error(), "has another index already") {
			t.Errorf("registry %d: %v", i, err)
		}
	}
}

// The index that a handler uses is found among those of its registry, in whatever order
// they were registered.
func TestMistakesOfUses(t *testing.T) {
	elsewhere := on.Index(byReplicas, on.In(kopf.NewRegistry()))
	reg := kopf.NewRegistry()
	in := on.In(reg)
	here := on.Index(byReplicas, in)
	first := below(1)
	on.Update(scaled, on.Uses(elsewhere), on.Uses(here), in)
	second := below(1)
	on.Timer(tick, on.Uses(indexing.NewWriter[string, int]().Index()), in)
	err := operator(reg)
	const text = "on.Uses: the index is not one of the handler's registry: register both in the same one"
	if err == nil || err.Error() != first+": update handler scaled: "+text+"\n"+second+": timer handler tick: "+text {
		t.Errorf("got %v", err)
	}
}
