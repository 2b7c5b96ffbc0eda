// Package registry holds handlers in their erased form: what a user declared with
// package on, without type parameters, so that the engine need not be generic.
package registry

import (
	"context"
	"reflect"
	"time"

	"github.com/kopf-go/kopf/daemons"
	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/filters"
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
	Index  Kind = "index"
	Daemon Kind = "daemon"
	Timer  Kind = "timer"

	Validate Kind = "validate"
	Mutate   Kind = "mutate"
	Policy   Kind = "policy" // a rule in CEL, which the API server itself checks

	// Of activities, which are of the operator, and of no object.
	Startup Kind = "startup"
	Cleanup Kind = "cleanup"
	Login   Kind = "login"
	Probe   Kind = "probe"
)

// ErrorMode tells what an error without instructions of its own means (OUT-2).
type ErrorMode int

// The error modes. Unset is Temporary, but for event and index handlers, where it is
// Ignored (OUT-3).
const (
	ErrorsUnset ErrorMode = iota
	ErrorsIgnored
	ErrorsTemporary
	ErrorsPermanent
)

// Criterion is a filter on one label or annotation.
type Criterion struct {
	Key   string
	Match filters.Criterion
}

// Handler is one registration.
type Handler struct {
	Kind     Kind
	ID       string
	Type     reflect.Type // of T: a pointer to a struct; of activities, the argument itself
	Selector Selector
	Parent   *Handler // of sub-handlers

	Labels      []Criterion
	Annotations []Criterion
	When        func(context.Context, *Call) (bool, error)
	Field       diff.Path
	Value       filters.Criterion
	Old, New    filters.Criterion
	Sensitive   []diff.Path // fields of the resource whose values are kept as digests

	Retries  int           // attempts at most; negative: no limit
	Timeout  time.Duration // over all attempts; zero: no limit
	Backoff  time.Duration // negative: the setting
	Errors   ErrorMode
	Deleted  bool // resume handlers: also for objects being deleted
	Optional bool // delete handlers: do not hold the object
	Param    any

	// Index is what the entries of an index handler go to; Feed tells the functions that
	// feed one index apart, from 0.
	Index IndexWriter
	Feed  int
	Uses  []IndexWriter // indices of which a change wakes the handler

	// What Connect goes by: pointers to the indices that are used, and fields that want one.
	Handles    []any
	Injections [][]Injection

	// Of daemons and timers.
	Spawn        func(context.Context, *Call) (time.Duration, error) // the delay of the first run; nil: none
	Finalize     bool                                                // holds the object until it has left
	Cancellation daemons.Cancellation
	Schedule     daemons.Schedule // of timers
	Jitter       time.Duration    // by how much runs are spread; negative: the default

	// Of admission.
	Operations     []string // in capitals; none: all
	Subresource    string   // empty: the object itself; *: all
	Persistent     bool     // stays configured when the operator stops
	SideEffects    bool     // but not in a dry run
	IgnoreFailures bool     // of the way to the handler
	Rule           Rule     // of policies

	Invoke func(context.Context, *Call) error
	Func   uintptr // the function's code, to tell the same function from another one
	Source string  // file:line of the registration
}

// Name is how the handler is named in logs and errors.
func (h *Handler) Name() string { return string(h.Kind) + " handler " + h.ID }

// Rule is a rule in CEL.
type Rule struct {
	Expression        string
	Message           string
	MessageExpression string
}

// Admission tells whether the handler is for requests, and not for what has become of them.
func (h *Handler) Admission() bool {
	return h.Kind == Validate || h.Kind == Mutate || h.Kind == Policy
}

// Activity tells whether the handler is for something that the operator does, and for no
// object.
func (h *Handler) Activity() bool {
	return h.Kind == Startup || h.Kind == Cleanup || h.Kind == Login || h.Kind == Probe
}

// Background tells whether the handler works in the background, as daemons and timers do.
func (h *Handler) Background() bool { return h.Kind == Daemon || h.Kind == Timer }

// Keeps tells whether something is kept on objects for the handler.
func (h *Handler) Keeps() bool {
	return h.Kind != Event && h.Kind != Index && !h.Background() && !h.Admission() && !h.Activity()
}

// UpdateLike tells whether the handler is for changes of its field, and not for
// objects that have it (FLT-11).
func (h *Handler) UpdateLike() bool { return h.Kind == Update || h.Kind == Field }

// Due is a handler that could be called now, as a lifecycle sees it.
type Due struct {
	ID      string
	Reason  string
	Retry   int
	Started time.Time
}
