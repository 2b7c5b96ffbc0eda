package admission_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/admission"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/on"
)

// T160, ADM-4: a resource that handlers are for, and none of them for the request: it is
// allowed. No handler for the resource: nobody knows.
func TestNobodyToAsk_T160_ADM4(t *testing.T) {
	r := newReviewer(t, func(in on.SelectionOption) {
		on.Validate(func(context.Context, *A) error { return errors.New("called") }, selected, in, on.Operations("DELETE"), on.ID("v"))
	})
	if response := review(t, r, create(`{}`)); !response.Allowed || response.Result != nil || response.Warnings != nil {
		t.Errorf("got %+v", response)
	}
	other := create(`{}`)
	other.Resource.Version = "v2"
	_, err := r.Review(context.Background(), other, admission.Facts{})
	var refused *admission.Error
	if !errors.As(err, &refused) || refused.Code != http.StatusNotFound || !strings.Contains(err.Error(), "databases.example.com") {
		t.Errorf("got %v", err)
	}
}

// ADM-4: what is missing is said, and nobody is called.
func TestMissingData_ADM4(t *testing.T) {
	r := validating(t, func(context.Context, *A) error { panic("called") })
	for name, c := range map[string]struct {
		request *admissionv1.AdmissionRequest
		want    string
	}{
		"no objects":   {request("DELETE", "", ""), "neither an object nor an old one"},
		"no operation": {request("", database(`{}`), ""), "no operation"},
		"a list":       {request("CREATE", `[]`, ""), "object of the request"},
		"a text":       {request("UPDATE", database(`{}`), `"x"`), "oldObject of the request"},
		"a bad name":   {request("CREATE", `{"metadata":{"name":3}}`, ""), "object of the request"},
	} {
		_, err := r.Review(context.Background(), c.request, admission.Facts{})
		var refused *admission.Error
		if !errors.As(err, &refused) || refused.Code != http.StatusBadRequest || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// ADM-5: what handlers see of each operation.
func TestObjects_ADM5(t *testing.T) {
	var seen *A
	r := validating(t, func(_ context.Context, a *A) error { seen = a; return nil })
	small, large := database(`{"replicas":1}`), database(`{"replicas":2}`)

	review(t, r, request("CREATE", small, ""))
	if seen.Object.Spec.Replicas != 1 || seen.New != seen.Object || seen.Old != nil ||
		len(seen.Diff) != 1 || seen.Diff[0].Op != diff.Add || len(seen.Diff[0].Path) != 0 {
		t.Errorf("creation: %+v", seen)
	}
	review(t, r, request("UPDATE", large, small))
	if seen.Object.Spec.Replicas != 2 || seen.New != seen.Object || seen.Old.Spec.Replicas != 1 ||
		len(seen.Diff) != 1 || seen.Diff[0].Path.String() != "spec.replicas" {
		t.Errorf("update: %+v", seen)
	}
	review(t, r, request("DELETE", "", large))
	if seen.Object.Spec.Replicas != 2 || seen.New != nil || seen.Old != seen.Object ||
		len(seen.Diff) != 1 || seen.Diff[0].Op != diff.Remove {
		t.Errorf("deletion: %+v", seen)
	}
}

// ADM-5, FLT-12: filters look at the object, or on deletion at the old one; a field does
// not narrow what the handler gets.
func TestFilters_ADM5_FLT12(t *testing.T) {
	gold, plain := `"labels":{"tier":"gold"}`, `"annotations":{"a":"b"}`
	for name, c := range map[string]struct {
		option  on.ValidateOption
		request *admissionv1.AdmissionRequest
		called  bool
	}{
		"label fits":                  {on.Label("tier", "gold"), request("CREATE", database(`{}`, gold), ""), true},
		"label does not fit":          {on.Label("tier", "gold"), request("CREATE", database(`{}`), ""), false},
		"old label does not count":    {on.Label("tier", "gold"), request("UPDATE", database(`{}`), database(`{}`, gold)), false},
		"label of what goes":          {on.Label("tier", "gold"), request("DELETE", "", database(`{}`, gold)), true},
		"annotation":                  {on.Annotation("a", filters.Present), request("CREATE", database(`{}`, plain), ""), true},
		"no annotation":               {on.Annotation("a", filters.Present), request("CREATE", database(`{}`), ""), false},
		"field is there":              {on.Field("spec.engine"), create(`{"engine":"x"}`), true},
		"field is not there":          {on.Field("spec.engine"), create(`{}`), false},
		"field is not there any more": {on.Field("spec.engine"), request("UPDATE", database(`{}`), database(`{"engine":"x"}`)), false},
		"when": {on.When(func(_ context.Context, s *kopf.Snapshot[*Database]) bool { return s.Object.Spec.Replicas > 3 }),
			create(`{"replicas":4}`), true},
		"not when": {on.When(func(_ context.Context, s *kopf.Snapshot[*Database]) bool { return s.Object.Spec.Replicas > 3 }),
			create(`{"replicas":3}`), false},
	} {
		called := false
		r := newReviewer(t, func(in on.SelectionOption) {
			on.Validate(func(_ context.Context, a *A) error {
				called = len(a.Diff) == 0 || len(a.Diff[0].Path) == 0 || a.Diff[0].Path[0] != "engine"
				return nil
			}, selected, in, on.ID("v"), c.option)
		})
		if review(t, r, c.request); called != c.called {
			t.Errorf("%s: called: %t", name, called)
		}
	}
}

func TestValueFilter_FLT12(t *testing.T) {
	calls := 0
	r := newReviewer(t, func(in on.SelectionOption) {
		on.Validate(func(context.Context, *A) error { calls++; return nil }, selected, in, on.ID("v"),
			on.FieldOf(func(d *Database) *string { return &d.Spec.Engine }), on.Value("mysql"))
	})
	review(t, r, create(`{"engine":"mysql"}`))
	review(t, r, create(`{"engine":"other"}`))
	review(t, r, request("UPDATE", database(`{"engine":"other"}`), database(`{"engine":"mysql"}`)))
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
}

// A filter that fails denies the request, without telling the client more than that, unless
// failures are ignored, or what the client has sent does not decode.
func TestFilterFails(t *testing.T) {
	failing := on.When(func(context.Context, *kopf.Snapshot[*Database]) bool { panic("secret") })
	for name, c := range map[string]struct {
		spec string
		more on.AdmissionOption
		want string
	}{
		"panics":          {`{}`, on.SideEffects(), "500 the filter of validate handler v failed"},
		"is ignored":      {`{}`, on.IgnoreFailures(), ""},
		"does not decode": {`{"engine":1}`, on.IgnoreFailures(), "422 object does not decode"},
		"is not ignored":  {`{"engine":1}`, on.SideEffects(), "422 object does not decode"},
	} {
		r := newReviewer(t, func(in on.SelectionOption) { on.Validate(allow, selected, in, on.ID("v"), failing, c.more) })
		response := review(t, r, create(c.spec))
		got := ""
		if !response.Allowed {
			got = fmt.Sprint(response.Result.Code, " ", response.Result.Message)
		}
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") || strings.Contains(got, "secret") {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

// T163, ADM-6: memos are those of the object, and temporary while it is created; handlers
// and filters of one request share them in any case.
func TestMemos_T163_ADM6(t *testing.T) {
	memo := kopf.NewMemo(func() *int { return new(int) })
	var counts []int
	count := func(_ context.Context, a *A) error {
		*memo.Of(a)++
		counts = append(counts, *memo.Of(a))
		return nil
	}
	r := validating(t, count, count)
	kept := map[types.UID]*registry.Memos{}
	r.Memos = func(resource schema.GroupVersionResource, uid types.UID, create bool) *registry.Memos {
		if resource != databases {
			t.Errorf("memos of %s", resource)
		}
		if create {
			return new(registry.Memos)
		}
		if kept[uid] == nil {
			kept[uid] = new(registry.Memos)
		}
		return kept[uid]
	}
	object := database(`{}`)
	for _, operation := range []string{"CREATE", "UPDATE", "UPDATE"} {
		review(t, r, request(operation, object, object))
	}
	review(t, r, request("DELETE", "", object))
	if want := []int{1, 2, 1, 2, 3, 4, 5, 6}; !slices.Equal(counts, want) || len(kept) != 1 || kept["u1"] == nil {
		t.Errorf("got %v, want %v; kept of %v", counts, want, kept)
	}
	r.Memos, counts = nil, nil
	review(t, r, request("UPDATE", object, object))
	if !slices.Equal(counts, []int{1, 2}) {
		t.Errorf("without memos: %v", counts)
	}
}

// ADM-7, T161: which handlers a request is for, by its operation and subresource.
func TestSelection_ADM7_T161(t *testing.T) {
	var called []string
	r := newReviewer(t, func(in on.SelectionOption) {
		validate := func(id string, opts ...on.ValidateOption) {
			on.Validate(func(context.Context, *A) error { called = append(called, id); return nil },
				append(opts, selected, in, on.ID(id))...)
		}
		mutate := func(id string, opts ...on.MutateOption) {
			on.Mutate(func(context.Context, *A) error { called = append(called, id); return nil },
				append(opts, selected, in, on.ID(id))...)
		}
		validate("all")
		validate("delete", on.Operations("DELETE"))
		validate("create", on.Operations("CREATE", "CREATE"))
		validate("status", on.Subresource("status"))
		validate("any", on.Subresource("*"))
		mutate("m-all")
		mutate("m-delete", on.Operations("DELETE"))
		mutate("m-both", on.Operations("DELETE", "UPDATE"))
		mutate("m-any", on.Subresource("*"))
		on.ValidateCEL[*Database]("policy", "true", selected, in)
	})
	for _, c := range []struct{ operation, subresource, want string }{
		{"CREATE", "", "m-all m-any all create any"},
		{"UPDATE", "", "m-all m-both m-any all any"},
		{"DELETE", "", "m-delete all delete any"},
		{"CONNECT", "", "m-all m-any all any"},
		{"UPDATE", "status", "m-any status any"},
		{"UPDATE", "scale", "m-any any"},
		{"DELETE", "status", "status any"},
	} {
		called = nil
		q := request(c.operation, database(`{}`), database(`{}`))
		q.SubResource = c.subresource
		if review(t, r, q); strings.Join(called, " ") != c.want {
			t.Errorf("%s %s: got %v, want %s", c.operation, c.subresource, called, c.want)
		}
	}
}

// ADM-3, ADM-7, ADM-16, T161: hints in the URL choose among the handlers; what they mean is
// there, or it is said that it is not.
func TestRoute_ADM3_ADM7_T161(t *testing.T) {
	var called []string
	r := newReviewer(t, func(in on.SelectionOption) {
		for _, id := range []string{"a", "b/spec.x", "ü ber"} {
			fn := func(context.Context, *A) error { called = append(called, id); return nil }
			on.Validate(fn, selected, in, on.ID(id))
			on.Mutate(fn, selected, in, on.ID(id))
		}
		on.ValidateCEL[*Database]("policy", "true", selected, in)
	})
	for i := range r.Handlers {
		if h := &r.Handlers[i]; h.Kind == registry.Validate && h.ID != "a" {
			h.Group = "b/spec.x"
		}
	}
	for path, want := range map[string]string{
		"/":                      "a b/spec.x ü ber a b/spec.x ü ber",
		"":                       "a b/spec.x ü ber a b/spec.x ü ber",
		"/validate":              "a b/spec.x ü ber",
		"/mutate/":               "a b/spec.x ü ber",
		"/validate/b%2Fspec.x":   "b/spec.x ü ber",
		"/validate/b/spec.x":     "b/spec.x ü ber",
		"/mutate/b/spec.x":       "b/spec.x",
		"/mutate/%C3%BC%20ber":   "ü ber",
		"/b/spec.x":              "b/spec.x b/spec.x",
		"/%C3%BC%20ber":          "ü ber ü ber",
		"/validate/%C3%BC%20ber": "-", // not the first of its group
		"/other":                 "-",
		"/policy":                "-",
		"/mutate/other":          "-",
		"/a%zz":                  "-",
		"/validate/%zz":          "-",
	} {
		called = nil
		hint, ok := r.Route(path)
		if !ok {
			called = []string{"-"}
		} else if _, err := r.Review(context.Background(), create(`{}`), admission.Facts{Hint: hint}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(called, " "); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

// T162, ADM-3, ADM-13: what handlers are told of the request; what is not there is empty.
func TestTellsOfTheRequest_T162_ADM3_ADM13(t *testing.T) {
	var seen *A
	r := newReviewer(t, func(in on.SelectionOption) {
		on.Validate(func(_ context.Context, a *A) error { seen = a; return nil }, selected, in, on.ID("v"), on.Subresource("*"), on.Param(7))
	})
	q, yes := create(`{}`), true
	q.DryRun, q.SubResource = &yes, "status"
	facts := admission.Facts{Headers: http.Header{"X": {"y"}}, Peer: new(x509.Certificate)}
	if _, err := r.Review(context.Background(), q, facts); err != nil {
		t.Fatal(err)
	}
	if !seen.DryRun || seen.Subresource != "status" || seen.User.Username != "jane" || seen.Headers.Get("X") != "y" ||
		seen.Peer != facts.Peer || seen.Operation != admissionv1.Create || seen.Param != 7 || seen.Resource != databases || seen.Log == nil {
		t.Errorf("got %+v", seen)
	}
	q.DryRun, q.SubResource = nil, ""
	review(t, r, q)
	if seen.DryRun || seen.Subresource != "" || seen.Headers != nil || seen.Peer != nil {
		t.Errorf("got %+v", seen)
	}
}

// A subresource may be of another kind than its resource: a type that is not that kind is
// refused, instead of being filled with what happens to fit.
func TestKindsOfSubresources(t *testing.T) {
	const scale = `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"db"},"spec":{"replicas":3}}`
	var replicas int64
	r := newReviewer(t, func(in on.SelectionOption) {
		sub := on.Subresource("scale")
		on.Validate(func(_ context.Context, a *kopf.Admission[*autoscalingv1.Scale]) error {
			replicas += int64(a.New.Spec.Replicas)
			return nil
		}, selected, in, sub, on.ID("scale"))
		on.Validate(func(_ context.Context, a *kopf.Admission[*unstructured.Unstructured]) error {
			n, _, err := unstructured.NestedInt64(a.New.Object, "spec", "replicas")
			replicas += n
			return err
		}, selected, in, sub, on.ID("untyped"))
	})
	q := request("UPDATE", scale, scale)
	q.SubResource = "scale"
	if response := review(t, r, q); !response.Allowed || replicas != 6 {
		t.Errorf("%d replicas, %+v", replicas, response.Result)
	}

	r = newReviewer(t, func(in on.SelectionOption) {
		on.Validate(allow, selected, in, on.Subresource("scale"), on.ID("wrong"))
		on.Validate(func(context.Context, *kopf.Admission[*autoscalingv1.Scale]) error { return nil }, selected, in, on.ID("main"))
	})
	const want = "requests for databases/scale are about autoscaling/v1, Scale, not *typed.Resource["
	if got := review(t, r, q); got.Allowed || got.Result.Code != 500 || !strings.HasPrefix(got.Result.Message, want) {
		t.Errorf("got %+v", got.Result)
	}
	if got := review(t, r, create(`{}`)); got.Allowed || !strings.Contains(got.Result.Message, "requests for databases are about example.com/v1, Database, not *v1.Scale") {
		t.Errorf("got %+v", got.Result)
	}
}

// What does not decode is the client's mistake; what is stored and does not decode keeps
// nobody from putting it right, or from deleting it.
func TestUndecodable(t *testing.T) {
	var seen *A
	r := validating(t, func(_ context.Context, a *A) error { seen = a; return nil })
	bad, good := database(`{"engine":"x","replicas":"many"}`), database(`{}`)
	got := review(t, r, request("UPDATE", bad, good))
	if got.Allowed || got.Result.Code != 422 || seen != nil || !strings.Contains(got.Result.Message, "does not decode") {
		t.Errorf("got %+v", got.Result)
	}
	if got := review(t, r, request("UPDATE", good, bad)); !got.Allowed || seen.Old == nil {
		t.Errorf("got %+v", got.Result)
	}
	seen = nil
	if got := review(t, r, request("DELETE", "", bad)); !got.Allowed || seen.Object == nil || seen.Object.Name != "db" {
		t.Errorf("got %+v", got.Result)
	}
}

func TestNotReady(t *testing.T) {
	r := validating(t, func(context.Context, *A) error { panic("called") })
	cause := errors.New("indices are not complete")
	r.Ready = func(context.Context) error { return cause }
	_, err := r.Review(context.Background(), create(`{}`), admission.Facts{})
	var refused *admission.Error
	if !errors.As(err, &refused) || refused.Code != http.StatusServiceUnavailable || !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

// Handlers have objects of their own: what one does to its copy, no other one sees.
func TestPrivateCopies(t *testing.T) {
	spoil := func(_ context.Context, a *A) error {
		if a.Object.Spec.Users[0].Name != "ann" || a.Old.Spec.Users[0].Name != "bob" {
			return fmt.Errorf("got %v, %v", a.Object.Spec, a.Old.Spec)
		}
		a.Object.Spec.Users[0].Name, a.Old.Spec.Users[0].Name = "x", "x"
		return nil
	}
	r := validating(t, spoil, spoil)
	q := request("UPDATE", database(`{"users":[{"name":"ann"}]}`), database(`{"users":[{"name":"bob"}]}`))
	if got := review(t, r, q); !got.Allowed || got.Patch != nil {
		t.Errorf("got %+v", got)
	}
}
