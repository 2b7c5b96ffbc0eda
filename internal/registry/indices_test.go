package registry

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/kopf-go/kopf/indexing"
	"github.com/kopf-go/kopf/internal/body"
)

func newIndex[K comparable, V any](id string) (*NamedIndex, *indexing.Writer[K, V]) {
	w := indexing.NewWriter[K, V]()
	return &NamedIndex{ID: id, Writer: w, Handle: reflect.ValueOf(w.Index()), Source: "a/b.go:1"}, w
}

func indexHandler(r *Registry, id string) *Handler {
	made, _ := newIndex[string, int](id)
	index, err := r.Feed(made)
	if err != nil {
		panic(err)
	}
	h := handler(Index, id)
	h.Index = index.Writer
	r.Add(h)
	return h
}

// IDX-1: registrations at the same time still feed one index, each under a number of its own.
func TestFeedConcurrently_IDX1(t *testing.T) {
	r := new(Registry)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 10 {
				indexHandler(r, fmt.Sprint(j))
				if i == 0 {
					_ = r.Connect(nil)
				}
			}
		})
	}
	all.Wait()
	feeds := map[IndexWriter]map[int]bool{}
	for _, h := range r.Handlers() {
		if feeds[h.Index] == nil {
			feeds[h.Index] = map[int]bool{}
		}
		feeds[h.Index][h.Feed] = true
	}
	if len(feeds) != 10 || r.Err() != nil {
		t.Fatalf("%d indices, %v", len(feeds), r.Err())
	}
	for _, numbers := range feeds {
		if len(numbers) != 8 || !numbers[0] || !numbers[7] {
			t.Errorf("feeds are %v", numbers)
		}
	}
}

// IDX-1: an operator that runs has the indices for itself, and begins with empty ones.
func TestClaim_IDX1(t *testing.T) {
	r := new(Registry)
	made, writer := newIndex[string, int]("pods")
	if _, err := r.Feed(made); err != nil {
		t.Fatal(err)
	}
	writer.Replace("somebody", map[string]int{"a": 1})
	release, err := r.Claim()
	if err != nil || writer.Len() != 0 {
		t.Fatalf("got %v, %d keys are there", err, writer.Len())
	}
	writer.Replace("somebody", map[string]int{"a": 1})
	if _, err := r.Claim(); err == nil || err.Error() != "index pods is filled by another operator that runs: "+
		"give each a registry of its own (kopf.NewRegistry, on.In)" || writer.Len() != 1 {
		t.Errorf("got %v, %d keys are there", err, writer.Len())
	}
	late, lateWriter := newIndex[string, int]("late") // registered while the operator runs, which does not know it
	if _, err := r.Feed(late); err != nil {
		t.Fatal(err)
	}
	lateWriter.Replace("somebody", map[string]int{"a": 1})
	release()
	if writer.Len() != 0 || lateWriter.Len() != 1 {
		t.Errorf("%d and %d keys are there", writer.Len(), lateWriter.Len())
	}
	again, err := r.Claim()
	if err != nil {
		t.Fatal(err)
	}
	release() // is over, and takes nothing from the other one
	if _, err := r.Claim(); err == nil {
		t.Error("a second release has released another operator's indices")
	}
	again()
}

func TestClaimOfNothing(t *testing.T) {
	r := new(Registry)
	for range 2 { // operators without indices may share a registry
		if _, err := r.Claim(); err != nil {
			t.Error(err)
		}
	}
}

// What handlers use is found on the copies that an operator has.
func TestConnect(t *testing.T) {
	r := new(Registry)
	a, aWriter := newIndex[string, int]("a")
	b, bWriter := newIndex[string, int]("b")
	stray, _ := newIndex[string, string]("a")
	for _, index := range []*NamedIndex{a, b} {
		if _, err := r.Feed(index); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Feed(stray); err == nil {
		t.Fatal("two types for one index")
	}
	h := handler(Create, "h")
	h.Handles = []any{bWriter.Index(), aWriter.Index(), bWriter.Index(), stray.Handle.Interface()}
	r.Add(h)
	for range 2 {
		if err := r.Connect([]*Handler{h}); err != nil {
			t.Fatal(err)
		}
		if len(h.Uses) != 2 || h.Uses[0] != IndexWriter(bWriter) || h.Uses[1] != IndexWriter(aWriter) {
			t.Errorf("uses %v", h.Uses)
		}
	}
	h.Handles = append(h.Handles, indexing.NewWriter[string, int]().Index())
	if err := r.Connect([]*Handler{h}); err == nil || !strings.HasPrefix(err.Error(), "a/b.go:1: create handler h: on.Uses: ") {
		t.Errorf("got %v", err)
	}
}

// What is an index for a tag: the type and nothing that looks like it.
func TestEntries(t *testing.T) {
	for from, want := range map[reflect.Type]reflect.Type{
		reflect.TypeFor[*indexing.Index[string, []int]]():          reflect.TypeFor[map[string][]int](),
		reflect.TypeFor[*indexing.Index[any, *testing.T]]():        reflect.TypeFor[map[any]*testing.T](),
		reflect.TypeFor[indexing.Index[string, int]]():             nil,
		reflect.TypeFor[**indexing.Index[string, int]]():           nil,
		reflect.TypeFor[*indexing.Writer[string, int]]():           nil,
		reflect.TypeFor[*indexing.Owner]():                         nil,
		reflect.TypeFor[map[string]int]():                          nil,
		reflect.TypeFor[*struct{ *indexing.Index[string, int] }](): nil,
	} {
		if got := entries(from); got != want {
			t.Errorf("%s: got %v, want %v", from, got, want)
		}
	}
}

// Fields of embedded structs are found, but not behind a nil pointer.
func TestInjectionsInEmbeddedStructs(t *testing.T) {
	type Inner struct {
		X *indexing.Index[string, int] `index:"x"`
	}
	type byValue struct{ Inner }
	type byPointer struct{ *Inner }
	for name, target := range map[string]any{"by value": &byValue{}, "by pointer": &byPointer{&Inner{}}} {
		if found, mistakes := Injections(target); len(found) != 1 || len(mistakes) > 0 || found[0].id != "x" || !found[0].value.CanSet() {
			t.Errorf("%s: %v, %v", name, found, mistakes)
		}
	}
	if found, mistakes := Injections(&byPointer{}); len(found) > 0 || len(mistakes) != 1 ||
		mistakes[0].Error() != "on.Inject: field registry.byPointer.X is in an embedded struct whose pointer is nil" {
		t.Errorf("%v, %v", found, mistakes)
	}
}

// MEM-1: each key has a value of its own, which is made once.
func TestMemos_MEM1(t *testing.T) {
	m := new(Memos)
	made := map[any]int{}
	for range 2 {
		for _, key := range []any{"a", "b", 1} {
			if got := m.Of(key, func() any { made[key]++; return key }); got != key {
				t.Errorf("%v is %v", key, got)
			}
		}
	}
	if !maps.Equal(made, map[any]int{"a": 1, "b": 1, 1: 1}) {
		t.Errorf("made %v", made)
	}
}

// Live copies what it is given, counts, and tells of essential changes.
func TestLive(t *testing.T) {
	live := new(Live)
	if b, version, essence := live.Body(); b != nil || version != 0 || essence != 0 {
		t.Errorf("got %v, %d, %d before there is anything", b, version, essence)
	}
	raw := []byte(`{"metadata":{"name":"x"}}`)
	b, err := body.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	changed := live.Changed(0)
	live.Set(b, false)
	select {
	case <-changed:
		t.Error("told of a change that is not essential")
	default:
	}
	live.Set(b, true)
	live.Set(nil, true) // counts only
	<-changed
	<-live.Changed(1)
	copy(raw, "spoiled")
	if b, version, essence := live.Body(); b == nil || b.Name != "x" || version != 3 || essence != 2 {
		t.Errorf("got %v, %d, %d", b, version, essence)
	}
}
