package activity_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/activity"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/on"
)

func (w *world) probes() *activity.Probes {
	p := activity.NewProbes(context.Background(), w.activity(registry.Probe))
	w.Cleanup(func() {
		if err := p.Close(time.Hour); err != nil {
			w.Error(err)
		}
	})
	return p
}

// get asks, and expects a code and a text.
func (w *world) get(p http.Handler, code int, text string) {
	w.Helper()
	answer := httptest.NewRecorder()
	p.ServeHTTP(answer, httptest.NewRequestWithContext(w.Context(), http.MethodGet, "/", nil))
	if answer.Code != code || !strings.Contains(answer.Body.String(), text) {
		w.Errorf("got %d %s, want %d %s", answer.Code, answer.Body, code, text)
	}
	if json := answer.Header().Get("Content-Type") == "application/json"; json != (code == http.StatusOK) {
		w.Error(answer.Header())
	}
}

// probe registers a probe that returns a value after a time.
func (w *world) probe(id string, value any, takes time.Duration) {
	on.Probe(func(context.Context, *kopf.Probe) (any, error) {
		w.note(id)
		time.Sleep(takes)
		return value, nil
	}, on.ID(id), w.in)
}

// ACT-6, T154: nothing without probes, else what they return, by id.
func TestProbes_ACT6_T154(t *testing.T) {
	scenario(t, func(w *world) { w.get(w.probes(), 200, "{}") })
	scenario(t, func(w *world) {
		w.probe("number", 3, 0)
		w.probe("none", nil, 0)
		w.probe("struct", struct{ A []string }{[]string{"x"}}, 0)
		p := w.probes()
		w.get(p, 200, `{"number":3,"struct":{"A":["x"]}}`)
		w.called("number@0", "none@0", "struct@0")
	})
}

// ACT-6, T154: answers are kept for ten seconds.
func TestProbesAreKept_ACT6_T154(t *testing.T) {
	scenario(t, func(w *world) {
		w.probe("a", 1, time.Second)
		p := w.probes()
		w.get(p, 200, `{"a":1}`)
		time.Sleep(10*time.Second - time.Nanosecond)
		w.get(p, 200, `{"a":1}`)
		w.called("a@0")
		time.Sleep(time.Nanosecond)
		w.get(p, 200, `{"a":1}`)
		w.called("a@0", "a@11")
	})
}

// ACT-6: those who ask at the same time get the same.
func TestProbesAreShared_ACT6(t *testing.T) {
	scenario(t, func(w *world) {
		w.probe("a", 1, 5*time.Second)
		p := w.probes()
		for range 10 {
			go w.get(p, 200, `{"a":1}`)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		w.called("a@0")
	})
}

// ACT-7: a failure for good is answered with 500, and not kept.
func TestProbeFailsForGood_ACT7(t *testing.T) {
	scenario(t, func(w *world) {
		on.Probe(func(context.Context, *kopf.Probe) (int, error) { w.note("a"); return 0, kopf.Permanent(errAny) }, on.ID("a"), w.in)
		p := w.probes()
		w.get(p, 500, "probe failed: handler a: any")
		w.get(p, 500, "probe failed: handler a: any")
		w.called("a@0", "a@0")
	})
	scenario(t, func(w *world) {
		w.probe("a", func() {}, 0)
		w.get(w.probes(), 500, "cannot be said in JSON")
	})
}

// ACT-7: a failure for now holds the request up, but not for ever.
func TestProbeFailsForNow_ACT7(t *testing.T) {
	scenario(t, func(w *world) {
		on.Probe(func(_ context.Context, p *kopf.Probe) (int, error) {
			w.note("a")
			return p.Retry, []error{kopf.Retry(3*time.Second, errAny), kopf.Retry(3*time.Second, errAny), nil}[p.Retry]
		}, on.ID("a"), w.in)
		w.get(w.probes(), 200, `{"a":2}`)
		w.called("a@0", "a@3", "a@6")
	})
	scenario(t, func(w *world) {
		on.Probe(func(context.Context, *kopf.Probe) (int, error) { w.note("a"); return 0, errAny }, on.ID("a"), w.in)
		p := w.probes()
		w.get(p, 503, "")
		if took := time.Since(w.begun); took != 10*time.Second {
			w.Error(took)
		}
		synctest.Wait()
		w.get(p, 503, "")
		w.called("a@0", "a@10")
	})
}

// ACT-7: as long as a probe does not return, it is not called again, and the request is not held.
func TestDeafProbe_ACT7(t *testing.T) {
	scenario(t, func(w *world) {
		w.probe("first", 1, 0)
		w.probe("deaf", 1, time.Minute)
		p := w.probes()
		w.get(p, 503, "probe deaf has not answered within 10s")
		before := time.Now()
		w.get(p, 503, "probe deaf has not answered within 10s")
		if !time.Now().Equal(before) {
			w.Error("waits", time.Since(before))
		}
		time.Sleep(50 * time.Second)
		synctest.Wait()
		w.called("first@0", "deaf@0")
	})
}

// A request that ends is not held.
func TestProbeRequestEnds_ACT7(t *testing.T) {
	scenario(t, func(w *world) {
		w.probe("a", 1, 5*time.Second)
		p := w.probes()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		answer := httptest.NewRecorder()
		p.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		if took := time.Since(w.begun); took != time.Second || answer.Code != 503 {
			w.Error(took, answer.Code)
		}
		time.Sleep(time.Second)
		w.get(p, 200, `{"a":1}`) // the run goes on for others
		w.called("a@0")
	})
}

func TestProbesAreClosed_ACT5(t *testing.T) {
	scenario(t, func(w *world) {
		on.Probe(func(ctx context.Context, _ *kopf.Probe) (int, error) { <-ctx.Done(); return 0, ctx.Err() }, on.ID("a"), w.in)
		p := w.probes()
		go w.get(p, 503, "")
		time.Sleep(time.Second)
		if err := p.Close(time.Minute); err != nil || time.Since(w.begun) != time.Second {
			w.Error(err, time.Since(w.begun))
		}
		w.get(p, 503, "the operator is stopping")
	})
	scenario(t, func(w *world) {
		w.probe("deaf", 1, time.Hour)
		p := w.probes()
		go w.get(p, 503, "")
		time.Sleep(time.Second)
		if err := p.Close(time.Minute); err == nil || !strings.Contains(err.Error(), "probe deaf did not return in time") {
			w.Error(err)
		}
		time.Sleep(time.Hour)
	})
}

func TestProbeMethods(t *testing.T) {
	scenario(t, func(w *world) {
		p := w.probes()
		for method, code := range map[string]int{http.MethodHead: 200, http.MethodPost: 405, http.MethodDelete: 405} {
			answer := httptest.NewRecorder()
			p.ServeHTTP(answer, httptest.NewRequestWithContext(w.Context(), method, "/", nil))
			if answer.Code != code {
				w.Errorf("%s: %d", method, answer.Code)
			}
		}
	})
}
