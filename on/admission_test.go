package on_test

import (
	"context"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/on"
)

func checked(context.Context, *kopf.Admission[*Dep]) error { return nil }

// ADM-1: what admission handlers take.
func TestAdmissionOptions_ADM1(t *testing.T) {
	h := only(t, func(in on.AnyOption) {
		on.Validate(checked, in, on.Operations(admissionv1.Create, "DELETE", "CREATE"), on.Subresource("status"), on.Persistent(),
			on.SideEffects(), on.IgnoreFailures(), on.Param(7), on.Label("a", "b"), on.Annotation("c", filters.Present),
			on.When(always), on.FieldOf(ofSpec), on.Value(filters.Present), on.ID("check"), on.Kind("Deployment"), on.Group("apps"))
	})
	if h.Kind != registry.Validate || h.ID != "check/spec" || !slices.Equal(h.Operations, []string{"CREATE", "DELETE"}) ||
		h.Subresource != "status" || !h.Persistent || !h.SideEffects || !h.IgnoreFailures || h.Param != 7 || len(h.Labels) != 1 ||
		len(h.Annotations) != 1 || h.When == nil || h.Value != filters.Present || h.Selector.Name != "Deployment" || h.Invoke == nil {
		t.Errorf("got %+v", h)
	}
	if h = only(t, func(in on.AnyOption) { on.Mutate(checked, in) }); h.Kind != registry.Mutate || h.ID != "checked" ||
		h.Operations != nil || h.Subresource != "" || h.Persistent || h.SideEffects || h.IgnoreFailures || h.Keeps() {
		t.Errorf("got %+v", h)
	}
}

func TestPolicyOptions(t *testing.T) {
	reg := kopf.NewRegistry()
	want := place(1, 1)
	on.ValidateCEL[*Database]("replicas", " object.spec.replicas < 6\n", databases, on.In(reg), on.Message("too many"),
		on.MessageExpression(`"too many: " + string(object.spec.replicas)`), on.Operations("UPDATE"), on.Subresource("scale"),
		on.Label("a", "b"), on.Label("c", filters.Present), on.Label("d", filters.Absent))
	if err := reg.Err(); err != nil {
		t.Fatal(err)
	}
	h := reg.Handlers()[0]
	rule := registry.Rule{
		Expression: "object.spec.replicas < 6", Message: "too many", MessageExpression: `"too many: " + string(object.spec.replicas)`,
	}
	if h.Kind != registry.Policy || h.ID != "replicas" || h.Rule != rule || !slices.Equal(h.Operations, []string{"UPDATE"}) ||
		h.Subresource != "scale" || len(h.Labels) != 3 || h.Source != want || h.Invoke != nil {
		t.Errorf("got %+v, want it from %s", h, want)
	}
}

// ADM-1: mistakes are told with their place.
func TestMistakesOfAdmission_ADM1(t *testing.T) {
	reg := kopf.NewRegistry()
	in := on.In(reg)
	checkMistakes(t, reg, []mistake{
		{"no operations", lines(), func() { on.Validate(checked, on.ID("a1"), on.Operations(), in) },
			"validate handler a1: on.Operations is empty: leave it out for all"},
		{"an unknown operation", lines(), func() { on.Mutate(checked, on.ID("a2"), on.Operations("CREATE", "PATCH"), in) },
			`mutate handler a2: on.Operations("PATCH"): there are CREATE, UPDATE, DELETE, CONNECT`},
		{"all operations", lines(), func() { on.Mutate(checked, on.ID("a3"), on.Operations("*"), in) }, `on.Operations("*")`},
		{"in small letters", lines(), func() { on.Mutate(checked, on.ID("a4"), on.Operations("create"), in) }, `on.Operations("create")`},
		{"operations twice", lines(), func() { on.Mutate(checked, on.ID("a5"), on.Operations("CREATE"), on.Operations("UPDATE"), in) }, "on.Operations is given twice"},
		{"no subresource", lines(), func() { on.Validate(checked, on.ID("a6"), on.Subresource(""), in) }, `on.Subresource("")`},
		{"a path", lines(), func() { on.Validate(checked, on.ID("a7"), on.Subresource("pods/status"), in) }, `on.Subresource("pods/status")`},
		{"a pattern", lines(), func() { on.Validate(checked, on.ID("a8"), on.Subresource("s*"), in) }, `leave it out for the object itself`},
		{"subresource twice", lines(), func() { on.Validate(checked, on.ID("a9"), on.Subresource("a"), on.Subresource("b"), in) }, "on.Subresource is given twice"},
		{"no function", lines(), func() { on.Validate[*Dep](nil, on.ID("a10"), in) }, "validate handler a10: it has no function"},
		{"no function to mutate", lines(), func() { on.Mutate[*Dep](nil, on.ID("a11"), in) }, "mutate handler a11: it has no function"},
		{"FLT-2 a value without a field", lines(), func() { on.Mutate(checked, on.ID("a12"), on.Value(1), in) }, "it needs a field"},
		{"a filter of another type", lines(), func() { on.Validate(checked, on.ID("a13"), on.When(ofPods), in) }, "on.When is for *v1.Pod"},
		{"no id", lines(), func() { on.ValidateCEL[*Dep]("", "true", in) }, "policy handler : on.ValidateCEL needs an id"},
		{"no expression", lines(), func() { on.ValidateCEL[*Dep]("p1", " ", in) }, "policy handler p1: on.ValidateCEL has no expression"},
		{"no message", lines(), func() { on.ValidateCEL[*Dep]("p2", "true", on.Message(" "), in) }, "on.Message(\"\"): it is one line"},
		{"a long message", lines(), func() { on.ValidateCEL[*Dep]("p3", "true", on.Message("a\nb"), in) }, "it is one line"},
		{"two messages", lines(), func() { on.ValidateCEL[*Dep]("p4", "true", on.Message("a"), on.Message("b"), in) }, "on.Message is given twice"},
		{"no message expression", lines(), func() { on.ValidateCEL[*Dep]("p5", "true", on.MessageExpression(""), in) }, "on.MessageExpression is empty"},
		{"a function for a label", lines(), func() { on.ValidateCEL[*Dep]("p6", "true", on.Label("a", func(string) bool { return true }), in) }, "not func(string) bool"},
		{"a combination for a label", lines(), func() { on.ValidateCEL[*Dep]("p7", "true", on.Label("a", filters.Any("x", "y")), in) },
			`on.Label("a"): the API server itself looks at labels for on.ValidateCEL: it takes a text, filters.Present or filters.Absent, not Any("x", "y")`},
		{"nil for a label", lines(), func() { on.ValidateCEL[*corev1.Pod]("p8", "true", on.Label("a", nil), in) }, "cannot be nil"},
		{"a nil option", lines(), func() { on.ValidateCEL[*Dep]("p9", "true", nil, in) }, "an option is nil"},
	})
}
