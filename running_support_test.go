package kopf

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/internal/logging"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

type widget = Resource[struct {
	Size int `json:"size,omitempty"`
}, struct {
	Size int `json:"size,omitempty"`
}]

var widgets = on.Resource("demo.example/v1", "widgets")

// bench is where whole operators run, in virtual time. Its API server asks for tokens if it
// was given some.
type bench struct {
	*testing.T
	server *simulated.Server
	kind   *simulated.Collection
	reg    *Registry
	in     on.InOption
	begun  time.Time

	mu     sync.Mutex
	notes  []string
	tokens []string // that are good; none: no matter
	logs   strings.Builder
}

func onBench(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server, reg := simulated.New(), NewRegistry()
		b := &bench{T: t, server: server, reg: reg, in: on.In(reg), kind: server.Serve(simulated.Kind{
			GroupVersion: "demo.example/v1", Kind: "Widget", Plural: "widgets", Namespaced: true, Status: true,
		})}
		time.Sleep(time.Hour)
		b.begun = time.Now()
		test(b)
		if t.Failed() {
			t.Logf("logs:\n%s", b.said())
		}
	})
}

// RoundTrip is the API server, which looks at the token first.
func (b *bench) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	good := b.tokens == nil || slices.Contains(b.tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	b.mu.Unlock()
	if good {
		return b.server.RoundTrip(r)
	}
	const refusal = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`
	return &http.Response{
		StatusCode: http.StatusUnauthorized, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(refusal)),
	}, nil
}

// takes says which tokens are good from now on.
func (b *bench) takes(tokens ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = tokens
}

func (b *bench) config(token string) *rest.Config {
	return &rest.Config{Host: "http://simulated.invalid", Transport: b, BearerToken: token}
}

// Write is for the log.
func (b *bench) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logs.Write(p)
}

func (b *bench) said() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logs.String()
}

// note writes down what happens, with the time since the start.
func (b *bench) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notes = append(b.notes, fmt.Sprintf(format, args...)+" "+time.Since(b.begun).Round(time.Second).String())
}

func (b *bench) noted(want ...string) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.notes, want) {
		b.Errorf("got  %q\nwant %q", b.notes, want)
	}
}

// activity is a handler that notes its call, and returns what do returns.
func (b *bench) activity(name string, do func(context.Context, *Activity) error) func(context.Context, *Activity) error {
	return func(ctx context.Context, a *Activity) error {
		b.note("%s", name)
		if do == nil {
			return nil
		}
		return do(ctx, a)
	}
}

func (b *bench) operator(options ...func(*Options)) *Operator {
	b.Helper()
	log, err := logging.New(b, logging.Options{Level: slog.LevelDebug, Format: "logfmt"})
	if err != nil {
		b.Fatal(err)
	}
	o := Options{Registry: b.reg, Config: b.config("config"), Logger: log}
	for _, option := range options {
		option(&o)
	}
	op, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	return op
}

// running is an operator that runs until it is stopped.
type running struct {
	*Operator
	stop func() // and does not wait
	done chan error
}

func (b *bench) start(op *Operator) *running {
	ctx, cancel := context.WithCancel(b.Context())
	r := &running{Operator: op, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- op.Run(ctx) }()
	return r
}

// ends stops an operator, and expects no error.
func (r *running) ends(b *bench) {
	b.Helper()
	r.stop()
	if err := <-r.done; err != nil {
		b.Error(err)
	}
}

// pass lets time pass, and all settle.
func (b *bench) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bench) create(name string, size int) {
	b.Helper()
	if _, err := b.kind.Create(simulated.Object("default", name, map[string]any{"spec": map[string]any{"size": size}})); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) resize(name string, size int) {
	b.Helper()
	if _, err := b.kind.Update("default", name, func(o *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(o.Object, int64(size), "spec", "size"); err != nil {
			b.Error(err)
		}
	}); err != nil {
		b.Fatal(err)
	}
}

// alive asks for the liveness of an operator.
func (b *bench) alive(op *Operator) string {
	answer := httptest.NewRecorder()
	op.liveness().ServeHTTP(answer, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/healthz", nil))
	return fmt.Sprint(answer.Code, " ", strings.TrimSpace(answer.Body.String()))
}
