package admission_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/on"
)

// B39: a rule that came later does not keep an object from going. Whether it goes is for the
// stored object to say.
func TestFinalizersComeOff_B39(t *testing.T) {
	deleted, held := `"deletionTimestamp":"2026-01-01T00:00:00Z"`, `"finalizers":["example.com/f"]`
	going := database(`{"engine":"x","n":1}`, deleted, held)
	status := func(object, status string) string { return object[:len(object)-1] + `,"status":` + status + `}` }
	for name, c := range map[string]struct {
		object, old, subresource string
		allowed                  bool
	}{
		"a finalizer comes off":        {database(`{"engine":"x","n":1}`, deleted), going, "", true},
		"nothing changes":              {going, going, "", true},
		"numbers in another form":      {database(`{"engine":"x","n":1.0}`, deleted), going, "", true},
		"the operator's annotations":   {database(`{"engine":"x","n":1}`, deleted, `"annotations":{"kopf.zalando.org/x":"1","me.kopf.zalando.org/y":"1"}`), going, "", true},
		"bookkeeping of the server":    {database(`{"engine":"x","n":1}`, deleted, `"resourceVersion":"9","managedFields":[{}]`), going, "", true},
		"the status":                   {status(going, `{"a":1}`), going, "", true},
		"the spec":                     {database(`{"engine":"y","n":1}`, deleted, held), going, "", false},
		"a label":                      {database(`{"engine":"x","n":1}`, deleted, `"labels":{"a":"b"}`), going, "", false},
		"an annotation":                {database(`{"engine":"x","n":1}`, deleted, `"annotations":{"a":"b"}`), going, "", false},
		"only the new one is deleted":  {database(`{"engine":"x","n":1}`, deleted), database(`{"engine":"x","n":1}`), "", false},
		"the new one is not":           {database(`{"engine":"x","n":1}`), going, "", true},
		"none is deleted":              {database(`{}`), database(`{}`, held), "", false},
		"the status, as a subresource": {status(going, `{"a":1}`), going, "status", false},
		"no status, as a subresource":  {database(`{"engine":"x","n":1}`, deleted), going, "status", true},
	} {
		deny := func(context.Context, *A) error { return errors.New("no") }
		mutated := 0
		r := newReviewer(t, func(in on.SelectionOption) {
			on.Validate(deny, selected, in, on.ID("v"), on.Subresource("*"))
			on.Mutate(func(context.Context, *A) error { mutated++; return nil }, selected, in, on.ID("m"), on.Subresource("*"))
		})
		q := request("UPDATE", c.object, c.old)
		q.SubResource = c.subresource
		if got := review(t, r, q); got.Allowed != c.allowed || mutated != 1 {
			t.Errorf("%s: %t, mutated: %d", name, got.Allowed, mutated)
		}
		r.ValidateTerminating = true
		if review(t, r, q).Allowed {
			t.Errorf("%s: allowed although all is to be validated", name)
		}
	}
}

// B39: what counts is what counts for the operator.
func TestEssenceOfTheOperator_B39(t *testing.T) {
	store, err := state.NewStore(state.Config{Naming: state.Naming{Prefix: "my.example.com", Finalizer: "my.example.com/f"}})
	if err != nil {
		t.Fatal(err)
	}
	going := database(`{}`, `"deletionTimestamp":"2026-01-01T00:00:00Z"`)
	noted := database(`{}`, `"deletionTimestamp":"2026-01-01T00:00:00Z"`, `"annotations":{"my.example.com/x":"1"}`)
	r := validating(t, fails(errors.New("no")))
	if review(t, r, request("UPDATE", noted, going)).Allowed {
		t.Error("an annotation of others does not count")
	}
	r.Essence = func(b *body.Body) *state.Essence { return store.Essence(b) }
	if !review(t, r, request("UPDATE", noted, going)).Allowed {
		t.Error("an annotation of the operator counts")
	}
}
