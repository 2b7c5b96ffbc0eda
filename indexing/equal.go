package indexing

import "reflect"

// equality returns how values of a type are compared. It never panics, which == would
// do for interfaces with, say, slices in them.
func equality[V any]() func(a, b V) bool {
	if plain(reflect.TypeFor[V]()) {
		return func(a, b V) bool { return any(a) == any(b) }
	}
	return func(a, b V) bool { return reflect.DeepEqual(a, b) }
}

// plain tells whether == is defined for all values of a type.
func plain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Interface:
		return false
	case reflect.Array:
		return plain(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !plain(t.Field(i).Type) {
				return false
			}
		}
		return true
	}
	return t.Comparable()
}

// reflexive tells whether a key equals itself. NaN does not. It panics, as the use in
// a map would, if the key is an interface with something in it that has no ==.
func reflexive[K comparable](key K) bool {
	same := key
	return key == same
}
