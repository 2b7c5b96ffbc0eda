package typed_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/typed"
)

// asked is a call of an admission handler.
func asked(t *testing.T, object, old string) *registry.Call {
	t.Helper()
	call := &registry.Call{
		Log: slog.New(slog.DiscardHandler), Admission: new(registry.Admission),
		Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "databases"},
	}
	for _, c := range []struct {
		text string
		into *[]byte
	}{{old, &call.Admission.Old}, {object, &call.Admission.Object}} {
		if c.text == "" {
			continue
		}
		*c.into = []byte(c.text)
		var err error
		if call.Body, err = body.Parse(*c.into); err != nil {
			t.Fatal(err)
		}
	}
	return call
}

// A test of a handler may make its argument as a literal: it warns, and has memos.
func TestAdmissionByHand(t *testing.T) {
	a := &typed.Admission[*database]{Object: new(database)}
	if a.Warnings() != nil {
		t.Errorf("got %q", a.Warnings())
	}
	a.Warn("%d", 1)
	a.Warn("two")
	memo := typed.NewMemo(func() *int { return new(int) })
	*memo.Of(a) = 3
	if !slices.Equal(a.Warnings(), []string{"1", "two"}) || *memo.Of(a) != 3 {
		t.Errorf("got %q, %d", a.Warnings(), *memo.Of(a))
	}
}

// ADM-5: what is decoded is the caller's own, and there is nothing where there is nothing.
func TestNewAdmission_ADM5(t *testing.T) {
	const other = `{"apiVersion":"example.com/v1","kind":"Database","spec":{"engine":"x"}}`
	for name, c := range map[string]struct {
		object, old            string
		hasNew, hasOld, isSame bool
	}{
		"creation": {manifest, "", true, false, false},
		"update":   {manifest, other, true, true, false},
		"deletion": {"", other, false, true, true},
	} {
		a, err := typed.NewAdmission[*database](asked(t, c.object, c.old))
		if err != nil {
			t.Fatal(err)
		}
		if (a.New != nil) != c.hasNew || (a.Old != nil) != c.hasOld || a.Object == nil || (a.Object == a.Old) != c.isSame || c.hasNew && a.New != a.Object {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// A type that is for another kind is an error that says which, whatever would decode.
func TestKindOfAdmission(t *testing.T) {
	const scale = `{"apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":1}}`
	call := asked(t, scale, "")
	call.Admission.Subresource = "scale"
	var kind *registry.KindError
	if _, err := typed.NewAdmission[*database](call); !errors.As(err, &kind) || kind.Subject != "databases/scale" || kind.Kind.Kind != "Scale" {
		t.Errorf("got %v", err)
	}
	call.Resource = appsv1.SchemeGroupVersion.WithResource("deployments")
	if _, err := typed.NewAdmission[*appsv1.Deployment](call); !errors.As(err, &kind) || kind.Subject != "deployments/scale" {
		t.Errorf("got %v", err)
	}
	if a, err := typed.NewAdmission[*autoscalingv1.Scale](call); err != nil || a.New.Spec.Replicas != 1 {
		t.Error(err)
	}
	if a, err := typed.NewAdmission[*unstructured.Unstructured](call); err != nil || a.New.GetKind() != "Scale" {
		t.Error(err)
	}
	if a, err := typed.NewAdmission[*metav1.PartialObjectMetadata](call); err != nil || a.New.Kind != "Scale" {
		t.Error(err)
	}
	if _, err := typed.NewAdmission[*database](asked(t, `{"spec":{}}`, "")); err != nil {
		t.Error(err)
	}
}

// What is stored and does not decode is told in the log, and no error; what is asked for is
// one.
func TestAdmissionOfWhatDoesNotDecode(t *testing.T) {
	const bad = `{"metadata":{"name":"x"},"spec":{"engine":1}}`
	var decode *registry.DecodeError
	if _, err := typed.NewAdmission[*database](asked(t, bad, "")); !errors.As(err, &decode) {
		t.Errorf("got %v", err)
	}
	var log bytes.Buffer
	call := asked(t, "", bad)
	call.Log = slog.New(slog.NewTextHandler(&log, nil))
	if a, err := typed.NewAdmission[*database](call); err != nil || a.Object.Name != "x" || !strings.Contains(log.String(), "does not fully decode") {
		t.Errorf("%v, log: %s", err, &log)
	}
}

// ADM-12: what a handler changes is in the call; nothing is if it fails, or there is no object.
func TestMutate_ADM12(t *testing.T) {
	set := func(_ context.Context, a *typed.Admission[*database]) error { a.Object.Spec.Engine = "new"; return nil }
	call := asked(t, `{"spec":{"engine":"old","other":1.50}}`, "")
	if err := typed.Mutate(t.Context(), call, set); err != nil || string(call.Admission.Changed) != `{"spec":{"engine":"new","other":1.50}}` {
		t.Errorf("%v: %s", err, call.Admission.Changed)
	}
	call = asked(t, "", `{"spec":{"engine":"old"}}`)
	if err := typed.Mutate(t.Context(), call, set); err != nil || call.Admission.Changed != nil {
		t.Errorf("%v: %s", err, call.Admission.Changed)
	}
	no := errors.New("no")
	call = asked(t, `{}`, "")
	err := typed.Mutate(t.Context(), call, func(ctx context.Context, a *typed.Admission[*database]) error { return errors.Join(set(ctx, a), no) })
	if !errors.Is(err, no) || call.Admission.Changed != nil {
		t.Errorf("%v: %s", err, call.Admission.Changed)
	}
}
