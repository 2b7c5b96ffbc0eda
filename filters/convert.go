package filters

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"

	"github.com/kopf-go/kopf/diff"
)

// treeOf turns a literal into the tree that it is in JSON.
func treeOf(literal any) (any, error) {
	switch literal := literal.(type) {
	case nil:
		return nil, errNil
	case string, bool, int64, int, int32:
		return literal, nil
	case Criterion:
		return nil, fmt.Errorf("filters.Equal takes a value, not the criterion %s: pass that as it is", literal)
	}
	if reflect.TypeOf(literal).Kind() == reflect.Func {
		return nil, errors.New("filters.Equal takes a value, not a function: pass the function as it is")
	}
	text, err := json.Marshal(literal)
	if err != nil {
		return nil, fmt.Errorf("a %T cannot be a literal, for it has no JSON form: %w", literal, err)
	}
	var tree any
	if err := decode(text, &tree); err != nil {
		return nil, fmt.Errorf("a %T cannot be a literal, for its JSON form is not readable: %w", literal, err)
	}
	if tree == nil {
		return nil, fmt.Errorf("%w (this %T is null in JSON)", errNil, literal)
	}
	return tree, nil
}

// decode reads JSON without loss of digits.
func decode(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return nil
}

// convert makes a tree that is not null into a value of type t, if it fits.
func convert(tree any, t reflect.Type) (reflect.Value, bool) {
	if t.Kind() == reflect.Pointer && !selfReading(t) {
		elem, ok := convert(tree, t.Elem())
		if !ok {
			return reflect.Value{}, false
		}
		pointer := reflect.New(t.Elem())
		pointer.Elem().Set(elem)
		return pointer, true
	}
	from, into := reflect.ValueOf(tree), reflect.New(t).Elem()
	if !selfReading(t) {
		if from.Type().AssignableTo(t) {
			into.Set(from)
			return into, true
		}
		number, isNumber := tree.(json.Number)
		switch kind := t.Kind(); {
		case kind == reflect.Interface:
			// Only the user knows what goes into such a field.
			return into, t.NumMethod() > 0
		case kind == reflect.String && t != jsonNumber:
			if from.Kind() != reflect.String || isNumber {
				return into, false
			}
			into.SetString(from.String())
			return into, true
		case t == jsonNumber && from.Kind() == reflect.String && !isNumber:
			return into, false // encoding/json would take a text with digits
		case kind == reflect.Bool:
			if from.Kind() != reflect.Bool {
				return into, false
			}
			into.SetBool(from.Bool())
			return into, true
		case into.CanInt(), into.CanUint(), into.CanFloat():
			if isNumber {
				if from = parse(number); !from.IsValid() {
					return into, false
				}
			}
			if !setNumber(into, from) {
				return into, false
			}
			// A float64 in between may have rounded a fraction away.
			return into, !isNumber || into.CanFloat() || diff.Equal(tree, into.Interface())
		}
	}
	text, err := json.Marshal(tree)
	if err != nil || decode(text, into.Addr().Interface()) != nil {
		return into, false
	}
	return into, true
}

var jsonNumber = reflect.TypeFor[json.Number]()

// parse reads the number as int64, uint64 or float64, whichever holds it first;
// the result is invalid if none does.
func parse(n json.Number) reflect.Value {
	var signed int64
	var unsigned uint64
	var float float64
	switch {
	case json.Unmarshal([]byte(n), &signed) == nil:
		return reflect.ValueOf(signed)
	case json.Unmarshal([]byte(n), &unsigned) == nil:
		return reflect.ValueOf(unsigned)
	case json.Unmarshal([]byte(n), &float) == nil:
		return reflect.ValueOf(float)
	}
	return reflect.Value{}
}

// setNumber sets a number from one of another type. It refuses what overflows and
// fractions for integers; floats take the nearest value.
func setNumber(into, from reflect.Value) bool {
	if from.CanFloat() && !into.CanFloat() {
		// Integers may be written as 3.0.
		f := from.Float()
		switch {
		case f != math.Trunc(f):
			return false
		case f >= -1<<63 && f < 1<<63:
			from = reflect.ValueOf(int64(f))
		case f >= 0 && f < 1<<64:
			from = reflect.ValueOf(uint64(f))
		default:
			return false
		}
	}
	switch {
	case into.CanInt() && from.CanInt():
		into.SetInt(from.Int())
		return into.Int() == from.Int()
	case into.CanInt() && from.CanUint():
		into.SetInt(int64(from.Uint()))
		return into.Int() >= 0 && uint64(into.Int()) == from.Uint()
	case into.CanUint() && from.CanInt():
		into.SetUint(uint64(from.Int()))
		return from.Int() >= 0 && into.Uint() == uint64(from.Int())
	case into.CanUint() && from.CanUint():
		into.SetUint(from.Uint())
		return into.Uint() == from.Uint()
	case into.CanFloat() && from.CanInt():
		into.SetFloat(float64(from.Int()))
		return true
	case into.CanFloat() && from.CanUint():
		into.SetFloat(float64(from.Uint()))
		return true
	case into.CanFloat() && from.CanFloat():
		into.SetFloat(from.Float())
		return !into.OverflowFloat(from.Float())
	}
	return false
}

// mayConvert tells whether some value of a field of type t may become a param.
func mayConvert(t, param reflect.Type, depth int) bool {
	t, param = dereference(t), dereference(param)
	form, wanted := formOf(t), formOf(param)
	switch {
	case t == param, form == unknown, wanted == unknown, depth > 8:
		return true
	case form != wanted:
		return false
	case form == list, t.Kind() == reflect.Map && param.Kind() == reflect.Map:
		return mayConvert(t.Elem(), param.Elem(), depth+1)
	}
	return true
}

// form is what values of a Go type are in JSON. Unknown is what only the type's
// own methods could tell.
type form string

const (
	unknown form = "unknown"
	text    form = "a string"
	boolean form = "a bool"
	numeral form = "a number"
	object  form = "an object"
	list    form = "a list"
)

func formOf(t reflect.Type) form {
	if t == jsonNumber {
		return numeral
	}
	if selfReading(t) || selfWriting(t) {
		return unknown
	}
	switch t.Kind() {
	case reflect.String:
		return text
	case reflect.Bool:
		return boolean
	case reflect.Struct, reflect.Map:
		return object
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return text // base64
		}
		return list
	case reflect.Array:
		return list
	case reflect.Interface:
		return unknown
	}
	if zero := reflect.Zero(t); zero.CanInt() || zero.CanUint() || zero.CanFloat() {
		return numeral
	}
	return unknown
}

// kindOf names the form of a tree.
func kindOf(tree any) form {
	if _, ok := tree.(json.Number); ok {
		return numeral
	}
	return formOf(reflect.TypeOf(tree))
}

func dereference(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer && t.Name() == "" {
		t = t.Elem()
	}
	return t
}

func selfReading(t reflect.Type) bool {
	return has[json.Unmarshaler](t) || has[encoding.TextUnmarshaler](t)
}

func selfWriting(t reflect.Type) bool {
	return has[json.Marshaler](t) || has[encoding.TextMarshaler](t)
}

// has tells whether t, or a pointer to it, implements the interface.
func has[I any](t reflect.Type) bool {
	i := reflect.TypeFor[I]()
	return t.Implements(i) || t.Kind() != reflect.Interface && reflect.PointerTo(t).Implements(i)
}

// typeName is the type with its article, without the pointer.
func typeName(t reflect.Type) string {
	name := dereference(t).String()
	if strings.ContainsRune("aeio", rune(name[0])) {
		return "an " + name
	}
	return "a " + name
}

func jsonText(tree any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(tree); err != nil {
		return fmt.Sprint(tree)
	}
	return strings.TrimSuffix(text.String(), "\n")
}
