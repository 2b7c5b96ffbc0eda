package kopf

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kopf-go/kopf/daemons"
	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/on"
)

func podsByNode(_ context.Context, s *Snapshot[*corev1.Pod]) (map[string]string, error) {
	return map[string]string{s.Object.Spec.NodeName: s.Object.Name}, nil
}

// What handlers use is known to the operator; the registry's handlers stay as they are.
func TestNewFindsWhatIsUsed(t *testing.T) {
	reg := NewRegistry()
	pods := on.Index(podsByNode, on.In(reg))
	on.Create(handled[*corev1.Pod], on.Uses(pods), on.In(reg))
	op, err := New(Options{Registry: reg, Config: nowhere()})
	if err != nil {
		t.Fatal(err)
	}
	if h := op.config.Handlers; len(h[1].Uses) != 1 || h[1].Uses[0] != h[0].Index || h[0].Uses != nil {
		t.Errorf("uses %v, the index is %v", h[1].Uses, h[0].Index)
	}
	if reg.Handlers()[1].Uses != nil {
		t.Error("the registry's handler was changed")
	}
}

// Mistakes about indices are told beside all others, and nothing is injected then.
func TestNewCollectsMistakesAboutIndices(t *testing.T) {
	target := &struct {
		Pods *Index[string, string] `index:"podsByNode"`
	}{}
	reg := NewRegistry()
	in := on.In(reg)
	pods := on.Index(podsByNode, on.In(NewRegistry()))
	on.Index(podsByNode, in)
	on.Create(handled[*corev1.Pod], on.ID("a"), on.Field("spec.nothing"), on.Inject(target), in)
	on.Update(handled[*testResource], on.ID("b"), on.Uses(pods), in)
	_, err := New(Options{Registry: reg, Config: nowhere()})
	for _, part := range []string{
		`create handler a/spec.nothing: no field "nothing"`,
		"update handler b: the scheme does not know",
		"update handler b: on.Uses: the index is not one of the handler's registry",
	} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in:\n%v", part, err)
		}
	}
	if strings.Count(err.Error(), "/indices_test.go:") != 3 || target.Pods != nil {
		t.Errorf("got %+v, %v", target, err)
	}
}

// PRG-1: what would be one name on objects matters only to those that keep something there.
func TestNewLetsIDsWithoutStateAlone(t *testing.T) {
	for name, c := range map[string]struct {
		register func(id string, in on.AnyOption)
		mistake  bool
	}{
		"update": {func(id string, in on.AnyOption) { on.Update(handled[*corev1.Pod], on.ID(id), in) }, true},
		"event": {func(id string, in on.AnyOption) {
			on.Event(func(context.Context, *Event[*corev1.Pod]) error { return nil }, on.ID(id), in)
		}, false},
		"index": {func(id string, in on.AnyOption) { on.Index(podsByNode, on.ID(id), in) }, false},
		"daemon": {func(id string, in on.AnyOption) {
			on.Daemon(func(context.Context, *Daemon[*corev1.Pod]) error { return nil }, on.ID(id), in)
		}, false},
		"timer": {func(id string, in on.AnyOption) {
			on.Timer(func(context.Context, *Tick[*corev1.Pod]) error { return nil }, on.ID(id), in)
		}, false},
	} {
		reg := filled(func(in on.AnyOption) { c.register("a/b", in); c.register("a.b", in) })
		if _, err := New(Options{Registry: reg, Config: nowhere()}); (err != nil) != c.mistake {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// IDX-1: two operators cannot fill one index at a time, but one after the other.
func TestRunClaimsIndices_IDX1(t *testing.T) {
	reg := NewRegistry()
	pods := on.Index(podsByNode, on.In(reg))
	options := Options{Registry: reg, Config: nowhere(), Logger: slog.New(slog.DiscardHandler)}
	var operators [2]*Operator
	for i := range operators {
		op, err := New(options)
		if err != nil {
			t.Fatal(err)
		}
		operators[i] = op
	}
	fill := func() {
		b, err := body.Parse([]byte(`{"metadata":{"name":"p"},"spec":{"nodeName":"n"}}`))
		if err != nil {
			t.Fatal(err)
		}
		call := &registry.Call{Body: b}
		if err := reg.Handlers()[0].Invoke(t.Context(), call); err != nil {
			t.Fatal(err)
		}
		call.Entries("p")
	}
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		fill()
		release, err := reg.Claim() // as the one that runs
		if err != nil || pods.Len() != 0 {
			t.Fatalf("%v, %d keys are there", err, pods.Len())
		}
		fill()
		err = operators[order[1]].Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "index podsByNode is filled by another operator that runs") || !pods.Has("n") {
			t.Errorf("got %v", err)
		}
		release()
		fill()
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := operators[order[0]].Run(ctx); err != nil || pods.Len() != 0 {
			t.Errorf("got %v, %d keys are there", err, pods.Len())
		}
	}
}

// The causes of a context's end are those that workers end with.
func TestCausesOfTheEnd(t *testing.T) {
	if ErrMismatch != daemons.ErrMismatch || ErrDeleted != daemons.ErrDeleted || ErrPaused != daemons.ErrPaused {
		t.Errorf("got %v, %v, %v", ErrMismatch, ErrDeleted, ErrPaused)
	}
}
