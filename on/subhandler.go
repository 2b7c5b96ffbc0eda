package on

import (
	"context"
	"maps"
	"slices"

	"github.com/kopf-go/kopf/typed"
)

// Subhandler declares a handler inside of a running one: for one item of a list, or
// one step of many, with retries, a timeout and filters of its own.
//
//	for _, schema := range c.New.Spec.Schemas {
//		on.Subhandler(c, "schema-"+schema, createSchema(schema), on.Retries(3))
//	}
//
// Sub-handlers are executed when the parent's function has returned without an error
// (see Execute for earlier). The parent succeeds when all of them have come to an end,
// well or not; until then it is called again whenever one is due, and must declare
// them again, so what it declares should follow from the object (SUB-5). What has
// succeeded does not run again, across restarts too, unless the object was changed
// since. One that is not declared any more is forgotten (SUB-10).
//
// The id is relative to the parent's: progress is kept under parent/id, and a result
// under status.<parent/id>. A sub-handler may have sub-handlers. It is called for the
// parent's reason; the field of on.Field must have changed if the parent is an update
// or field handler. Mistakes are the parent's failure, and named with file and line.
//
// A call belongs to its goroutine: do not declare from several at once.
func Subhandler[T typed.Object](parent typed.Parent[T], id string, fn func(context.Context, *typed.Change[T]) error, opts ...SubhandlerOption) {
	d := newDraft[T]("", fn, fn == nil) // the kind is the parent's
	d.Handler.ID, d.inside = id, true
	if id == "" {
		d.mistake("its id is empty")
	}
	take(d, opts, SubhandlerOption.subhandler)
	d.Invoke = invokeChange(fn)
	d.check()
	typed.Declare(parent, d.Handler, d.mistakes)
}

// Subhandlers declares a set of sub-handlers that was made already, by id, in order
// of their ids. The options are for all of them.
func Subhandlers[T typed.Object](parent typed.Parent[T], set map[string]func(context.Context, *typed.Change[T]) error, opts ...SubhandlerOption) {
	for _, id := range slices.Sorted(maps.Keys(set)) {
		Subhandler(parent, id, set[id], opts...)
	}
}

// Execute executes the sub-handlers that were declared so far now, in the middle of
// the parent, and returns what each has come to, for the parent to go on with:
//
//	on.Subhandlers(c, steps)
//	outcomes, err := on.Execute(ctx, c)
//	if err != nil {
//		return err // some are not finished; or there is a mistake in one
//	}
//
// The error asks for another call of the parent when the next sub-handler is due;
// a parent that does not return it is called again all the same (SUB-5). Results are
// known of those that succeeded in this very call; of the others they are in the
// object's status.
func Execute[T typed.Object](ctx context.Context, parent typed.Parent[T]) ([]typed.Outcome, error) {
	return typed.Execute(ctx, parent)
}
