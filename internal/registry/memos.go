package registry

import "sync"

// Memos are what handlers remember of one object, or of the operator, in memory. They are
// safe for concurrent use; the zero value is empty.
type Memos struct {
	// Operator has those of the operator; nil: these are.
	Operator *Memos

	mu     sync.Mutex
	values map[any]any
}

// Of returns what is kept under a key, which init makes if there is nothing yet. init may
// ask for other memos of the same object, but not for the one that it makes.
func (m *Memos) Of(key any, init func() any) any {
	m.mu.Lock()
	slot, ok := m.values[key].(func() any)
	if !ok {
		if m.values == nil {
			m.values = map[any]any{}
		}
		slot = sync.OnceValue(init)
		m.values[key] = slot
	}
	m.mu.Unlock()
	return slot()
}
