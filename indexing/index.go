package indexing

import (
	"context"
	"iter"
	"sync/atomic"
)

// Index is what can be read of an index. It comes from [Writer.Index]; the zero one is
// empty for good. All methods are safe for concurrent use, take no locks, and keep
// nobody from writing. Nothing of it survives a restart.
type Index[K comparable, V any] struct {
	hash  func(K) uint64
	state atomic.Pointer[state[K, V]] // nil: nothing yet
	notes notes[K]
}

// state is what an index holds at one time. It never changes.
type state[K comparable, V any] struct {
	version uint64 // that of a later state is higher
	root    *node[K, bucket[V]]
	keys    int
}

// now returns the newest state.
func (x *Index[K, V]) now() (s state[K, V]) {
	if newest := x.state.Load(); newest != nil {
		s = *newest
	}
	return s
}

// find returns the values of a key in a state, or nil.
func (x *Index[K, V]) find(s state[K, V], key K) *bucket[V] {
	if s.root == nil {
		return nil
	}
	if e := s.root.find(x.hash(key), key); e != nil {
		return &e.value
	}
	return nil
}

// Get returns the values of a key, in any order; none if there is no such key.
func (x *Index[K, V]) Get(key K) iter.Seq[V] { return View[K, V]{index: x}.Get(key) }

// First returns one of the values of a key, and false if there is none. It is the
// same one as long as the key's values do not change; another process may choose
// another one. It allocates nothing, unless K has pointers other than texts in it.
func (x *Index[K, V]) First(key K) (V, bool) { return View[K, V]{index: x}.First(key) }

// Has tells whether a key has any values. It allocates nothing, unless K has pointers
// other than texts in it.
func (x *Index[K, V]) Has(key K) bool { return View[K, V]{index: x}.Has(key) }

// Keys returns the keys that have values, each once, in any order.
func (x *Index[K, V]) Keys() iter.Seq[K] { return View[K, V]{index: x}.Keys() }

// All returns all values with their keys. A key comes as often as it has values, and
// its values in a row; the order is any otherwise.
func (x *Index[K, V]) All() iter.Seq2[K, V] { return View[K, V]{index: x}.All() }

// Len returns the number of keys that have values.
func (x *Index[K, V]) Len() int { return View[K, V]{index: x}.Len() }

// Tracked returns a view of the index through which reading is noted by the [Reader]
// in the context, if there is one that is for this index.
func (x *Index[K, V]) Tracked(ctx context.Context) View[K, V] {
	reader, _ := ctx.Value(readerKey{}).(*Reader)
	if reader != nil && !reader.isFor(x) {
		reader = nil
	}
	return View[K, V]{index: x, reader: reader}
}

func (x *Index[K, V]) origin() any { return x }

// View is an [Index] as one reader sees it, made by [Index.Tracked]. It shows the
// same, and is as safe for concurrent use. It can be kept.
//
// What is read is noted when it is read: by an iterator each time that somebody ranges
// over it, not when it is made, and whole, however early the loop ends.
type View[K comparable, V any] struct {
	index  *Index[K, V]
	reader *Reader // nil: nothing is noted
}

// Get is like [Index.Get]. It depends on the values of that key, and on whether there
// are any.
func (v View[K, V]) Get(key K) iter.Seq[V] {
	return func(yield func(V) bool) { v.each(key, yield) }
}

func (v View[K, V]) each(key K, yield func(V) bool) {
	if b := v.index.find(v.read(fact[K]{values, key}), key); b != nil {
		b.each(yield)
	}
}

// First is like [Index.First]. It depends on all values of that key.
func (v View[K, V]) First(key K) (value V, ok bool) {
	if b := v.index.find(v.read(fact[K]{values, key}), key); b != nil {
		return b.first(), true
	}
	return value, false
}

// Has is like [Index.Has]. It depends on whether the key is there, not on its values.
func (v View[K, V]) Has(key K) bool {
	return v.index.find(v.read(fact[K]{presence, key}), key) != nil
}

// Keys is like [Index.Keys]. It depends on which keys there are, not on their values.
func (v View[K, V]) Keys() iter.Seq[K] {
	return func(yield func(K) bool) {
		v.read(fact[K]{kind: keySet}).root.each(func(e *entry[K, bucket[V]]) bool { return yield(e.key) })
	}
}

// All is like [Index.All]. It depends on everything in the index.
func (v View[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		v.read(fact[K]{kind: everything}).root.each(func(e *entry[K, bucket[V]]) bool {
			return e.value.each(func(value V) bool { return yield(e.key, value) })
		})
	}
}

// Len is like [Index.Len]. It depends on which keys there are.
func (v View[K, V]) Len() int { return v.read(fact[K]{kind: keySet}).keys }

// read returns the newest state, of which a fact is read, and notes that.
func (v View[K, V]) read(f fact[K]) state[K, V] {
	if v.reader == nil || !f.changes() {
		return v.index.now()
	}
	return readNoted(v.reader, v.index, f)
}
