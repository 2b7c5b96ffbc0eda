package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// Cycles, handlers with their sub-handlers, and patches have spans; the handler's context
// carries its own. They say what they are about, and have no values of objects.
func TestSpansOfWork(t *testing.T) {
	const secret = "s3cr3t"
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	otel.SetTracerProvider(provider)
	defer otel.SetTracerProvider(noop.NewTracerProvider())
	scenario(t, func(w *world) {
		w.allow("event handler failed")
		w.start(func(h handlers) {
			on.Event(func(context.Context, *kopf.Event[*widget]) error { return errFlop }, on.ID("seen"), on.In(h.r), forWidgets)
			part := failing(kopf.Retry(time.Second, fmt.Errorf("no %s", secret)))
			h.create("make", func(ctx context.Context, c *change) error {
				if !trace.SpanContextFromContext(ctx).IsValid() {
					t.Error("the handler's context has no span")
				}
				h.sub(c, "part", part)
				return nil
			})
			on.Timer(func(context.Context, *kopf.Tick[*widget]) error { return nil }, on.ID("tick"), on.In(h.r), forWidgets, on.Interval(time.Hour))
		})
		w.create("w1", 1, func(o widgetObj) { set(o, secret, "spec", "color") })
		w.sleep(time.Minute)
	})
	var got []string
	names := map[trace.SpanID]string{}
	for _, s := range recorder.Ended() {
		names[s.SpanContext().SpanID()] = s.Name()
	}
	for _, s := range recorder.Ended() {
		texts := map[string]string{}
		for _, a := range s.Attributes() {
			texts[string(a.Key)] = a.Value.String()
			if strings.Contains(a.Value.String(), secret) {
				t.Errorf("%s has the secret in %s", s.Name(), a.Key)
			}
		}
		if strings.Contains(s.Status().Description, secret) || len(s.Events()) > 0 {
			t.Errorf("%s: %v %v", s.Name(), s.Status(), s.Events())
		}
		if texts["kopf.kind"] != "widgets.demo.example" || texts["kopf.name"] != "w1" {
			t.Errorf("%s: %v", s.Name(), texts)
		}
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s>%s %s%s %s %s", names[s.Parent().SpanID()], s.Name(),
			texts["kopf.handler"], texts["kopf.endpoint"], texts["kopf.reason"], texts["kopf.outcome"])))
	}
	for want, times := range map[string]int{
		"kopf.cycle>kopf.handler make create waiting":        1,
		"kopf.cycle>kopf.handler make create succeeded":      1,
		"kopf.handler>kopf.handler make/part create retried": 1,
		"kopf.cycle>kopf.patch object  written":              2,
		">kopf.handler tick timer":                           1,
		">kopf.handler seen ADDED ignored":                   1,
	} {
		if n := len(slices.DeleteFunc(slices.Clone(got), func(text string) bool { return text != want })); n != times {
			t.Errorf("%d times %q, want %d, among\n%s", n, want, times, strings.Join(got, "\n"))
		}
	}
}
