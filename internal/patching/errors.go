package patching

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// EditError says that what a handler asked for cannot be applied to its object, or
// does not encode.
type EditError struct {
	Handler string // the id
	Index   int    // of the edit in Change.Edits; -1 if it is the handler's result
	Err     error
}

func (e *EditError) Error() string {
	if e.Handler == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("handler %s: %v", e.Handler, e.Err)
}

// Unwrap returns what is wrong.
func (e *EditError) Unwrap() error { return e.Err }

// PanicError is the panic of a function given to Patch.Apply.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("patch function panicked: %v", e.Value) }

// Unwrap returns what the function panicked with, if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

type encodingError struct {
	what string
	err  error
}

func (e *encodingError) Error() string { return fmt.Sprintf("%s does not encode: %v", e.what, e.err) }
func (e *encodingError) Unwrap() error { return e.err }

// AnotherUID recognises the refusal of the precondition that every request has: the object
// was created anew under the same name.
func AnotherUID(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, c := range status.Status().Details.Causes {
		if c.Field == "metadata.uid" {
			return true
		}
	}
	return false
}
