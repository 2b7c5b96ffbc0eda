// Package schemas describes Go types to the API server: it makes structural schemas, and
// CustomResourceDefinitions, of them.
package schemas

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kopf-go/kopf/internal/fieldpath"
)

// Schema is a structural schema as CustomResourceDefinitions have it: the part of
// JSONSchemaProps that Go types and their tags can say.
type Schema struct {
	Type                  string             `json:"type,omitempty"`
	Description           string             `json:"description,omitempty"`
	Format                string             `json:"format,omitempty"`
	Pattern               string             `json:"pattern,omitempty"`
	Enum                  []any              `json:"enum,omitempty"`
	Default               any                `json:"default,omitempty"`
	Minimum               *float64           `json:"minimum,omitempty"`
	Maximum               *float64           `json:"maximum,omitempty"`
	MinLength             *int64             `json:"minLength,omitempty"`
	MaxLength             *int64             `json:"maxLength,omitempty"`
	MinItems              *int64             `json:"minItems,omitempty"`
	MaxItems              *int64             `json:"maxItems,omitempty"`
	Nullable              bool               `json:"nullable,omitempty"`
	Items                 *Schema            `json:"items,omitempty"`
	Properties            map[string]*Schema `json:"properties,omitempty"`
	AdditionalProperties  *Schema            `json:"additionalProperties,omitempty"`
	Required              []string           `json:"required,omitempty"`
	AnyOf                 []Schema           `json:"anyOf,omitempty"`
	PreserveUnknownFields bool               `json:"x-kubernetes-preserve-unknown-fields,omitempty"`
	EmbeddedResource      bool               `json:"x-kubernetes-embedded-resource,omitempty"`
	IntOrString           bool               `json:"x-kubernetes-int-or-string,omitempty"`
}

// Of describes a Go type as encoding/json writes and reads it. Fields without omitempty or
// omitzero are required. What may be nil, and is written even so, is nullable. Types that
// write themselves are whatever they say with OpenAPISchemaType, as those of Kubernetes do;
// text, if they are a TextMarshaler; else anything. Where a type comes to itself again, which
// no schema can say, anything may be. Tags say more of a field:
//
//	Engine   string `json:"engine" doc:"which database" enum:"mysql,postgres" default:"\"mysql\""`
//	Replicas int32  `json:"replicas,omitempty" minimum:"1" maximum:"5"`
//
// doc, enum (values with commas between), default (in JSON), minimum, maximum, minLength,
// maxLength, pattern, format, minItems and maxItems. All mistakes are reported together.
func Of(t reflect.Type) (*Schema, error) {
	d := &describer{}
	s := d.of(t, "")
	return s, errors.Join(d.mistakes...)
}

// describer describes one type, with those in it.
type describer struct {
	within   []reflect.Type // structs, from the outermost one to the one that is described
	mistakes []error
}

func (d *describer) mistake(path, format string, args ...any) {
	d.mistakes = append(d.mistakes, fmt.Errorf("%s: %w", strings.TrimPrefix(path, "."), fmt.Errorf(format, args...)))
}

// known are types that say nothing of themselves, or not the whole of it.
var known = map[reflect.Type]Schema{
	reflect.TypeFor[metav1.ObjectMeta]():         {Type: "object", PreserveUnknownFields: true}, // else the API server takes all of it away
	reflect.TypeFor[metav1.FieldsV1]():           {Type: "object", PreserveUnknownFields: true},
	reflect.TypeFor[runtime.RawExtension]():      {Type: "object", PreserveUnknownFields: true},
	reflect.TypeFor[unstructured.Unstructured](): {Type: "object", PreserveUnknownFields: true, EmbeddedResource: true},
	reflect.TypeFor[json.RawMessage]():           {PreserveUnknownFields: true, Nullable: true},
}

func (d *describer) of(t reflect.Type, path string) *Schema {
	if s, is := known[t]; is {
		return &s
	}
	if t.Kind() == reflect.Pointer {
		return d.of(t.Elem(), path)
	}
	if s := itself(t); s != nil {
		return s
	}
	switch t.Kind() {
	case reflect.Bool:
		return &Schema{Type: "boolean"}
	case reflect.Int32, reflect.Int16, reflect.Int8:
		return &Schema{Type: "integer", Format: "int32"}
	case reflect.Int, reflect.Int64:
		return &Schema{Type: "integer", Format: "int64"}
	case reflect.Uint, reflect.Uint64, reflect.Uint32, reflect.Uint16, reflect.Uint8, reflect.Uintptr:
		return &Schema{Type: "integer", Format: "int64", Minimum: new(float64(0))}
	case reflect.Float32:
		return &Schema{Type: "number", Format: "float"}
	case reflect.Float64:
		return &Schema{Type: "number", Format: "double"}
	case reflect.String:
		return &Schema{Type: "string"}
	case reflect.Interface:
		return &Schema{PreserveUnknownFields: true, Nullable: true}
	case reflect.Slice, reflect.Array:
		return d.list(t, path)
	case reflect.Map:
		return d.mapping(t, path)
	case reflect.Struct:
		return d.structure(t, path)
	}
	d.mistake(path, "%s has no form in JSON", t)
	return &Schema{}
}

// itself is what a type says of itself, or nil. A method of the pointer counts, too, for
// fields are addressable.
func itself(t reflect.Type) *Schema {
	value := reflect.New(t).Interface()
	if either, is := value.(interface{ OpenAPIV3OneOfTypes() []string }); is { // such as a Quantity, which may be a number
		return typedBy(either.OpenAPIV3OneOfTypes(), "")
	}
	if typed, is := value.(interface{ OpenAPISchemaType() []string }); is {
		return typedBy(typed.OpenAPISchemaType(), formatOf(value))
	}
	if t.Kind() == reflect.Interface {
		return nil
	}
	_, marshals := value.(json.Marshaler)
	_, unmarshals := value.(json.Unmarshaler)
	_, isText := value.(encoding.TextMarshaler)
	switch {
	case t.PkgPath() == "time" && t.Name() == "Time":
		return &Schema{Type: "string", Format: "date-time"}
	case marshals || unmarshals:
		return &Schema{PreserveUnknownFields: true, Nullable: true}
	case isText:
		return &Schema{Type: "string"}
	}
	return nil
}

func formatOf(value any) string {
	if formatted, is := value.(interface{ OpenAPISchemaFormat() string }); is {
		return formatted.OpenAPISchemaFormat()
	}
	return ""
}

// typedBy makes a schema of what Kubernetes' types say.
func typedBy(types []string, format string) *Schema {
	switch {
	case format == "int-or-string", slices.Contains(types, "string") && (slices.Contains(types, "integer") || slices.Contains(types, "number")):
		return &Schema{IntOrString: true, AnyOf: []Schema{{Type: "integer"}, {Type: "string"}}}
	case len(types) != 1:
		return &Schema{PreserveUnknownFields: true, Nullable: true}
	case types[0] == "object" || types[0] == "array":
		return &Schema{Type: types[0], PreserveUnknownFields: true}
	}
	return &Schema{Type: types[0], Format: format}
}

// list: bytes are text in base64, unless their number is fixed.
func (d *describer) list(t reflect.Type, path string) *Schema {
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && itself(t.Elem()) == nil {
		return &Schema{Type: "string", Format: "byte"}
	}
	s := &Schema{Type: "array", Items: d.element(t.Elem(), path+"[]")}
	if t.Kind() == reflect.Array {
		s.MinItems, s.MaxItems = new(int64(t.Len())), new(int64(t.Len()))
	}
	return s
}

func (d *describer) mapping(t reflect.Type, path string) *Schema {
	switch key := t.Key(); {
	case key.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
	case key.Kind() == reflect.String, key.Kind() >= reflect.Int && key.Kind() <= reflect.Uintptr:
	default:
		d.mistake(path, "a map by %s has no form in JSON", key)
	}
	return &Schema{Type: "object", AdditionalProperties: d.element(t.Elem(), path+".*")}
}

// element is what is in a list or map: nil is written as null there.
func (d *describer) element(t reflect.Type, path string) *Schema {
	s := *d.of(t, path)
	s.Nullable = s.Nullable || canBeNil(t)
	return &s
}

func canBeNil(t reflect.Type) bool {
	return slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface}, t.Kind())
}

func (d *describer) structure(t reflect.Type, path string) *Schema {
	if slices.Contains(d.within, t) {
		return &Schema{Type: "object", PreserveUnknownFields: true}
	}
	d.within = append(d.within, t)
	defer func() { d.within = d.within[:len(d.within)-1] }()
	s := &Schema{Type: "object"}
	for _, f := range fieldpath.Fields(t) {
		_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		has := func(option string) bool { return slices.Contains(strings.Split(options, ","), option) }
		optional := has("omitempty") || has("omitzero")
		at := path + "." + f.Key
		property := *d.of(f.Type, at)
		if has("string") && scalar(property.Type) {
			property = Schema{Type: "string"}
		}
		property.Nullable = property.Nullable && property.Type == "" || canBeNil(f.Type) && !optional
		d.tags(&property, f.Tag, at)
		if s.Properties == nil {
			s.Properties = map[string]*Schema{}
		}
		s.Properties[f.Key] = &property
		if !optional {
			s.Required = append(s.Required, f.Key)
		}
	}
	slices.Sort(s.Required)
	return s
}
