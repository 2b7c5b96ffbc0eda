package admission

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/kopf-go/kopf/internal/outcome"
	"github.com/kopf-go/kopf/internal/registry"
)

// limit is the time that handlers have together. It ends a little before the API server
// gives up, so that the client is told who was slow.
type limit struct {
	handlers time.Duration // zero: none
	patience time.Duration // with handlers whose context has ended
}

const leastMargin = 100 * time.Millisecond

func newLimit(timeout time.Duration) limit {
	if timeout <= 0 {
		return limit{patience: leastMargin}
	}
	margin := min(max(timeout/20, leastMargin), timeout/2)
	return limit{handlers: timeout - margin, patience: margin / 2}
}

func (l limit) apply(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.handlers == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, l.handlers)
}

// lateError is what becomes of a handler that has not answered in time, or that there was no
// time left for.
type lateError struct {
	handler *registry.Handler
	limit   time.Duration // zero: the client has left
	called  bool
}

func (e *lateError) Error() string {
	switch {
	case !e.called:
		return e.handler.Name() + " was not called, because no time was left"
	case e.limit == 0:
		return e.handler.Name() + " did not answer before the request ended"
	}
	return fmt.Sprintf("%s did not answer within %s", e.handler.Name(), e.limit)
}

// call calls a handler. One that does not return when its context ends is left behind: it
// has nothing that others use.
func (l limit) call(ctx context.Context, h *registry.Handler, call *registry.Call) error {
	if ctx.Err() != nil {
		return &lateError{h, l.handlers, false}
	}
	done := make(chan error, 1)
	go func() {
		err := errors.New(h.Name() + " has ended its goroutine")
		defer func() {
			if p := recover(); p != nil {
				err = &outcome.PanicError{Value: p, Stack: debug.Stack()}
			}
			done <- err
		}()
		err = h.Invoke(ctx, call)
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		patience := time.NewTimer(l.patience)
		defer patience.Stop()
		select {
		case err = <-done:
		case <-patience.C:
			return &lateError{h, l.handlers, true}
		}
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return &lateError{h, l.handlers, true}
	}
	return err
}
