package registry

import "sync"

// Memos are what handlers remember of one object, or of the operator, in memory. They are
// safe for concurrent use; the zero value is empty.
type Memos struct {
	// Operator has those of the operator; nil: these are.
	Operator *Memos

	mu    sync.Mutex
	slots []*slot // few, so that a map would cost more than it saves
}

type slot struct {
	key   any
	mu    sync.Mutex
	made  bool
	value any
}

// Of returns what is kept under a key, which init makes if there is nothing yet. init may
// ask for other memos of the same object, but not for the one that it makes. If it
// panics, there is still nothing.
func (m *Memos) Of(key any, init func() any) any {
	s := m.slot(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.made {
		s.value = init()
		s.made = true
	}
	return s.value
}

func (m *Memos) slot(key any) *slot {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.slots {
		if s.key == key {
			return s
		}
	}
	s := &slot{key: key}
	m.slots = append(m.slots, s)
	return s
}
