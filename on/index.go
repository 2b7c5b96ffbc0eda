package on

import (
	"context"
	"reflect"

	"github.com/kopf-go/kopf/indexing"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/typed"
)

// Index keeps an index in memory: fn returns what each object is to be found by, and the
// index that is returned, which all handlers may read, has the entries of all objects.
//
//	var podsByNode = on.Index(func(ctx context.Context, s *kopf.Snapshot[*corev1.Pod]) (map[string]string, error) {
//		return map[string]string{s.Object.Spec.NodeName: s.Object.Name}, nil
//	}, on.ID("pods-by-node"))
//
//	for name := range podsByNode.Get("node-1") { … }
//
// fn is called for every version of every object, being deleted or not (IDX-2); it should
// be quick. The map takes the place of what the object had in the index before; an
// empty one takes the object out, nil leaves all as it is (IDX-3, IDX-4). Objects that
// do not match the filters any more, or are gone, are taken out. An object has one value for
// a key, and a key has those of many objects.
//
// Until all objects of all indices are in, once, no other handler is called, so that
// handlers find indices complete (IDX-6); index functions, and filters of theirs, may not
// (IDX-10). An error of fn is logged, and the object's entries stay, unless Errors says
// otherwise or it is kopf.Retry or kopf.Permanent: those take them out; fn is called again
// for the object when the time has come, or not any more (IDX-8). Nothing is kept on objects: a restart fills the index again.
//
// Index functions of one id, in one registry, feed one index, be it of objects of several
// types; K and V must be the same (IDX-1). An object has its entries from each of the
// functions. A field does not become part of the id. An operator that runs has the
// indices of its registry for itself.
func Index[T typed.Object, K comparable, V any](fn func(context.Context, *typed.Snapshot[T]) (map[K]V, error), opts ...IndexOption) *indexing.Index[K, V] {
	d := newDraft[T](registry.Index, fn, fn == nil)
	take(d, opts, IndexOption.index)
	d.complete()
	made := indexing.NewWriter[K, V]()
	index, err := d.registry.Feed(&registry.NamedIndex{
		ID: d.Handler.ID, Writer: made, Handle: reflect.ValueOf(made.Index()), Source: d.Source,
	})
	if err != nil {
		d.mistakes = append(d.mistakes, err)
	}
	writer := index.Writer.(*indexing.Writer[K, V])
	d.Handler.Index = writer
	d.Invoke = func(ctx context.Context, call *registry.Call) error {
		s, err := typed.NewSnapshot[T](call)
		if err != nil {
			return err
		}
		entries, err := fn(ctx, s)
		if err == nil && entries != nil {
			call.Entries = func(owner indexing.Owner) { writer.Replace(owner, entries) }
		}
		return err
	}
	d.registry.Add(d.Handler, d.mistakes...)
	return writer.Index()
}

// Uses calls the handler again for an object when something has changed that it has
// read from the index, through its view for the handler's context:
//
//	for name := range podsByNode.Tracked(ctx).Get(c.Object.Name) { … }
//
// What its last call has read is what counts: the values of a key, whether there are
// any, the keys, or all. What is read without Tracked, or by a filter, does not. A change
// handler is called with kopf.ReasonIndex, with Old equal to New and an empty Diff, if it
// is not called for a change anyway; a timer ticks. Several changes may come as one call.
//
// What was read is known in memory only. So after a restart, once all indices are
// complete, the handler is called once for every handled object that it is for, also if
// nothing has changed. A handler that waits for its next attempt is called earlier, with
// all its sub-handlers, which read with its context. A delete handler is called for
// nothing but the deletion, and not again when it is through. If the object does not
// match at the time, the handler is called when it does again.
//
// Each call costs one read of the object from the API server, unless something else is
// going on with it, or is a timer's; a call that succeeds writes nothing. One function
// under one id, as of Create and Resume, counts as one handler, and it is enough that one
// of them says what it uses; other functions may not share the id of one that does, but
// delete handlers and timers.
//
// The index must be one of the handler's registry; the order of registration is free.
// Repeatable, for several indices.
func Uses[K comparable, V any](index *indexing.Index[K, V]) UsesOption {
	return setting(func(d *draft) {
		if index == nil {
			d.mistake("on.Uses got no index")
			return
		}
		d.Handles = append(d.Handles, index)
	})
}

// Inject sets fields of a struct, usually that whose method the handler is, to indices
// of the handler's registry, when the operator is made:
//
//	type handlers struct {
//		PodsByNode *kopf.Index[string, string] `index:"pods-by-node"`
//	}
//
//	h := &handlers{}
//	on.Create(h.provision, on.Inject(h))
//
// target is a pointer to the struct. Its fields with the tag index are set to the index
// of that id, whose types must be those of the field; other fields are left alone. That
// is only needed once for a struct, but several handlers may say so; for handlers of
// several registries, let each have a struct of its own. Tests of the
// handlers may set the fields themselves, to an index of package indexing.
func Inject(target any) AnyOption {
	return setting(func(d *draft) {
		found, mistakes := registry.Injections(target)
		d.Injections = append(d.Injections, found)
		d.mistakes = append(d.mistakes, mistakes...)
	})
}
