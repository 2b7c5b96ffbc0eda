// Package fieldpath finds fields of Go structs by their path in JSON, and the
// path of a field that a function returns the address of. It runs at registration,
// once per handler, so that a mistyped path is an error there and not a handler
// that is silently never called.
//
// All functions are safe for concurrent use.
package fieldpath

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/kopf-go/kopf/diff"
)

// Parse splits a dotted path into its keys. There is no escaping (FLT-3): a key
// with dots needs a path given key by key. The empty path, empty keys and
// brackets are errors.
func Parse(dotted string) (diff.Path, error) {
	if dotted == "" {
		return nil, errors.New(`the field path is empty: name a field, such as "spec.replicas"`)
	}
	if strings.ContainsAny(dotted, "[]") {
		return nil, fmt.Errorf("field path %q: brackets are not understood: give a key with dots by on.Path, "+
			"key by key; elements of lists have no path, for lists are compared as a whole", dotted)
	}
	path := diff.Path(strings.Split(dotted, "."))
	for i, key := range path {
		if key != "" {
			continue
		}
		where := "in the middle"
		if i == 0 {
			where = "at the beginning"
		} else if i == len(path)-1 {
			where = "at the end"
		}
		return nil, fmt.Errorf("field path %q has an empty key %s: remove the extra dot", dotted, where)
	}
	return path, nil
}

// Check follows a path through the JSON form of the Go type t, a struct or a
// pointer to one, and returns the type of the field there as it is declared, such
// as *int32. Maps have all keys. The type is nil, without an error, if the path
// leads through something whose form only its own methods know, or ends in what
// can hold anything: any, runtime.RawExtension, unstructured objects.
//
// The error names the field that does not exist and one that was possibly meant.
// Lists and scalars have no fields, nor have types that are written as a scalar,
// such as metav1.Time.
func Check(t reflect.Type, path diff.Path) (reflect.Type, error) {
	for i, key := range path {
		t = dereference(t)
		if opaque(t) {
			return nil, nil
		}
		switch form := formOf(t); form {
		case object:
			field, ok := fieldsOf(t).named(key)
			if !ok {
				return nil, unknownField(t, path[:i], key)
			}
			t = field.Type
		case mapping:
			t = t.Elem()
		case own:
			return nil, nil
		case list:
			return nil, fmt.Errorf("no element %q%s: lists such as this %s are compared as a whole, "+
				"name the list itself", key, at(path[:i]), nameOf(t))
		default:
			return nil, fmt.Errorf("no field %q%s: %s is %s, not an object", key, at(path[:i]), nameOf(t), form)
		}
	}
	if opaque(dereference(t)) {
		return nil, nil
	}
	return t, nil
}

func unknownField(t reflect.Type, parent diff.Path, key string) error {
	fields := fieldsOf(t)
	hint := ""
	if meant := fields.closest(key); meant != "" {
		hint = fmt.Sprintf(" (did you mean %q?)", meant)
	}
	return fmt.Errorf("no field %q in %s%s%s", key, nameOf(t), at(parent), hint)
}

func at(path diff.Path) string {
	if len(path) == 0 {
		return ""
	}
	return " at " + path.String()
}

// nameOf is the name of a type without type arguments, whose long names say
// nothing here.
func nameOf(t reflect.Type) string {
	if t.Name() == "" {
		if t.Kind() == reflect.Struct {
			return "a struct"
		}
		return t.String()
	}
	name, _, _ := strings.Cut(t.String(), "[")
	return name
}

func dereference(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}
