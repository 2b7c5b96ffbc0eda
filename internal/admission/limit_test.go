package admission_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/admission"
	"github.com/kopf-go/kopf/on"
)

// timed answers a request that may take 10 seconds, and says how long it took.
func timed(t *testing.T, ctx context.Context, r *admission.Reviewer) (*admissionv1.AdmissionResponse, time.Duration) {
	t.Helper()
	began := time.Now()
	response, err := r.Review(ctx, create(`{}`), admission.Facts{Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return response, time.Since(began)
}

func waits(ctx context.Context, _ *A) error { <-ctx.Done(); return ctx.Err() }

// A slow handler is named before the API server gives up; there is no time for those after
// it then, which is told as well, and what others had said before counts.
func TestSlowHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := validating(t, fails(kopf.Reject(403, "no")), waits, func(context.Context, *A) error { panic("called") })
		got, took := timed(t, t.Context(), r)
		if took != 9500*time.Millisecond || got.Result.Code != 403 ||
			got.Result.Message != "no; validate handler v1 did not answer within 9.5s; validate handler v2 was not called, because no time was left" {
			t.Errorf("after %s: %+v", took, got.Result)
		}
		got, _ = timed(t, t.Context(), validating(t, waits))
		if got.Result.Code != http.StatusGatewayTimeout {
			t.Errorf("got %+v", got.Result)
		}
	})
}

// One that does not look at its context is left behind, with what it still says.
func TestStubbornHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		r := mutating(t, func(_ context.Context, a *A) error {
			a.Object.Spec.Engine = "early"
			<-end
			a.Warn("late")
			a.Object.Spec.Engine = "late"
			return nil
		})
		got, took := timed(t, t.Context(), r)
		if took != 9750*time.Millisecond || got.Allowed || got.Warnings != nil || got.Patch != nil ||
			got.Result.Message != "mutate handler m0 did not answer within 9.5s" {
			t.Errorf("after %s: %+v", took, got)
		}
		close(end)
		synctest.Wait()
	})
}

// One that answers while it is still waited for has answered.
func TestLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := mutating(t, func(_ context.Context, a *A) error {
			time.Sleep(9600 * time.Millisecond)
			a.Object.Spec.Engine = "x"
			return nil
		})
		if got, _ := timed(t, t.Context(), r); !got.Allowed || got.Patch == nil {
			t.Errorf("got %+v", got)
		}
		r = validating(t, func(ctx context.Context, a *A) error {
			<-ctx.Done()
			return kopf.Reject(403, "no")
		})
		if got, _ := timed(t, t.Context(), r); got.Result.Message != "no" {
			t.Errorf("got %+v", got.Result)
		}
	})
}

// Being late is a failure, which may be ignored.
func TestSlowHandlerIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviewer(t, func(in on.SelectionOption) {
			on.Validate(waits, selected, in, on.ID("v"), on.IgnoreFailures())
		})
		if got, _ := timed(t, t.Context(), r); !got.Allowed {
			t.Errorf("got %+v", got.Result)
		}
	})
}

// A request whose client has left ends its handlers.
func TestClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		r := validating(t, waits)
		response, err := r.Review(ctx, create(`{}`), admission.Facts{})
		if err != nil || !strings.Contains(response.Result.Message, "did not answer before the request ended") {
			t.Errorf("got %+v, %v", response, err)
		}
	})
}

// Without a limit, and with one that is very short, there is time.
func TestShortLimits(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0: 0, 50 * time.Millisecond: 25 * time.Millisecond, time.Second: 900 * time.Millisecond, 30 * time.Second: 28500 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			var left time.Duration
			r := validating(t, func(ctx context.Context, _ *A) error {
				if deadline, ok := ctx.Deadline(); ok {
					left = time.Until(deadline)
				}
				return errors.New("no")
			})
			if _, err := r.Review(t.Context(), create(`{}`), admission.Facts{Timeout: timeout}); err != nil || left != want {
				t.Errorf("%s: %s, %v", timeout, left, err)
			}
		})
	}
}
