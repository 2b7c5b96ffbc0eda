// Package typed holds what handlers receive: one struct per kind of handler, with
// the user's own Go type for the object. Users name these types through package
// kopf, such as kopf.Change.
package typed

import (
	"log/slog"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "sigs.k8s.io/json"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
)

// Object is what a handler can be written for: a pointer to a struct of an API,
// such as *appsv1.Deployment or *Resource[Spec, Status]. Any client.Object of
// controller-runtime is one.
type Object interface {
	metav1.Object
	runtime.Object
}

// Reason says why a change handler is called (CHG-1).
type Reason string

// The reasons. A field handler is called with the reason of the change that its
// field is a part of; a resume handler that comes together with an update is
// called with ReasonUpdate (CHG-5). ReasonIndex says that something has changed that
// the handler had read from an index (on.Uses); the object has not: Old equals New, and
// Diff is empty.
const (
	ReasonCreate Reason = "create"
	ReasonUpdate Reason = "update"
	ReasonDelete Reason = "delete"
	ReasonResume Reason = "resume"
	ReasonIndex  Reason = "index"
)

// EventType says what a watch told of an object (EVT-1).
type EventType string

// The types of events. EventListed is an object that was there when the operator
// started to watch.
const (
	EventListed   EventType = "LISTED"
	EventAdded    EventType = "ADDED"
	EventModified EventType = "MODIFIED"
	EventDeleted  EventType = "DELETED"
)

// Change is the argument of handlers for created, updated, deleted and resumed
// objects. It belongs to one call: its objects may be kept and changed, for no other
// handler shares them. Only the values in Diff are shared, and must not be changed.
type Change[T Object] struct {
	// Object is the object as it was last seen. Changing it changes nothing in the
	// cluster: use Patch.
	Object T
	// Old is the object as it was last handled: labels, annotations and everything
	// but metadata and status. It is nil if the object was never handled, and if OldKnown
	// is false.
	Old T
	// New is Object under the name that pairs with Old.
	New T
	// Diff leads from the last handled state to the present one; with on.Field, at
	// that field only. On creation it is one addition of the whole (CHG-8).
	Diff diff.Diff
	// Reason is why the handler is called.
	Reason Reason
	// Patch changes the object once the handler has returned, even with an error.
	Patch *Patch[T]
	Attempt
}

// FieldChange is the argument of handlers for one field. See Change for what the
// fields that they share mean.
type FieldChange[T Object, V any] struct {
	// Object is the object as it was last seen.
	Object T
	// Old is the value when the object was last handled, New the present one; the
	// zero value if the field is, or was, absent or null.
	Old, New V
	// HadOld and HasNew tell absent from null and zero. To tell null from zero as
	// well, let V be a pointer, such as *int32.
	HadOld, HasNew bool
	// Diff is relative to the field.
	Diff diff.Diff
	// Reason is why the field differs from what was last handled (CHG-6).
	Reason Reason
	// Patch changes the object once the handler has returned, even with an error.
	Patch *Patch[T]
	Attempt
}

// Event is the argument of handlers for every event of an object.
type Event[T Object] struct {
	// Type is what happened.
	Type EventType
	// Object is the object as of this event.
	Object T
	// IdentityOnly tells that nothing but name, namespace and UID is known of the
	// object: its deletion happened while the watch was interrupted.
	IdentityOnly bool
	// Patch changes the object once all event handlers have seen the event; what it
	// changes comes back as another event, so it must come to an end (EVT-5). It is
	// ignored for deleted objects.
	Patch *Patch[T]
	// Param is the value given with on.Param.
	Param any
	// Log writes with the object and the handler named.
	Log *slog.Logger
	// Resource is the resource that the object is of.
	Resource schema.GroupVersionResource

	memos memory
}

// Snapshot is what filters and index functions see of an object: a private copy, which
// is decoded each time that one is asked.
type Snapshot[T Object] struct {
	// Object is the object as it was last seen.
	Object T
	// Param is the value given with on.Param, in index functions; filters have none.
	Param any
	// Log writes with the object named.
	Log *slog.Logger
	// Resource is the resource that the object is of.
	Resource schema.GroupVersionResource

	memos memory
}

// Attempt is what every call of a handler that can be retried knows. What is said to
// survive restarts does so for handlers of changes. Those of daemons and timers begin
// anew with the operator (DMN-5), those of a timer with each tick as well (TMR-2).
type Attempt struct {
	// Retry counts the attempts before this one, from 0; it survives restarts.
	Retry int
	// Started is when the first attempt began; it survives restarts.
	Started time.Time
	// Param is the value given with on.Param.
	Param any
	// Log writes with the object, the handler and the attempt named.
	Log *slog.Logger
	// Resource is the resource that the object is of.
	Resource schema.GroupVersionResource

	call  *registry.Call
	memos memory
}

// Runtime is how long ago the first attempt began, downtime of the operator included.
func (a *Attempt) Runtime() time.Duration { return time.Since(a.Started) }

// OldKnown tells whether the object's former state is known. It is not if the object
// is so large that only digests of its top-level fields could be kept; then there is
// no Old, Diff names the top-level fields that have changed, filters on old values
// let pass what they cannot know, and so do handlers of fields in those top-level fields.
func (a *Attempt) OldKnown() bool { return a.call == nil || !a.call.OldUnknown }

// SetResult stores a value that encodes to JSON under status.<handler id>, in the
// same request as everything else, once the handler has succeeded (RES-1). The
// resource's schema must keep the field. What encodes to an object is merged into
// what is there, anything else replaces it; nil stores nothing. A value that does not
// encode is a failure of the handler.
func (a *Attempt) SetResult(value any) {
	if a.call == nil { // made by hand, for a test
		a.call = new(registry.Call)
	}
	a.call.Result = value
}

// Result returns what was given to SetResult, for tests of handlers.
func (a *Attempt) Result() any {
	if a.call == nil {
		return nil
	}
	return a.call.Result
}

// NewChange makes the argument of a change handler from the erased call.
func NewChange[T Object](call *registry.Call) (*Change[T], error) {
	object, err := decode[T](call)
	if err != nil {
		return nil, err
	}
	c := &Change[T]{
		Object: object, New: object, Diff: call.Diff, Reason: Reason(call.Reason),
		Patch: newPatch[T](call), Attempt: newAttempt(call),
	}
	if call.Old == nil {
		return c, nil
	}
	if c.Old, err = decodeOld[T](call); err != nil {
		// The type has changed since. What still fits is better than nothing, and
		// waiting would not make it fit.
		call.Log.Warn("last-handled state does not fully decode", "error", err)
	}
	c.Old.SetName(call.Body.Name)
	c.Old.SetNamespace(call.Body.Namespace)
	c.Old.SetUID(call.Body.UID)
	c.Old.GetObjectKind().SetGroupVersionKind(call.Body.GroupVersionKind())
	return c, nil
}

// NewFieldChange makes the argument of a field handler from the erased call.
func NewFieldChange[T Object, V any](call *registry.Call) (*FieldChange[T, V], error) {
	object, err := decode[T](call)
	if err != nil {
		return nil, err
	}
	c := &FieldChange[T, V]{
		Object: object, HadOld: call.HadOld, HasNew: call.HasNew, Diff: call.Diff,
		Reason: Reason(call.Reason), Patch: newPatch[T](call), Attempt: newAttempt(call),
	}
	if call.HadOld {
		if err := convert(call.OldValue, &c.Old); err != nil {
			call.Log.Warn("last-handled value does not fully decode", "error", err)
		}
	}
	if call.HasNew {
		if err := convert(call.NewValue, &c.New); err != nil {
			return nil, &registry.DecodeError{Type: reflect.TypeFor[V](), Err: err}
		}
	}
	return c, nil
}

// NewEvent makes the argument of an event handler from the erased call.
func NewEvent[T Object](call *registry.Call) (*Event[T], error) {
	object, err := decode[T](call)
	if err != nil {
		return nil, err
	}
	return &Event[T]{
		Type: EventType(call.Type), Object: object, IdentityOnly: call.Identity,
		Patch: newPatch[T](call),
		Param: call.Param, Log: call.Log, Resource: call.Resource, memos: memory{find: call.Memos},
	}, nil
}

// NewSnapshot makes the argument of a filter or an index function from the erased call.
func NewSnapshot[T Object](call *registry.Call) (*Snapshot[T], error) {
	object, err := decode[T](call)
	if err != nil {
		return nil, err
	}
	return &Snapshot[T]{
		Object: object, Param: call.Param, Log: call.Log, Resource: call.Resource, memos: memory{find: call.Memos},
	}, nil
}

func newAttempt(call *registry.Call) Attempt {
	return Attempt{
		Retry: call.Retry, Started: call.Started, Param: call.Param,
		Log: call.Log, Resource: call.Resource, call: call, memos: memory{find: call.Memos},
	}
}

func newObject[T Object]() T {
	return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
}

func decode[T Object](call *registry.Call) (T, error) { return decodeBody[T](call.Body) }

func decodeBody[T Object](b *body.Body) (T, error) {
	object := newObject[T]()
	if err := b.Decode(object); err != nil {
		var none T
		return none, &registry.DecodeError{Type: reflect.TypeFor[T](), Err: err}
	}
	return object, nil
}

func decodeOld[T Object](call *registry.Call) (T, error) {
	object := newObject[T]()
	u, ok := any(object).(runtime.Unstructured)
	if !ok {
		return object, utiljson.UnmarshalCaseSensitivePreserveInts(call.Old, object)
	}
	tree := map[string]any{}
	err := utiljson.UnmarshalCaseSensitivePreserveInts(call.Old, &tree)
	u.SetUnstructuredContent(tree)
	return object, err
}
