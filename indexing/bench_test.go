package indexing_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"testing"

	"github.com/kopf-go/kopf/indexing"
)

// filled has so many owners, each with an entry under a key of its own.
func filled(size int) (w *indexing.Writer[string, string], owners []indexing.Owner, keys []string) {
	w = indexing.NewWriter[string, string]()
	for i := range size {
		owners = append(owners, indexing.Owner(fmt.Sprint("owner-", i)))
		keys = append(keys, fmt.Sprint("key-", i))
		w.Replace(owners[i], map[string]string{keys[i]: "value"})
	}
	return w, owners, keys
}

var sizes = []int{100, 1_000, 100_000}

// step leads through all indices of the sizes above, in an order that no cache guesses.
const step = 7919

func TestAllocations(t *testing.T) {
	type name struct{ space, name string }
	w, owners, keys := filled(1000)
	named := indexing.NewWriter[name, *int]()
	named.Replace("owner", map[name]*int{{"a", "b"}: new(int)})
	same := map[string]string{keys[1]: "value"}
	values := map[bool]map[string]string{true: {keys[2]: "one"}, false: {keys[2]: "other"}}
	flip := false
	for _, c := range []struct {
		name  string
		limit float64
		do    func()
	}{
		{"first", 0, func() { w.Index().First(keys[1]) }},
		{"has", 0, func() { w.Index().Has(keys[1]) }},
		{"len", 0, func() { w.Index().Len() }},
		{"first, structs", 0, func() { named.Index().First(name{"a", "b"}) }},
		{"get, ranged at once", 0, func() {
			for range w.Index().Get(keys[1]) {
			}
		}},
		{"first, of a view without a reader", 0, func() { w.Index().Tracked(noContext).First(keys[1]) }},
		{"update without a change", 1, func() { w.Replace(owners[1], same) }},
		{"update of a value", 12, func() { flip = !flip; w.Replace(owners[2], values[flip]) }},
	} {
		got := testing.AllocsPerRun(100, c.do)
		t.Logf("%s: %v", c.name, got)
		if got > c.limit {
			t.Errorf("%s: %v allocations, at most %v expected", c.name, got, c.limit)
		}
	}
}

// In an index, and, as it depends on the machine and its caches, in a Go map: of all keys in
// an order that no cache guesses, and of a thousand of them, again and again.
func BenchmarkLookup(b *testing.B) {
	for _, size := range sizes {
		w, owners, keys := filled(size)
		plain := map[string]map[indexing.Owner]string{}
		for i, key := range keys {
			plain[key] = map[indexing.Owner]string{owners[i]: "value"}
		}
		x, i, span := w.Index(), 0, size
		next := func() string { i = (i + step) % span; return keys[i] }
		lookups := []struct {
			name string
			do   func()
		}{
			{"Get", func() {
				for value := range x.Get(next()) {
					_ = value
				}
			}},
			{"First", func() { x.First(next()) }},
			{"Has", func() { x.Has(next()) }},
			{"map", func() {
				for _, value := range plain[next()] {
					_ = value
				}
			}},
		}
		for _, lookup := range lookups {
			for name, asked := range map[string]int{"all": size, "hot": min(size, 1_000)} {
				b.Run(fmt.Sprintf("%s/%d/%s", lookup.name, size, name), func(b *testing.B) {
					span = asked
					b.ReportAllocs()
					for b.Loop() {
						lookup.do()
					}
				})
			}
		}
	}
}

// An owner with one key, which gets another value, goes to another key, or stays.
func BenchmarkUpdate(b *testing.B) {
	for _, size := range sizes {
		w, owners, keys := filled(size)
		for _, c := range []struct {
			name   string
			change func(i int, entries map[string]string)
		}{
			{"equal", func(i int, entries map[string]string) { entries[keys[i%size]] = "value" }}, // first, while they are
			{"value", func(i int, entries map[string]string) { entries[keys[i%size]] = fmt.Sprint(i) }},
			{"key", func(i int, entries map[string]string) { entries[fmt.Sprint("other-", i)] = "value" }},
		} {
			b.Run(fmt.Sprint(c.name, "/", size), func(b *testing.B) {
				b.ReportAllocs()
				i, entries := 0, map[string]string{}
				for b.Loop() {
					i += step
					clear(entries)
					c.change(i, entries)
					w.Replace(owners[i%size], entries)
				}
			})
		}
	}
}

// A key with so many values, of which one changes, or one goes and comes.
func BenchmarkUpdateUnderOneKey(b *testing.B) {
	for _, size := range sizes {
		w, owners := crowded(size)
		b.Run(fmt.Sprint("value/", size), func(b *testing.B) {
			b.ReportAllocs()
			i, entries := 0, map[struct{}]int{}
			for b.Loop() {
				i += step
				entries[struct{}{}] = i
				w.Replace(owners[i%size], entries)
			}
		})
		b.Run(fmt.Sprint("owner/", size), func(b *testing.B) {
			b.ReportAllocs()
			i, entries := 0, map[struct{}]int{{}: 1}
			for b.Loop() {
				i += step
				w.Remove(owners[i%size])
				w.Replace(owners[i%size], entries)
			}
		})
	}
}

// crowded is a flat collection.
func crowded(size int) (w *indexing.Writer[struct{}, int], owners []indexing.Owner) {
	w = indexing.NewWriter[struct{}, int]()
	for i := range size {
		owners = append(owners, indexing.Owner(fmt.Sprint("owner-", i)))
		w.Replace(owners[i], map[struct{}]int{{}: i})
	}
	return w, owners
}

// One owner with so many keys, all of which get another value.
func BenchmarkUpdateOfManyKeys(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w, entries := indexing.NewWriter[int, int](), map[int]int{}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				for key := range size {
					entries[key] = i
				}
				w.Replace("owner", entries)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size), "ns/key")
		})
	}
}

func BenchmarkIteration(b *testing.B) {
	w, _, _ := filled(100_000)
	flat, _ := crowded(100_000)
	for b.Loop() {
		count(w.Index().All())
		count(flat.Index().All())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/200_000, "ns/value")
}

func count[K, V any](all iter.Seq2[K, V]) (n int) {
	for range all {
		n++
	}
	return n
}

// What a handler costs that reads a key through a reader, is woken, and reads again.
func BenchmarkTracked(b *testing.B) {
	w, owners, keys := filled(100_000)
	views := make([]indexing.View[string, string], len(keys))
	for i := range keys {
		ctx := indexing.WithReader(context.Background(), indexing.NewReader(func() { views[i].First(keys[i]) }))
		views[i] = w.Index().Tracked(ctx)
		views[i].First(keys[i])
	}
	b.ReportAllocs()
	i, entries := 0, map[string]string{}
	for b.Loop() {
		i += step
		clear(entries)
		entries[keys[i%len(keys)]] = fmt.Sprint(i)
		w.Replace(owners[i%len(keys)], entries)
	}
}

// Bytes per entry, texts of keys, values and owners not counted.
func BenchmarkMemory(b *testing.B) {
	const size = 100_000
	var owners []indexing.Owner
	var keys []string
	for i := range size {
		owners, keys = append(owners, indexing.Owner(fmt.Sprint("owner-", i))), append(keys, fmt.Sprint("key-", i))
	}
	fill := func(key func(i int) string) func() any {
		return func() any {
			w := indexing.NewWriter[string, string]()
			for i, owner := range owners {
				w.Replace(owner, map[string]string{key(i): "value"})
			}
			return w
		}
	}
	own := fill(func(i int) string { return keys[i] })
	for name, build := range map[string]func() any{
		"a key each":    own,
		"two for a key": fill(func(i int) string { return keys[i/2] }),
		"one key":       fill(func(int) string { return "key" }),
		"a key each, noted": func() any {
			w := own().(*indexing.Writer[string, string])
			for _, key := range keys {
				w.Index().Tracked(indexing.WithReader(noContext, indexing.NewReader(func() {}))).First(key)
			}
			return w
		},
	} {
		b.Run(name, func(b *testing.B) {
			var used uint64
			for b.Loop() {
				before := heap()
				built := build()
				used += heap() - before
				runtime.KeepAlive(built)
			}
			b.ReportMetric(float64(used)/float64(b.N)/size, "B/entry")
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
