package admission_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/kopf-go/kopf/internal/admission"
)

// fourKB is an object of some 4 KB.
func fourKB() string {
	spec := `{"engine":"x","users":[`
	for i := range 40 {
		if i > 0 {
			spec += ","
		}
		spec += fmt.Sprintf(`{"name":"user-%d","notes":{"email":"user-%d@example.com","since":"2026-01-01T00:00:00Z"}}`, i, i)
	}
	return database(spec + `]}`)
}

func benchmarkReview(b *testing.B, r *admission.Reviewer, body string) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Answer(context.Background(), bytes.NewReader([]byte(body)), admission.Facts{}); err != nil {
			b.Fatal(err)
		}
	}
}

// One validating handler for the creation of an object of 4 KB, from the bytes of the review
// to those of the answer.
func BenchmarkValidateCreate(b *testing.B) {
	benchmarkReview(b, validating(b, allow), reviewOf("v1", fourKB(), ""))
}

// The same for an update.
func BenchmarkValidateUpdate(b *testing.B) {
	benchmarkReview(b, validating(b, allow), reviewOf("v1", fourKB(), `,"oldObject":`+fourKB()))
}

// One mutating handler that changes a field.
func BenchmarkMutateCreate(b *testing.B) {
	r := mutating(b, func(_ context.Context, a *A) error { a.Object.Spec.Engine = "y"; return nil })
	benchmarkReview(b, r, reviewOf("v1", fourKB(), ""))
}
