package outcome

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// ADM-11: without a code of an error it is 500.
func TestReject_ADM11(t *testing.T) {
	for code, want := range map[int]int{0: 500, -1: 500, 200: 500, 399: 500, 400: 400, 422: 422, 599: 599, 600: 500} {
		if got := Reject(code, "no").Code; got != want {
			t.Errorf("%d: got %d", code, got)
		}
	}
	cause := errors.New("cause")
	err := fmt.Errorf("outer: %w", Reject(422, "bad %s: %w", "spec", cause).Field("spec.a", "is b").Field("spec.c[0]", "is d"))
	var reject *RejectError
	if !errors.As(err, &reject) || !errors.Is(err, cause) || err.Error() != "outer: bad spec: cause: spec.a: is b, spec.c[0]: is d" {
		t.Errorf("got %v", err)
	}
	var fields []string
	for _, c := range reject.Causes {
		fields = append(fields, c.Field)
	}
	if !slices.Equal(fields, []string{"spec.a", "spec.c[0]"}) {
		t.Errorf("got %q", fields)
	}
	for want, err := range map[string]error{
		"rejected": Reject(422, ""), "spec.a: is b": Reject(422, "").Field("spec.a", "is b"), "x": &RejectError{Err: errors.New("x")},
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
	if (&RejectError{}).Error() != "rejected" || (&RejectError{}).Unwrap() != nil {
		t.Error("the zero value is wrong")
	}
}
