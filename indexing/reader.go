package indexing

import (
	"context"
	"slices"
	"sync"
)

// Reader notes what is read through [Index.Tracked], of one index or of several, and
// is woken when something of that has changed. It is safe for concurrent use. Nothing
// of it survives a restart.
//
// It is woken exactly for what the views' methods say that they depend on: not for
// other keys, and not for equal values that were written again. A key that was not
// there when it was read is waited for like any other. No change is missed that comes
// after the reading, or at the same time; one that was seen already wakes nobody.
//
// It is woken once: with that, all that was noted until then is given up, and it sleeps
// until something else is read through it, and changes.
//
// A note costs about 400 bytes and some hundred nanoseconds, and the same fact is noted
// once: one who reads most of an index does better with All than with many keys. Notes
// stay until they are given up: a reader that nobody needs any more has to be closed.
type Reader struct {
	wake    func()
	indices []any // empty: all

	mu     sync.Mutex
	round  *round // since it was woken, or has forgotten; nil: nothing is noted
	read   bool
	closed bool
}

// round is what a reader notes until it is woken, or forgets.
type round struct {
	reader *Reader
	drops  []func() // each takes one note out, of its index; under the lock of the reader
}

// AnyIndex is an [Index], or the [Writer] of one, whatever its keys and values are.
type AnyIndex interface{ origin() any }

// NewReader makes a reader for some indices, or, if none are named, for all. Nothing
// is noted of others.
//
// The function wake is called by those who write to the indices, in their goroutines,
// when the change is visible, and without locks: it may read, write, and forget. It
// must neither block nor panic, for others may be waiting to be woken after it.
func NewReader(wake func(), indices ...AnyIndex) *Reader {
	r := &Reader{wake: wake}
	for _, index := range indices {
		r.indices = append(r.indices, index.origin())
	}
	return r
}

func (r *Reader) isFor(index any) bool {
	return len(r.indices) == 0 || slices.Contains(r.indices, index)
}

type readerKey struct{}

// WithReader returns a context in which a reader notes what is read, instead of
// another one that may be in the parent. With nil, nothing is noted.
func WithReader(ctx context.Context, reader *Reader) context.Context {
	return context.WithValue(ctx, readerKey{}, reader)
}

// Forget gives up what was noted, after which nobody is woken for it any more, but for
// one who is about to be: a call of wake that has begun elsewhere may come after Forget
// has returned. What is read later is noted anew, also by iterators that were made
// before. The cost is that of the notes.
func (r *Reader) Forget() {
	r.mu.Lock()
	forgotten := r.round
	r.round, r.read = nil, false
	r.mu.Unlock()
	forgotten.drop()
}

// Close is to forget for good: nothing is noted any more, though views of the reader can
// still be read. It may be called repeatedly, and in wake.
func (r *Reader) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.Forget()
}

// Read tells whether anything was read through the reader since it was made, or has
// forgotten; being woken does not count as forgetting.
func (r *Reader) Read() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read
}

// readNoted reads a fact, and notes that.
func readNoted[K comparable, V any](r *Reader, index *Index[K, V], f fact[K]) state[K, V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return index.now()
	}
	r.read = true
	if r.round == nil {
		r.round = &round{reader: r}
	}
	noting := r.round
	read, added := index.note(f, noting)
	if added {
		noting.drops = append(noting.drops, func() { index.notes.drop(f, noting) })
	}
	return read
}

// wakeUp wakes the reader, unless it was woken for this round already, or has forgotten.
func (r *round) wakeUp() {
	r.reader.mu.Lock()
	current := r.reader.round == r
	if current {
		r.reader.round = nil
	}
	r.reader.mu.Unlock()
	if current {
		r.drop()
		r.reader.wake()
	}
}

// drop takes all notes out. It is for the one who has ended the round. The reader is
// not locked, so that reading need not wait for it.
func (r *round) drop() {
	if r == nil {
		return
	}
	for _, drop := range r.drops {
		drop()
	}
}
