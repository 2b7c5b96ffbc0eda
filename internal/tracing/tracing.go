// Package tracing makes spans of what the engine does, with the API of OpenTelemetry and
// its global provider: who wants them sets one (otel.SetTracerProvider). Without, those
// of a whole cycle cost some 100 ns. They say which object, handler and outcome, and hold no values of
// objects, nor what errors say, which may.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Name is that of the tracer.
const Name = "github.com/kopf-go/kopf"

// tracer is that of the global provider, which may be another one now.
func tracer() trace.Tracer { return otel.Tracer(Name) }

// The names of spans.
const (
	cycleSpan   = "kopf.cycle"
	handlerSpan = "kopf.handler"
	patchSpan   = "kopf.patch"
)

// Object says which one a span is about.
type Object struct{ Kind, Namespace, Name, UID string }

func (o Object) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("kopf.kind", o.Kind), attribute.String("kopf.namespace", o.Namespace),
		attribute.String("kopf.name", o.Name), attribute.String("kopf.uid", o.UID),
	}
}

// Cycle begins the span of one look at an object, a root. object is asked only if somebody
// wants to know.
func Cycle(object func() Object) trace.Span {
	_, span := tracer().Start(context.Background(), cycleSpan)
	if span.IsRecording() {
		span.SetAttributes(object().attributes()...)
	}
	return span
}

// Call is what the span of a handler's call says.
type Call struct {
	Handler, Reason string
	Retry           int
}

// Handler begins the span of a call, below the parent, if there is one, or else below that
// of the context. The handler's context is the one that is returned.
func Handler(ctx context.Context, parent trace.Span, object func() Object, call Call) (context.Context, trace.Span) {
	if nobody(parent) {
		return ctx, none
	}
	ctx, span := tracer().Start(below(ctx, parent), handlerSpan)
	if span.IsRecording() {
		span.SetAttributes(object().attributes()...)
		span.SetAttributes(attribute.String("kopf.handler", call.Handler), attribute.String("kopf.reason", call.Reason),
			attribute.Int("kopf.retry", call.Retry))
	}
	return ctx, span
}

// Patch begins the span of a write to an endpoint: object or status.
func Patch(ctx context.Context, parent trace.Span, object func() Object, endpoint string) (context.Context, trace.Span) {
	if nobody(parent) {
		return ctx, none
	}
	ctx, span := tracer().Start(below(ctx, parent), patchSpan, ofClients...)
	if span.IsRecording() {
		span.SetAttributes(object().attributes()...)
		span.SetAttributes(attribute.String("kopf.endpoint", endpoint))
	}
	return ctx, span
}

// none is a span that nobody wants.
var none = trace.SpanFromContext(context.Background())

var ofClients = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}

// nobody tells whether nobody wanted the parent, and so nobody wants what is below it. A
// span that is only not sampled is wanted.
func nobody(parent trace.Span) bool { return parent != nil && !parent.SpanContext().IsValid() }

func below(ctx context.Context, parent trace.Span) context.Context {
	if parent == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, parent)
}

// Reason says why the handlers of a cycle are called, once that is known.
func Reason(span trace.Span, reason string) {
	if span.IsRecording() {
		span.SetAttributes(attribute.String("kopf.reason", reason))
	}
}

// Outcome says what has come of it; failed makes it an error.
func Outcome(span trace.Span, outcome string, failed bool) {
	if span == nil || !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("kopf.outcome", outcome))
	if failed {
		span.SetStatus(codes.Error, outcome)
	}
}
