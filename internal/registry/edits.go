package registry

import (
	"reflect"
	"sync"
)

// Edit is one thing that a handler wants changed on its object: one of a function
// on a typed copy, a merge patch, or the operations of a JSON patch. It is a value,
// which can be kept, and it may be applied several times, each time to a fresher
// copy of the object.
type Edit struct {
	Handler string // the id of the one who asked

	Type       reflect.Type // of the object that Apply gets
	Apply      func(object any)
	Merge      []byte // RFC 7396, a JSON object
	Operations []byte // RFC 6902, a JSON array

	// Err says that what was asked for does not encode. It is reported when the edit
	// is applied, where nobody can miss it.
	Err error
}

// Edits collects what handlers want changed. It is safe for concurrent use; the
// zero value is ready.
type Edits struct {
	handler string
	earlier []Edit

	mu   sync.Mutex
	list []Edit
}

// For returns the edits of one handler, which can see those that e has by now.
func (e *Edits) For(handler string) *Edits {
	return &Edits{handler: handler, earlier: e.All()}
}

// Add appends edits, in the name of the handler that e is for.
func (e *Edits) Add(edits ...Edit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, edit := range edits {
		if edit.Handler == "" {
			edit.Handler = e.handler
		}
		e.list = append(e.list, edit)
	}
}

// List returns what was added, in order.
func (e *Edits) List() []Edit {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.list[:len(e.list):len(e.list)]
}

// Take returns what was added since it was last asked, and forgets it here: it is with
// the other edits of the cycle now.
func (e *Edits) Take() []Edit {
	e.mu.Lock()
	defer e.mu.Unlock()
	taken := e.list
	e.earlier = append(e.earlier[:len(e.earlier):len(e.earlier)], taken...)
	e.list = nil
	return taken
}

// All returns what was there before and what was added, in order.
func (e *Edits) All() []Edit {
	return append(e.earlier[:len(e.earlier):len(e.earlier)], e.List()...)
}
