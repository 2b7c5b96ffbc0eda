package typed

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Resource is a custom resource made of a spec and a status, without generated
// code:
//
//	type Database = kopf.Resource[DatabaseSpec, DatabaseStatus]
//
// It needs no scheme; handlers for it name the resource with on.Resource. Spec
// and Status are plain structs with json tags.
type Resource[Spec, Status any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec,omitempty"`
	Status Status `json:"status,omitempty"`
}

// DeepCopyObject copies the object with everything that it points to (a few µs
// for a few KB, by reflection).
func (r *Resource[Spec, Status]) DeepCopyObject() runtime.Object {
	if r == nil {
		return nil
	}
	return r.DeepCopy()
}

// DeepCopy is DeepCopyObject with the type kept.
func (r *Resource[Spec, Status]) DeepCopy() *Resource[Spec, Status] {
	if r == nil {
		return nil
	}
	out := &Resource[Spec, Status]{TypeMeta: r.TypeMeta}
	r.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	copyDeep(reflect.ValueOf(&r.Spec).Elem(), reflect.ValueOf(&out.Spec).Elem())
	copyDeep(reflect.ValueOf(&r.Status).Elem(), reflect.ValueOf(&out.Status).Elem())
	return out
}

// copyDeep copies from into the settable into. A type that knows how to copy
// itself is asked to; unexported fields are copied as they are, as for time.Time.
func copyDeep(from, into reflect.Value) {
	if from.CanAddr() {
		if method := from.Addr().MethodByName("DeepCopyInto"); method.IsValid() &&
			method.Type().NumIn() == 1 && method.Type().In(0) == from.Addr().Type() && method.Type().NumOut() == 0 {
			method.Call([]reflect.Value{into.Addr()})
			return
		}
	}
	into.Set(from)
	switch from.Kind() {
	case reflect.Pointer:
		if !from.IsNil() {
			into.Set(reflect.New(from.Type().Elem()))
			copyDeep(from.Elem(), into.Elem())
		}
	case reflect.Interface:
		if !from.IsNil() {
			inner := reflect.New(from.Elem().Type()).Elem()
			copyDeep(addressable(from.Elem()), inner)
			into.Set(inner)
		}
	case reflect.Slice:
		if !from.IsNil() {
			into.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
			for i := range from.Len() {
				copyDeep(from.Index(i), into.Index(i))
			}
		}
	case reflect.Array:
		for i := range from.Len() {
			copyDeep(from.Index(i), into.Index(i))
		}
	case reflect.Map:
		if !from.IsNil() {
			into.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
			for entries := from.MapRange(); entries.Next(); {
				value := reflect.New(from.Type().Elem()).Elem()
				copyDeep(addressable(entries.Value()), value)
				into.SetMapIndex(entries.Key(), value)
			}
		}
	case reflect.Struct:
		for i := range from.NumField() {
			copyField(from.Type().Field(i), from.Field(i), into.Field(i))
		}
	}
}

// copyField copies a field of a struct that was copied flatly. An embedded struct
// of an unexported type has exported fields, of which JSON knows.
func copyField(field reflect.StructField, from, into reflect.Value) {
	switch {
	case field.IsExported():
		copyDeep(from, into)
	case field.Anonymous && field.Type.Kind() == reflect.Struct:
		for i := range from.NumField() {
			copyField(field.Type.Field(i), from.Field(i), into.Field(i))
		}
	}
}

func addressable(value reflect.Value) reflect.Value {
	copied := reflect.New(value.Type()).Elem()
	copied.Set(value)
	return copied
}
