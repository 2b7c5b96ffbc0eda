package benchmarks

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

const (
	indexedObjects = 100_000
	indexedKeys    = 10_000
	lookUpCount    = 20_000 // for each of a process's answers
	fieldIndex     = "key"
)

// lookUps is what one look-up for a key with ten values costs.
type lookUps struct{ Time, Allocs, Bytes float64 }

// BenchmarkIndex has 100,000 small objects indexed, ten for each key, and measures what
// that takes, and what a look-up costs: with an index of this library, and with a field
// index of controller-runtime's cache.
func BenchmarkIndex(b *testing.B) {
	type cost struct {
		ready, cpu, heap float64
		look             lookUps
	}
	kinds := []string{"index", "field"}
	runs := map[string][]cost{}
	for b.Loop() {
		for _, kind := range kinds {
			empty := start(b, kind, eventGroup, 0)
			baseline := empty.ask(b, "heap")
			empty.stop(b)
			p := start(b, kind, eventGroup, indexedObjects)
			now := p.ask(b, "heap")
			look := p.ask(b, "look").Look
			p.stop(b)
			runs[kind] = append(runs[kind], cost{
				p.wall.Seconds(), p.ready.CPU.Seconds(), float64(now.Heap+now.Stacks-baseline.Heap-baseline.Stacks) / indexedObjects, look,
			})
		}
	}
	fields := []struct {
		name string
		of   func(cost) float64
	}{
		{"s-to-ready", func(c cost) float64 { return c.ready }},
		{"cpu-s-to-ready", func(c cost) float64 { return c.cpu }},
		{"B/object", func(c cost) float64 { return c.heap }},
		{"ns/look-up", func(c cost) float64 { return c.look.Time }},
		{"allocs/look-up", func(c cost) float64 { return c.look.Allocs }},
		{"alloc-B/look-up", func(c cost) float64 { return c.look.Bytes }},
	}
	table := "\n"
	for _, field := range fields {
		kopf, peer := median(runs["index"], field.of), median(runs["field"], field.of)
		table += fmt.Sprintf("%-15s kopf %12.2f  field index %12.2f\n", field.name, kopf, peer)
		b.ReportMetric(kopf, field.name)
		if kopf > 0 {
			b.ReportMetric(peer/kopf, field.name+"-times-kopf")
		}
	}
	b.Log(table)
	b.ReportMetric(0, "ns/op")
}

// smallWidget is the object of this benchmark: half a kilobyte.
func smallWidget() *Widget {
	w := newWidget(eventGroup, 7)
	w.Spec = WidgetSpec{Value: 8}
	return w
}

// indexKey is by which an object is found, ten of them by each.
func indexKey(w *Widget) string { return w.Name[max(0, len(w.Name)-4):] }

// measureLookUps looks up keys.
func measureLookUps(lookUp func(key string) int) lookUps {
	keys := make([]string, indexedKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("%04d", i)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begin := time.Now()
	for i := range lookUpCount {
		if n := lookUp(keys[i*7919%indexedKeys]); n != indexedObjects/indexedKeys {
			panic(fmt.Sprintf("%d values", n))
		}
	}
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	return lookUps{
		float64(took.Nanoseconds()) / lookUpCount, float64(after.Mallocs-before.Mallocs) / lookUpCount,
		float64(after.TotalAlloc-before.TotalAlloc) / lookUpCount,
	}
}

// runIndex is the operator with this library.
func runIndex(ctx context.Context, o operatorOptions) error {
	var byKey *kopf.Index[string, string]
	*o.lookUp = func(key string) (n int) {
		for range byKey.Get(key) {
			n++
		}
		return n
	}
	return runStreamed(ctx, newEventAPIOf(smallWidget(), o.objects), indexed, o.ready, func(widgets, in on.AnyOption) {
		byKey = on.Index(func(_ context.Context, s *kopf.Snapshot[*Widget]) (map[string]string, error) {
			return map[string]string{indexKey(s.Object): s.Object.Name}, nil
		}, widgets, in, on.ID("by-key"))
	})
}

// runField is the same by hand: a list from the cache, by a field index.
func runField(ctx context.Context, o operatorOptions) error {
	w := smallWidget()
	manager, err := localManager(newEventAPIOf(w, o.objects))
	if err != nil {
		return err
	}
	err = manager.GetFieldIndexer().IndexField(ctx, &Widget{}, fieldIndex, func(w client.Object) []string {
		return []string{indexKey(w.(*Widget))}
	})
	if err != nil {
		return err
	}
	c := manager.GetClient()
	*o.lookUp = func(key string) int {
		var list WidgetList
		// What is listed is only read, so that no deep copies are needed.
		if err := c.List(ctx, &list, client.MatchingFields{fieldIndex: key}, client.UnsafeDisableDeepCopy); err != nil {
			panic(err)
		}
		return len(list.Items)
	}
	go func() {
		if manager.GetCache().WaitForCacheSync(ctx) {
			o.ready()
		}
	}()
	return manager.Start(ctx)
}
