package fieldpath

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"

	"github.com/kopf-go/kopf/diff"
)

// FromAccessor finds the field that a function returns the address of. fn is a
// func(T) *V, T being a pointer to a struct, such as
//
//	func(d *appsv1.Deployment) *int32  { return d.Spec.Replicas }
//	func(d *appsv1.Deployment) *string { return &d.Spec.Template.Spec.NodeName }
//
// It returns the path of the field in JSON and its declared type, as [Check] does.
//
// fn is run once, on an object whose pointers all lead to zero values (types that
// contain themselves up to three times), and whose maps and lists are empty. So
// computed values, map entries and list elements have no path; they are errors,
// as are nil results, panics, and values without a size, which have no address of
// their own. Cost: about 0.1 ms for a Deployment.
func FromAccessor(fn any) (diff.Path, reflect.Type, error) {
	f := reflect.ValueOf(fn)
	if f.Kind() != reflect.Func || f.IsNil() {
		return nil, nil, fmt.Errorf("a field accessor must be a function, not %T", fn)
	}
	t := f.Type()
	if t.NumIn() != 1 || t.NumOut() != 1 || t.IsVariadic() || t.Out(0).Kind() != reflect.Pointer ||
		t.In(0).Kind() != reflect.Pointer || t.In(0).Elem().Kind() != reflect.Struct {
		return nil, nil, fmt.Errorf("a field accessor must be a func(T) *V where T is a pointer to a struct, not %s", t)
	}
	if t.Out(0).Elem().Size() == 0 {
		return nil, nil, fmt.Errorf("%s: values of %s have no address of their own: give the field by its path",
			t, nameOf(t.Out(0).Elem()))
	}
	if opaque(t.In(0).Elem()) {
		return nil, nil, fmt.Errorf("%s: %s has no typed fields: give the field by its path", t, nameOf(t.In(0).Elem()))
	}
	instance := reflect.New(t.In(0).Elem())
	a := allocator{around: map[reflect.Type]int{}, left: 100_000}
	a.fill(instance.Elem())
	result, err := run(f, instance)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", t, err)
	}
	s := search{address: result.Pointer(), typ: t.Out(0).Elem()}
	found := s.in(instance.Elem())
	runtime.KeepAlive(result)
	if !found {
		return nil, nil, fmt.Errorf("%s: the result is not the address of a field of %s: "+
			"return &object.Field, or a field that is a pointer; a computed value has no path",
			t, nameOf(t.In(0).Elem()))
	}
	path, err := s.path(t.In(0).Elem())
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", t, err)
	}
	declared, err := Check(t.In(0), path)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", t, err)
	}
	return path, declared, nil
}

func run(f, instance reflect.Value) (result reflect.Value, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the accessor panicked on an object with empty maps and lists (%v): "+
				"elements of lists and maps have no address; give the field by its path", r)
		}
	}()
	result = f.Call([]reflect.Value{instance})[0]
	if result.IsNil() {
		return result, errors.New("the accessor returned nil: return the address of a field, without conditions; " +
			"elements of maps have none, give them by their path")
	}
	return result, nil
}

// nesting is how often a type may contain itself in an allocated object.
const nesting = 3

// allocator sets the pointers in an object, down to types that contain themselves.
type allocator struct {
	around map[reflect.Type]int // how often each is open around the current value
	left   int                  // pointers still allowed, for types that contain each other many times
}

func (a *allocator) fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		elem := v.Type().Elem()
		if v.CanSet() && a.around[elem] < nesting && a.left > 0 {
			a.left--
			v.Set(reflect.New(elem))
			a.fill(v.Elem())
		}
	case reflect.Struct:
		a.around[v.Type()]++
		for i := range v.NumField() {
			a.fill(v.Field(i))
		}
		a.around[v.Type()]--
	}
}

// search looks for an address. A struct and its first field share one, so that
// the type must fit, too.
type search struct {
	address uintptr
	typ     reflect.Type
	steps   []step // to the field, found or being looked at
}

type step struct {
	reflect.StructField
	owner reflect.Type // the struct that declares it
}

func (s *search) in(v reflect.Value) bool {
	if v.Type() == s.typ && v.UnsafeAddr() == s.address {
		return true
	}
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && s.in(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			s.steps = append(s.steps, step{v.Type().Field(i), v.Type()})
			if s.in(v.Field(i)) {
				return true
			}
			s.steps = s.steps[:len(s.steps)-1]
		}
	}
	return false
}

// path turns the steps from a struct to the field into the path in JSON.
func (s *search) path(t reflect.Type) (diff.Path, error) {
	var path diff.Path
	whole := true // the path is that of the last step
	for i, step := range s.steps {
		if i > 0 && formOf(step.owner) != object {
			return nil, fmt.Errorf("%s is inside of %s, which is written as one value%s: return the address of that",
				step.Name, nameOf(step.owner), at(path))
		}
		name, _, known := jsonName(step.StructField)
		if !known {
			return nil, fmt.Errorf("%s%s has no name in JSON, so it is never part of an object", step.Name, at(path))
		}
		if whole = !inlined(step.StructField); !whole {
			continue
		}
		if shown, ok := fieldsOf(t).named(name); !ok || shown.Owner != step.owner || shown.GoName != step.Name {
			return nil, fmt.Errorf("%s of %s%s is hidden in JSON by another field of the name %q",
				step.Name, nameOf(step.owner), at(path), name)
		}
		path, t = append(path, name), dereference(step.Type)
	}
	if len(path) == 0 || !whole {
		return nil, errors.New("the result has no path of its own: return the address of one of its fields")
	}
	return path, nil
}
