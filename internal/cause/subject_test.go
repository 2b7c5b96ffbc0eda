package cause

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
)

func parse(t *testing.T, raw string) *body.Body {
	t.Helper()
	b, err := body.Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func essence(t *testing.T, raw string, extra ...[]string) *state.Essence {
	t.Helper()
	store, err := state.NewStore(state.Config{Naming: state.Default(), Extra: extra})
	if err != nil {
		t.Fatal(err)
	}
	return store.Essence(parse(t, raw))
}

func criterion(t *testing.T, v any) filters.Criterion {
	t.Helper()
	if v == nil {
		return nil
	}
	c, err := filters.Of(v)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// match is how far a handler gets.
type match string

const (
	no    match = "out of scope"
	scope match = "in scope"
	yes   match = "called"
)

func matchOf(t *testing.T, s *Subject, h *registry.Handler) match {
	t.Helper()
	pre, err := s.PreMatches(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.Matches(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case all && !pre:
		t.Fatal("called, though not in scope")
	case all:
		return yes
	case pre:
		return scope
	}
	return no
}

// FLT-6, T013–T016: labels and annotations of the present object.
func TestLabelsAndAnnotations(t *testing.T) {
	b := parse(t, `{"metadata":{"labels":{"tier":"gold","empty":""},"annotations":{"a/b":"x"}}}`)
	old := essence(t, `{"metadata":{"labels":{"tier":"silver","former":"x"}}}`)
	type criteria map[string]any
	for _, c := range []struct {
		name                string
		labels, annotations criteria
		want                bool
	}{
		{"none", nil, nil, true},
		{"T013 equal", criteria{"tier": "gold"}, nil, true},
		{"T013 different", criteria{"tier": "silver"}, nil, false},
		{"T013 missing", criteria{"none": "gold"}, nil, false},
		{"empty text", criteria{"empty": ""}, nil, true},
		{"empty text, missing", criteria{"none": ""}, nil, false},
		{"T014 present", criteria{"empty": filters.Present}, nil, true},
		{"T014 not present", criteria{"none": filters.Present}, nil, false},
		{"T014 absent", criteria{"none": filters.Absent}, nil, true},
		{"T014 not absent", criteria{"empty": filters.Absent}, nil, false},
		{"T015 function", criteria{"tier": func(v string) bool { return v == "gold" }}, nil, true},
		{"T015 function says no", criteria{"tier": func(v string) bool { return false }}, nil, false},
		{"T015 function of the absent", criteria{"none": func(v string, present bool) bool { return !present }}, nil, true},
		{"T015 annotation", nil, criteria{"a/b": "x"}, true},
		{"T015 another annotation", nil, criteria{"a/b": "y"}, false},
		{"T015 annotation present", nil, criteria{"a/b": filters.Present}, true},
		{"T015 annotation absent", nil, criteria{"a/b": filters.Absent}, false},
		{"T015 annotation function", nil, criteria{"a/b": func(v string) bool { return v > "w" }}, true},
		{"T016 both", criteria{"tier": "gold"}, criteria{"a/b": "x"}, true},
		{"T016 one of both", criteria{"tier": "gold"}, criteria{"a/b": "y"}, false},
		{"T016 the other", criteria{"tier": "silver"}, criteria{"a/b": "x"}, false},
		{"several", criteria{"tier": "gold", "empty": "", "none": filters.Absent}, nil, true},
		{"FLT-6 old values are not asked", criteria{"former": filters.Absent}, nil, true},
	} {
		for _, kind := range []registry.Kind{registry.Create, registry.Update, registry.Delete, registry.Resume, registry.Event} {
			h := &registry.Handler{Kind: kind}
			for key, v := range c.labels {
				h.Labels = append(h.Labels, registry.Criterion{Key: key, Match: criterion(t, v)})
			}
			for key, v := range c.annotations {
				h.Annotations = append(h.Annotations, registry.Criterion{Key: key, Match: criterion(t, v)})
			}
			s := &Subject{Body: b}
			if kind != registry.Event {
				s.Old, s.New = old, essence(t, string(b.Raw()))
			}
			if got := matchOf(t, s, h) != no; got != c.want {
				t.Errorf("%s, %s handler: got %t", c.name, kind, got)
			}
			if got, err := Labelled(h, b); got != c.want || err != nil {
				t.Errorf("%s: labelled is %t, %v", c.name, got, err)
			}
		}
	}
}

// FLT-8, FLT-10 to FLT-12, T018–T023: the field, by kind of handler. The values of
// the field are given as JSON; empty stands for absent.
func TestFields_FLT8_FLT12(t *testing.T) {
	const never = "never" // was never handled
	is := func(v any) any { return v }
	even := func(n int64) bool { return n%2 == 0 }
	for _, c := range []struct {
		name          string
		before, after string
		value         any
		create        match // for before = never only
		update, other match // update and field handlers; delete and resume handlers
		event         match
	}{
		{name: "T018 created with it", before: never, after: "3", create: yes, event: yes},
		{name: "T018 created without", before: never, after: "", create: no, event: no},
		{name: "created with null", before: never, after: "null", create: yes, event: yes},
		{name: "T019 created, literal", before: never, after: "3", value: is(3), create: yes, event: yes},
		{name: "T019 created, another literal", before: never, after: "3", value: is(4), create: no, event: no},
		{name: "X15 FLT-10 created with it, absent wanted", before: never, after: "3", value: filters.Absent, create: no, event: no},
		{name: "X15 FLT-10 created without, absent wanted", before: never, after: "", value: filters.Absent, create: yes, event: yes},
		{name: "created, present wanted", before: never, after: "3", value: filters.Present, create: yes, event: yes},
		{name: "created, function", before: never, after: "4", value: even, create: yes, event: yes},
		{name: "created, function says no", before: never, after: "3", value: even, create: no, event: no},

		{name: "T018 changed", before: "1", after: "3", update: yes, other: yes, event: yes},
		{name: "T018 added", before: "", after: "3", update: yes, other: yes, event: yes},
		{name: "T018 removed", before: "1", after: "", update: yes, other: yes, event: no},
		{name: "T018 neither", before: "", after: "", update: no, other: no, event: no},
		{name: "T021 unchanged", before: "3", after: "3", update: scope, other: yes, event: yes},
		{name: "T021 unchanged, value fits", before: "3", after: "3", value: is(3), update: scope, other: yes, event: yes},
		{name: "DIF-4 unchanged number", before: "3", after: "3.0", update: scope, other: yes, event: yes},
		{name: "FLT-11 from absent to null", before: "", after: "null", update: yes, other: yes, event: yes},
		{name: "FLT-11 from null to absent", before: "null", after: "", update: yes, other: yes, event: no},
		{name: "from zero to null", before: "0", after: "null", update: yes, other: yes, event: yes},
		{name: "from empty to absent", before: "{}", after: "", update: yes, other: yes, event: no},
		{name: "from empty to null", before: "[]", after: "null", update: yes, other: yes, event: yes},
		{name: "X25 large numbers", before: "9007199254740992", after: "9007199254740993", update: yes, other: yes, event: yes},

		{name: "T020 new fits", before: "1", after: "3", value: is(3), update: yes, other: yes, event: yes},
		{name: "T020 old fits", before: "1", after: "3", value: is(1), update: yes, other: yes, event: no},
		{name: "T020 none fits", before: "1", after: "3", value: is(2), update: no, other: no, event: no},
		{name: "T020 present, added", before: "", after: "3", value: filters.Present, update: yes, other: yes, event: yes},
		{name: "T020 absent, added", before: "", after: "3", value: filters.Absent, update: yes, other: yes, event: no},
		{name: "T020 absent, removed", before: "1", after: "", value: filters.Absent, update: yes, other: yes, event: yes},
		{name: "T020 absent, changed", before: "1", after: "3", value: filters.Absent, update: no, other: no, event: no},
		{name: "T020 function, old fits", before: "2", after: "3", value: even, update: yes, other: yes, event: no},
		{name: "T020 function, new fits", before: "1", after: "4", value: even, update: yes, other: yes, event: yes},
		{name: "T020 function, none fits", before: "1", after: "3", value: even, update: no, other: no, event: no},
		{name: "FLT-9 function of the absent", before: "1", after: "", value: func(_ int64, present bool) bool { return !present },
			update: yes, other: yes, event: yes},
	} {
		manifest := func(value string) string {
			if value == "" {
				return `{"spec":{"other":1}}`
			}
			return `{"spec":{"other":1,"x":` + value + `}}`
		}
		s := &Subject{Body: parse(t, manifest(c.after)), New: essence(t, manifest(c.after), []string{"spec", "x"})}
		kinds := map[registry.Kind]match{registry.Update: c.update, registry.Field: c.update, registry.Delete: c.other, registry.Resume: c.other}
		if c.before == never {
			// A field handler is called for what a created object has.
			kinds = map[registry.Kind]match{registry.Create: c.create, registry.Field: c.create}
			if c.create == yes && c.after == "" {
				kinds[registry.Field] = scope
			}
		} else {
			s.Old = essence(t, manifest(c.before), []string{"spec", "x"})
		}
		for kind, want := range kinds {
			h := &registry.Handler{Kind: kind, Field: diff.Path{"spec", "x"}, Value: criterion(t, c.value)}
			if got := matchOf(t, s, h); got != want {
				t.Errorf("%s, %s handler: %s, want %s", c.name, kind, got, want)
			}
		}
		h := &registry.Handler{Kind: registry.Event, Field: diff.Path{"spec", "x"}, Value: criterion(t, c.value)}
		if got := matchOf(t, &Subject{Body: s.Body}, h); got != c.event {
			t.Errorf("%s, event handler: %s, want %s", c.name, got, c.event)
		}
	}
}

// FLT-11, T022: old and new, each on its side.
func TestOldAndNew(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after string
		old, new      any
		want          match
	}{
		{"T022 literals", `"a"`, `"b"`, "a", "b", yes},
		{"T022 old differs", `"a"`, `"b"`, "x", "b", scope},
		{"T022 new differs", `"a"`, `"b"`, "a", "x", scope},
		{"T022 old only", `"a"`, `"b"`, "a", nil, yes},
		{"T022 new only", `"a"`, `"b"`, nil, "b", yes},
		{"T022 on the wrong side", `"a"`, `"b"`, "b", "a", scope},
		{"T022 old absent, added", ``, `"b"`, filters.Absent, nil, yes},
		{"T022 old absent, changed", `"a"`, `"b"`, filters.Absent, nil, scope},
		{"T022 old present, added", ``, `"b"`, filters.Present, nil, scope},
		{"T022 new absent, removed", `"a"`, ``, nil, filters.Absent, yes},
		{"T022 new absent, changed", `"a"`, `"b"`, nil, filters.Absent, scope},
		{"T022 new present, changed", `"a"`, `"b"`, filters.Present, filters.Present, yes},
		{"T022 functions", `"a"`, `"b"`, func(s string) bool { return s == "a" }, func(s string) bool { return s == "b" }, yes},
		{"T022 function says no", `"a"`, `"b"`, nil, func(s string) bool { return s != "b" }, scope},
		{"T021 unchanged", `"a"`, `"a"`, "a", "a", scope},
		{"FLT-8 on neither side", ``, ``, filters.Absent, filters.Absent, no},
	} {
		manifest := func(value string) string {
			if value == "" {
				return `{"spec":{}}`
			}
			return `{"spec":{"x":` + value + `}}`
		}
		s := &Subject{Body: parse(t, manifest(c.after)), Old: essence(t, manifest(c.before)), New: essence(t, manifest(c.after))}
		for _, kind := range []registry.Kind{registry.Update, registry.Field} {
			h := &registry.Handler{Kind: kind, Field: diff.Path{"spec", "x"}, Old: criterion(t, c.old), New: criterion(t, c.new)}
			if got := matchOf(t, s, h); got != c.want {
				t.Errorf("%s, %s handler: %s, want %s", c.name, kind, got, c.want)
			}
		}
	}
	// On creation, nothing is old: absent.
	created := &Subject{Body: parse(t, `{"spec":{"x":"b"}}`), New: essence(t, `{"spec":{"x":"b"}}`)}
	for old, want := range map[filters.Criterion]match{filters.Absent: yes, filters.Present: scope} {
		h := &registry.Handler{Kind: registry.Field, Field: diff.Path{"spec", "x"}, Old: old}
		if got := matchOf(t, created, h); got != want {
			t.Errorf("created, old %s: %s, want %s", old, got, want)
		}
	}
}

// T023: the field and the path of the change.
func TestFieldAndPath_T023(t *testing.T) {
	const before, after = `{"spec":{"a":{"b":{"c":1},"d":1}}}`, `{"spec":{"a":{"b":{"c":2},"d":1}}}`
	for field, want := range map[string]match{
		"spec": yes, "spec.a": yes, "spec.a.b": yes, "spec.a.b.c": yes,
		"spec.a.d": scope, "spec.a.b.c.x": no, "spec.x": no, "data": no,
	} {
		s := &Subject{Body: parse(t, after), Old: essence(t, before), New: essence(t, after)}
		h := &registry.Handler{Field: strings.Split(field, ".")}
		for _, h.Kind = range []registry.Kind{registry.Update, registry.Field} {
			if got := matchOf(t, s, h); got != want {
				t.Errorf("%s, %s handler: %s, want %s", field, h.Kind, got, want)
			}
		}
		if d, err := s.Diff(h); err != nil || (len(d) > 0) != (want == yes) {
			t.Errorf("%s: diff is %v, %v", field, d, err)
		}
	}
}

// FLT-7, ESS-3: change handlers look at essences, which have the fields that handlers
// name; event handlers at everything.
func TestEventsSeeTheWholeBody_FLT7(t *testing.T) {
	b := parse(t, `{"metadata":{"generation":3},"status":{"phase":"Ready"}}`)
	h := &registry.Handler{Kind: registry.Event, Field: diff.Path{"status", "phase"}, Value: filters.Equal("Ready")}
	if got := matchOf(t, &Subject{Body: b}, h); got != yes {
		t.Errorf("event: %s", got)
	}
	h.Kind = registry.Create
	if got := matchOf(t, &Subject{Body: b, New: essence(t, string(b.Raw()))}, h); got != no {
		t.Errorf("essence without the field: %s", got)
	}
	if got := matchOf(t, &Subject{Body: b, New: essence(t, string(b.Raw()), h.Field)}, h); got != yes {
		t.Errorf("essence with the field: %s", got)
	}
}

// FLT-4, T017, T026: when is asked last, about the right object.
func TestWhen_FLT4_T017_T026(t *testing.T) {
	b := parse(t, `{"metadata":{"name":"x","labels":{"tier":"gold"}},"spec":{"x":1}}`)
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	s := &Subject{Body: b, New: essence(t, string(b.Raw())), Resource: gvr, Log: slog.Default()}
	asked := 0
	answer := true
	h := &registry.Handler{Kind: registry.Create, When: func(ctx context.Context, c *registry.Call) (bool, error) {
		asked++
		if c.Body != b || c.Resource != gvr || c.Log != s.Log || ctx != t.Context() {
			t.Errorf("asked about %+v", c)
		}
		return answer, nil
	}}
	if ok, err := s.PreMatches(t.Context(), h); !ok || err != nil || asked != 1 {
		t.Error(ok, err, asked)
	}
	answer = false
	if ok, err := s.Matches(t.Context(), h); ok || err != nil || asked != 2 {
		t.Error(ok, err, asked)
	}
	for name, criteria := range map[string]registry.Handler{
		"label":      {Labels: []registry.Criterion{{Key: "tier", Match: filters.Absent}}},
		"annotation": {Annotations: []registry.Criterion{{Key: "a", Match: filters.Present}}},
		"field":      {Field: diff.Path{"spec", "y"}},
		"value":      {Field: diff.Path{"spec", "x"}, Value: filters.Equal(2)},
	} {
		criteria.Kind, criteria.When, asked = registry.Create, h.When, 0
		if ok, err := s.PreMatches(t.Context(), &criteria); ok || err != nil || asked != 0 {
			t.Errorf("%s: %t, %v, asked %d times", name, ok, err, asked)
		}
	}
	h.When = func(context.Context, *registry.Call) (bool, error) { return true, errors.New("mine") }
	if ok, err := s.Matches(t.Context(), h); ok || err == nil {
		t.Error("an error counts as a match")
	}
}

// FLT-5: a panic of a user's function, wherever it is, is an error that names the
// handler.
func TestPanics_FLT5(t *testing.T) {
	b := parse(t, `{"metadata":{"labels":{"a":"b"},"annotations":{"a":"b"}},"spec":{"x":1}}`)
	s := &Subject{Body: b, Old: essence(t, `{"spec":{"x":2}}`), New: essence(t, string(b.Raw()))}
	text := criterion(t, func(string) bool { panic("oops") })
	number := criterion(t, func(int64) bool { panic("oops") })
	spec := diff.Path{"spec", "x"}
	for name, h := range map[string]*registry.Handler{
		"label":      {Labels: []registry.Criterion{{Key: "a", Match: text}}},
		"annotation": {Annotations: []registry.Criterion{{Key: "a", Match: text}}},
		"value":      {Field: spec, Value: number},
		"old":        {Field: spec, Old: number},
		"new":        {Field: spec, New: number},
		"when":       {When: func(context.Context, *registry.Call) (bool, error) { panic("oops") }},
	} {
		h.Kind, h.ID = registry.Update, "h"
		ok, err := s.Matches(t.Context(), h)
		if ok || err == nil || !strings.HasPrefix(err.Error(), "filter of update handler h panicked: oops\n") ||
			!strings.Contains(err.Error(), "subject_test.go") {
			t.Errorf("%s: %t, %v", name, ok, err)
		}
	}
	h := &registry.Handler{Labels: []registry.Criterion{{Key: "a", Match: text}}}
	if ok, err := Labelled(h, b); ok || err == nil {
		t.Error("labelled:", ok, err)
	}
}

// CHG-7, CHG-8: what handlers are told.
func TestDiffAndValues_CHG7(t *testing.T) {
	after := essence(t, `{"spec":{"x":3,"y":1}}`)
	b := parse(t, `{"spec":{"x":3,"y":1}}`)
	whole, field := &registry.Handler{}, &registry.Handler{Field: diff.Path{"spec", "x"}}

	created := &Subject{Body: b, New: after}
	tree, _ := after.Tree()
	for _, c := range []struct {
		name string
		s    *Subject
		h    *registry.Handler
		want diff.Diff
	}{
		{"CHG-8 created", created, whole, diff.Diff{{Op: diff.Add, Path: diff.Path{}, New: tree}}},
		{"created, at the field", created, field, diff.Diff{{Op: diff.Add, Path: diff.Path{}, New: int64(3)}}},
		{"changed", &Subject{Body: b, Old: essence(t, `{"spec":{"x":1,"z":1}}`), New: after}, whole, diff.Diff{
			{Op: diff.Add, Path: diff.Path{"spec", "y"}, New: int64(1)},
			{Op: diff.Remove, Path: diff.Path{"spec", "z"}, Old: int64(1)},
			{Op: diff.Change, Path: diff.Path{"spec", "x"}, Old: int64(1), New: int64(3)},
		}},
		{"changed, at the field", &Subject{Body: b, Old: essence(t, `{"spec":{"x":1}}`), New: after}, field,
			diff.Diff{{Op: diff.Change, Path: diff.Path{}, Old: int64(1), New: int64(3)}}},
		{"unchanged", &Subject{Body: b, Old: after, New: after}, whole, nil},
	} {
		got, err := c.s.Diff(c.h)
		for i := range got {
			if len(got[i].Path) == 0 {
				got[i].Path = diff.Path{}
			}
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}

	before, had, now, has, err := created.Values(field)
	if before != nil || had || now != int64(3) || !has || err != nil {
		t.Error(before, had, now, has, err)
	}
	s := &Subject{Body: b, Old: essence(t, `{"spec":{"x":null}}`), New: essence(t, `{"spec":{}}`)}
	before, had, now, has, err = s.Values(field)
	if before != nil || !had || now != nil || has || err != nil {
		t.Error("null and absent:", before, had, now, has, err)
	}
}
