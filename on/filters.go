package on

import (
	"context"
	"errors"
	"reflect"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/fieldpath"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/typed"
)

// Label takes only objects whose label fits value: a text, a criterion of package
// filters, or a function of the label's text. Repeatable; all must fit (FLT-6).
func Label(key string, value any) LabelOption {
	return setting(func(d *draft) {
		d.Labels = append(d.Labels, d.criterion("on.Label", key, value))
	})
}

// Annotation takes only objects whose annotation fits value; see Label.
func Annotation(key string, value any) CommonOption {
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
// tried again later; of Validate and Mutate, it denies the request.
func When[T typed.Object](fn func(context.Context, *typed.Snapshot[T]) bool) CommonOption {
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
// to its changes, others, such as daemons, to objects that have it (FLT-12). A field of the status or
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
func Value(value any) CommonOption {
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
