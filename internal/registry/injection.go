package registry

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/kopf-go/kopf/internal/fieldpath"
)

// Injection is a field of a user's struct that an index is to be put into.
type Injection struct {
	id    string // of the index
	name  string // such as handlers.PodsByNode
	value reflect.Value
}

// Injections finds the fields that have the tag index, in what must be a pointer to a
// struct.
func Injections(target any) (found []Injection, mistakes []error) {
	pointer := reflect.ValueOf(target)
	switch {
	case pointer.Kind() != reflect.Pointer || pointer.Type().Elem().Kind() != reflect.Struct:
		return nil, []error{fmt.Errorf("on.Inject needs a pointer to a struct, not %T", target)}
	case pointer.IsNil():
		return nil, []error{fmt.Errorf("on.Inject got no struct, but a nil %T", target)}
	}
	tagged := false
	for _, field := range reflect.VisibleFields(pointer.Type().Elem()) {
		id, ok := field.Tag.Lookup("index")
		if !ok {
			continue
		}
		tagged = true
		injection, err := injection(pointer.Elem(), field, id)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("on.Inject: field %s.%s %w", pointer.Type().Elem(), field.Name, err))
			continue
		}
		found = append(found, injection)
	}
	if !tagged {
		mistakes = append(mistakes, fmt.Errorf("on.Inject: no field of %s has a tag such as `index:\"pods-by-node\"`", pointer.Type().Elem()))
	}
	return found, mistakes
}

func injection(target reflect.Value, field reflect.StructField, id string) (Injection, error) {
	switch {
	case id == "":
		return Injection{}, errors.New("has a tag that names no index")
	case !field.IsExported():
		return Injection{}, errors.New("is not exported, so that it cannot be set")
	case entries(field.Type) == nil:
		return Injection{}, fmt.Errorf("is %s, not a *kopf.Index[K, V]", field.Type)
	}
	value, err := target.FieldByIndexErr(field.Index)
	if err != nil {
		return Injection{}, errors.New("is in an embedded struct whose pointer is nil")
	}
	return Injection{id: id, name: fmt.Sprintf("%s.%s", target.Type(), field.Name), value: value}, nil
}

// inject returns what sets the field, which is left alone if it is set already: an
// operator may run that reads it.
func (r *Registry) inject(field Injection) (set func(), err error) {
	index := r.index(field.id)
	switch {
	case index == nil:
		return nil, fmt.Errorf("on.Inject: field %s: %w", field.name, r.unknown(field.id))
	case index.Handle.Type() != field.value.Type():
		return nil, fmt.Errorf("on.Inject: field %s is for entries %s, those of the index %s at %s are %s",
			field.name, entries(field.value.Type()), index.ID, index.Source, entries(index.Handle.Type()))
	case field.value.IsNil():
		return func() { field.value.Set(index.Handle) }, nil
	case field.value.Pointer() != index.Handle.Pointer():
		return nil, fmt.Errorf("on.Inject: field %s has another index already: give each registry a struct of its own", field.name)
	}
	return func() {}, nil
}

func (r *Registry) unknown(id string) error {
	var known []string
	for _, index := range r.indices {
		if !index.stray {
			known = append(known, index.ID)
		}
	}
	slices.Sort(known)
	switch meant := fieldpath.Closest(id, known); {
	case len(known) == 0:
		return fmt.Errorf("there is no index %q, nor any other, in the handler's registry", id)
	case meant != "":
		return fmt.Errorf("there is no index %q (did you mean %q?) in the handler's registry, but %s", id, meant, strings.Join(known, ", "))
	}
	return fmt.Errorf("there is no index %q in the handler's registry, but %s", id, strings.Join(known, ", "))
}
