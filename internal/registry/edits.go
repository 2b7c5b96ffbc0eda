package registry

import "reflect"

// Edits collects what the handlers of a cycle want to change on their object.
type Edits struct{ list []Edit }

// Edit changes a typed copy of the object in place. It may run several times,
// each time on a fresher copy.
type Edit struct {
	Type  reflect.Type
	Apply func(object any)
}

// Add appends an edit.
func (e *Edits) Add(edit Edit) { e.list = append(e.list, edit) }

// List returns the edits in order.
func (e *Edits) List() []Edit { return e.list }
