package rawjson

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
)

// Equal tells whether two valid JSON texts have the same value: the order of keys is
// irrelevant, a null equals an absent key (DIF-1), and numbers are compared by their
// exact value (DIF-4, X25).
func Equal(a, b []byte) bool {
	x, y := GetBuffer(), GetBuffer()
	defer PutBuffer(x)
	defer PutBuffer(y)
	*x, *y = AppendCanonical(*x, a), AppendCanonical(*y, b)
	return bytes.Equal(*x, *y)
}

// Digest returns hex digits of so many bytes for the value of a valid JSON text: the
// same for all that are [Equal].
func Digest(text []byte, size int) string {
	buffer := GetBuffer()
	defer PutBuffer(buffer)
	*buffer = AppendCanonical(*buffer, text)
	sum := sha256.Sum256(*buffer)
	return hex.EncodeToString(sum[:size])
}

// AppendCanonical appends the one form that all equal values have: keys sorted,
// members that are null left out (DIF-1), of a repeated key the last one,
// numbers as digits and exponent.
func AppendCanonical(dst, text []byte) []byte {
	c := canonical{Walker: Walker{Src: text}}
	return c.value(dst)
}

type canonical struct {
	Walker
	members []member // of all objects that are being worked on, as a stack
	scratch []byte
}

// member is where the name and value of an object's member are in the output.
type member struct{ start, colon, end int }

func (c *canonical) value(dst []byte) []byte {
	switch c.Kind() {
	case '{':
		return c.object(dst)
	case '[':
		return c.array(dst)
	case '"':
		return c.CopyString(dst)
	case 't', 'f', 'n':
		return append(dst, c.Literal()...)
	}
	return appendNumber(dst, c.Literal())
}

func (c *canonical) array(dst []byte) []byte {
	dst = append(dst, '[')
	c.Pos++
	for first := true; ; first = false {
		kind := c.Kind()
		if kind == ',' {
			c.Pos++
			kind = c.Kind()
		}
		if kind == ']' || kind == 0 {
			c.Pos++
			return append(dst, ']')
		}
		if !first {
			dst = append(dst, ',')
		}
		dst = c.value(dst)
	}
}

func (c *canonical) object(dst []byte) []byte {
	base, start := len(c.members), len(dst)
	for c.Member() {
		m := member{start: len(dst)}
		dst, _ = CopyText(dst, c.Name, 0)
		m.colon = len(dst)
		dst = c.value(dst)
		m.end = len(dst)
		c.members = append(c.members, m)
	}
	members := c.members[base:]
	name := func(m member) []byte { return dst[m.start:m.colon] }
	slices.SortStableFunc(members, func(a, b member) int { return bytes.Compare(name(a), name(b)) })

	ordered := append(c.scratch[:0], '{')
	for i, m := range members {
		if i+1 < len(members) && bytes.Equal(name(m), name(members[i+1])) {
			continue
		}
		value := dst[m.colon:m.end]
		if string(value) == "null" {
			continue
		}
		if len(ordered) > 1 {
			ordered = append(ordered, ',')
		}
		ordered = append(append(ordered, '"'), name(m)...)
		ordered = append(append(ordered, '"', ':'), value...)
	}
	c.scratch = append(ordered, '}')
	c.members = c.members[:base]
	return append(dst[:start], c.scratch...)
}

// appendNumber appends a number by its exact value: an optional sign, digits
// without zeros at either end, and a decimal exponent. 1, 1.0 and 10e-1 are 1e0.
func appendNumber(dst, literal []byte) []byte {
	mantissa, exponent := literal, int64(0)
	if e := bytes.IndexAny(literal, "eE"); e >= 0 {
		var err error
		if exponent, err = strconv.ParseInt(string(literal[e+1:]), 10, 32); err != nil {
			return append(dst, literal...) // beyond what any number can be
		}
		mantissa = literal[:e]
	}
	start := len(dst)
	if bytes.HasPrefix(mantissa, []byte("-")) {
		dst, mantissa = append(dst, '-'), mantissa[1:]
	}
	digits := len(dst)
	for i, c := range mantissa {
		if c == '.' {
			exponent -= int64(len(mantissa) - i - 1)
		} else if c != '0' || len(dst) > digits {
			dst = append(dst, c)
		}
	}
	if len(dst) == digits {
		return append(dst[:start], '0') // and so is -0
	}
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
		exponent++
	}
	return strconv.AppendInt(append(dst, 'e'), exponent, 10)
}
