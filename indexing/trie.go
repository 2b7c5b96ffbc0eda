package indexing

import (
	"math/bits"
	"slices"
)

// Each level of a trie takes so many bits of the hash, the lowest first. Below the
// last level are those whose hashes are the same altogether.
const (
	levelBits = 5
	hashBits  = 64
)

// node is a part of a persistent map, a hash array mapped trie: nobody changes a node
// that others can see. Nil is the empty map. A slot of a node, one for each value of
// its bits of the hash, has nothing in it, an entry, or a node with two entries at
// least. Hence maps with the same keys have the same shape, whatever became of them
// before, but for the order of those with the same hash.
type node[K comparable, V any] struct {
	made    uint64 // the edition that it belongs to, which may change it
	leaves  uint32 // the slots with an entry; of no meaning below the last level
	inner   uint32 // the slots with a node
	entries []entry[K, V]
	nodes   []*node[K, V]
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func slot(hash uint64, shift int) uint32 { return 1 << (hash >> shift & (1<<levelBits - 1)) }

// place is where what is in a slot stands among what is in the others.
func place(slots, slot uint32) int { return bits.OnesCount32(slots & (slot - 1)) }

// find returns the entry of a key, or nil. It is not to be changed.
func (n *node[K, V]) find(hash uint64, key K) *entry[K, V] {
	for shift := 0; n != nil; shift += levelBits {
		at := slot(hash, shift)
		switch {
		case shift >= hashBits:
			if i := n.collision(key); i >= 0 {
				return &n.entries[i]
			}
			return nil
		case n.leaves&at != 0:
			if e := &n.entries[place(n.leaves, at)]; e.key == key {
				return e
			}
			return nil
		case n.inner&at == 0:
			return nil
		}
		n = n.nodes[place(n.inner, at)]
	}
	return nil
}

// collision finds a key below the last level.
func (n *node[K, V]) collision(key K) int {
	return slices.IndexFunc(n.entries, func(e entry[K, V]) bool { return e.key == key })
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
	for _, below := range n.nodes {
		if !below.each(yield) {
			return false
		}
	}
	return true
}

// first returns the entry that each yields first; there must be one.
func (n *node[K, V]) first() *entry[K, V] {
	for len(n.entries) == 0 {
		n = n.nodes[0]
	}
	return &n.entries[0]
}

// single returns the only entry of a map with one, and nil for all others.
func (n *node[K, V]) single() *entry[K, V] {
	if n == nil || len(n.entries) != 1 || len(n.nodes) != 0 {
		return nil
	}
	return &n.entries[0]
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
	if n == nil {
		n = e.make(1)
	}
	return e.putAt(n, 0, e.hash(key), entry[K, V]{key, value})
}

func (e edition[K, V]) putAt(n *node[K, V], shift int, hash uint64, added entry[K, V]) *node[K, V] {
	if shift >= hashBits {
		i := n.collision(added.key)
		if i < 0 {
			n = e.own(n, 1, 0)
			n.entries = append(n.entries, added)
			return n
		}
		n = e.own(n, 0, 0)
		n.entries[i] = added
		return n
	}
	at := slot(hash, shift)
	i, j := place(n.leaves, at), place(n.inner, at)
	switch {
	case n.inner&at != 0:
		below := e.putAt(n.nodes[j], shift+levelBits, hash, added)
		if below == n.nodes[j] {
			return n // changed in place, for both are this edition's own
		}
		n = e.own(n, 0, 0)
		n.nodes[j] = below
	case n.leaves&at == 0:
		n = e.own(n, 1, 0)
		n.leaves |= at
		n.entries = slices.Insert(n.entries, i, added)
	case n.entries[i].key == added.key:
		n = e.own(n, 0, 0)
		n.entries[i] = added
	default:
		other := n.entries[i]
		below := e.pair(shift+levelBits, e.hash(other.key), other, hash, added)
		n = e.own(n, 0, 1)
		n.leaves ^= at
		n.inner |= at
		n.entries = slices.Delete(n.entries, i, i+1)
		n.nodes = slices.Insert(n.nodes, j, below)
	}
	return n
}

// pair makes the node of two entries that share a slot above.
func (e edition[K, V]) pair(shift int, hashA uint64, a entry[K, V], hashB uint64, b entry[K, V]) *node[K, V] {
	atA, atB := slot(hashA, shift), slot(hashB, shift)
	if atA == atB && shift < hashBits {
		n := e.make(0)
		n.inner = atA
		n.nodes = []*node[K, V]{e.pair(shift+levelBits, hashA, a, hashB, b)}
		return n
	}
	n := e.make(2)
	if atA < atB {
		n.entries = append(n.entries, a, b)
	} else {
		n.entries = append(n.entries, b, a)
	}
	n.leaves = atA | atB
	return n
}

// remove returns a map without a key. Without the last one it is nil.
func (e edition[K, V]) remove(n *node[K, V], key K) *node[K, V] {
	if n == nil {
		return nil
	}
	n = e.removeAt(n, 0, e.hash(key), key)
	if len(n.entries) == 0 && len(n.nodes) == 0 {
		return nil
	}
	return n
}

func (e edition[K, V]) removeAt(n *node[K, V], shift int, hash uint64, key K) *node[K, V] {
	if shift >= hashBits {
		if i := n.collision(key); i >= 0 {
			n = e.own(n, 0, 0)
			n.entries = slices.Delete(n.entries, i, i+1)
		}
		return n
	}
	at := slot(hash, shift)
	i, j := place(n.leaves, at), place(n.inner, at)
	if n.inner&at == 0 {
		if n.leaves&at != 0 && n.entries[i].key == key {
			n = e.own(n, 0, 0)
			n.leaves ^= at
			n.entries = slices.Delete(n.entries, i, i+1)
		}
		return n
	}
	below := e.removeAt(n.nodes[j], shift+levelBits, hash, key)
	if last := below.single(); last != nil {
		n = e.own(n, 1, 0)
		n.inner ^= at
		n.leaves |= at
		n.nodes = slices.Delete(n.nodes, j, j+1)
		n.entries = slices.Insert(n.entries, i, *last)
	} else if below != n.nodes[j] {
		n = e.own(n, 0, 0)
		n.nodes[j] = below
	}
	return n
}

// own returns a node, or a copy of it, that may be changed. A copy has room for more.
func (e edition[K, V]) own(n *node[K, V], entries, nodes int) *node[K, V] {
	if n.made == e.number {
		return n
	}
	m := e.make(len(n.entries) + entries)
	m.leaves, m.inner = n.leaves, n.inner
	m.entries = append(m.entries, n.entries...)
	if nodes += len(n.nodes); nodes > 0 {
		m.nodes = append(make([]*node[K, V], 0, nodes), n.nodes...)
	}
	return m
}

// make returns a node with room for entries. Few of them, as most nodes have, are in
// one block with the node, which spares those who look for one a miss of the cache.
func (e edition[K, V]) make(entries int) (n *node[K, V]) {
	switch entries {
	case 0:
		n = &node[K, V]{}
	case 1:
		block := new(struct {
			node[K, V]
			room [1]entry[K, V]
		})
		n, block.entries = &block.node, block.room[:0]
	case 2:
		block := new(struct {
			node[K, V]
			room [2]entry[K, V]
		})
		n, block.entries = &block.node, block.room[:0]
	case 3:
		block := new(struct {
			node[K, V]
			room [3]entry[K, V]
		})
		n, block.entries = &block.node, block.room[:0]
	case 4:
		block := new(struct {
			node[K, V]
			room [4]entry[K, V]
		})
		n, block.entries = &block.node, block.room[:0]
	case 5, 6:
		block := new(struct {
			node[K, V]
			room [6]entry[K, V]
		})
		n, block.entries = &block.node, block.room[:0]
	default:
		n = &node[K, V]{entries: make([]entry[K, V], 0, entries)}
	}
	n.made = e.number
	return n
}
