package indexing

import (
	"hash/maphash"
	"iter"
	"slices"
	"sync"
)

// Owner is who entries of an index come from. An owner has one value for a key at most.
type Owner string

// Writer fills an [Index]. All methods are safe for concurrent use; they wait for each
// other, but not for readers, and readers not for them. Nothing of it survives a restart.
type Writer[K comparable, V any] struct {
	index     Index[K, V]
	equal     func(a, b V) bool
	hashOwner func(Owner) uint64

	mu       sync.Mutex
	editions uint64
	owners   map[Owner][]K // which keys each has
}

// NewWriter makes a writer with an empty index.
func NewWriter[K comparable, V any]() *Writer[K, V] {
	seed := maphash.MakeSeed()
	return newWriter[K, V](
		func(key K) uint64 { return maphash.Comparable(seed, key) },
		func(owner Owner) uint64 { return maphash.String(seed, string(owner)) },
	)
}

func newWriter[K comparable, V any](hash func(K) uint64, hashOwner func(Owner) uint64) *Writer[K, V] {
	w := &Writer[K, V]{equal: equality[V](), hashOwner: hashOwner, owners: map[Owner][]K{}}
	w.index.hash = hash
	return w
}

// Index returns what can be read of the index, always the same.
func (w *Writer[K, V]) Index() *Index[K, V] { return &w.index }

// Len returns the number of keys that have values.
func (w *Writer[K, V]) Len() int { return w.index.Len() }

func (w *Writer[K, V]) origin() any { return &w.index }

// Replace makes entries all that an owner has in the index: new keys are added, values
// of keys that it had are overwritten unless they are equal, and keys that are not among
// the entries are removed (IDX-4). None at all remove the owner. The map is not kept.
//
// It becomes visible all at once, before Replace returns; then readers are woken. It
// costs as much as the owner has had keys, and has now: one to five microseconds for each
// that changes.
func (w *Writer[K, V]) Replace(owner Owner, entries map[K]V) {
	wakeUp(w.replace(owner, entries))
}

// Remove takes all that an owner has out of the index, as Replace does without entries.
func (w *Writer[K, V]) Remove(owner Owner) {
	wakeUp(w.replace(owner, nil))
}

// Clear takes everything out of the index, at once. It costs nothing, unless there are
// readers: then as much as there are keys.
func (w *Writer[K, V]) Clear() {
	wakeUp(w.clear())
}

// wakeUp is not to be called with locks held.
func wakeUp(rounds []*round) {
	for _, r := range rounds {
		r.wakeUp()
	}
}

func (w *Writer[K, V]) replace(owner Owner, entries map[K]V) []*round {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.begin(owner)
	for _, key := range w.owners[owner] {
		if _, stays := entries[key]; !stays {
			u.remove(key)
		}
	}
	for key, value := range entries {
		if reflexive(key) {
			u.put(key, value)
		}
	}
	if len(u.changes) == 0 {
		return nil
	}
	if keys := stored(entries); len(keys) > 0 {
		w.owners[owner] = keys
	} else {
		delete(w.owners, owner)
	}
	return w.publish(u.next, slices.Values(u.changes))
}

// stored are the keys of an owner's entries that can be in an index.
func stored[K comparable, V any](entries map[K]V) []K {
	keys := make([]K, 0, len(entries))
	for key := range entries {
		if reflexive(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (w *Writer[K, V]) clear() []*round {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.index.now()
	if before.keys == 0 {
		return nil
	}
	w.owners = map[Owner][]K{}
	w.editions++
	return w.publish(state[K, V]{version: w.editions}, allOf(before))
}

// allOf is what a state has, as changes.
func allOf[K comparable, V any](s state[K, V]) iter.Seq[change[K]] {
	return func(yield func(change[K]) bool) {
		s.root.each(func(e *entry[K, bucket[V]]) bool { return yield(change[K]{e.key, true}) })
	}
}

// publish makes a state visible, and tells whom to wake.
func (w *Writer[K, V]) publish(s state[K, V], changes iter.Seq[change[K]]) []*round {
	w.index.state.Store(&s)
	return w.index.notes.changed(s.version, changes)
}

// update is the next state in the making, in which one owner's entries are replaced.
type update[K comparable, V any] struct {
	next    state[K, V]
	owner   Owner
	changes []change[K] // each key once at most

	byKey   edition[K, bucket[V]]
	byOwner edition[Owner, V]
	equal   func(a, b V) bool
}

func (w *Writer[K, V]) begin(owner Owner) *update[K, V] {
	w.editions++
	u := &update[K, V]{
		next:    w.index.now(),
		owner:   owner,
		byKey:   edition[K, bucket[V]]{w.editions, w.index.hash},
		byOwner: edition[Owner, V]{w.editions, w.hashOwner},
		equal:   w.equal,
	}
	u.next.version = w.editions
	return u
}

// put adds a key, or overwrites what the owner has under it with what is not equal.
func (u *update[K, V]) put(key K, value V) {
	found := u.next.root.find(u.byKey.hash(key), key)
	b := bucket[V]{owner: u.owner, value: value}
	if found == nil {
		u.next.keys++
	} else {
		if old, ok := found.value.of(u.owner, u.byOwner.hash); ok && u.equal(old, value) {
			return
		}
		b = found.value.with(u.byOwner, u.owner, value)
	}
	u.next.root = u.byKey.put(u.next.root, key, b)
	u.changes = append(u.changes, change[K]{key, found == nil})
}

// remove takes out a key that the owner has.
func (u *update[K, V]) remove(key K) {
	b, left := u.next.root.find(u.byKey.hash(key), key).value.without(u.byOwner, u.owner)
	if left {
		u.next.root = u.byKey.put(u.next.root, key, b)
	} else {
		u.next.root = u.byKey.remove(u.next.root, key)
		u.next.keys--
	}
	u.changes = append(u.changes, change[K]{key, !left})
}
