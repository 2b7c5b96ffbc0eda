package indexing

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// model is the simplest index there can be.
type model map[Owner]map[int]int

func (m model) replace(owner Owner, entries map[int]int) {
	delete(m, owner)
	if len(entries) > 0 {
		m[owner] = maps.Clone(entries)
	}
}

// values are those of a key, sorted.
func (m model) values(key int) []int {
	var found []int
	for _, entries := range m {
		if value, ok := entries[key]; ok {
			found = append(found, value)
		}
	}
	slices.Sort(found)
	return found
}

// all has the sorted values of each key.
func (m model) all() map[int][]int {
	found := map[int][]int{}
	for _, entries := range m {
		for key := range entries {
			found[key] = m.values(key)
		}
	}
	return found
}

// hashes of keys and owners: good ones, and those that meet sooner or later.
var hashes = map[string]func(n uint64) uint64{
	"good":                   func(n uint64) uint64 { return maphash.Comparable(seed, n) },
	"all the same":           func(uint64) uint64 { return 0 },
	"three different":        func(n uint64) uint64 { return n % 3 * 0x1111111111111111 },
	"different at the end":   func(n uint64) uint64 { return n << 61 },
	"different in the midst": func(n uint64) uint64 { return n<<30 | 0xf },
	"not mixed":              func(n uint64) uint64 { return n },
}

var seed = maphash.MakeSeed()

func hashedWriter(hash func(uint64) uint64) *Writer[int, int] {
	return newWriter[int, int](
		func(key int) uint64 { return hash(uint64(key)) },
		func(owner Owner) uint64 { return hash(uint64(owner[0])) },
	)
}

// randomly does something to both, and returns what.
func randomly(random *rand.Rand, owners, keys int, w *Writer[int, int], m model) string {
	owner := Owner('a' + rune(random.IntN(owners)))
	switch choice := random.IntN(100); {
	case choice == 0:
		w.Clear()
		clear(m)
		return "clear"
	case choice < 15:
		w.Remove(owner)
		m.replace(owner, nil)
		return fmt.Sprintf("remove %s", owner)
	}
	entries := map[int]int{}
	for range random.IntN(keys) {
		entries[random.IntN(keys)] = random.IntN(3)
	}
	w.Replace(owner, entries)
	m.replace(owner, entries)
	return fmt.Sprintf("replace %s by %v", owner, entries)
}

func TestAgainstModel_IDX4_IDX5(t *testing.T) {
	for name, hash := range hashes {
		t.Run(name, func(t *testing.T) {
			for round, space := range []struct{ owners, keys, steps int }{{2, 3, 200}, {5, 5, 200}, {20, 60, 100}, {90, 3, 250}} {
				random := rand.New(rand.NewPCG(uint64(round), 1))
				w, m := hashedWriter(hash), model{}
				old := map[*state[int, int]]map[int][]int{}
				for range space.steps {
					done := randomly(random, space.owners, space.keys, w, m)
					compare(t, w, m, space.keys, done)
					if random.IntN(20) == 0 {
						old[w.index.state.Load()] = m.all()
					}
				}
				for s, want := range old {
					if s != nil && !maps.EqualFunc(contentsOf(*s), want, slices.Equal) {
						t.Fatalf("a state has changed from %v to %v", want, contentsOf(*s))
					}
				}
			}
		})
	}
}

func contentsOf(s state[int, int]) map[int][]int {
	found := map[int][]int{}
	s.root.each(func(e *entry[int, bucket[int]]) bool {
		e.value.each(func(value int) bool {
			found[e.key] = append(found[e.key], value)
			return true
		})
		slices.Sort(found[e.key])
		return true
	})
	return found
}

func compare(t *testing.T, w *Writer[int, int], m model, keys int, done string) {
	t.Helper()
	x, want := w.Index(), m.all()
	if got := contentsOf(x.now()); !maps.EqualFunc(got, want, slices.Equal) {
		t.Fatalf("%s: got %v, want %v", done, got, want)
	}
	all := map[int][]int{}
	for key, value := range x.All() {
		all[key] = append(all[key], value)
	}
	for key := range keys {
		got := slices.Sorted(x.Get(key))
		slices.Sort(all[key])
		first, ok := x.First(key)
		if !slices.Equal(got, want[key]) || !slices.Equal(all[key], got) || ok != (len(got) > 0) || ok != x.Has(key) ||
			ok && !slices.Contains(got, first) {
			t.Fatalf("%s: of %d, got %v, the first %v, %v, want %v", done, key, got, first, ok, want[key])
		}
	}
	got := slices.Sorted(x.Keys())
	if !slices.Equal(got, slices.Sorted(maps.Keys(want))) || x.Len() != len(want) || w.Len() != len(want) {
		t.Fatalf("%s: got %d keys, %v, want %v", done, x.Len(), got, want)
	}
	if len(w.owners) != len(m) {
		t.Fatalf("%s: %d owners are known, want %d", done, len(w.owners), len(m))
	}
	checkShape(t, x.now().root, 0, done)
	x.now().root.each(func(e *entry[int, bucket[int]]) bool {
		checkShape(t, e.value.many, 0, done)
		if e.value.many.size() == 1 {
			t.Fatalf("%s: a map of one value", done)
		}
		return true
	})
}

// checkShape checks what the shape of a node promises, and returns its size.
func checkShape[K comparable, V any](t *testing.T, n *node[K, V], shift int, done string) (size int) {
	t.Helper()
	switch {
	case n == nil:
		return 0
	case n.branch == nil:
		size = len(n.entries)
		if size == 0 || size > leafSize && shift < hashBits {
			t.Fatalf("%s: a leaf of %d at %d", done, size, shift)
		}
	default:
		for _, below := range n.branch.nodes {
			size += checkShape(t, below, shift+levelBits, done)
		}
		if len(n.entries) > 0 || size <= mergeSize || shift >= hashBits {
			t.Fatalf("%s: a branch of %d, and %d in itself, at %d", done, size, len(n.entries), shift)
		}
	}
	if n.size() != size {
		t.Fatalf("%s: a node of %d says %d", done, size, n.size())
	}
	return size
}

// Maps grow and shrink in any order, each a map of its own.
func TestGrowingAndShrinking(t *testing.T) {
	const many = 300
	for name, hash := range hashes {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 1))
			maps, number := []*node[uint64, int]{nil}, uint64(0)
			for _, key := range random.Perm(many) {
				number++
				n := maps[len(maps)-1]
				maps = append(maps, edition[uint64, int]{1 + number/7, hash}.put(n, uint64(key), key))
				if number%7 != 6 { // the edition goes on, and changes it in place
					maps = slices.Delete(maps, len(maps)-2, len(maps)-1)
				}
			}
			for i, n := range maps {
				if size := checkShape(t, n, 0, "grown"); i < len(maps)-1 && size != 7*i+6 {
					t.Fatalf("map %d has %d", i, size)
				}
			}
			n := maps[len(maps)-1]
			for left, key := range random.Perm(many) {
				number++
				n = edition[uint64, int]{1000 + number/7, hash}.remove(n, uint64(key))
				if size := checkShape(t, n, 0, "shrunk"); size != many-left-1 || n.find(hash(uint64(key)), uint64(key)) != nil {
					t.Fatalf("%d are left of %d", size, many-left-1)
				}
			}
			if n != nil {
				t.Error("the empty map is not nil")
			}
		})
	}
}

// What is not there can be removed.
func TestRemovalOfWhatIsNotThere(t *testing.T) {
	for name, hash := range hashes {
		t.Run(name, func(t *testing.T) {
			var n *node[uint64, int]
			for key := range uint64(40) {
				n = edition[uint64, int]{1, hash}.put(n, key, 1)
			}
			for key := range uint64(40) {
				if without := (edition[uint64, int]{2, hash}).remove(n, key+40); without != n {
					t.Fatalf("the map is another one without %d", key+40)
				}
			}
		})
	}
}
