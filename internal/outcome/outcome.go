// Package outcome decides what an attempt of a handler means: success, another
// attempt later, or failure for good. It is pure: time comes in, records go out.
package outcome

import (
	"errors"
	"fmt"
	"time"

	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
)

// RetryError asks for another attempt.
type RetryError struct {
	After time.Duration
	Err   error
}

func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap returns what went wrong.
func (e *RetryError) Unwrap() error { return e.Err }

// PermanentError says that no attempt will succeed.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return e.Err.Error() }

// Unwrap returns what went wrong.
func (e *PermanentError) Unwrap() error { return e.Err }

// PanicError is a panic in a user's function. It counts as a passing failure,
// whatever the handler's error mode: nobody can have meant it.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panicked: %v", e.Value) }

// UnfinishedError is how a handler ends whose sub-handlers have not all come to an
// end: it is called again when the next one of them is due.
type UnfinishedError struct{ Delay time.Duration }

func (e *UnfinishedError) Error() string { return "sub-handlers are not finished" }

// Outcome is what an attempt, or the refusal of one, came to.
type Outcome struct {
	Final bool          // no attempt follows
	Delay time.Duration // until the next one, if it is not final
	Err   error         // nil: success, perhaps in spite of Ignored, or Waiting
	// Ignored is an error that counts as success (OUT-2).
	Ignored error
	// Waiting tells that sub-handlers are not finished, which is no failure.
	Waiting bool
}

// Name is what metrics call the outcome.
func (o Outcome) Name() string {
	switch {
	case o.Waiting:
		return "waiting"
	case o.Ignored != nil:
		return "ignored"
	case o.Err == nil:
		return "succeeded"
	case o.Final:
		return "failed"
	}
	return "retried"
}

// waiting is the message in the record of a handler whose sub-handlers are not
// finished, as Kopf writes it (SUB-5).
const waiting = "None"

// Refused tells whether a handler's limits forbid an attempt (OUT-1).
func Refused(h *registry.Handler, r state.Record, now time.Time) (Outcome, bool) {
	if h.Timeout > 0 && now.Sub(r.Started) >= h.Timeout {
		return failed(timedOut(h, nil)), true
	}
	// Being called again for the sake of sub-handlers is no retry, though it is counted
	// as one on the object (SUB-5).
	passing := r.Message == waiting && len(r.Subrefs) > 0
	if h.Retries >= 0 && r.Retries >= h.Retries && !passing {
		return failed(exhausted(h, nil)), true
	}
	return Outcome{}, false
}

// Of is the outcome of an attempt that returned err (OUT-2). A retry that the
// handler's limits would refuse is a failure at once.
func Of(h *registry.Handler, r state.Record, err error, now time.Time, backoff time.Duration) Outcome {
	if err == nil {
		return Outcome{Final: true}
	}
	var permanent *PermanentError
	var retry *RetryError
	var panicked *PanicError
	var unfinished *UnfinishedError
	if h.Backoff >= 0 {
		backoff = h.Backoff
	}
	switch {
	case errors.As(err, &panicked):
		return again(h, r, err, now, backoff)
	case errors.As(err, &unfinished):
		return Outcome{Waiting: true, Delay: unfinished.Delay} // whatever the limits (OUT-2)
	case errors.As(err, &permanent):
		return failed(err)
	case errors.As(err, &retry):
		return again(h, r, err, now, max(retry.After, 0))
	case h.Errors == registry.ErrorsIgnored, h.Errors == registry.ErrorsUnset && h.Kind == registry.Index: // IDX-8
		return Outcome{Final: true, Ignored: err}
	case h.Errors == registry.ErrorsPermanent:
		return failed(err)
	}
	return again(h, r, err, now, backoff)
}

func again(h *registry.Handler, r state.Record, err error, now time.Time, delay time.Duration) Outcome {
	if h.Timeout > 0 && now.Add(delay).Sub(r.Started) >= h.Timeout {
		return failed(timedOut(h, err))
	}
	if h.Retries >= 0 && r.Retries+1 >= h.Retries {
		return failed(exhausted(h, err))
	}
	return Outcome{Delay: delay, Err: err}
}

func failed(err error) Outcome { return Outcome{Final: true, Err: err} }

func timedOut(h *registry.Handler, last error) error {
	return because(fmt.Sprintf("did not succeed within %s", h.Timeout), last)
}

func exhausted(h *registry.Handler, last error) error {
	return because(fmt.Sprintf("did not succeed in %d attempts", h.Retries), last)
}

func because(text string, last error) error {
	if last == nil {
		return &PermanentError{errors.New(text)}
	}
	return &PermanentError{fmt.Errorf("%s: %w", text, last)}
}

// Record is the handler's record after an attempt with this outcome (PRG-3).
func (o Outcome) Record(r state.Record, now time.Time) state.Record {
	r.Retries++
	r.Delayed, r.Message = time.Time{}, ""
	if o.Err != nil {
		r.Message = o.Err.Error()
	}
	if o.Waiting {
		r.Message = waiting
	}
	switch {
	case !o.Final:
		r.Delayed = now.Add(o.Delay)
	case o.Err != nil:
		r.Failure = true
	default:
		r.Success = true
	}
	if o.Final && r.Stopped.IsZero() {
		r.Stopped = now
	}
	return r
}
