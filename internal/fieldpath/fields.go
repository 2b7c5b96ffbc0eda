package fieldpath

import (
	"reflect"
	"strings"
)

// field is a field of a struct as JSON shows it.
type field struct {
	Name   string // in JSON
	GoName string
	Owner  reflect.Type // the struct that declares it, perhaps an embedded one
	Type   reflect.Type
	tagged bool
}

// fields are those of one struct, with those of embedded structs.
type fields []field

func (fs fields) named(name string) (field, bool) {
	for _, f := range fs {
		if f.Name == name {
			return f, true
		}
	}
	return field{}, false
}

// closest returns the name that was possibly meant by another one, or "".
func (fs fields) closest(name string) string {
	var names []string
	for _, f := range fs {
		if f.GoName == name {
			return f.Name
		}
		names = append(names, f.Name)
	}
	return Closest(name, names)
}

// Closest returns that of some names which was possibly meant by another one, or "".
func Closest(name string, names []string) string {
	best, distance := "", min(2, len(name)/2)+1
	for _, candidate := range names {
		if strings.EqualFold(candidate, name) {
			return candidate
		}
		if d := levenshtein(name, candidate); d < distance {
			best, distance = candidate, d
		}
	}
	return best
}

// fieldsOf lists the fields of a struct by the rules of encoding/json: those of
// embedded structs count as the struct's own unless the embedded field has a name
// in its tag; of several fields with one name the least nested wins, then the only
// one that is tagged, or else none.
func fieldsOf(t reflect.Type) fields {
	var found fields
	visited := map[reflect.Type]bool{}
	level := []reflect.Type{t}
	for len(level) > 0 {
		var candidates fields
		var next []reflect.Type
		for _, t := range level {
			if visited[t] {
				continue
			}
			for i := range t.NumField() {
				sf := t.Field(i)
				name, tagged, known := jsonName(sf)
				switch {
				case !known:
				case inlined(sf):
					next = append(next, dereference(sf.Type))
				default:
					candidates = append(candidates, field{name, sf.Name, t, sf.Type, tagged})
				}
			}
		}
		for _, t := range level { // only now, for one that is embedded twice is ambiguous
			visited[t] = true
		}
		shallower := found
		for _, c := range candidates {
			if _, hidden := shallower.named(c.Name); !hidden && candidates.dominant(c) {
				found = append(found, c)
			}
		}
		level = next
	}
	return found
}

// dominant tells whether f is the one of its name among fields of one level.
func (fs fields) dominant(f field) bool {
	total, tagged := 0, 0
	for _, other := range fs {
		if other.Name == f.Name {
			total++
			if other.tagged {
				tagged++
			}
		}
	}
	return total == 1 || f.tagged && tagged == 1
}

// jsonName returns the name of a field in JSON, and false if it has none.
func jsonName(sf reflect.StructField) (name string, tagged, known bool) {
	tag := sf.Tag.Get("json")
	if tag == "-" || !sf.IsExported() && !(sf.Anonymous && dereference(sf.Type).Kind() == reflect.Struct) {
		return "", false, false
	}
	name, _, _ = strings.Cut(tag, ",")
	if name != "" {
		return name, true, sf.IsExported()
	}
	return sf.Name, false, true
}

// inlined tells whether the fields of an embedded struct are those of the struct
// around it.
func inlined(sf reflect.StructField) bool {
	_, tagged, known := jsonName(sf)
	return known && !tagged && sf.Anonymous && dereference(sf.Type).Kind() == reflect.Struct
}

// levenshtein is the number of letters to insert, delete or replace.
func levenshtein(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
