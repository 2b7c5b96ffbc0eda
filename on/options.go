package on

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/fieldpath"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/typed"
)

// The option types say which kinds of handlers take an option: what a kind does
// not take does not compile.
type (
	// CreateOption is an option of Create.
	CreateOption interface{ create(*draft) }
	// UpdateOption is an option of Update.
	UpdateOption interface{ update(*draft) }
	// DeleteOption is an option of Delete.
	DeleteOption interface{ delete(*draft) }
	// ResumeOption is an option of Resume.
	ResumeOption interface{ resume(*draft) }
	// FieldChangeOption is an option of FieldChange.
	FieldChangeOption interface{ fieldChange(*draft) }
	// EventOption is an option of Event.
	EventOption interface{ event(*draft) }

	// ChangeOption is an option of every handler that can be retried.
	ChangeOption interface {
		CreateOption
		UpdateOption
		DeleteOption
		ResumeOption
		FieldChangeOption
	}
	// FieldOption is an option of every handler that has no field of its own.
	FieldOption interface {
		CreateOption
		UpdateOption
		DeleteOption
		ResumeOption
		EventOption
	}
	// UpdatedOption is an option of handlers that know an old and a new value.
	UpdatedOption interface {
		UpdateOption
		FieldChangeOption
	}
	// AnyOption is an option of every handler.
	AnyOption interface {
		ChangeOption
		EventOption
	}
)

// draft is a registration in the making.
type draft struct {
	*registry.Handler
	registry *registry.Registry
	id       string
	snapshot reflect.Type // of on.When's T
	value    any          // as the user gave them; nil: none
	old, new any
	mistakes []error
}

func (d *draft) mistake(format string, args ...any) {
	d.mistakes = append(d.mistakes, fmt.Errorf(format, args...))
}

// setting is every option: the exported functions narrow it to the interfaces.
type setting func(*draft)

func (s setting) create(d *draft)      { s(d) }
func (s setting) update(d *draft)      { s(d) }
func (s setting) delete(d *draft)      { s(d) }
func (s setting) resume(d *draft)      { s(d) }
func (s setting) fieldChange(d *draft) { s(d) }
func (s setting) event(d *draft)       { s(d) }

// ID names the handler in logs, in the progress kept on objects and in their
// status. It must stay the same across releases, or handlers in the middle of
// their work begin anew (HID-4). Default: the function's name, without its
// package, such as provision or Handlers.Provision. A function literal has no name
// of its own: what the compiler calls it, such as main.func1, changes with the code
// around it, so give it an ID. With a field, the field is appended: ID/spec.replicas
// (HID-2).
func ID(id string) AnyOption {
	return setting(func(d *draft) {
		if id == "" {
			d.mistake("on.ID is empty")
		}
		d.id = id
	})
}

// Param is handed to the function as it is, so that one function can be registered
// several times, under different ids (MEM-7).
func Param(value any) AnyOption {
	return setting(func(d *draft) { d.Param = value })
}

// In registers the handler in a registry of one's own instead of the default one.
func In(r *registry.Registry) AnyOption {
	return setting(func(d *draft) {
		if r == nil {
			d.mistake("on.In got no registry: make one with kopf.NewRegistry")
			return
		}
		d.registry = r
	})
}

// Resource says which resource the handler is for: a group and version as in
// apiVersion, and a name: plural, singular, short name or kind. Default: the
// resource that the operator's scheme knows for the handler's Go type.
func Resource(groupVersion, name string) AnyOption {
	return setting(func(d *draft) {
		gv, err := schema.ParseGroupVersion(groupVersion)
		if err != nil || gv.Version == "" || name == "" {
			d.mistake("on.Resource(%q, %q) needs a group and version, such as apps/v1 or v1, and a name", groupVersion, name)
			return
		}
		if !d.Selector.Empty() {
			d.mistake("on.Resource is given twice")
		}
		d.Selector = registry.Selector{GroupVersion: gv, Name: name}
	})
}

// Label takes only objects whose label fits value: a text, a criterion of package
// filters, or a function of the label's text. Repeatable; all must fit (FLT-6).
func Label(key string, value any) AnyOption {
	return setting(func(d *draft) {
		d.Labels = append(d.Labels, d.criterion("on.Label", key, value))
	})
}

// Annotation takes only objects whose annotation fits value; see Label.
func Annotation(key string, value any) AnyOption {
	return setting(func(d *draft) {
		d.Annotations = append(d.Annotations, d.criterion("on.Annotation", key, value))
	})
}

func (d *draft) criterion(option, key string, value any) registry.Criterion {
	match, err := filters.Of(value)
	if err == nil {
		err = filters.Check(match, reflect.TypeFor[string]())
	}
	if key == "" {
		err = errors.New("the key is empty")
	}
	if err != nil {
		d.mistake("%s(%q): %w", option, key, err)
	}
	return registry.Criterion{Key: key, Match: match}
}

// When takes only objects for which fn says so. It is asked last, after all other
// criteria, on every event of an object, so it should be quick and must not change
// the object. A panic in it counts as a failure of the handler's object, which is
// tried again later.
func When[T typed.Object](fn func(context.Context, *typed.Snapshot[T]) bool) AnyOption {
	return setting(func(d *draft) {
		if fn == nil {
			d.mistake("on.When got no function")
			return
		}
		d.snapshot = reflect.TypeFor[T]()
		d.When = func(ctx context.Context, call *registry.Call) (bool, error) {
			s, err := typed.NewSnapshot[T](call)
			if err != nil {
				return false, err
			}
			return fn(ctx, s), nil
		}
	})
}

// Field narrows the handler to one field, such as "spec.replicas": update handlers
// to its changes, others to objects that have it (FLT-12). A field of the status or
// of the metadata may be named as well; its changes count from then on (ESS-3).
// The path must exist in the handler's Go type. For keys with dots use Path.
func Field(path string) FieldOption {
	return setting(func(d *draft) { d.field(path) })
}

func (d *draft) field(path string) {
	parsed, err := fieldpath.Parse(path)
	if err != nil {
		d.mistakes = append(d.mistakes, err)
		return
	}
	d.setField(parsed)
}

func (d *draft) setField(path diff.Path) {
	if len(d.Field) > 0 {
		d.mistake("it has two fields: %s and %s", d.Field, path)
		return
	}
	d.Field = path
}

// Path is Field for paths whose elements contain dots:
//
//	on.Path("metadata", "annotations", "example.com/size")
func Path(elements ...string) FieldOption {
	return setting(func(d *draft) {
		for _, element := range elements {
			if element == "" {
				d.mistake("on.Path has an empty element: %q", elements)
				return
			}
		}
		if len(elements) == 0 {
			d.mistake("on.Path is empty")
			return
		}
		d.setField(elements)
	})
}

// FieldOf is Field for the field whose address the function returns, so that the
// compiler checks it:
//
//	on.FieldOf(func(d *appsv1.Deployment) *int32 { return d.Spec.Replicas })
//
// The function must do nothing but lead to a field of a struct.
func FieldOf[T typed.Object, V any](accessor func(T) *V) FieldOption {
	return setting(func(d *draft) {
		if t := reflect.TypeFor[T](); t != d.Type {
			d.mistake("on.FieldOf is for %s, the handler for %s", t, d.Type)
			return
		}
		path, _, err := fieldpath.FromAccessor(accessor)
		if err != nil {
			d.mistake("on.FieldOf: %w", err)
			return
		}
		d.setField(path)
	})
}

// Value takes only objects whose field fits value, before or after the change: a
// literal of the field's type, a criterion of package filters, or a function of
// the field's value. It needs a field (FLT-8).
func Value(value any) AnyOption {
	return setting(func(d *draft) { d.once("on.Value", &d.value, value) })
}

// Old takes only changes whose old value fits; see Value (FLT-11).
func Old(value any) UpdatedOption {
	return setting(func(d *draft) { d.once("on.Old", &d.old, value) })
}

// New takes only changes whose new value fits; see Value (FLT-11).
func New(value any) UpdatedOption {
	return setting(func(d *draft) { d.once("on.New", &d.new, value) })
}

func (d *draft) once(option string, into *any, value any) {
	switch {
	case value == nil:
		d.mistake("%s(nil): say filters.Absent or filters.Present", option)
	case *into != nil:
		d.mistake("%s is given twice", option)
	default:
		*into = value
	}
}

// Retries is how many attempts the handler has at most; the last failure is final.
// Default: no limit. 0 never calls it (OUT-4).
func Retries(attempts int) ChangeOption {
	return setting(func(d *draft) {
		if attempts < 0 {
			d.mistake("on.Retries(%d) is negative", attempts)
		}
		d.Retries = attempts
	})
}

// Timeout is how long all attempts may take together, from the start of the first
// one, downtime of the operator included. The handler's context ends then, and no
// other attempt begins. Default: no limit.
func Timeout(limit time.Duration) ChangeOption {
	return setting(func(d *draft) {
		if limit <= 0 {
			d.mistake("on.Timeout(%s) is not positive", limit)
		}
		d.Timeout = limit
	})
}

// Backoff is the pause before the next attempt after an error that does not say
// one itself. Default: Settings.DefaultBackoff, a minute.
func Backoff(pause time.Duration) ChangeOption {
	return setting(func(d *draft) {
		if pause < 0 {
			d.mistake("on.Backoff(%s) is negative", pause)
		}
		d.Backoff = pause
	})
}

// Errors says what an error means that is neither kopf.Retry nor kopf.Permanent:
// Temporary (the default), Permanent or Ignored (OUT-2).
func Errors(mode ErrorMode) ChangeOption {
	return setting(func(d *draft) {
		if mode < Ignored || mode > Permanent {
			d.mistake("on.Errors takes on.Ignored, on.Temporary or on.Permanent")
		}
		d.Errors = mode
	})
}

// ErrorMode is the argument of Errors.
type ErrorMode = registry.ErrorMode

// The modes for Errors.
const (
	Ignored   = registry.ErrorsIgnored   // as if the handler had succeeded, but logged
	Temporary = registry.ErrorsTemporary // tried again after the back-off
	Permanent = registry.ErrorsPermanent // failed for good
)

// Deleted lets a resume handler also be called for objects that are being deleted
// (CHG-5).
func Deleted() ResumeOption {
	return setting(func(d *draft) { d.Deleted = true })
}

// Optional keeps a delete handler from holding the object with a finalizer. It is
// called when something else holds the object, else once the object is gone; then
// best effort, for nothing is left to keep its progress on.
func Optional() DeleteOption {
	return setting(func(d *draft) { d.Optional = true })
}

// check completes the registration and looks for mistakes that the compiler could
// not see.
func (d *draft) check() {
	if d.Type.Kind() != reflect.Pointer || d.Type.Elem().Kind() != reflect.Struct {
		d.mistake("handlers are for pointers to structs, not for %s", d.Type)
		return
	}
	if d.snapshot != nil && d.snapshot != d.Type {
		d.mistake("on.When is for %s, the handler for %s", d.snapshot, d.Type)
	}
	if d.value != nil && (d.old != nil || d.new != nil) {
		d.mistake("on.Value does not go with on.Old or on.New") // FLT-2
	}
	var field reflect.Type // nil: any value may be there
	if len(d.Field) > 0 {
		var err error
		if field, err = fieldpath.Check(d.Type, d.Field); err != nil {
			d.mistakes = append(d.mistakes, err)
		}
		d.Handler.ID += "/" + strings.Join(d.Field, ".")
	}
	for _, criterion := range []struct {
		option string
		value  any
		into   *filters.Criterion
	}{{"on.Value", d.value, &d.Value}, {"on.Old", d.old, &d.Old}, {"on.New", d.new, &d.New}} {
		if criterion.value == nil {
			continue
		}
		match, err := filters.Of(criterion.value)
		if err == nil && field != nil {
			err = filters.Check(match, field)
		}
		if err == nil && len(d.Field) == 0 {
			err = errors.New("it needs a field: add on.Field, on.Path or on.FieldOf")
		}
		if err != nil {
			d.mistake("%s: %w", criterion.option, err)
		}
		*criterion.into = match
	}
}
