package admission_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// ADM-12, T160: the patch is what the handler has changed, and nothing else.
func TestPatch_ADM12_T160(t *testing.T) {
	const spec = `{"engine":"mysql","replicas":3,"users":[{"name":"ann","extra":1},{"name":"bob","extra":2}],"tags":["a","b"],"a/b~c":{"x":null}}`
	for name, c := range map[string]struct {
		edit func(*Database)
		want string
	}{
		"nothing":       {func(*Database) {}, ``},
		"the same":      {func(d *Database) { d.Spec.Engine = "mysql" }, ``},
		"a field":       {func(d *Database) { d.Spec.Engine = "x" }, `[{"op":"replace","path":"/spec/engine","value":"x"}]`},
		"a new field":   {func(d *Database) { d.Spec.Size.Disk = "1Gi" }, `[{"op":"add","path":"/spec/size","value":{"disk":"1Gi"}}]`},
		"one less":      {func(d *Database) { d.Spec.Engine = "" }, `[{"op":"remove","path":"/spec/engine"}]`},
		"a label":       {func(d *Database) { d.Labels = map[string]string{"a/b~c": "x"} }, `[{"op":"add","path":"/metadata/labels","value":{"a/b~c":"x"}}]`},
		"in a list":     {func(d *Database) { d.Spec.Users[1].Admin = true }, `[{"op":"add","path":"/spec/users/1/admin","value":true}]`},
		"a first item":  {func(d *Database) { d.Spec.Users = append([]User{{Name: "new"}}, d.Spec.Users...) }, `[{"op":"add","path":"/spec/users/0","value":{"name":"new"}}]`},
		"a last item":   {func(d *Database) { d.Spec.Tags = append(d.Spec.Tags, "c") }, `[{"op":"add","path":"/spec/tags/2","value":"c"}]`},
		"no first item": {func(d *Database) { d.Spec.Users = d.Spec.Users[1:] }, `[{"op":"remove","path":"/spec/users/0"}]`},
		"no list":       {func(d *Database) { d.Spec.Tags = nil }, `[{"op":"remove","path":"/spec/tags"}]`},
		"another order": {func(d *Database) { u := d.Spec.Users; u[0], u[1] = u[1], u[0] }, `[{"op":"remove","path":"/spec/users/1"},{"op":"add","path":"/spec/users/0","value":{"extra":2,"name":"bob"}}]`},
		"the identity":  {func(d *Database) { d.Name, d.Kind, d.APIVersion, d.UID = "x", "x", "x", "x" }, ``},
		"another object": {func(d *Database) {
			*d = Database{Spec: DatabaseSpec{Engine: "mysql", Replicas: 3, Users: d.Spec.Users}}
		}, `[{"op":"remove","path":"/spec/tags"}]`},
	} {
		r := mutating(t, func(_ context.Context, a *A) error { c.edit(a.Object); return nil })
		q := create(spec)
		got := review(t, r, q)
		patched(t, q, got)
		if string(got.Patch) == c.want {
			continue
		}
		if c.want == "" || got.Patch == nil {
			t.Errorf("%s: got %s, want %s", name, got.Patch, c.want)
			continue
		}
		sameJSON(t, string(got.Patch), c.want)
	}
}

// ADM-12: New is Object, so that it can be changed through either.
func TestNewIsObject_ADM12(t *testing.T) {
	r := mutating(t, func(_ context.Context, a *A) error { a.New.Spec.Engine = "x"; return nil },
		func(_ context.Context, a *A) error {
			a.Object = a.New.DeepCopy()
			a.Object.Spec.Replicas = 1
			return nil
		})
	q := request("UPDATE", database(`{}`), database(`{}`))
	sameJSON(t, patched(t, q, review(t, r, q)), database(`{"engine":"x","replicas":1}`))
}

// Handlers see what the ones before them have changed, in Diff as well; their filters do
// not.
func TestChangesAreSeen(t *testing.T) {
	var called string
	var differences []int
	r := newReviewer(t, func(in on.SelectionOption) {
		step := func(id string, opts ...on.MutateOption) {
			on.Mutate(func(_ context.Context, a *A) error {
				called += id
				a.Object.Spec.Tags = append(a.Object.Spec.Tags, id)
				a.Object.Labels = map[string]string{"a": "b"}
				differences = append(differences, len(a.Diff))
				return nil
			}, append(opts, selected, in, on.ID(id))...)
		}
		on.Validate(func(_ context.Context, a *A) error {
			called += "v[" + strings.Join(a.Object.Spec.Tags, " ") + "]"
			return nil
		}, selected, in, on.ID("v"))
		step("1")
		step("2", on.Label("a", "b"))
		step("3")
	})
	q := request("UPDATE", database(`{"engine":"x"}`), database(`{"engine":"x"}`))
	sameJSON(t, patched(t, q, review(t, r, q)), database(`{"engine":"x","tags":["1","3"]}`, `"labels":{"a":"b"}`))
	if called != "13v[1 3]" || !slices.Equal(differences, []int{0, 2}) {
		t.Errorf("called: %s, with differences: %v", called, differences)
	}
}

// ADM-9, ADM-12: nothing is changed when somebody denies it, and by validating handlers.
func TestNoPatch_ADM9_ADM12(t *testing.T) {
	change := func(_ context.Context, a *A) error { a.Object.Spec.Engine = "x"; return nil }
	for name, patchOf := range map[string]func() []byte{
		"denied":     func() []byte { return review(t, mutating(t, change, fails(errors.New("no"))), create(`{}`)).Patch },
		"validating": func() []byte { return review(t, validating(t, change), create(`{}`)).Patch },
		"deleting": func() []byte {
			r := newReviewer(t, func(in on.SelectionOption) {
				on.Mutate(change, selected, in, on.ID("m"), on.Operations("DELETE"))
			})
			return review(t, r, request("DELETE", "", database(`{}`))).Patch
		},
		"taken back": func() []byte {
			back := func(_ context.Context, a *A) error { a.Object.Spec.Engine = ""; return nil }
			return review(t, mutating(t, change, back), create(`{}`)).Patch
		},
	} {
		if patch := patchOf(); patch != nil {
			t.Errorf("%s: %s", name, patch)
		}
	}
}

// A handler that fails changes nothing, and one that leaves no object has made a mistake.
func TestFailedChanges(t *testing.T) {
	fail := func(_ context.Context, a *A) error { a.Object.Spec.Engine = "x"; return errors.New("no") }
	look := func(_ context.Context, a *A) error {
		if a.Object.Spec.Engine != "" {
			return errors.New("it is seen")
		}
		return nil
	}
	if got := review(t, mutating(t, fail, look), create(`{}`)); got.Result.Message != "no" {
		t.Errorf("got %+v", got.Result)
	}
	none := func(_ context.Context, a *A) error { a.Object = nil; return nil }
	if got := review(t, mutating(t, none), create(`{}`)); got.Allowed || !strings.Contains(got.Result.Message, "there must be an object") {
		t.Errorf("got %+v", got.Result)
	}
	r := newReviewer(t, func(in on.SelectionOption) {
		on.Mutate(func(_ context.Context, a *kopf.Admission[*unstructured.Unstructured]) error {
			a.Object.Object["spec"] = make(chan int)
			return nil
		}, selected, in, on.ID("m"))
	})
	if got := review(t, r, create(`{}`)); got.Allowed || !strings.Contains(got.Result.Message, "does not encode") {
		t.Errorf("got %+v", got.Result)
	}
}

// Numbers keep all their digits, in objects of which the handler sees a rounded one too.
func TestNumbers(t *testing.T) {
	const digits = "12345678901234567890.123456789"
	spec := `{"engine":"x","users":[{"name":"ann","n":` + digits + `}],"n":` + digits + `,"big":9223372036854775807}`
	want := strings.Replace(spec, `"x"`, `"y"`, 1)
	want = strings.Replace(want, `[`, `[{"name":"new"},`, 1)
	typed := mutating(t, func(_ context.Context, a *A) error {
		a.Object.Spec.Engine = "y"
		a.Object.Spec.Users = append([]User{{Name: "new"}}, a.Object.Spec.Users...)
		return nil
	})
	untyped := newReviewer(t, func(in on.SelectionOption) {
		on.Mutate(func(_ context.Context, a *kopf.Admission[*unstructured.Unstructured]) error {
			spec := a.Object.Object["spec"].(map[string]any)
			spec["engine"] = "y"
			spec["users"] = append([]any{map[string]any{"name": "new"}}, spec["users"].([]any)...)
			return nil
		}, selected, in, on.ID("m"))
	})
	q := create(spec)
	for _, after := range []func() string{
		func() string { return patched(t, q, review(t, typed, q)) },
		func() string { return patched(t, q, review(t, untyped, q)) },
	} {
		after := after()
		sameJSON(t, after, database(want))
		if strings.Count(after, digits) != 2 || !strings.Contains(after, "9223372036854775807") {
			t.Errorf("digits are lost: %s", after)
		}
	}
}

// Null is as good as absent, but what is null and untouched stays.
func TestNulls(t *testing.T) {
	r := newReviewer(t, func(in on.SelectionOption) {
		on.Mutate(func(_ context.Context, a *kopf.Admission[*unstructured.Unstructured]) error {
			spec := a.Object.Object["spec"].(map[string]any)
			spec["new"], spec["gone"], spec["full"] = nil, nil, "x"
			return nil
		}, selected, in, on.ID("m"))
	})
	q := create(`{"null":null,"gone":1,"full":null}`)
	got := review(t, r, q)
	var operations []map[string]any
	if err := json.Unmarshal(got.Patch, &operations); err != nil || len(operations) != 2 {
		t.Errorf("got %s", got.Patch)
	}
	if after := patched(t, q, got); !strings.Contains(after, `"null":null`) || strings.Contains(after, "gone") || !strings.Contains(after, `"full":"x"`) {
		t.Errorf("got %s", after)
	}
}
