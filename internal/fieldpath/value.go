package fieldpath

import "reflect"

// FieldNamed returns the field of a struct that has a name in JSON, addressable if the struct
// is. It is not found if there is none of that name, or if it is in an embedded struct
// whose pointer is nil.
func FieldNamed(v reflect.Value, name string) (reflect.Value, bool) {
	f, known := fieldsOf(v.Type()).named(name)
	if !known {
		return reflect.Value{}, false
	}
	return f.in(v)
}

// in finds the field in a struct, or in one that is embedded there.
func (f field) in(v reflect.Value) (reflect.Value, bool) {
	if v.Type() == f.Owner {
		return v.FieldByName(f.GoName), true
	}
	for i := range v.NumField() {
		if _, _, known := jsonName(v.Type().Field(i)); !known || !inlined(v.Type().Field(i)) {
			continue
		}
		embedded := v.Field(i)
		for embedded.Kind() == reflect.Pointer && !embedded.IsNil() {
			embedded = embedded.Elem()
		}
		if embedded.Kind() != reflect.Struct {
			continue
		}
		if found, ok := f.in(embedded); ok {
			return found, true
		}
	}
	return reflect.Value{}, false
}
