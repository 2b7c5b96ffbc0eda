package indexing

import "slices"

// The shape of a trie. Each level takes some bits of the hash, the lowest first. Leaves
// hold so many entries that the few branches above them stay in the caches of the CPU,
// and looking for one costs the two misses that it costs in a Go map.
const (
	levelBits = 4
	hashBits  = 64
	leafSize  = 32 // one with more becomes a branch, unless the bits are used up
	tagged    = 24 // of its entries, for then a leaf is a line of the cache, without its entries
	mergeSize = 8  // a branch with as few becomes a leaf; fewer, lest one goes back and forth
)

// node is a part of a persistent map, a hash array mapped trie: nobody changes a node
// that others can see. Nil is the empty map. A node is a leaf, which has an entry at
// least, or a branch, which has more than mergeSize in all that is below it.
type node[K comparable, V any] struct {
	made    uint64        // the edition that it belongs to, which may change it
	branch  *branch[K, V] // nil: a leaf
	tags    [tagged]uint8 // of a leaf, bits of the hash that tell most of the first entries apart
	entries []entry[K, V] // of a leaf, in no particular order
}

type branch[K comparable, V any] struct {
	size  int                         // how many entries are below
	nodes [1 << levelBits]*node[K, V] // by the bits of the hash
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func slot(hash uint64, shift int) uint64 { return hash >> shift % (1 << levelBits) }

func tagOf(hash uint64) uint8 { return uint8(hash >> (hashBits - 8)) }

// find returns the entry of a key, or nil. It is not to be changed.
func (n *node[K, V]) find(hash uint64, key K) *entry[K, V] {
	for shift := 0; n != nil; shift += levelBits {
		if n.branch == nil {
			if i := n.place(tagOf(hash), key); i >= 0 {
				return &n.entries[i]
			}
			return nil
		}
		n = n.branch.nodes[slot(hash, shift)]
	}
	return nil
}

// place is where a leaf has a key, or -1.
func (n *node[K, V]) place(tag uint8, key K) int {
	for i := range n.entries {
		if (i >= tagged || n.tags[i] == tag) && n.entries[i].key == key {
			return i
		}
	}
	return -1
}

// size is how many entries there are.
func (n *node[K, V]) size() int {
	switch {
	case n == nil:
		return 0
	case n.branch != nil:
		return n.branch.size
	}
	return len(n.entries)
}

// each yields the entries, which are not to be changed, until it is told to stop.
func (n *node[K, V]) each(yield func(*entry[K, V]) bool) bool {
	if n == nil {
		return true
	}
	for i := range n.entries {
		if !yield(&n.entries[i]) {
			return false
		}
	}
	if n.branch != nil {
		for _, below := range n.branch.nodes {
			if !below.each(yield) {
				return false
			}
		}
	}
	return true
}

// first returns the entry that each yields first; there must be one.
func (n *node[K, V]) first() (found *entry[K, V]) {
	n.each(func(e *entry[K, V]) bool { found = e; return false })
	return found
}

// edition makes new maps out of old ones. The nodes that it has made are its own until
// the maps are shown to others: it changes them in place, so that many changes at once
// copy each node once. It must not be used any more then.
type edition[K comparable, V any] struct {
	number uint64 // of no other edition of the same maps, and not zero
	hash   func(K) uint64
}

// put returns a map with a value under a key, new or instead of another.
func (e edition[K, V]) put(n *node[K, V], key K, value V) *node[K, V] {
	return e.putAt(n, 0, e.hash(key), entry[K, V]{key, value})
}

func (e edition[K, V]) putAt(n *node[K, V], shift int, hash uint64, added entry[K, V]) *node[K, V] {
	switch {
	case n == nil:
		n = &node[K, V]{made: e.number}
	case n.branch != nil:
		n = e.own(n, 0)
		below := &n.branch.nodes[slot(hash, shift)]
		n.branch.size -= (*below).size()
		*below = e.putAt(*below, shift+levelBits, hash, added)
		n.branch.size += (*below).size()
		return n
	}
	tag := tagOf(hash)
	if i := n.place(tag, added.key); i >= 0 {
		n = e.own(n, 0)
		n.entries[i] = added
		return n
	}
	if len(n.entries) >= leafSize && shift < hashBits {
		return e.putAt(e.split(n, shift), shift, hash, added)
	}
	n = e.own(n, 1)
	n.add(tag, added)
	return n
}

// add makes an entry one more of an own leaf.
func (n *node[K, V]) add(tag uint8, added entry[K, V]) {
	if len(n.entries) < tagged {
		n.tags[len(n.entries)] = tag
	}
	n.entries = append(n.entries, added)
}

// split makes a branch of a leaf.
func (e edition[K, V]) split(n *node[K, V], shift int) *node[K, V] {
	to := e.branch()
	for _, moved := range n.entries {
		e.putAt(to, shift, e.hash(moved.key), moved)
	}
	return to
}

// merge makes a leaf of a branch.
func (e edition[K, V]) merge(n *node[K, V]) *node[K, V] {
	leaf := &node[K, V]{made: e.number, entries: make([]entry[K, V], 0, n.size())}
	n.each(func(moved *entry[K, V]) bool {
		leaf.add(tagOf(e.hash(moved.key)), *moved)
		return true
	})
	return leaf
}

// remove returns a map without a key. Without the last one it is nil.
func (e edition[K, V]) remove(n *node[K, V], key K) *node[K, V] {
	hash := e.hash(key)
	if n.find(hash, key) == nil {
		return n
	}
	return e.removeAt(n, 0, hash, key)
}

// removeAt takes out a key that is there.
func (e edition[K, V]) removeAt(n *node[K, V], shift int, hash uint64, key K) *node[K, V] {
	if n.branch != nil {
		n = e.own(n, 0)
		below := &n.branch.nodes[slot(hash, shift)]
		*below = e.removeAt(*below, shift+levelBits, hash, key)
		if n.branch.size--; n.branch.size <= mergeSize {
			return e.merge(n)
		}
		return n
	}
	if len(n.entries) == 1 {
		return nil
	}
	i := n.place(tagOf(hash), key)
	n = e.own(n, 0)
	n.entries = slices.Delete(n.entries, i, i+1)
	if i < tagged {
		copy(n.tags[i:], n.tags[i+1:])
		if len(n.entries) >= tagged { // one that had no tag gets one
			n.tags[tagged-1] = tagOf(e.hash(n.entries[tagged-1].key))
		}
	}
	return n
}

// own returns a node, or a copy of it, that may be changed. That of a leaf has room
// for more.
func (e edition[K, V]) own(n *node[K, V], more int) *node[K, V] {
	switch {
	case n.made == e.number:
		return n
	case n.branch != nil:
		m := e.branch()
		*m.branch = *n.branch
		return m
	}
	m := &node[K, V]{made: e.number, tags: n.tags}
	m.entries = append(make([]entry[K, V], 0, len(n.entries)+more), n.entries...)
	return m
}

// branch makes an empty one, in one block of memory.
func (e edition[K, V]) branch() *node[K, V] {
	block := new(struct {
		node  node[K, V]
		below branch[K, V]
	})
	block.node.made, block.node.branch = e.number, &block.below
	return &block.node
}
