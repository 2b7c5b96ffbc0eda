// Package on is the vocabulary of an operator: one function per cause, each taking
// a handler for it and options that say for which objects and how.
//
//	on.Create(provision, on.Label("tier", "gold"), on.Retries(5))
//	on.Update(resize, on.Field("spec.size"))
//	on.Delete(release)
//
// The object's Go type follows from the handler's argument. Registrations go into
// the default registry, or with on.In into one's own; the operator takes them when
// it is made. Mistakes in them do not panic: kopf.New reports all of them together,
// each with its file and line.
package on

import (
	"context"
	"errors"
	"reflect"

	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/typed"
)

// Create calls fn once for every object that was never handled: new ones, and those
// that were there before the operator. A failed attempt is repeated (see
// kopf.Retry, kopf.Permanent, Retries, Timeout, Backoff, Errors); across restarts
// too, for the progress is kept on the object.
func Create[T typed.Object](fn func(context.Context, *typed.Change[T]) error, opts ...CreateOption) {
	d := newDraft[T](registry.Create, fn, fn == nil)
	take(d, opts, CreateOption.create)
	d.Invoke = invokeChange(fn)
	d.register()
}

// Update calls fn for changes of what is essential in an object: everything but its
// status and the metadata other than labels and annotations. Old is the state that
// was handled last, so that changes made while the operator was down arrive as one;
// so do those made while an earlier attempt was failing.
func Update[T typed.Object](fn func(context.Context, *typed.Change[T]) error, opts ...UpdateOption) {
	d := newDraft[T](registry.Update, fn, fn == nil)
	take(d, opts, UpdateOption.update)
	d.Invoke = invokeChange(fn)
	d.register()
}

// Delete calls fn for objects whose deletion was requested. A finalizer holds the
// object until all its delete handlers have succeeded or failed for good; it is put
// on before any handler is called. See Optional for going without.
func Delete[T typed.Object](fn func(context.Context, *typed.Change[T]) error, opts ...DeleteOption) {
	d := newDraft[T](registry.Delete, fn, fn == nil)
	take(d, opts, DeleteOption.delete)
	d.Invoke = invokeChange(fn)
	d.register()
}

// Resume calls fn once per run of the operator for every object that was handled
// before, until it has succeeded: the place to take up work that lives in the
// process. Objects that were never handled are created instead (CHG-5).
func Resume[T typed.Object](fn func(context.Context, *typed.Change[T]) error, opts ...ResumeOption) {
	d := newDraft[T](registry.Resume, fn, fn == nil)
	take(d, opts, ResumeOption.resume)
	d.Invoke = invokeChange(fn)
	d.register()
}

// FieldChange calls fn when the field's value differs from the one that was handled
// last, with both values typed. That includes the creation of an object that has the
// field, and a change that a deletion finds unhandled (CHG-6). V is the field's Go
// type, or one that its JSON decodes into.
func FieldChange[T typed.Object, V any](path string, fn func(context.Context, *typed.FieldChange[T, V]) error, opts ...FieldChangeOption) {
	d := newDraft[T](registry.Field, fn, fn == nil)
	d.field(path)
	take(d, opts, FieldChangeOption.fieldChange)
	d.Invoke = func(ctx context.Context, call *registry.Call) error {
		c, err := typed.NewFieldChange[T, V](call)
		if err == nil {
			err = call.Enter()
		}
		if err != nil {
			return err
		}
		return fn(ctx, c)
	}
	d.register()
}

// Event calls fn for every event of every object: listed, added, modified, deleted,
// in order, including those that the operator itself causes. An error is logged and
// forgotten; there are no retries and nothing is kept on the object (EVT-1, EVT-3).
// A change handler that is at work does not hold events up.
func Event[T typed.Object](fn func(context.Context, *typed.Event[T]) error, opts ...EventOption) {
	d := newDraft[T](registry.Event, fn, fn == nil)
	take(d, opts, EventOption.event)
	d.Invoke = func(ctx context.Context, call *registry.Call) error {
		e, err := typed.NewEvent[T](call)
		if err != nil {
			return err
		}
		return fn(ctx, e)
	}
	d.register()
}

func invokeChange[T typed.Object](fn func(context.Context, *typed.Change[T]) error) func(context.Context, *registry.Call) error {
	return func(ctx context.Context, call *registry.Call) error {
		c, err := typed.NewChange[T](call)
		if err == nil {
			err = call.Enter()
		}
		if err != nil {
			return err
		}
		return fn(ctx, c)
	}
}

func newDraft[T typed.Object](kind registry.Kind, fn any, isNil bool) *draft {
	return begin(kind, reflect.TypeFor[T](), fn, isNil)
}

func begin(kind registry.Kind, argument reflect.Type, fn any, isNil bool) *draft {
	d := &draft{
		Handler: &registry.Handler{
			Kind: kind, Type: argument, Retries: -1, Backoff: -1,
			Source: registry.Source(reflect.TypeFor[draft]().PkgPath()),
		},
		registry: registry.Default,
	}
	if isNil {
		d.mistakes = append(d.mistakes, errors.New("it has no function"))
		return d
	}
	d.Func, d.Handler.ID = registry.Identify(fn)
	return d
}

// take applies the options to the draft.
func take[O comparable](d *draft, opts []O, apply func(O, *draft)) {
	var none O
	for _, opt := range opts {
		if opt == none {
			d.mistake("an option is nil")
			continue
		}
		apply(opt, d)
	}
}

func (d *draft) register() {
	d.complete()
	d.registry.Add(d.Handler, d.mistakes...)
}

// complete says what follows from all options together.
func (d *draft) complete() {
	if d.id != "" {
		d.Handler.ID = d.id
	}
	d.check()
}
