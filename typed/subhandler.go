package typed

import (
	"context"
	"errors"

	"github.com/kopf-go/kopf/internal/registry"
)

// Parent is a handler's argument in which sub-handlers can be declared: a Change or
// a FieldChange.
type Parent[T Object] interface {
	parentOf(T) *registry.Call
}

func (c *Change[T]) parentOf(T) *registry.Call         { return c.call }
func (c *FieldChange[T, V]) parentOf(T) *registry.Call { return c.call }

// Outcome is what a sub-handler has come to; see on.Execute.
type Outcome struct {
	// ID is the id that it was declared with.
	ID string
	// Finished tells that it will not be called again for this change.
	Finished bool
	// Err is how it failed, for good or until the next attempt; nil if it has
	// succeeded, and if it was not called yet. Of earlier calls only the text is known.
	Err error
	// Result is what it has stored with SetResult, if it has succeeded just now.
	Result any
}

var errNotRunning = errors.New("sub-handlers can be declared only in a handler that the operator has called")

// Declare adds a sub-handler to those of a call. Package on uses it. An argument that
// a test has made has no call, and nothing will be executed.
func Declare[T Object](p Parent[T], h *registry.Handler, mistakes []error) {
	var none T
	if call := p.parentOf(none); call != nil && call.Subhandlers != nil {
		call.Subhandlers.Declare(h, mistakes...)
	}
}

// Execute runs the sub-handlers of a call. Package on uses it.
func Execute[T Object](ctx context.Context, p Parent[T]) ([]Outcome, error) {
	var none T
	call := p.parentOf(none)
	if call == nil || call.Subhandlers == nil {
		return nil, errNotRunning
	}
	ran, err := call.Subhandlers.Execute(ctx)
	outcomes := make([]Outcome, len(ran))
	for i, o := range ran {
		outcomes[i] = Outcome(o)
	}
	return outcomes, err
}
