package engine

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/kopf-go/kopf/daemons"
	"github.com/kopf-go/kopf/internal/outcome"
	"github.com/kopf-go/kopf/internal/registry"
)

// ErrExiting is the cause of the end of a handler's context when the operator stops.
var ErrExiting = daemons.ErrExiting

// timeoutError is the cause of the end of a handler's context at its timeout.
type timeoutError struct{ handler *registry.Handler }

func (e *timeoutError) Error() string {
	return fmt.Sprintf("timeout of %s is over", e.handler.Timeout)
}

// Timeout tells net-style callers what happened.
func (e *timeoutError) Timeout() bool { return true }

// Is makes it a context.DeadlineExceeded.
func (e *timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// some names some of the user's functions that run.
func (e *Engine) some(most int) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	names := e.names()
	return names[:min(most, len(names))]
}

// calling is a function of the user's that runs.
type calling struct {
	object  *object
	handler *registry.Handler
}

// names are those of the user's functions that run. The caller holds the lock.
func (e *Engine) names() (names []string) {
	for _, c := range e.calls {
		names = append(names, c.String())
	}
	slices.Sort(names)
	return names
}

// call runs a user's function in a term; nil: in none, for it is called on all replicas.
// Whoever stops the operator can see which ones run.
func (e *Engine) call(ctx context.Context, t *term, o *object, h *registry.Handler, c *registry.Call) (err error) {
	e.mu.Lock()
	e.calls[c] = calling{o, h}
	e.mu.Unlock()
	meter := o.kind.meterOf(h)
	began := meter.Begin()
	defer func() {
		meter.End(began)
		e.mu.Lock()
		delete(e.calls, c)
		e.mu.Unlock()
		if p := recover(); p != nil {
			err = &outcome.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	if t != nil {
		c.May = t.enters
	}
	return h.Invoke(ctx, c)
}
