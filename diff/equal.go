package diff

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strconv"
)

// Equal tells whether two trees hold the same JSON value, which is when Of finds
// no change between them. Keys with null are ignored in objects, at any depth;
// an element of a list that is null is an element. A nil map or slice is null.
//
// Numbers are equal if their values are, whatever their Go types: 1 equals 1.0,
// but no bool (DIF-4), and 9007199254740993 differs from 9007199254740992.0. A
// fraction counts as the shortest decimal that denotes it, as JSON writes it.
// NaN, which JSON lacks, equals itself.
//
// It allocates nothing for trees as decoders make them.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case nil:
		return null(b)
	case map[string]any:
		object, _ := b.(map[string]any)
		if a == nil || object == nil {
			return a == nil && null(b)
		}
		return equalObjects(a, object)
	case []any:
		list, _ := b.([]any)
		if a == nil || list == nil {
			return a == nil && null(b)
		}
		return equalLists(a, list)
	case string:
		if b, ok := b.(string); ok {
			return a == b
		}
	case bool:
		if b, ok := b.(bool); ok {
			return a == b
		}
	case int64:
		if b, ok := b.(int64); ok {
			return a == b
		}
	case float64:
		if b, ok := b.(float64); ok {
			return a == b || a != a && b != b
		}
	}
	return equalOthers(a, b)
}

func equalObjects(a, b map[string]any) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	common := 0
	for key, value := range a {
		other, ok := b[key]
		if ok {
			common++
		}
		if !Equal(value, other) {
			return false
		}
	}
	if common == len(b) {
		return true
	}
	for key, value := range b {
		if _, ok := a[key]; !ok && !null(value) {
			return false
		}
	}
	return true
}

func equalLists(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// equalOthers compares what decoders of JSON into any do not make: numbers of
// different types, named types, and anything else by reflection.
func equalOthers(a, b any) bool {
	if null(a) || null(b) {
		return null(a) && null(b)
	}
	var spaceA, spaceB [64]byte
	numberA, isA := numeric(a, spaceA[:0])
	numberB, isB := numeric(b, spaceB[:0])
	if isA || isB {
		return isA && isB && numberA.equal(numberB)
	}
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	switch {
	case va.Kind() == reflect.String && vb.Kind() == reflect.String && !isNumber(a) && !isNumber(b):
		return va.String() == vb.String()
	case va.Kind() == reflect.Bool && vb.Kind() == reflect.Bool:
		return va.Bool() == vb.Bool()
	}
	return reflect.DeepEqual(a, b)
}

func isNumber(v any) bool {
	_, ok := v.(json.Number)
	return ok
}

// number is a decimal number, 0.DIGITS × 10^exponent, with no zero at either end
// of its digits. Zero has no digits. Something that is not finite has a name.
type number struct {
	negative bool
	digits   []byte
	exponent int
	name     string
}

func (n number) equal(m number) bool {
	return n.negative == m.negative && n.exponent == m.exponent && n.name == m.name &&
		bytes.Equal(n.digits, m.digits)
}

// numeric reads a number of any type; digits go to space.
func numeric(v any, space []byte) (number, bool) {
	switch v := v.(type) {
	case int64:
		return decimal(strconv.AppendInt(space, v, 10))
	case int:
		return decimal(strconv.AppendInt(space, int64(v), 10))
	case float64:
		return floating(v, 64, space)
	case json.Number:
		return decimal(append(space, v...))
	}
	value := reflect.ValueOf(v)
	switch {
	case value.CanInt():
		return decimal(strconv.AppendInt(space, value.Int(), 10))
	case value.CanUint():
		return decimal(strconv.AppendUint(space, value.Uint(), 10))
	case value.CanFloat():
		return floating(value.Float(), value.Type().Bits(), space)
	}
	return number{}, false
}

func floating(f float64, bits int, space []byte) (number, bool) {
	switch {
	case math.IsNaN(f):
		return number{name: "NaN"}, true
	case math.IsInf(f, 0):
		return number{name: "Inf", negative: f < 0}, true
	case f == math.Trunc(f) && f >= -1<<63 && f < 1<<64:
		// The shortest decimal of a large integer ends in made-up zeros.
		if f < 0 {
			return decimal(strconv.AppendInt(space, int64(f), 10))
		}
		return decimal(strconv.AppendUint(space, uint64(f), 10))
	}
	return decimal(strconv.AppendFloat(space, f, 'e', -1, bits))
}

// decimal reads the text of a JSON number, of which it reuses the space.
func decimal(text []byte) (n number, ok bool) {
	rest := text
	if len(rest) > 0 && rest[0] == '-' {
		n.negative, rest = true, rest[1:]
	}
	digits, point, seen := text[:0], false, false
	for len(rest) > 0 && rest[0] != 'e' && rest[0] != 'E' {
		switch c := rest[0]; {
		case c == '.' && !point:
			point = true
		case c < '0' || c > '9':
			return number{}, false
		default:
			seen = true
			if c == '0' && len(digits) == 0 { // a leading zero
				if point {
					n.exponent--
				}
				break
			}
			digits = append(digits, c)
			if !point {
				n.exponent++
			}
		}
		rest = rest[1:]
	}
	if len(rest) > 0 {
		exponent, err := strconv.Atoi(string(rest[1:]))
		if len(digits) == 0 && (err == nil || errors.Is(err, strconv.ErrRange)) {
			return number{}, seen // zero, whatever the exponent
		}
		if err != nil || exponent > math.MaxInt32 || exponent < math.MinInt32 {
			return number{}, false
		}
		n.exponent += exponent
	}
	n.digits = bytes.TrimRight(digits, "0")
	if len(n.digits) == 0 {
		return number{}, seen
	}
	return n, seen
}
