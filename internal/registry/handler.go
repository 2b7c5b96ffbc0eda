// Package registry holds handlers in their erased form: what a user declared with
// package on, without type parameters, so that the engine need not be generic.
package registry

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/body"
)

// Kind tells which cause a handler is declared for.
type Kind string

// The kinds of handlers. A field handler has no cause of its own: it is a
// candidate whenever its field has changed (CHG-6).
const (
	Create Kind = "create"
	Update Kind = "update"
	Delete Kind = "delete"
	Resume Kind = "resume"
	Field  Kind = "field"
	Event  Kind = "event"
)

// ErrorMode tells what an error without instructions of its own means (OUT-2).
type ErrorMode int

// The error modes. Unset is Temporary for change handlers and Ignored for event
// handlers (OUT-3).
const (
	ErrorsUnset ErrorMode = iota
	ErrorsIgnored
	ErrorsTemporary
	ErrorsPermanent
)

// Selector names a resource of the API. The zero Selector stands for the
// resource that the scheme knows for the handler's Go type.
type Selector struct {
	schema.GroupVersion
	Name string // plural, singular, short name or kind
}

// Empty tells whether the selector leaves the choice to the scheme.
func (s Selector) Empty() bool { return s.Name == "" }

// String returns the name as kubectl would take it, such as databases.v1.example.com.
func (s Selector) String() string {
	text := s.Name + "." + s.Version
	if s.Group != "" {
		text += "." + s.Group
	}
	return text
}

// Criterion is a filter on one label or annotation.
type Criterion struct {
	Key   string
	Match filters.Criterion
}

// Handler is one registration.
type Handler struct {
	Kind     Kind
	ID       string
	Type     reflect.Type // of T: a pointer to a struct
	Selector Selector

	Labels      []Criterion
	Annotations []Criterion
	When        func(context.Context, *Call) (bool, error)
	Field       diff.Path
	Value       filters.Criterion
	Old, New    filters.Criterion

	Retries  int           // attempts at most; negative: no limit
	Timeout  time.Duration // over all attempts; zero: no limit
	Backoff  time.Duration // negative: the setting
	Errors   ErrorMode
	Deleted  bool // resume handlers: also for objects being deleted
	Optional bool // delete handlers: do not hold the object
	Param    any

	Invoke func(context.Context, *Call) error
	Func   uintptr // the function's code, to tell the same function from another one
	Source string  // file:line of the registration
}

// Name is how the handler is named in logs and errors.
func (h *Handler) Name() string { return string(h.Kind) + " handler " + h.ID }

// Call is one invocation of a handler: everything that its typed argument is
// made from. It belongs to that invocation alone.
type Call struct {
	Body     *body.Body
	Identity bool // the body knows only who the object was
	Resource schema.GroupVersionResource
	Type     string // of the event: listed, added, modified, deleted
	Reason   string

	Old  []byte    // JSON of the last-handled essence; nil if there is none
	Diff diff.Diff // of the essences, reduced to the handler's field
	// The values at the handler's field.
	OldValue, NewValue any
	HadOld, HasNew     bool

	Retry   int
	Started time.Time
	Param   any
	Log     *slog.Logger
	Patch   *Edits
	Result  any // what the handler stored with SetResult
}

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

// DecodeError says that an object does not decode into a handler's Go type.
type DecodeError struct {
	Type reflect.Type
	Err  error
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("object does not decode into %s: %v", e.Type, e.Err)
}

// Unwrap returns what the decoder said.
func (e *DecodeError) Unwrap() error { return e.Err }
