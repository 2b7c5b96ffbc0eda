package on_test

import (
	"context"
	"errors"
	"reflect"
	"regexp"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/daemons"
	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/on"
)

func TestKinds(t *testing.T) {
	for kind, register := range map[registry.Kind]func(in on.AnyOption){
		registry.Create: func(in on.AnyOption) { on.Create(scaled, in) },
		registry.Update: func(in on.AnyOption) { on.Update(scaled, in) },
		registry.Delete: func(in on.AnyOption) { on.Delete(scaled, in) },
		registry.Resume: func(in on.AnyOption) { on.Resume(scaled, in) },
		registry.Field:  func(in on.AnyOption) { on.FieldChange("spec.replicas", replicas, in) },
		registry.Event:  func(in on.AnyOption) { on.Event(seen, in) },
		registry.Index:  func(in on.AnyOption) { on.Index(byReplicas, in) },
		registry.Daemon: func(in on.AnyOption) { on.Daemon(watch, in) },
		registry.Timer:  func(in on.AnyOption) { on.Timer(tick, in) },
	} {
		h := only(t, register)
		if h.Kind != kind || h.Type != reflect.TypeFor[*appsv1.Deployment]() {
			t.Errorf("%s handler for %s, want %s", h.Kind, h.Type, kind)
		}
		if !h.Selector.Empty() || h.Retries >= 0 || h.Backoff >= 0 || h.Timeout != 0 || h.Errors != registry.ErrorsUnset ||
			h.Deleted || h.Optional || h.Param != nil || h.When != nil || h.Value != nil || h.Old != nil || h.New != nil ||
			h.Spawn != nil || h.Finalize || h.Cancellation != (daemons.Cancellation{}) || h.Schedule != (daemons.Schedule{}) ||
			len(h.Handles) > 0 || len(h.Injections) > 0 || (h.Index != nil) != (kind == registry.Index) || (h.Jitter < 0) != (kind == registry.Timer) {
			t.Errorf("%s: defaults are %+v", kind, h)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		name     string
		register func(in on.AnyOption)
		landed   func(h *registry.Handler) bool
	}{
		{"ID", func(in on.AnyOption) { on.Create(scaled, on.ID("x"), in) },
			func(h *registry.Handler) bool { return h.ID == "x" }},
		{"Param", func(in on.AnyOption) { on.Create(scaled, on.Param(7), in) },
			func(h *registry.Handler) bool { return h.Param == 7 }},
		{"Resource", func(in on.AnyOption) { on.Create(provision, databases, in) },
			func(h *registry.Handler) bool {
				return h.Selector == registry.Selector{By: registry.ByName, Name: "databases", Group: "example.com", HasGroup: true, Version: "v1"} &&
					h.Selector.String() == "databases.v1.example.com"
			}},
		{"Resource of the core", func(in on.AnyOption) { on.Event(seen, on.Resource("v1", "po"), in) },
			func(h *registry.Handler) bool {
				return h.Selector.HasGroup && h.Selector.Group == "" && h.Selector.String() == "po.v1"
			}},
		{"Label", func(in on.AnyOption) {
			on.Create(scaled, on.Label("a", "x"), on.Label("b", filters.Absent), on.Label("c", func(s string) bool { return s > "m" }), in)
		}, func(h *registry.Handler) bool {
			return len(h.Labels) == 3 && len(h.Annotations) == 0 &&
				h.Labels[0].Key == "a" && h.Labels[0].Match.Match("x", true) && !h.Labels[0].Match.Match("y", true) &&
				h.Labels[1].Key == "b" && h.Labels[1].Match.Match(nil, false) &&
				h.Labels[2].Match.Match("z", true) && !h.Labels[2].Match.Match("a", true)
		}},
		{"Annotation", func(in on.AnyOption) { on.Event(seen, on.Annotation("a/b", ""), in) },
			func(h *registry.Handler) bool {
				return len(h.Labels) == 0 && len(h.Annotations) == 1 && h.Annotations[0].Key == "a/b" && h.Annotations[0].Match.Match("", true)
			}},
		{"When", func(in on.AnyOption) { on.Create(scaled, on.When(always), in) },
			func(h *registry.Handler) bool {
				ok, err := h.When(t.Context(), &registry.Call{Body: parse(t, `{}`)})
				return ok && err == nil
			}},
		{"HID-2 Field", func(in on.AnyOption) { on.Update(scaled, on.Field("spec.replicas"), in) },
			func(h *registry.Handler) bool {
				return reflect.DeepEqual(h.Field, diff.Path{"spec", "replicas"}) && h.ID == "scaled/spec.replicas"
			}},
		{"HID-2 Field and ID", func(in on.AnyOption) { on.Create(scaled, on.Field("spec.replicas"), on.ID("x"), in) },
			func(h *registry.Handler) bool { return h.ID == "x/spec.replicas" }},
		{"Field of the status", func(in on.AnyOption) { on.Event(seen, on.Field("status.readyReplicas"), in) },
			func(h *registry.Handler) bool { return h.Field.String() == "status.readyReplicas" }},
		{"Path", func(in on.AnyOption) {
			on.Delete(scaled, on.Path("metadata", "annotations", "example.com/size"), in)
		}, func(h *registry.Handler) bool {
			return len(h.Field) == 3 && h.Field[2] == "example.com/size" && h.ID == "scaled/metadata.annotations.example.com/size"
		}},
		{"FieldOf", func(in on.AnyOption) {
			on.Resume(scaled, on.FieldOf(func(d *Dep) *int32 { return d.Spec.Replicas }), in)
		}, func(h *registry.Handler) bool { return h.ID == "scaled/spec.replicas" }},
		{"FieldChange", func(in on.AnyOption) { on.FieldChange("spec.replicas", replicas, on.ID("r"), in) },
			func(h *registry.Handler) bool {
				return h.Field.String() == "spec.replicas" && h.ID == "r/spec.replicas"
			}},
		{"Value", func(in on.AnyOption) { on.Create(scaled, on.Field("spec.replicas"), on.Value(3), in) },
			func(h *registry.Handler) bool { return h.Value.Match(int64(3), true) && h.Old == nil && h.New == nil }},
		{"Value before the field", func(in on.AnyOption) {
			on.FieldChange("spec.replicas", replicas, on.Value(filters.Absent), in)
		}, func(h *registry.Handler) bool { return h.Value.Match(nil, false) }},
		{"Old and New", func(in on.AnyOption) {
			on.Update(scaled, on.New(func(n int32) bool { return n > 3 }), on.Old(filters.Present), on.Field("spec.replicas"), in)
		}, func(h *registry.Handler) bool {
			return h.Value == nil && h.Old == filters.Present && h.New.Match(int64(4), true) && !h.New.Match(int64(3), true)
		}},
		{"Value of an unknown type", func(in on.AnyOption) {
			on.Event(func(context.Context, *kopf.Event[*unstructured.Unstructured]) error { return nil },
				databases, on.Field("spec.anything"), on.Value("x"), in)
		}, func(h *registry.Handler) bool { return h.Value.Match("x", true) }},
		{"Field of metadata only", func(in on.AnyOption) {
			on.Update(generic[*metav1.PartialObjectMetadata], databases, on.Field("metadata.labels"), on.ID("m"), in)
		}, func(h *registry.Handler) bool { return h.ID == "m/metadata.labels" }},
		{"Retries", func(in on.AnyOption) { on.Create(scaled, on.Retries(3), in) },
			func(h *registry.Handler) bool { return h.Retries == 3 }},
		{"OUT-4 no attempt", func(in on.AnyOption) { on.Create(scaled, on.Retries(0), in) },
			func(h *registry.Handler) bool { return h.Retries == 0 }},
		{"Timeout", func(in on.AnyOption) { on.Update(scaled, on.Timeout(time.Hour), in) },
			func(h *registry.Handler) bool { return h.Timeout == time.Hour }},
		{"Backoff", func(in on.AnyOption) { on.Delete(scaled, on.Backoff(time.Minute), in) },
			func(h *registry.Handler) bool { return h.Backoff == time.Minute }},
		{"OUT-8 no backoff", func(in on.AnyOption) { on.Delete(scaled, on.Backoff(0), in) },
			func(h *registry.Handler) bool { return h.Backoff == 0 }},
		{"Errors", func(in on.AnyOption) { on.Resume(scaled, on.Errors(on.Ignored), in) },
			func(h *registry.Handler) bool { return h.Errors == registry.ErrorsIgnored }},
		{"Deleted", func(in on.AnyOption) { on.Resume(scaled, on.Deleted(), in) },
			func(h *registry.Handler) bool { return h.Deleted && !h.Optional }},
		{"Optional", func(in on.AnyOption) { on.Delete(scaled, on.Optional(), in) },
			func(h *registry.Handler) bool { return h.Optional && !h.Deleted }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if h := only(t, c.register); !c.landed(h) {
				t.Errorf("got %+v", h)
			}
		})
	}
}

func parse(t *testing.T, raw string) *body.Body {
	t.Helper()
	b, err := body.Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type handlers struct{}

func (h *handlers) Scaled(context.Context, *kopf.Change[*Dep]) error { return nil }

type byValue struct{}

func (byValue) Scaled(context.Context, *kopf.Change[*Dep]) error { return nil }

type genericHandlers[T kopf.Object] struct{}

func (*genericHandlers[T]) Handle(context.Context, *kopf.Change[T]) error { return nil }

var packageLevel = func(context.Context, *kopf.Change[*Dep]) error { return nil }

// partial is what a function with a bound argument is in Go.
func partial(_ string) func(context.Context, *kopf.Change[*Dep]) error {
	return func(context.Context, *kopf.Change[*Dep]) error { return nil }
}

// HID-1: ids of functions without an ID.
func TestIDs_HID1(t *testing.T) {
	h := &handlers{}
	namedLater := scaled
	for _, c := range []struct {
		name string
		fn   func(context.Context, *kopf.Change[*Dep]) error
		want string
	}{
		{"function", scaled, "scaled"},
		{"function in a variable", namedLater, "scaled"},
		{"method value of a pointer", h.Scaled, "handlers.Scaled"},
		{"method value of a value", byValue{}.Scaled, "byValue.Scaled"},
		{"method of a generic type", (&genericHandlers[*Dep]{}).Handle, "genericHandlers.Handle"},
		{"closure", func(context.Context, *kopf.Change[*Dep]) error { return nil }, "TestIDs_HID1.func1"},
		{"instance of a generic function", generic[*Dep], "generic"},
		{"variable of the package", packageLevel, "init.func1"},
	} {
		got := only(t, func(in on.AnyOption) { on.Create(c.fn, in) }).ID
		if got != c.want {
			t.Errorf("%s: id is %q, want %q", c.name, got, c.want)
		}
	}
	// Mind that the name of a closure depends on whether its function was inlined.
	for _, fn := range []func(context.Context, *kopf.Change[*Dep]) error{makeHandler(nil), partial("x")} {
		got := only(t, func(in on.AnyOption) { on.Create(fn, in) }).ID
		if !regexp.MustCompile(`^(TestIDs_HID1\.)?(makeHandler|partial)\.func[0-9]+$`).MatchString(got) {
			t.Errorf("id of a closure is %q", got)
		}
	}
}

// HID-1, CHG-4: the same function is recognised in different registrations.
func TestSameFunction(t *testing.T) {
	a := only(t, func(in on.AnyOption) { on.Create(scaled, in) })
	b := only(t, func(in on.AnyOption) { on.Resume(scaled, on.ID("other"), in) })
	c := only(t, func(in on.AnyOption) { on.Resume(makeHandler(nil), in) })
	if a.Func == 0 || a.Func != b.Func || a.Func == c.Func {
		t.Error(a.Func, b.Func, c.Func)
	}
}

// Handlers get their typed argument, and what they return comes back.
func TestInvoke(t *testing.T) {
	want := errors.New("mine")
	b := parse(t, `{"metadata":{"name":"x"},"spec":{"replicas":3}}`)
	for name, register := range map[string]func(in on.AnyOption){
		"change": func(in on.AnyOption) {
			on.Create(func(_ context.Context, c *kopf.Change[*Dep]) error {
				if c.Object.Name == "x" && *c.New.Spec.Replicas == 3 && c.Param == 5 {
					return want
				}
				return nil
			}, in)
		},
		"field": func(in on.AnyOption) {
			on.FieldChange("spec.replicas", func(_ context.Context, c *kopf.FieldChange[*Dep, int32]) error {
				if c.New == 3 && c.HasNew && !c.HadOld {
					return want
				}
				return nil
			}, in)
		},
		"event": func(in on.AnyOption) {
			on.Event(func(_ context.Context, e *kopf.Event[*Dep]) error {
				if e.Object.Name == "x" && e.Type == "ADDED" {
					return want
				}
				return nil
			}, in)
		},
	} {
		h := only(t, register)
		call := &registry.Call{Body: b, Type: "ADDED", NewValue: int64(3), HasNew: true, Param: 5, Patch: new(registry.Edits)}
		if err := h.Invoke(t.Context(), call); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		call.Body = parse(t, `{"spec":{"replicas":"many"}}`)
		var undecodable *registry.DecodeError
		if err := h.Invoke(t.Context(), call); !errors.As(err, &undecodable) {
			t.Errorf("%s: an object that does not decode is %v", name, err)
		}
	}
	h := only(t, func(in on.AnyOption) { on.Create(scaled, on.When(always), in) })
	if ok, err := h.When(t.Context(), &registry.Call{Body: parse(t, `{"spec":[]}`)}); ok || err == nil {
		t.Error("a filter saw an object that does not decode")
	}
}

// MEM-7: one function several times.
func TestOneFunctionSeveralTimes(t *testing.T) {
	reg := kopf.NewRegistry()
	for _, tier := range []string{"gold", "silver"} {
		on.Create(scaled, on.ID(tier), on.Param(tier), on.Label("tier", tier), on.In(reg))
	}
	if err := reg.Err(); err != nil {
		t.Error(err)
	}
}

// T011: in the order of declaration.
func TestOrder(t *testing.T) {
	reg := kopf.NewRegistry()
	in := on.In(reg)
	on.Update(scaled, in)
	on.Event(seen, in)
	on.FieldChange("spec.replicas", replicas, in)
	on.Create(scaled, in)
	var got []registry.Kind
	for _, h := range reg.Handlers() {
		got = append(got, h.Kind)
	}
	if !reflect.DeepEqual(got, []registry.Kind{registry.Update, registry.Event, registry.Field, registry.Create}) {
		t.Error(got)
	}
}
