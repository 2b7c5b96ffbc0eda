package indexing

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// counted makes a reader, and a context for it, that counts how often it is woken.
func counted(indices ...AnyIndex) (context.Context, *Reader, *int) {
	count := new(int)
	reader := NewReader(func() { *count++ }, indices...)
	return WithReader(context.Background(), reader), reader, count
}

type (
	numbers = map[string]int
	view    = View[string, int]
)

func exhaust[V any](yielded V) bool { return true }

// What each way of reading depends on. There are a: 1, of "owner", and b: 1 and 2, of
// "owner" and "other", before.
func TestWhatIsTracked(t *testing.T) {
	ways := map[string]func(view){
		"Get":   func(v view) { v.Get("a")(exhaust) },
		"First": func(v view) { v.First("a") },
		"Has":   func(v view) { v.Has("a") },
		"Keys":  func(v view) { v.Keys()(exhaust) },
		"Len":   func(v view) { v.Len() },
		"All":   func(v view) { v.All()(func(string, int) bool { return true }) },
		"Get, in part": func(v view) {
			for range v.Get("a") {
				break
			}
		},
		"Get of a key that is not there":   func(v view) { v.Get("z")(exhaust) },
		"First of a key that is not there": func(v view) { v.First("z") },
		"Has of a key that is not there":   func(v view) { v.Has("z") },
		"nothing":                          func(v view) { v.Get("a"); v.Keys(); v.All() },
	}
	missing := []string{"Get of a key that is not there", "First of a key that is not there", "Has of a key that is not there"}
	for name, c := range map[string]struct {
		change func(*Writer[string, int])
		woken  []string
	}{
		"an equal value":              {func(w *Writer[string, int]) { w.Replace("owner", numbers{"a": 1, "b": 1}) }, nil},
		"nobody has gone":             {func(w *Writer[string, int]) { w.Remove("nobody") }, nil},
		"another value":               {func(w *Writer[string, int]) { w.Replace("owner", numbers{"a": 9, "b": 1}) }, []string{"Get", "Get, in part", "First", "All"}},
		"a value of another key":      {func(w *Writer[string, int]) { w.Replace("owner", numbers{"a": 1, "b": 9}) }, []string{"All"}},
		"one value less of other key": {func(w *Writer[string, int]) { w.Remove("other") }, []string{"All"}},
		"another owner of the key":    {func(w *Writer[string, int]) { w.Replace("more", numbers{"a": 1}) }, []string{"Get", "Get, in part", "First", "All"}},
		"another key":                 {func(w *Writer[string, int]) { w.Replace("more", numbers{"c": 1}) }, []string{"Keys", "Len", "All"}},
		"the key has gone": {func(w *Writer[string, int]) { w.Replace("owner", numbers{"b": 1}) },
			[]string{"Get", "Get, in part", "First", "Has", "Keys", "Len", "All"}},
		"the owner has gone": {func(w *Writer[string, int]) { w.Remove("owner") },
			[]string{"Get", "Get, in part", "First", "Has", "Keys", "Len", "All"}},
		"the key has come": {func(w *Writer[string, int]) { w.Replace("more", numbers{"z": 1}) }, append([]string{"Keys", "Len", "All"}, missing...)},
		"all has gone": {func(w *Writer[string, int]) { w.Clear() },
			[]string{"Get", "Get, in part", "First", "Has", "Keys", "Len", "All"}},
	} {
		for way, read := range ways {
			w := NewWriter[string, int]()
			w.Replace("owner", numbers{"a": 1, "b": 1})
			w.Replace("other", numbers{"b": 2})
			ctx, reader, count := counted()
			read(w.Index().Tracked(ctx))
			if reader.Read() != (way != "nothing") {
				t.Errorf("%s: has read is %v", way, reader.Read())
			}
			c.change(w)
			want := 0
			if slices.Contains(c.woken, way) {
				want = 1
			}
			if *count != want {
				t.Errorf("%s, when %s was read: woken %d times, want %d", name, way, *count, want)
			}
			reader.Forget()
			if got := w.index.notes.count.Load(); got != 0 || len(w.index.notes.rounds) != 0 {
				t.Errorf("%s, when %s was read: %d notes, %d facts are left", name, way, got, len(w.index.notes.rounds))
			}
		}
	}
}

// Under random writes, a reader is woken if and only if the model says that what it
// has read is different now.
func TestTrackingAgainstModel(t *testing.T) {
	for name, hash := range hashes {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(5) {
				trackRandomly(t, rand.New(rand.NewPCG(seed, 3)), hashedWriter(hash))
			}
		})
	}
}

type tracker struct {
	ctx    context.Context
	reader *Reader
	count  *int
	read   []func(model) any // facts of the model
}

func trackRandomly(t *testing.T, random *rand.Rand, w *Writer[int, int]) {
	const keys = 4
	m, trackers := model{}, make([]*tracker, 5)
	for i := range trackers {
		trackers[i] = &tracker{}
		trackers[i].ctx, trackers[i].reader, trackers[i].count = counted(w)
	}
	wakes := 0
	for range 600 {
		for _, r := range trackers {
			switch random.IntN(6) {
			case 0:
				r.reader.Forget()
				r.read = nil
			case 1, 2:
				r.readRandomly(random, w.Index().Tracked(r.ctx), random.IntN(keys))
			}
		}
		before := model(maps.Clone(m))
		done := randomly(random, 3, keys, w, m)
		for i, r := range trackers {
			want := 0
			if slices.ContainsFunc(r.read, func(fact func(model) any) bool { return !reflect.DeepEqual(fact(before), fact(m)) }) {
				want, r.read = 1, nil
			}
			if *r.count != want {
				t.Fatalf("%s: reader %d was woken %d times, want %d", done, i, *r.count, want)
			}
			*r.count = 0
			wakes += want
		}
	}
	if wakes < 100 {
		t.Fatalf("only %d wakes: the test tries too little", wakes)
	}
	for _, r := range trackers {
		r.reader.Forget()
	}
	if left := w.index.notes.count.Load(); left != 0 || len(w.index.notes.rounds) != 0 {
		t.Fatalf("%d notes, %d facts are left", left, len(w.index.notes.rounds))
	}
}

func (r *tracker) readRandomly(random *rand.Rand, v View[int, int], key int) {
	owned := func(m model) any {
		found := map[Owner]int{}
		for owner, entries := range m {
			if value, ok := entries[key]; ok {
				found[owner] = value
			}
		}
		return found
	}
	keySet := func(m model) any { return slices.Sorted(maps.Keys(m.all())) }
	var fact func(model) any
	switch random.IntN(6) {
	case 0:
		v.Get(key)(exhaust)
		fact = owned
	case 1:
		v.First(key)
		fact = owned
	case 2:
		v.Has(key)
		fact = func(m model) any { return len(m.values(key)) > 0 }
	case 3:
		v.Keys()(exhaust)
		fact = keySet
	case 4:
		v.Len()
		fact = keySet
	case 5:
		v.All()(func(int, int) bool { return true })
		fact = func(m model) any { return maps.Clone(m) }
	}
	r.read = append(r.read, fact)
}

// A reader is woken once, and again only for what it reads later.
func TestWokenOnce(t *testing.T) {
	w, other := NewWriter[string, int](), NewWriter[int, string]()
	ctx, reader, count := counted()
	for range 3 { // noted once
		w.Index().Tracked(ctx).First("a")
		w.Index().Tracked(ctx).First("b")
		other.Index().Tracked(ctx).Len()
	}
	if got := w.index.notes.count.Load(); got != 2 {
		t.Errorf("%d notes", got)
	}
	w.Replace("owner", numbers{"a": 1, "b": 1})
	w.Replace("owner", numbers{"a": 2, "b": 2})
	other.Replace("owner", map[int]string{1: "a"})
	if *count != 1 {
		t.Errorf("woken %d times", *count)
	}
	if left := w.index.notes.count.Load() + other.index.notes.count.Load(); left != 0 || reader.round != nil {
		t.Errorf("%d notes are left", left)
	}
	if !reader.Read() {
		t.Error("being woken made it forget that it has read")
	}
	other.Index().Tracked(ctx).Len()
	w.Replace("owner", nil)
	if *count != 1 {
		t.Errorf("woken for what was given up")
	}
	other.Clear()
	if *count != 2 {
		t.Errorf("not woken for what it has read later")
	}
}

// What was forgotten wakes nobody; an iterator that is ranged later is read anew.
func TestForget(t *testing.T) {
	w := NewWriter[string, int]()
	ctx, reader, count := counted()
	kept := w.Index().Tracked(ctx).Get("a")
	if reader.Read() {
		t.Error("an iterator that nobody has ranged over was read")
	}
	kept(exhaust)
	reader.Forget()
	reader.Forget()
	if reader.Read() {
		t.Error("it has not forgotten that it has read")
	}
	w.Replace("owner", numbers{"a": 1})
	if *count != 0 {
		t.Error("woken for what it has forgotten")
	}
	kept(exhaust)
	w.Replace("owner", numbers{"a": 2})
	if *count != 1 || !reader.Read() {
		t.Errorf("woken %d times", *count)
	}
}

// Who reads within wake reads what has woken him; all of the package can be used there.
func TestWakeHoldsNoLocks(t *testing.T) {
	w := NewWriter[string, int]()
	var ctx context.Context
	var reader *Reader
	var seen []int
	reader = NewReader(func() {
		reader.Forget()
		value, _ := w.Index().Tracked(ctx).First("a")
		seen = append(seen, value)
		if value < 5 {
			w.Replace("owner", numbers{"a": value + 1})
		}
	})
	ctx = WithReader(context.Background(), reader)
	w.Index().Tracked(ctx).Has("a")
	w.Replace("owner", numbers{"a": 1})
	if want := []int{1, 2, 3, 4, 5}; !slices.Equal(seen, want) {
		t.Errorf("seen %v, want %v", seen, want)
	}
}

func TestReaderForSomeIndices(t *testing.T) {
	w, x, other := NewWriter[string, int](), NewWriter[int, bool](), NewWriter[string, int]()
	ctx, reader, count := counted(w, x.Index())
	other.Index().Tracked(ctx).Len()
	if reader.Read() {
		t.Error("it has read of an index that it is not for")
	}
	other.Replace("owner", numbers{"a": 1})
	w.Index().Tracked(ctx).Len()
	w.Replace("owner", numbers{"a": 1})
	x.Index().Tracked(ctx).Len()
	x.Replace("owner", map[int]bool{1: true})
	if *count != 2 || !reader.Read() {
		t.Errorf("woken %d times", *count)
	}
}

func TestTrackedWithoutReader(t *testing.T) {
	w := NewWriter[string, int]()
	ctx, reader, count := counted()
	for name, ctx := range map[string]context.Context{"no reader": context.Background(), "nil": WithReader(ctx, nil)} {
		w.Replace("owner", numbers{"a": 1})
		if value, ok := w.Index().Tracked(ctx).First("a"); !ok || value != 1 {
			t.Errorf("%s: got %v, %v", name, value, ok)
		}
		w.Clear()
		if w.index.notes.count.Load() != 0 || *count != 0 || reader.Read() {
			t.Errorf("%s: it was noted", name)
		}
	}
	inner, _, innerCount := counted()
	w.Index().Tracked(WithReader(ctx, inner.Value(readerKey{}).(*Reader))).Len()
	w.Replace("owner", numbers{"a": 1})
	if *count != 0 || *innerCount != 1 {
		t.Errorf("the inner reader was woken %d times, the outer one %d times", *innerCount, *count)
	}
}

// A key that can never be there is not noted, for the note could not be found again.
func TestUnfindableKeysAreNotNoted(t *testing.T) {
	w := NewWriter[float64, int]()
	ctx, reader, _ := counted()
	v := w.Index().Tracked(ctx)
	v.First(math.NaN())
	v.Has(math.NaN())
	v.Get(math.NaN())(exhaust)
	reader.Forget()
	if len(w.index.notes.rounds) != 0 {
		t.Errorf("%d facts are left", len(w.index.notes.rounds))
	}
}

// An update of more keys than are looked at in one go wakes everybody.
func TestManyKeysManyReaders(t *testing.T) {
	const many = 5*lockedFor + 1
	w := NewWriter[string, int]()
	entries, counts := numbers{}, make([]*int, many)
	for i := range many {
		key := fmt.Sprint(i)
		entries[key] = i
		var ctx context.Context
		ctx, _, counts[i] = counted()
		w.Index().Tracked(ctx).Has(key)
	}
	w.Replace("owner", entries)
	for i, count := range counts {
		if *count != 1 {
			t.Fatalf("reader %d was woken %d times", i, *count)
		}
	}
	if left := w.index.notes.count.Load(); left != 0 || len(w.index.notes.rounds) != 0 {
		t.Errorf("%d notes, %d facts are left", left, len(w.index.notes.rounds))
	}
}

// The order that nothing is lost by: an update is visible before the notes of it are
// looked through, and who has read it already is not woken.
func TestVisibleBeforeNotesAreTaken(t *testing.T) {
	w := NewWriter[string, int]()
	w.Replace("owner", numbers{"a": 1})
	ctx, _, count := counted()
	w.Index().Tracked(ctx).First("a")
	next, looked := w.index.now(), false
	next.version++
	wake := w.publish(next, func(yield func(change[string]) bool) {
		looked = true
		if w.index.now().version != next.version {
			t.Error("the notes are looked through before the update is visible")
		}
		yield(change[string]{"a", false})
	})
	if !looked || len(wake) != 1 {
		t.Fatalf("%d are to be woken", len(wake))
	}
	wakeUp(wake)
	w.Index().Tracked(ctx).First("a")
	again := slices.Values([]change[string]{{"a", false}})
	if seen := w.index.notes.changed(next.version, again); len(seen) != 0 {
		t.Error("woken for a version that was read")
	}
	if unseen := w.index.notes.changed(next.version+1, again); len(unseen) != 1 || *count != 1 {
		t.Errorf("%d are to be woken for the next version", len(unseen))
	}
}
