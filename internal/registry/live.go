package registry

import (
	"bytes"
	"sync"

	"github.com/kopf-go/kopf/internal/body"
)

// Live is an object as those see it that work on it for long: always the newest version.
// It keeps no more than the bytes, and copies them, for they may be a part of a long list.
// It is safe for concurrent use; the zero value has no object yet.
type Live struct {
	mu      sync.Mutex
	raw     []byte
	version int // counts what was set
	essence int // counts essential changes
	changed chan struct{}
}

// Set takes a newer version; essential tells whether its essence is another one. A nil
// body only counts: the object is kept elsewhere.
func (l *Live) Set(b *body.Body, essential bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b != nil {
		l.raw = bytes.Clone(b.Raw())
	}
	l.version++
	if !essential {
		return
	}
	l.essence++
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Clear forgets the object, which nobody needs now.
func (l *Live) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.raw = nil
}

// Versions counts what was set, and how often that was an essential change.
func (l *Live) Versions() (version, essence int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.version, l.essence
}

// Body is the newest version, with the counts that belong to it; nil: there is none yet.
func (l *Live) Body() (b *body.Body, version, essence int) {
	l.mu.Lock()
	raw := l.raw
	version, essence = l.version, l.essence
	l.mu.Unlock()
	if raw == nil {
		return nil, version, essence
	}
	b, err := body.Parse(raw)
	if err != nil { // it was parsed before
		return nil, version, essence
	}
	return b, version, essence
}

// Changed returns a channel that is closed when there is another essence than the one
// that is known.
func (l *Live) Changed(known int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	changed := l.changed
	if known != l.essence {
		changed = make(chan struct{})
		close(changed)
	}
	return changed
}
