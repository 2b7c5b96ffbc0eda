package kopf

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
)

type testResource = Resource[struct {
	Size int `json:"size"`
}, struct{}]

func handled[T Object](context.Context, *Change[T]) error { return nil }

// nowhere is a configuration that nothing may connect with.
func nowhere() *rest.Config { return &rest.Config{Host: "http://127.0.0.1:1"} }

func filled(register func(in on.AnyOption)) *Registry {
	r := NewRegistry()
	register(on.In(r))
	return r
}

// The resource follows from the Go type, if the scheme knows it as one kind.
func TestNewFindsResources(t *testing.T) {
	custom := runtime.NewScheme()
	custom.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}, &testResource{})
	custom.AddKnownTypeWithName(schema.GroupVersionKind{Group: "b.example.com", Version: "v1", Kind: "Twice"}, &corev1.Pod{})
	custom.AddKnownTypeWithName(schema.GroupVersionKind{Group: "a.example.com", Version: "v1", Kind: "Twice"}, &corev1.Pod{})
	for _, c := range []struct {
		name     string
		scheme   *runtime.Scheme
		register func(in on.AnyOption)
		selector string
		mistake  string
	}{
		{"built in", nil, func(in on.AnyOption) { on.Create(handled[*appsv1.Deployment], in) }, "Deployment.v1.apps", ""},
		{"of the core", nil, func(in on.AnyOption) { on.Create(handled[*corev1.Pod], in) }, "Pod.v1", ""},
		{"named", nil, func(in on.AnyOption) { on.Create(handled[*testResource], on.Resource("example.com/v1", "things"), in) }, "things.v1.example.com", ""},
		{"named though known", nil, func(in on.AnyOption) { on.Create(handled[*corev1.Pod], on.Resource("v1", "po"), in) }, "po.v1", ""},
		{"untyped, named", nil, func(in on.AnyOption) {
			on.Create(handled[*unstructured.Unstructured], on.Resource("example.com/v1", "things"), in)
		}, "things.v1.example.com", ""},
		{"in a scheme of one's own", custom, func(in on.AnyOption) { on.Create(handled[*testResource], in) }, "Thing.v1.example.com", ""},
		{"unknown", nil, func(in on.AnyOption) { on.Create(handled[*testResource], on.ID("h"), in) }, "",
			"create handler h: the scheme does not know *typed.Resource["},
		{"unknown to a scheme of one's own", custom, func(in on.AnyOption) { on.Create(handled[*appsv1.Deployment], on.ID("h"), in) }, "",
			"create handler h: the scheme does not know *v1.Deployment: name its resource with on.Resource, or register the type in Options.Scheme"},
		{"untyped", nil, func(in on.AnyOption) { on.Create(handled[*unstructured.Unstructured], on.ID("h"), in) }, "",
			"create handler h: *unstructured.Unstructured can be of any kind: say of which resources with on.Resource, on.Kind, on.Category, on.Everything or the like"},
		{"metadata only", nil, func(in on.AnyOption) { on.Create(handled[*metav1.PartialObjectMetadata], on.ID("h"), in) }, "",
			"create handler h: *v1.PartialObjectMetadata can be of any kind: say of which resources"},
		{"metadata only, by kind", nil, func(in on.AnyOption) {
			on.Create(handled[*metav1.PartialObjectMetadata], on.Kind("Pod"), on.Version("v1"), in)
		}, "Pod.v1", ""},
		{"untyped, by category", nil, func(in on.AnyOption) {
			on.Create(handled[*unstructured.Unstructured], on.Category("all"), on.Group("apps"), in)
		}, "category all.apps", ""},
		{"ambiguous", custom, func(in on.AnyOption) { on.Create(handled[*corev1.Pod], on.ID("h"), in) }, "",
			"create handler h: the scheme knows *v1.Pod as several kinds, "},
		{"no struct", nil, func(in on.AnyOption) { on.Create(handled[Object], on.ID("h"), in) }, "",
			"create handler h: handlers are for pointers to structs, not for typed.Object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			reg := filled(c.register)
			op, err := New(Options{Registry: reg, Scheme: c.scheme, Config: nowhere()})
			if c.mistake != "" {
				if err == nil || op != nil || !strings.Contains(err.Error(), c.mistake) || strings.Count(err.Error(), "\n") > 0 {
					t.Fatalf("got %v", err)
				}
				if place, _, _ := strings.Cut(err.Error(), ": "); !strings.Contains(place, "/kopf_test.go:") {
					t.Errorf("the place is %s", place)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := op.config.Handlers[0].Selector.String(); got != c.selector {
				t.Errorf("selector is %s", got)
			}
		})
	}
}

// A registry may serve several operators: what New finds out stays with the operator.
func TestNewLeavesTheRegistryAlone(t *testing.T) {
	reg := filled(func(in on.AnyOption) { on.Create(handled[*corev1.Pod], in) })
	for range 2 {
		if _, err := New(Options{Registry: reg, Config: nowhere()}); err != nil {
			t.Fatal(err)
		}
	}
	if !reg.Handlers()[0].Selector.Empty() {
		t.Error("the registry's handler was changed")
	}
}

// All mistakes, of all sorts, are told at once.
func TestNewCollectsMistakes(t *testing.T) {
	reg := filled(func(in on.AnyOption) {
		on.Create(handled[*corev1.Pod], on.ID("a"), on.Field("spec.nothing"), in)
		on.Create[*corev1.Pod](nil, in)
		on.Create(handled[*testResource], on.ID("c"), in)
	})
	op, err := New(Options{
		Name: "Not A Name", Namespaces: []string{"fine", "bad["}, NamespaceSelector: "a=b=c", Registry: reg, Config: nowhere(),
	})
	if op != nil || err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{
		`operator name "Not A Name" can't be part of annotation names`,
		`namespace pattern "bad[" is not a name or a glob`,
		`namespace selector "a=b=c" is not one of labels`,
		`create handler a/spec.nothing: no field "nothing"`,
		"it has no function",
		"create handler c: the scheme does not know",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("not told: %s", part)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 6 {
		t.Errorf("%d lines:\n%v", n, err)
	}
}

// Ids that end up as the same annotation.
func TestNewRefusesAmbiguousIDs(t *testing.T) {
	event := func(context.Context, *Event[*corev1.Pod]) error { return nil }
	reg := filled(func(in on.AnyOption) {
		on.Create(handled[*corev1.Pod], on.ID("a/b"), in)
		on.Create(handled[*corev1.Pod], on.ID("a.b"), in)
		on.Delete(handled[*corev1.Pod], on.ID("a.b"), in)
		on.Event(event, on.ID("a/b"), in) // keeps nothing
		on.Event(event, on.ID("a.b"), in)
	})
	_, err := New(Options{Registry: reg, Config: nowhere()})
	if err == nil || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), "create handler a.b: its progress would be kept under the same name as that of a/b at ") {
		t.Error(err)
	}
}

func TestNewRefusesLongNames(t *testing.T) {
	if _, err := New(Options{Name: strings.Repeat("x", 250), Registry: NewRegistry(), Config: nowhere()}); err == nil ||
		!strings.Contains(err.Error(), "is too long") {
		t.Error(err)
	}
}

func TestNewDefaults(t *testing.T) {
	kept := registry.Default
	defer func() { registry.Default = kept }()
	registry.Default = NewRegistry()
	on.Create(handled[*corev1.Pod])

	given := nowhere()
	op, err := New(Options{Config: given})
	if err != nil {
		t.Fatal(err)
	}
	c := op.config
	if len(c.Handlers) != 1 || c.Log != slog.Default() || !c.Namespaces.All() || c.Naming.Prefix != state.Default().Prefix ||
		c.Naming.Finalizer != "kopf.zalando.org/KopfFinalizerMarker" {
		t.Errorf("%+v", c)
	}
	if given.UserAgent != "" || given.QPS != 0 {
		t.Errorf("the given configuration was changed: %+v", given)
	}
	log := slog.New(slog.DiscardHandler)
	op, err = New(Options{
		Name: "widgets", Namespaces: []string{"a,b", "c"}, NamespaceSelector: "on=yes", Registry: NewRegistry(), Config: given, Logger: log,
		Settings: Settings{Queueing: settings.Queueing{ExitTimeout: time.Hour}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c = op.config
	if len(c.Handlers) != 0 || c.Log != log || !c.Namespaces.Match("c", map[string]string{"on": "yes"}) || c.Namespaces.Match("c", nil) || c.Naming.Prefix != "widgets.kopf.zalando.org" ||
		c.Naming.Finalizer != "widgets.kopf.zalando.org/finalizer" || c.Settings.ExitTimeout != time.Hour {
		t.Errorf("%+v", c)
	}
}

// The operator says who it is, unless the configuration does.
func TestUserAgent(t *testing.T) {
	for _, c := range []struct{ name, given, want string }{
		{"", "", "kopf/kopf"}, {"widgets", "", "widgets/kopf"}, {"widgets", "mine/1.0", "mine/1.0"},
	} {
		agents := make(chan string, 100)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case agents <- r.UserAgent():
			default:
			}
			http.NotFound(w, r)
		}))
		op, err := New(Options{
			Name: c.name, Config: &rest.Config{Host: server.URL, UserAgent: c.given}, Logger: slog.New(slog.DiscardHandler),
			Registry: filled(func(in on.AnyOption) { on.Create(handled[*corev1.Pod], in) }),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- op.Run(ctx) }()
		if got := <-agents; got != c.want {
			t.Errorf("%q, %q: user agent is %q", c.name, c.given, got)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		server.Close() // with what was on its way
	}
}

func TestNewWithoutACluster(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	run := func(config *rest.Config) error {
		op, err := New(Options{Registry: NewRegistry(), Config: config, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal("New connects: ", err)
		}
		return op.Run(t.Context())
	}
	if err := run(nil); err == nil || !strings.HasPrefix(err.Error(), "no cluster to connect to: ") {
		t.Error(err)
	}
	for _, config := range []*rest.Config{
		{Host: "https://x", TLSClientConfig: rest.TLSClientConfig{CAFile: "/none"}},
		{Host: "http://x:y:z"},
	} {
		if err := run(config); err == nil {
			t.Errorf("%+v was taken", config)
		}
	}
}

// An operator can run again after it has stopped.
func TestRunTwice(t *testing.T) {
	op, err := New(Options{Registry: NewRegistry(), Config: nowhere(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := op.Run(ctx); err != nil {
			t.Error(err)
		}
		stop()
	}
}

func TestRetryAndPermanent(t *testing.T) {
	cause := errors.New("cause")
	var retry *RetryError
	if err := Retry(time.Minute, cause); !errors.As(err, &retry) || retry.After != time.Minute || !errors.Is(err, cause) || err.Error() != "cause" {
		t.Error(err)
	}
	var permanent *PermanentError
	if err := Permanent(cause); !errors.As(err, &permanent) || !errors.Is(err, cause) || err.Error() != "cause" {
		t.Error(err)
	}
	// Without an error they are errors nevertheless.
	if err := Retry(0, nil); !errors.As(err, &retry) || err.Error() != "not ready yet" {
		t.Error(err)
	}
	if err := Permanent(nil); !errors.As(err, &permanent) || err.Error() != "failed for good" {
		t.Error(err)
	}
}
