package tracing_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/kopf-go/kopf/internal/tracing"
)

var object = tracing.Object{Kind: "widgets.demo.example", Namespace: "ns", Name: "w1", UID: "u1"}

func asked(t testing.TB) func() tracing.Object {
	return func() tracing.Object {
		t.Helper()
		return object
	}
}

// Without a provider nobody is asked anything, and contexts have no span that counts.
// With one, spans are nested and say what they are about.
func TestSpans(t *testing.T) {
	never := func() tracing.Object { t.Error("asked for nobody"); return object }
	cycle := tracing.Cycle(never)
	ctx, span := tracing.Handler(t.Context(), cycle, never, tracing.Call{Handler: "h"})
	if trace.SpanContextFromContext(ctx).IsValid() {
		t.Error("there is a span without a provider")
	}
	tracing.Outcome(span, "failed", true)
	span.End()

	defer otel.SetTracerProvider(noop.NewTracerProvider())
	recorder := tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	cycle = tracing.Cycle(asked(t))
	tracing.Reason(cycle, "update")
	ctx, handler := tracing.Handler(t.Context(), cycle, asked(t), tracing.Call{Handler: "h", Reason: "update", Retry: 2})
	_, own := otel.Tracer("user").Start(ctx, "own")
	_, patch := tracing.Patch(t.Context(), cycle, asked(t), "status")
	tracing.Outcome(handler, "retried", true)
	tracing.Outcome(patch, "written", false)
	tracing.Outcome(nil, "nothing", true)
	for _, s := range []trace.Span{own, handler, patch, cycle} {
		s.End()
	}
	want := map[string]struct {
		parent     trace.Span
		attributes map[string]string
		code       codes.Code
	}{
		"kopf.cycle": {nil, map[string]string{"kopf.reason": "update"}, codes.Unset},
		"kopf.handler": {cycle, map[string]string{
			"kopf.kind": object.Kind, "kopf.namespace": "ns", "kopf.name": "w1", "kopf.uid": "u1",
			"kopf.handler": "h", "kopf.reason": "update", "kopf.retry": "2", "kopf.outcome": "retried",
		}, codes.Error},
		"kopf.patch": {cycle, map[string]string{"kopf.endpoint": "status", "kopf.outcome": "written"}, codes.Unset},
		"own":        {handler, nil, codes.Unset},
	}
	ended := recorder.Ended()
	if len(ended) != len(want) {
		t.Fatalf("%d spans", len(ended))
	}
	for _, s := range ended {
		w := want[s.Name()]
		got := map[string]string{}
		for _, a := range s.Attributes() {
			got[string(a.Key)] = a.Value.String()
		}
		for key, value := range w.attributes {
			if got[key] != value {
				t.Errorf("%s: %s is %q, want %q", s.Name(), key, got[key], value)
			}
		}
		parent := trace.SpanID{}
		if w.parent != nil {
			parent = w.parent.SpanContext().SpanID()
		}
		if s.Parent().SpanID() != parent || s.Status().Code != w.code {
			t.Errorf("%s: parent %s, status %v", s.Name(), s.Parent().SpanID(), s.Status())
		}
	}
}

// BenchmarkNobody is what the spans of one cycle with one handler and one patch cost when
// nobody wants them.
func BenchmarkNobody(b *testing.B) {
	ctx := context.Background()
	o := asked(b)
	b.ReportAllocs()
	for b.Loop() {
		cycle := tracing.Cycle(o)
		_, handler := tracing.Handler(ctx, cycle, o, tracing.Call{Handler: "h", Reason: "update"})
		_, patch := tracing.Patch(ctx, cycle, o, "object")
		tracing.Outcome(handler, "succeeded", false)
		handler.End()
		patch.End()
		cycle.End()
	}
}
