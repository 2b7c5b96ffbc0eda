package admission_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/on"
)

func fails(err error) handler { return func(context.Context, *A) error { return err } }

// ADM-8, ADM-10, T160: all handlers are asked; the most relevant error leads, the first of
// equals, and all are told.
func TestComplaints_ADM8_ADM10_T160(t *testing.T) {
	plain, plain2 := errors.New("plain"), errors.New("plain 2")
	temporary, permanent := kopf.Retry(time.Hour, errors.New("temporary")), kopf.Permanent(errors.New("permanent"))
	reject, reject2 := kopf.Reject(403, "reject"), fmt.Errorf("wrapped: %w", kopf.Reject(409, "reject 2"))
	for name, c := range map[string]struct {
		errs []error
		code int32
		want string
	}{
		"one":         {[]error{plain}, 500, "plain"},
		"equals":      {[]error{plain2, plain}, 500, "plain 2; plain"},
		"all":         {[]error{plain, temporary, permanent, reject}, 403, "reject; permanent; temporary; plain"},
		"rejections":  {[]error{nil, reject2, nil, reject}, 409, "wrapped: reject 2; reject"},
		"wrapped":     {[]error{permanent, reject2}, 409, "wrapped: reject 2; permanent"},
		"the same":    {[]error{plain, plain}, 500, "plain"},
		"no text":     {[]error{errors.New("")}, 500, "validate handler v0 denies it with an empty *errors.errorString"},
		"temporary":   {[]error{plain, temporary}, 500, "temporary; plain"},
		"joined":      {[]error{errors.Join(plain, reject)}, 403, "plain\nreject"},
		"nothing but": {[]error{kopf.Reject(422, "")}, 422, "rejected"},
	} {
		var fns []handler
		called := 0
		for _, err := range c.errs {
			fns = append(fns, func(context.Context, *A) error { called++; return err })
		}
		got := review(t, validating(t, fns...), create(`{}`))
		if got.Allowed || called != len(c.errs) || got.Result.Code != c.code || got.Result.Message != c.want ||
			got.Result.Status != metav1.StatusFailure || got.Result.Details != nil {
			t.Errorf("%s: %d calls, got %+v", name, called, got.Result)
		}
	}
}

// ADM-11: the code is the rejection's, 500 if there is none; clients tell errors apart by
// the reason that goes with it.
func TestCodes_ADM11(t *testing.T) {
	for code, want := range map[int]metav1.Status{
		0:   {Code: 500, Reason: metav1.StatusReasonInternalError},
		200: {Code: 500, Reason: metav1.StatusReasonInternalError},
		999: {Code: 500, Reason: metav1.StatusReasonInternalError},
		403: {Code: 403, Reason: metav1.StatusReasonForbidden},
		422: {Code: 422, Reason: metav1.StatusReasonInvalid},
		418: {Code: 418},
	} {
		for _, err := range []error{kopf.Reject(code, "no"), &kopf.RejectError{Code: code, Err: errors.New("no")}} {
			if got := review(t, validating(t, fails(err)), create(`{}`)).Result; got.Code != want.Code || got.Reason != want.Reason {
				t.Errorf("%d: got %+v", code, got)
			}
		}
	}
}

// The fields of all rejections are told, in a form of which kubectl prints all.
func TestFieldsOfRejections(t *testing.T) {
	r := validating(t,
		fails(errors.New("plain")),
		fails(kopf.Reject(422, "bad spec").Field("spec.engine", "is required").Field("spec.users[0].name", "is taken")),
		fails(fmt.Errorf("wrapped: %w", errors.Join(kopf.Reject(422, "").Field("spec.tags", "too many"), kopf.Reject(400, "no field")))),
	)
	got := review(t, r, create(`{}`)).Result
	var causes []string
	for _, cause := range got.Details.Causes {
		causes = append(causes, cause.Field+"="+cause.Message)
	}
	want := []string{"spec.engine=is required", "spec.users[0].name=is taken", "spec.tags=too many", "=plain"}
	if !slices.Equal(causes, want) || got.Details.Kind != "Database" || got.Details.Name != "db" || got.Details.Group != "example.com" {
		t.Errorf("got %q, %+v", causes, got.Details)
	}
	if want := "bad spec: spec.engine: is required, spec.users[0].name: is taken; wrapped: spec.tags: too many\nno field; plain"; got.Message != want {
		t.Errorf("got %s", got.Message)
	}
}

// A handler that panics, or leaves, denies the request in its name, and the client is told
// no more; the log is.
func TestPanics(t *testing.T) {
	var log strings.Builder
	r := validating(t, func(_ context.Context, a *A) error { a.Warn("careful"); panic("secret") },
		func(context.Context, *A) error { runtime.Goexit(); return nil }, fails(kopf.Reject(403, "no")))
	r.Log = slog.New(slog.NewTextHandler(&log, nil))
	got := review(t, r, create(`{}`))
	if got.Result.Code != 403 || !slices.Equal(got.Warnings, []string{"careful"}) ||
		got.Result.Message != "no; validate handler v0 panicked; validate handler v1 has ended its goroutine" {
		t.Errorf("got %+v", got)
	}
	if text := log.String(); !strings.Contains(text, "secret") || !strings.Contains(text, "response_test.go") ||
		!strings.Contains(text, "resource=databases.example.com object=ns/db operation=CREATE handler=v0") {
		t.Errorf("log: %s", text)
	}
	if got := review(t, validating(t, func(context.Context, *A) error { panic("x") }), create(`{}`)); got.Allowed || got.Result.Code != 500 {
		t.Errorf("got %+v", got)
	}
}

// Failures of a handler that may be ignored are, but not what it says.
func TestIgnoredFailures(t *testing.T) {
	for name, c := range map[string]struct {
		fn      handler
		allowed bool
		outcome string
	}{
		"panic": {func(_ context.Context, a *A) error { a.Object.Spec.Engine = "x"; panic("x") }, true, "failed"},
		"error": {fails(errors.New("no")), false, "denied"},
		"fine":  {allow, true, "allowed"},
	} {
		var outcomes []string
		r := newReviewer(t, func(in on.SelectionOption) {
			on.Mutate(c.fn, selected, in, on.ID("m"), on.IgnoreFailures())
		})
		r.Observe = func(h *registry.Handler, _ schema.GroupVersionResource, outcome string, took time.Duration) {
			outcomes = append(outcomes, outcome)
		}
		got := review(t, r, create(`{}`))
		if got.Allowed != c.allowed || got.Patch != nil || !slices.Equal(outcomes, []string{c.outcome}) {
			t.Errorf("%s: %v, %+v", name, outcomes, got)
		}
	}
}

// T160, ADM-9: warnings come whether the request is allowed or not, each once, in one line,
// and no longer than the API server hands them on.
func TestWarnings_T160_ADM9(t *testing.T) {
	r := validating(t, func(_ context.Context, a *A) error {
		a.Warn("a %d", 1)
		a.Warn("a 1")
		a.Warn("")
		a.Warn("two\nlines\x00")
		a.Warn("\xff")
		if len(a.Warnings()) != 5 {
			t.Errorf("got %q", a.Warnings())
		}
		return nil
	}, fails(errors.New("no")), func(_ context.Context, a *A) error {
		for i := range 100 {
			a.Warn("%s%d", strings.Repeat("ü", 300), i)
			a.Warn("%d%s", i, strings.Repeat("ü", 300))
		}
		return nil
	})
	got := review(t, r, create(`{}`))
	if got.Allowed || !slices.Equal(got.Warnings[:3], []string{"a 1", "two lines", "\uFFFD"}) {
		t.Errorf("got %q", got.Warnings[:3])
	}
	total := 0
	for _, text := range got.Warnings {
		n := utf8.RuneCountInString(text)
		if total += n; n > 256 {
			t.Errorf("%d characters: %s", n, text)
		}
	}
	if total > 4096 || total < 3800 || !strings.HasSuffix(got.Warnings[4], "ü…") {
		t.Errorf("%d characters in all", total)
	}
	if got := review(t, validating(t, func(_ context.Context, a *A) error { a.Warn("x"); return nil }), create(`{}`)); !got.Allowed || len(got.Warnings) != 1 {
		t.Errorf("got %+v", got)
	}
}
