package on_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/on/testdata/wrapper"
)

// mistakesOf are the parts of the registry's error.
func mistakesOf(r *kopf.Registry) []error {
	err := r.Err()
	if err == nil {
		return nil
	}
	return err.(interface{ Unwrap() []error }).Unwrap()
}

// FLT-2, T024: each mistake is one error, with the place of the user's call, the
// handler's name, and what is wrong.
func TestMistakes_FLT2(t *testing.T) {
	reg := kopf.NewRegistry()
	in := on.In(reg)
	checkMistakes(t, reg, []mistake{
		{"unknown field", lines(), func() { on.Update(scaled, on.Field("spec.replica"), in) },
			`update handler scaled/spec.replica: no field "replica" in v1.DeploymentSpec at spec (did you mean "replicas"?)`},
		{"unknown field of a field handler", lines(), func() { on.FieldChange("spec.replica", replicas, in) },
			`field handler replicas/spec.replica: no field "replica" in v1.DeploymentSpec at spec (did you mean "replicas"?)`},
		{"unknown field of a resource", lines(), func() { on.Update(provision, databases, on.Field("status.fase"), in) },
			`no field "fase" in on_test.DatabaseStatus at status (did you mean "phase"?)`},
		{"unknown path", lines(), func() { on.Update(scaled, on.Path("metadata", "label", "a.b"), in) }, `no field "label"`},
		{"field inside of a list", lines(), func() { on.Update(scaled, on.Field("spec.template.spec.containers.0"), in) }, "compared as a whole"},
		{"field inside of a scalar", lines(), func() { on.Update(scaled, on.Field("spec.replicas.x"), in) }, "not an object"},
		{"FLT-3 empty field", lines(), func() { on.Update(scaled, on.Field(""), in) }, "field path is empty"},
		{"T024 field handler without field", lines(), func() { on.FieldChange("", replicas, in) }, "field handler replicas: the field path is empty"},
		{"brackets", lines(), func() { on.Update(scaled, on.Field("spec[0]"), in) }, "brackets are not understood"},
		{"empty key", lines(), func() { on.Update(scaled, on.Field("spec..replicas"), in) }, "empty key"},
		{"empty path", lines(), func() { on.Update(scaled, on.Path(), in) }, "on.Path is empty"},
		{"empty element", lines(), func() { on.Update(scaled, on.Path("spec", ""), in) }, "on.Path has an empty element"},
		{"two fields", lines(), func() { on.Update(scaled, on.Field("spec.replicas"), on.Path("spec"), in) }, "it has two fields: spec.replicas and spec"},
		{"accessor of another type", lines(), func() { on.Create(generic[*corev1.Pod], on.FieldOf(ofSpec), in) },
			"on.FieldOf is for *v1.Deployment, the handler for *v1.Pod"},
		{"accessor of nothing", lines(), func() { on.Update(scaled, on.FieldOf(func(*Dep) *int { return nil }), in) }, "on.FieldOf: "},

		{"value of a wrong type", lines(), func() { on.Create(scaled, on.ID("m1"), on.Field("spec.replicas"), on.Value("3"), in) },
			`create handler m1/spec.replicas: on.Value: "3", a string, can never equal an int32`},
		{"value out of range", lines(), func() { on.Create(scaled, on.ID("m2"), on.Field("spec.replicas"), on.Value(int64(1)<<40), in) }, "can never equal an int32"},
		{"old of a wrong type", lines(), func() { on.Update(scaled, on.ID("m3"), on.Field("spec.replicas"), on.Old(true), in) }, "on.Old: true, a bool"},
		{"new of a wrong type", lines(), func() { on.Update(scaled, on.ID("m4"), on.Field("spec.replicas"), on.New(1.5), in) }, "on.New: 1.5"},
		{"wrong type within Any", lines(), func() { on.Update(scaled, on.ID("m5"), on.Field("spec.replicas"), on.New(filters.Any(1, "2")), in) }, `on.New: "2", a string`},
		{"function of a wrong type", lines(), func() {
			on.Update(scaled, on.ID("m6"), on.Field("spec.replicas"), on.New(func(string) bool { return true }), in)
		}, "on.New: "},
		{"function of another form", lines(), func() { on.Update(scaled, on.ID("m7"), on.Field("spec.replicas"), on.New(func(int32) {}), in) }, "on.New: "},
		{"T024 value with old", lines(), func() {
			on.Update(scaled, on.ID("m8"), on.Field("spec.replicas"), on.Value(1), on.Old(2), in)
		}, "on.Value does not go with on.Old or on.New"},
		{"T024 value with new", lines(), func() {
			on.Update(scaled, on.ID("m9"), on.Field("spec.replicas"), on.Value(1), on.New(2), in)
		}, "on.Value does not go with on.Old or on.New"},
		{"T024 value without field", lines(), func() { on.Create(scaled, on.ID("m10"), on.Value(1), in) }, "on.Value: it needs a field"},
		{"T024 old without field", lines(), func() { on.Update(scaled, on.ID("m11"), on.Old(1), in) }, "on.Old: it needs a field"},
		{"T024 new without field", lines(), func() { on.Update(scaled, on.ID("m12"), on.New(1), in) }, "on.New: it needs a field"},
		{"value nil", lines(), func() { on.Create(scaled, on.ID("m13"), on.Field("spec"), on.Value(nil), in) }, "on.Value(nil): say filters.Absent or filters.Present"},
		{"old nil", lines(), func() { on.Update(scaled, on.ID("m14"), on.Field("spec"), on.Old(nil), in) }, "on.Old(nil)"},
		{"new nil", lines(), func() { on.Update(scaled, on.ID("m15"), on.Field("spec"), on.New(nil), in) }, "on.New(nil)"},
		{"value twice", lines(), func() { on.Create(scaled, on.ID("m16"), on.Field("spec.replicas"), on.Value(1), on.Value(2), in) }, "on.Value is given twice"},
		{"old twice", lines(), func() { on.Update(scaled, on.ID("m17"), on.Field("spec.replicas"), on.Old(1), on.Old(2), in) }, "on.Old is given twice"},

		{"T024 label nil", lines(), func() { on.Create(scaled, on.ID("m20"), on.Label("tier", nil), in) }, `on.Label("tier"): a criterion cannot be nil: say filters.Absent`},
		{"T024 annotation nil", lines(), func() { on.Create(scaled, on.ID("m21"), on.Annotation("a/b", nil), in) }, `on.Annotation("a/b"): a criterion cannot be nil`},
		{"label of a wrong type", lines(), func() { on.Create(scaled, on.ID("m22"), on.Label("tier", 1), in) }, `on.Label("tier"): 1, a number, can never equal a string`},
		{"label without key", lines(), func() { on.Create(scaled, on.ID("m23"), on.Label("", "x"), in) }, `on.Label(""): the key is empty`},
		{"label function of a wrong type", lines(), func() { on.Create(scaled, on.ID("m24"), on.Label("tier", func(int) bool { return true }), in) }, `on.Label("tier"): `},

		{"when for another type", lines(), func() { on.Create(scaled, on.ID("m30"), on.When(ofPods), in) }, "on.When is for *v1.Pod, the handler for *v1.Deployment"},
		{"when without function", lines(), func() { on.Create(scaled, on.ID("m31"), on.When[*Dep](nil), in) }, "on.When got no function"},

		{"no function", lines(), func() { on.Create[*Dep](nil, in) }, "create handler : it has no function"},
		{"no function again", lines(), func() { on.Create[*Dep](nil, in) }, "it has no function"},
		{"no event function", lines(), func() { on.Event[*Dep](nil, in) }, "it has no function"},
		{"no field function", lines(), func() { on.FieldChange[*Dep, int32]("spec.replicas", nil, in) }, "it has no function"},
		{"empty id", lines(), func() { on.Delete(scaled, on.ID(""), in) }, "delete handler scaled: on.ID is empty"},
		{"nil option", lines(), func() { on.Create(scaled, on.ID("m40"), nil, in) }, "an option is nil"},
		{"no struct", lines(), func() {
			on.Create(func(context.Context, *kopf.Change[kopf.Object]) error { return nil }, on.ID("m41"), in)
		},
			"handlers are for pointers to structs, not for typed.Object"},

		{"negative retries", lines(), func() { on.Create(scaled, on.ID("m50"), on.Retries(-1), in) }, "on.Retries(-1) is negative"},
		{"no timeout", lines(), func() { on.Create(scaled, on.ID("m51"), on.Timeout(0), in) }, "on.Timeout(0s) is not positive"},
		{"negative timeout", lines(), func() { on.Create(scaled, on.ID("m52"), on.Timeout(-time.Second), in) }, "on.Timeout(-1s) is not positive"},
		{"negative backoff", lines(), func() { on.Create(scaled, on.ID("m53"), on.Backoff(-1), in) }, "on.Backoff(-1ns) is negative"},
		{"error mode", lines(), func() { on.Create(scaled, on.ID("m54"), on.Errors(7), in) }, "on.Errors takes on.Ignored"},
		{"no error mode", lines(), func() { on.Create(scaled, on.ID("m55"), on.Errors(0), in) }, "on.Errors takes on.Ignored"},

		{"resource without version", lines(), func() { on.Create(scaled, on.ID("m60"), on.Resource("", "pods"), in) }, `on.Resource("", "pods") needs a group and version`},
		{"resource without name", lines(), func() { on.Create(scaled, on.ID("m61"), on.Resource("v1", ""), in) }, `on.Resource("v1", "") needs`},
		{"resource with a bad version", lines(), func() { on.Create(scaled, on.ID("m62"), on.Resource("a/b/c", "pods"), in) }, `on.Resource("a/b/c", "pods") needs`},
		{"resource with a group only", lines(), func() { on.Create(scaled, on.ID("m63"), on.Resource("apps/", "pods"), in) }, `on.Resource("apps/", "pods") needs`},
		{"SEL-5 resource twice", lines(), func() { on.Create(provision, on.ID("m64"), databases, databases, in) }, "on.Resource is given twice"},
	})
}

// mistake is one in a registration.
type mistake struct {
	name     string
	place    [2]string // in this line or, where the call does not fit, in the next one
	register func()
	want     string
}

// checkMistakes registers all, and expects one error for each, with its place.
func checkMistakes(t *testing.T, reg *kopf.Registry, all []mistake) {
	t.Helper()
	for _, c := range all {
		before := len(mistakesOf(reg))
		c.register()
		mistakes := mistakesOf(reg)[before:]
		if len(mistakes) != 1 {
			t.Errorf("%s: got %d mistakes, want one: %v", c.name, len(mistakes), mistakes)
			continue
		}
		text := mistakes[0].Error()
		if !strings.HasPrefix(text, c.place[0]+": ") && !strings.HasPrefix(text, c.place[1]+": ") || !strings.Contains(text, c.want) {
			t.Errorf("%s:\n got %s\nwant %s: … %s", c.name, text, c.place, c.want)
		}
	}
}

// All mistakes of a registration are told, not only the first.
func TestMistakesAreCollected(t *testing.T) {
	reg := kopf.NewRegistry()
	on.Update(scaled, on.ID(""), on.Field("spec.nothing"), on.Label("", "x"), on.Retries(-1), on.Backoff(-1),
		on.When(ofPods), on.Value(1), on.Old(2), on.In(reg))
	on.Create[*Dep](nil, on.In(reg))
	if n := len(mistakesOf(reg)); n != 8 {
		t.Errorf("got %d mistakes:\n%v", n, reg.Err())
	}
	if n := len(reg.Handlers()); n != 2 {
		t.Errorf("%d handlers are registered", n)
	}
}

// HID-1, HID-5: handlers that would share a record of progress.
func TestDuplicateIDs_HID5(t *testing.T) {
	other := makeHandler(nil)
	for _, c := range []struct {
		name      string
		register  func(in on.AnyOption)
		duplicate bool
	}{
		{"same kind", func(in on.AnyOption) { on.Create(scaled, in); on.Create(scaled, in) }, true},
		{"same kind, other function", func(in on.AnyOption) { on.Create(scaled, in); on.Create(other, on.ID("scaled"), in) }, true},
		{"same kind and field", func(in on.AnyOption) {
			on.Update(scaled, on.Field("spec.replicas"), in)
			on.Update(scaled, on.FieldOf(func(d *Dep) *int32 { return d.Spec.Replicas }), in)
		}, true},
		{"another field", func(in on.AnyOption) {
			on.Update(scaled, on.Field("spec.replicas"), in)
			on.Update(scaled, on.Field("spec.paused"), in)
			on.Update(scaled, in)
		}, false},
		{"T010 another id", func(in on.AnyOption) { on.Create(scaled, in); on.Create(scaled, on.ID("b"), in) }, false},
		{"HID-6 create and delete", func(in on.AnyOption) { on.Create(scaled, in); on.Delete(other, on.ID("scaled"), in) }, false},
		{"create, update and event", func(in on.AnyOption) {
			on.Create(scaled, in)
			on.Update(scaled, in)
			on.Event(seen, on.ID("scaled"), in)
		}, false},
		{"CHG-5 one function for resuming and updating", func(in on.AnyOption) { on.Resume(scaled, in); on.Update(scaled, in) }, false},
		{"CHG-5 two functions for resuming and updating", func(in on.AnyOption) {
			on.Resume(scaled, in)
			on.Update(other, on.ID("scaled"), in)
		}, true},
		{"CHG-5 the other way round", func(in on.AnyOption) { on.Update(other, on.ID("scaled"), in); on.Resume(scaled, in) }, true},
		{"CHG-5 resuming and creating", func(in on.AnyOption) { on.Resume(scaled, in); on.Create(other, on.ID("scaled"), in) }, false},
		{"CHG-5 resuming and deleting", func(in on.AnyOption) { on.Resume(scaled, in); on.Delete(other, on.ID("scaled"), in) }, false},
		{"CHG-5 resuming of deleted objects and deleting", func(in on.AnyOption) {
			on.Resume(scaled, on.Deleted(), in)
			on.Delete(other, on.ID("scaled"), in)
		}, true},
		{"CHG-6 a field handler and an update handler", func(in on.AnyOption) {
			on.FieldChange("spec.replicas", replicas, on.ID("r"), in)
			on.Update(scaled, on.Field("spec.replicas"), on.ID("r"), in)
		}, true},
		{"CHG-6 a create handler and a field handler", func(in on.AnyOption) {
			on.Create(scaled, on.Field("spec.replicas"), on.ID("r"), in)
			on.FieldChange("spec.replicas", replicas, on.ID("r"), in)
		}, true},
		{"a field handler and an event handler", func(in on.AnyOption) {
			on.FieldChange("spec.replicas", replicas, on.ID("r"), in)
			on.Event(seen, on.Field("spec.replicas"), on.ID("r"), in)
		}, false},
		{"another type", func(in on.AnyOption) { on.Create(scaled, in); on.Create(generic[*corev1.Pod], on.ID("scaled"), in) }, false},
		{"another resource", func(in on.AnyOption) {
			on.Create(provision, databases, in)
			on.Create(provision, on.Resource("example.com/v2", "databases"), in)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			reg := kopf.NewRegistry()
			c.register(on.In(reg))
			mistakes := mistakesOf(reg)
			if !c.duplicate {
				if len(mistakes) > 0 {
					t.Error(mistakes)
				}
				return
			}
			if len(mistakes) != 1 {
				t.Fatalf("got %v", mistakes)
			}
			// Both places are named.
			first := reg.Handlers()[0].Source
			if text := mistakes[0].Error(); !strings.Contains(text, "its id is taken by the registration at "+first) || !strings.Contains(text, "on.ID") {
				t.Error(text)
			}
		})
	}
}

// A nil registry is a mistake, too, which somebody must hear of: it goes into the
// default one.
func TestInNil(t *testing.T) {
	useDefaultRegistry(t)
	want := below(1)
	on.Create(scaled, on.ID("in-nil"), on.In(nil))
	text := registry.Default.Err().Error()
	if !strings.Contains(text, want+": create handler in-nil: on.In got no registry: make one with kopf.NewRegistry") {
		t.Error(text)
	}
}

// useDefaultRegistry lets a test use the default registry and empties it afterwards.
func useDefaultRegistry(t *testing.T) {
	kept := registry.Default
	registry.Default = new(registry.Registry)
	t.Cleanup(func() { registry.Default = kept })
}

func TestDefaultRegistry(t *testing.T) {
	useDefaultRegistry(t)
	on.Create(scaled)
	on.Event(seen)
	var names []string
	for _, h := range registry.Default.Handlers() {
		names = append(names, h.Name())
	}
	if got := strings.Join(names, ", "); got != "create handler scaled, event handler seen" {
		t.Error(got)
	}
}

// The place is that of the user's call, wherever it comes from.
func TestSource(t *testing.T) {
	reg := kopf.NewRegistry()
	in := on.In(reg)
	var want []string
	note := func(place string) { want = append(want, place) }

	note(below(1))
	on.Create(scaled, in)
	note(below(1)) // where the call begins or its arguments end
	on.Event(seen, in, on.Label("a", "b"))
	note(below(1))
	on.FieldChange("spec.replicas", replicas, in)
	for i := range 2 { // in a loop
		note(below(1))
		on.Update(scaled, on.ID(string(rune('a'+i))), in)
	}
	func() { // in a closure
		note(below(1))
		on.Delete(scaled, in)
	}()
	note(registerGenerically[*appsv1.Deployment](in))
	note(registerGenerically[*corev1.Pod](in))
	wrapper.Create[*corev1.Secret](reg)
	note("wrapper/wrapper.go:14")
	note(below(1))
	defer checkSources(t, reg, &want)
	register := on.Resume[*Dep] // as a value
	want[len(want)-1] = below(1)
	register(scaled, in)
}

func checkSources(t *testing.T, reg *kopf.Registry, want *[]string) {
	for i, h := range reg.Handlers() {
		if h.Source != (*want)[i] {
			t.Errorf("%s: at %s, want %s", h.Name(), h.Source, (*want)[i])
		}
	}
	if len(reg.Handlers()) != len(*want) {
		t.Errorf("%d handlers", len(reg.Handlers()))
	}
}

func registerGenerically[T kopf.Object](in on.AnyOption) string {
	want := below(1)
	on.Create(generic[T], in)
	return want
}

// Mistakes keep their causes.
func TestMistakesWrap(t *testing.T) {
	cause := errors.New("cause")
	h := &registry.Handler{Kind: registry.Create, ID: "x", Source: "a/b.go:1"}
	if err := h.Mistake(cause); !errors.Is(err, cause) || err.Error() != "a/b.go:1: create handler x: cause" {
		t.Error(err)
	}
}
