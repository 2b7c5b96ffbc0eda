package indexing_test

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/kopf-go/kopf/indexing"
)

type (
	entries = map[string]int
	stored  = map[string][]int // the values of each key, sorted
)

// contents reads an index in all ways there are, which must agree.
func contents(t *testing.T, index *indexing.Index[string, int]) stored {
	t.Helper()
	all := stored{}
	for key, value := range index.All() {
		all[key] = append(all[key], value)
	}
	for key := range all {
		slices.Sort(all[key])
		if got := slices.Sorted(index.Get(key)); !slices.Equal(got, all[key]) {
			t.Errorf("Get(%q) has %v, All has %v", key, got, all[key])
		}
		if first, ok := index.First(key); !ok || !slices.Contains(all[key], first) {
			t.Errorf("First(%q) is %v, %v, All has %v", key, first, ok, all[key])
		}
		if !index.Has(key) {
			t.Errorf("All has %q, and Has does not", key)
		}
	}
	if keys := slices.Sorted(index.Keys()); !slices.Equal(keys, slices.Sorted(maps.Keys(all))) || index.Len() != len(all) {
		t.Errorf("Keys has %v, Len is %v, All has %v", keys, index.Len(), all)
	}
	return all
}

func TestReplace_IDX4_T148(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after entries
		want          stored
	}{
		{"new keys are added", entries{"a": 1}, entries{"a": 1, "b": 2, "c": 3}, stored{"a": {1}, "b": {2}, "c": {3, 9}}},
		{"common keys are overwritten", entries{"a": 1, "c": 1}, entries{"a": 2, "c": 2}, stored{"a": {2}, "c": {2, 9}}},
		{"keys that are not returned are removed", entries{"a": 1, "b": 1, "c": 1}, entries{"b": 1}, stored{"b": {1}, "c": {9}}},
		{"all of it at once", entries{"a": 1, "b": 1, "c": 1}, entries{"b": 2, "d": 1}, stored{"b": {2}, "c": {9}, "d": {1}}},
		{"nothing removes all", entries{"a": 1, "c": 1}, entries{}, stored{"c": {9}}},
		{"nil removes all", entries{"a": 1, "c": 1}, nil, stored{"c": {9}}},
		{"zero values are values", entries{"a": 1}, entries{"a": 0, "": 0}, stored{"": {0}, "a": {0}, "c": {9}}},
		{"equal values of others stay", entries{"c": 9}, entries{"c": 9}, stored{"c": {9, 9}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := indexing.NewWriter[string, int]()
			w.Replace("other", entries{"c": 9})
			w.Replace("owner", c.before)
			w.Replace("owner", c.after)
			if got := contents(t, w.Index()); !maps.EqualFunc(got, c.want, slices.Equal) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			w.Remove("owner")
			if got, want := contents(t, w.Index()), (stored{"c": {9}}); !maps.EqualFunc(got, want, slices.Equal) {
				t.Errorf("without the owner, got %v, want %v", got, want)
			}
		})
	}
}

// A flat collection is an index with one key: IDX-3.
func TestFlatCollection_IDX3_T148(t *testing.T) {
	w := indexing.NewWriter[struct{}, string]()
	for i := range 5 {
		w.Replace(indexing.Owner(fmt.Sprint("owner-", i)), map[struct{}]string{{}: fmt.Sprint("value-", i)})
	}
	w.Replace("owner-1", map[struct{}]string{{}: "other"})
	w.Remove("owner-2")
	got := slices.Sorted(w.Index().Get(struct{}{}))
	if want := []string{"other", "value-0", "value-3", "value-4"}; !slices.Equal(got, want) || w.Len() != 1 {
		t.Errorf("got %v under %d keys, want %v", got, w.Len(), want)
	}
}

// What the framework does not say anything about stays; what it removes is gone.
func TestRemove_IDX4_T149(t *testing.T) {
	w := indexing.NewWriter[string, int]()
	w.Replace("stays", entries{"a": 1, "b": 1})
	w.Replace("goes", entries{"a": 2, "c": 2})
	w.Remove("goes")
	w.Remove("goes")
	w.Remove("never was")
	if got, want := contents(t, w.Index()), (stored{"a": {1}, "b": {1}}); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
	w.Replace("goes", entries{"a": 3})
	if got := slices.Sorted(w.Index().Get("a")); !slices.Equal(got, []int{1, 3}) {
		t.Errorf("who comes again has %v", got)
	}
	w.Clear()
	if got := contents(t, w.Index()); len(got) > 0 {
		t.Errorf("cleared, it has %v", got)
	}
	w.Replace("stays", entries{"b": 1})
	if got, want := contents(t, w.Index()), (stored{"b": {1}}); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// One value per owner and key, and keys for as long as they have any: IDX-5.
func TestStores_IDX5(t *testing.T) {
	w := indexing.NewWriter[string, int]()
	missing := func(key string) {
		t.Helper()
		if value, ok := w.Index().First(key); ok || value != 0 || w.Index().Has(key) || len(slices.Collect(w.Index().Get(key))) > 0 {
			t.Errorf("%q is there", key)
		}
	}
	missing("a")
	w.Replace("one", entries{"a": 1})
	w.Replace("two", entries{"a": 1})
	w.Replace("two", entries{"a": 1})
	if got := slices.Collect(w.Index().Get("a")); !slices.Equal(got, []int{1, 1}) {
		t.Errorf("got %v, want both of the equal values", got)
	}
	missing("b")
	w.Remove("one")
	w.Remove("two")
	missing("a")
	if w.Len() != 0 || len(slices.Collect(w.Index().Keys())) > 0 {
		t.Error("the key is still there, without values")
	}
}

func TestZeroIndexIsEmpty(t *testing.T) {
	var index indexing.Index[string, int]
	if got := contents(t, &index); len(got) > 0 || index.Has("a") {
		t.Errorf("it has %v", got)
	}
}

// An iterator shows the state at the beginning of each ranging, and writing from
// within the loop is fine.
func TestIteratorsSeeOneState_IDX5(t *testing.T) {
	w := indexing.NewWriter[string, int]()
	values := func(of iter.Seq2[string, int]) iter.Seq[int] {
		return func(yield func(int) bool) { of(func(_ string, v int) bool { return yield(v) }) }
	}
	for name, kept := range map[string]iter.Seq[int]{"Get": w.Index().Get("b"), "All": values(w.Index().All())} {
		w.Clear()
		if got := slices.Collect(kept); len(got) > 0 {
			t.Errorf("%s: before anything was written it has %v", name, got)
		}
		for i := range 3 {
			w.Replace(indexing.Owner(fmt.Sprint(i)), entries{"b": i})
		}
		var got []int
		for value := range kept {
			got = append(got, value)
			w.Replace(indexing.Owner(fmt.Sprint(value+10)), entries{"b": value + 10})
			w.Remove(indexing.Owner(fmt.Sprint(value)))
		}
		if slices.Sort(got); !slices.Equal(got, []int{0, 1, 2}) {
			t.Errorf("%s: the first time it was %v", name, got)
		}
		if got := slices.Sorted(kept); !slices.Equal(got, []int{10, 11, 12}) {
			t.Errorf("%s: the second time it was %v", name, got)
		}
		for range kept {
			break // which ends all loops below
		}
	}
}

// First is the same value as long as the values of its key are the same.
func TestFirstIsStable(t *testing.T) {
	w := indexing.NewWriter[string, int]()
	for i := range 100 {
		w.Replace(indexing.Owner(fmt.Sprint(i)), entries{"a": i})
	}
	first, _ := w.Index().First("a")
	for i := range 100 {
		w.Replace(indexing.Owner(fmt.Sprint(i)), entries{"a": i, fmt.Sprint("b", i): i})
		w.Replace(indexing.Owner(fmt.Sprint("other-", i)), entries{"c": i})
		if again, ok := w.Index().First("a"); !ok || again != first {
			t.Fatalf("it was %v, and is %v", first, again)
		}
	}
	w.Replace("more", entries{"a": 100})
	w.Remove("more")
	if again, _ := w.Index().First("a"); again != first {
		t.Errorf("it was %v, and is %v, after others have come and gone", first, again)
	}
}

// A key that does not equal itself is not stored, at first or in later updates.
func TestKeysThatAreNotEqualToThemselves(t *testing.T) {
	w := indexing.NewWriter[float64, int]()
	for range 3 {
		w.Replace("owner", map[float64]int{math.NaN(): 1, 0: 2})
		if w.Len() != 1 || w.Index().Has(math.NaN()) {
			t.Fatalf("%d keys", w.Len())
		}
	}
	if !w.Index().Has(math.Copysign(0, -1)) {
		t.Error("zero is not found by its negative, which is equal")
	}
	w.Replace("owner", map[float64]int{math.NaN(): 1})
	if w.Len() != 0 {
		t.Errorf("%d keys are left", w.Len())
	}
}

// woken tells whether replacing one value by another one counts as a change.
func woken[V any](before, after V) bool {
	w, count := indexing.NewWriter[string, V](), 0
	w.Replace("owner", map[string]V{"a": before})
	ctx := indexing.WithReader(noContext, indexing.NewReader(func() { count++ }))
	w.Index().Tracked(ctx).First("a")
	w.Replace("owner", map[string]V{"a": after})
	return count > 0
}

func TestEqualValuesAreNotRewritten_IDX5(t *testing.T) {
	type mixed struct {
		name string
		any  any
	}
	one, same := new(int), new(int)
	failed, alike := errors.New("x"), errors.New("x")
	for _, c := range []struct {
		name      string
		got, want bool
	}{
		{"equal texts", woken("a", string([]byte("a"))), false},
		{"different texts", woken("a", "b"), true},
		{"equal structs", woken(struct{ a, b int }{1, 2}, struct{ a, b int }{1, 2}), false},
		{"different structs", woken(struct{ a, b int }{1, 2}, struct{ a, b int }{1, 3}), true},
		{"the same pointer", woken(one, one), false},
		{"pointers to equal values", woken(one, same), true},
		{"equal arrays", woken([2]int{1, 2}, [2]int{1, 2}), false},
		{"equal slices", woken([]int{1}, []int{1}), false},
		{"different slices", woken([]int{1}, []int{2}), true},
		{"equal maps", woken(entries{"a": 1}, entries{"a": 1}), false},
		{"arrays of slices", woken([1][]int{{1}}, [1][]int{{1}}), false},
		{"interfaces with what is not comparable", woken[any]([]int{1}, []int{1}), false},
		{"interfaces with different types", woken[any](1, int64(1)), true},
		{"nil and not nil", woken[any](nil, 0), true},
		{"structs with interfaces", woken(mixed{"a", []int{1}}, mixed{"a", []int{1}}), false},
		{"structs with different interfaces", woken(mixed{"a", []int{1}}, mixed{"a", []int{2}}), true},
		{"interfaces with equal pointees", woken(failed, alike), false},
		{"NaN", woken(math.NaN(), math.NaN()), true},
		{"functions", woken(func() {}, func() {}), true},
	} {
		if c.got != c.want {
			t.Errorf("%s: rewritten is %v, want %v", c.name, c.got, c.want)
		}
	}
}
