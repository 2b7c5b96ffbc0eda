package engine

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/internal/stream"
	"github.com/kopf-go/kopf/storage"
)

// BenchmarkQuietEvent is what an event costs that asks for nothing, such as somebody's
// write of the status: no allocations, whatever is counted and recorded.
func BenchmarkQuietEvent(b *testing.B) {
	k, bodies := quietKind(b)
	k.handle(&following{kind: k}, stream.Event{Type: stream.Listed, Body: bodies[0]})
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		k.objects["u"].seen = "" // versions begin anew
		k.handle(&following{kind: k}, stream.Event{Type: stream.Modified, Body: bodies[i%len(bodies)]})
	}
	if o := k.objects["u"]; o == nil || o.work != nil || !k.quiet(bodies[0], false) {
		b.Error("the events were not quiet")
	}
}

// quietKind is a kind with handlers, and many versions of one object of it that is handled.
func quietKind(tb testing.TB) (*kind, []*body.Body) {
	tb.Helper()
	naming, err := state.For("")
	if err != nil {
		tb.Fatal(err)
	}
	client, err := stream.NewClient(&rest.Config{Host: "http://simulated.invalid"}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	e := New(Config{Client: client, Naming: naming, Log: slog.New(slog.DiscardHandler), State: state.Config{
		Naming: naming, Progress: storage.Smart(naming.Prefix, storage.AnnotationsOptions{}, storage.StatusOptions{}),
		LastHandled: storage.AnnotationsLastHandled(naming.Prefix, storage.LastHandledOptions{}),
	}})
	e.handling = context.Background()
	e.term.Store(e.newTerm(false))
	k, err := newKind(e, Resource{
		GVR: schema.GroupVersionResource{Group: "demo.example", Version: "v1", Resource: "widgets"}, Namespaced: true,
	}, []*registry.Handler{{Kind: registry.Create, ID: "create"}, {Kind: registry.Update, ID: "update"}})
	if err != nil {
		tb.Fatal(err)
	}
	var bodies []*body.Body
	for i := range 20 {
		raw := fmt.Sprintf(`{"apiVersion":"demo.example/v1","kind":"Widget","metadata":{"name":"w","namespace":"default","uid":"u",
			"resourceVersion":"%d","annotations":{"kopf.zalando.org/last-handled-configuration":"{\"spec\":{\"size\":1}}\n"}},
			"spec":{"size":1},"status":{"seen":%d}}`, i+1, i)
		parsed, err := body.Parse([]byte(raw))
		if err != nil {
			tb.Fatal(err)
		}
		bodies = append(bodies, parsed)
	}
	return k, bodies
}
