package indexing

import (
	"iter"
	"sync"
	"sync/atomic"
)

// fact is something about an index that can be read, and change.
type fact[K comparable] struct {
	kind factKind
	key  K // of values and presence
}

type factKind uint8

const (
	values     factKind = iota // what a key's values are
	presence                   // whether a key is there
	keySet                     // which keys are there
	everything                 // all of it
)

// changes tells whether a fact can ever change: a key that does not equal itself is
// never there, nor could a note of it be found.
func (f fact[K]) changes() bool { return reflexive(f.key) }

// notes are who has read which facts of an index.
type notes[K comparable] struct {
	// count is how many there are. Readers raise it before they look at the state,
	// and writers look at it after they have made theirs visible: one sees the other.
	count atomic.Int64

	mu     sync.Mutex
	rounds map[fact[K]]map[*round]uint64 // with the version that was read first
}

// note reads the state, and notes that a round has read a fact of it. It reports whether
// the note is new. Both happen under the lock: the version that is noted is the one
// that was read, so that nobody is woken for a change that was seen already.
func (x *Index[K, V]) note(f fact[K], r *round) (read state[K, V], added bool) {
	n := &x.notes
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, noted := n.rounds[f][r]; noted {
		return x.now(), false
	}
	n.count.Add(1)
	read = x.now()
	if n.rounds == nil {
		n.rounds = map[fact[K]]map[*round]uint64{}
	}
	if n.rounds[f] == nil {
		n.rounds[f] = map[*round]uint64{}
	}
	n.rounds[f][r] = read.version
	return read, true
}

// drop takes a note out, if it is there.
func (n *notes[K]) drop(f fact[K], r *round) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, noted := n.rounds[f][r]; noted {
		n.remove(f, r)
	}
}

func (n *notes[K]) remove(f fact[K], r *round) {
	n.count.Add(-1)
	delete(n.rounds[f], r)
	if len(n.rounds[f]) == 0 {
		delete(n.rounds, f)
	}
}

// change is what an update has done to a key.
type change[K comparable] struct {
	key        K
	cameOrWent bool // not only its values have changed, but it was not there before, or is not now
}

// lockedFor is for how many keys the notes are looked through before others get the
// lock, so that an update of many does not keep them from reading.
const lockedFor = 100

// changed returns whom to wake for an update, some of them repeatedly, after it has
// become visible. What is returned is not noted any more.
func (n *notes[K]) changed(version uint64, changes iter.Seq[change[K]]) (wake []*round) {
	if n.count.Load() == 0 {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	take := func(f fact[K]) {
		for r, read := range n.rounds[f] {
			if read < version {
				wake = append(wake, r)
				n.remove(f, r)
			}
		}
	}
	done, cameOrWent := 0, false
	for c := range changes {
		take(fact[K]{values, c.key})
		if c.cameOrWent {
			cameOrWent = true
			take(fact[K]{presence, c.key})
		}
		if done++; done%lockedFor == 0 {
			n.mu.Unlock()
			n.mu.Lock()
		}
	}
	if done > 0 {
		take(fact[K]{kind: everything})
	}
	if cameOrWent {
		take(fact[K]{kind: keySet})
	}
	return wake
}
