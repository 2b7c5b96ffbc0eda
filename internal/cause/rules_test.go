package cause

import (
	"context"
	"fmt"
	"testing"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/registry"
)

// All criteria of a handler must be met, for handlers of each kind.
func TestAllCriteriaMustBeMet_FLT1(t *testing.T) {
	b := parse(t, `{"metadata":{"labels":{"a":"1"},"annotations":{"b":"2"}},"spec":{"x":3}}`)
	meets := func(met bool, yes, no filters.Criterion) filters.Criterion {
		if met {
			return yes
		}
		return no
	}
	for bits := range 1 << 4 {
		met := func(i int) bool { return bits>>i&1 == 1 }
		for _, kind := range []registry.Kind{registry.Create, registry.Update, registry.Delete, registry.Resume, registry.Field, registry.Event} {
			t.Run(fmt.Sprintf("%s handler, met: %04b", kind, bits), func(t *testing.T) {
				h := &registry.Handler{
					Kind:        kind,
					Labels:      []registry.Criterion{{Key: "a", Match: meets(met(0), filters.Equal("1"), filters.Absent)}},
					Annotations: []registry.Criterion{{Key: "b", Match: meets(met(1), filters.Present, filters.Equal("0"))}},
					Field:       diff.Path{"spec", "x"},
					Value:       meets(met(2), filters.Equal(3), filters.Equal(4)),
					When:        func(context.Context, *registry.Call) (bool, error) { return met(3), nil },
				}
				s := &Subject{Body: b}
				switch kind {
				case registry.Event:
				case registry.Create:
					s.New = essence(t, string(b.Raw()))
				default:
					s.Old, s.New = essence(t, `{"spec":{"x":2}}`), essence(t, string(b.Raw()))
				}
				if got := matchOf(t, s, h) == yes; got != (bits == 1<<4-1) {
					t.Errorf("matches: %t", got)
				}
			})
		}
	}
}
