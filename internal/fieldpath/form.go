package fieldpath

import (
	"encoding"
	"encoding/json"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// form is what the values of a Go type are in JSON.
type form string

const (
	object  form = "an object"
	mapping form = "a map"
	list    form = "a list"
	scalar  form = "a scalar"
	text    form = "written as a text"
	own     form = "known to its methods only"
)

// formOf classifies a type that is not a pointer.
func formOf(t reflect.Type) form {
	if implements[json.Marshaler](t) {
		if writesScalar(t) {
			return text
		}
		return own
	}
	if implements[encoding.TextMarshaler](t) {
		return text
	}
	switch t.Kind() {
	case reflect.Struct:
		return object
	case reflect.Map:
		return mapping
	case reflect.Slice, reflect.Array:
		return list
	case reflect.Interface:
		return own
	}
	return scalar
}

// writesScalar tells of a type with a MarshalJSON whether it writes something
// without fields. Kubernetes' types say so in their OpenAPI method, of others the
// zero value is tried.
func writesScalar(t reflect.Type) bool {
	if t == reflect.TypeFor[time.Time]() {
		return true
	}
	zero := reflect.New(t)
	if typed, ok := zero.Interface().(interface{ OpenAPISchemaType() []string }); ok {
		types := typed.OpenAPISchemaType()
		for _, name := range types {
			if name == "object" || name == "array" {
				return false
			}
		}
		return len(types) > 0
	}
	written, err := marshal(zero)
	return err == nil && len(written) > 0 && written[0] != '{' && written[0] != '[' && string(written) != "null"
}

func marshal(v reflect.Value) (written []byte, err error) {
	defer func() {
		if recover() != nil { // the zero value is not one that the type expects
			written = nil
		}
	}()
	return json.Marshal(v.Interface())
}

// opaque tells whether values of a type may be any JSON: those of an interface,
// of unstructured objects, and of types that keep the bytes as they are, such as
// json.RawMessage, runtime.RawExtension and apiextensions' JSON.
func opaque(t reflect.Type) bool {
	switch {
	case t.Kind() == reflect.Interface, implements[runtime.Unstructured](t):
		return true
	case t == reflect.TypeFor[json.RawMessage]():
		return true
	case t.Kind() == reflect.Struct && implements[json.Marshaler](t):
		raw, ok := t.FieldByName("Raw")
		return ok && raw.Type == reflect.TypeFor[[]byte]()
	}
	return false
}

// implements tells whether t or a pointer to it implements the interface.
func implements[I any](t reflect.Type) bool {
	i := reflect.TypeFor[I]()
	return t.Implements(i) || reflect.PointerTo(t).Implements(i)
}
