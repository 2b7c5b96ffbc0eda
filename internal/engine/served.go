package engine

import (
	"maps"
	"slices"
	"sync"
)

// spaces are the namespaces that are served at the moment, for others to follow. It is safe
// for concurrent use.
type spaces struct {
	mu      sync.Mutex
	names   []string
	known   bool          // those that there were at the start are among them
	changed chan struct{} // is closed, and replaced, when there are others
}

func newSpaces() *spaces { return &spaces{changed: make(chan struct{})} }

func (s *spaces) update(what func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what()
	close(s.changed)
	s.changed = make(chan struct{})
}

// are takes note of what is served.
func (s *spaces) are(namespaces map[string]bool) {
	names := slices.AppendSeq([]string{}, maps.Keys(namespaces))
	slices.Sort(names)
	s.update(func() { s.names = names })
}

// complete takes note that all is known that there was at the start.
func (s *spaces) complete() { s.update(func() { s.known = true }) }

// Served returns the namespaces that are served at the moment, sorted, and a channel that is
// closed when there are others. nil: it is not known yet which there are; an operator that is
// for the whole cluster has none. It is safe for concurrent use.
func (e *Engine) Served() (names []string, changed <-chan struct{}) {
	s := e.spaces
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known {
		return nil, s.changed
	}
	return slices.AppendSeq([]string{}, slices.Values(s.names)), s.changed
}
