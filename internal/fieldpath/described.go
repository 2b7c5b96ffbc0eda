package fieldpath

import "reflect"

// Member is a field of a struct under its name in JSON.
type Member struct {
	Key string
	reflect.StructField
}

// Fields lists the fields of a struct by the rules of encoding/json, with those of
// embedded structs.
func Fields(t reflect.Type) []Member {
	var all []Member
	for _, f := range fieldsOf(t) {
		if declared, ok := f.Owner.FieldByName(f.GoName); ok {
			all = append(all, Member{Key: f.Name, StructField: declared})
		}
	}
	return all
}
