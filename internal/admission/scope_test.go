package admission_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kopf-go/kopf/on"
)

// What is in a namespace that the operator does not handle is none of its business; what is
// in none is, and so is a namespace itself.
func TestOtherNamespacesAreLetThrough(t *testing.T) {
	r := newReviewer(t, func(in on.SelectionOption) {
		on.Validate(func(context.Context, *A) error { return errors.New("no") }, selected, in, on.ID("v"))
	})
	r.Serves = func(namespace string) bool { return namespace == "ours" }
	for namespace, allowed := range map[string]bool{"ours": false, "theirs": true, "": false} {
		q := request("CREATE", database(`{}`), "")
		q.Namespace = namespace
		if got := review(t, r, q); got.Allowed != allowed {
			t.Errorf("in %q: %t", namespace, got.Allowed)
		}
	}
}
