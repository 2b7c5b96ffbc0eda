package rawjson

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Walker goes through bytes that are known to be valid JSON, without checking them
// again. On bytes that are not, it yields nonsense, but neither panics nor loops.
type Walker struct {
	Src  []byte
	Pos  int
	Name []byte // of the current member: raw, possibly escaped, without quotes
}

// Kind returns the first byte of the next value, or 0 at the end.
func (w *Walker) Kind() byte {
	for w.Pos < len(w.Src) {
		switch c := w.Src[w.Pos]; c {
		case ' ', '\t', '\n', '\r':
			w.Pos++
		default:
			return c
		}
	}
	return 0
}

// Member moves on to the value of the next member of the object that the walker is
// at the beginning of or inside of, and sets Name. The value is then to be consumed
// with Skip, Raw, Copy or another walk. It returns false, with the object consumed,
// when there are no more members, and if there is no object.
func (w *Walker) Member() bool {
	c := w.Kind()
	if c == '{' || c == ',' {
		w.Pos++
		c = w.Kind()
	}
	if c == '}' {
		w.Pos++
	}
	if c != '"' {
		return false
	}
	start := w.Pos + 1
	w.SkipString()
	w.Name = w.Src[start:max(start, w.Pos-1)]
	if w.Kind() == ':' {
		w.Pos++
	}
	return w.Kind() != 0
}

// Skip consumes a value.
func (w *Walker) Skip() {
	switch w.Kind() {
	case '"':
		w.SkipString()
	case '{', '[':
		depth := 0
		for w.Pos < len(w.Src) {
			switch w.Src[w.Pos] {
			case '"':
				w.SkipString()
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			w.Pos++
			if depth == 0 {
				return
			}
		}
	default:
		w.Literal()
	}
}

// Raw consumes a value and returns its bytes as they are.
func (w *Walker) Raw() []byte {
	w.Kind()
	start := w.Pos
	w.Skip()
	return w.Src[start:w.Pos]
}

// Literal consumes a number, true, false or null, and returns it.
func (w *Walker) Literal() []byte {
	w.Kind()
	start := w.Pos
	for w.Pos < len(w.Src) {
		switch w.Src[w.Pos] {
		case ',', '}', ']', ':', ' ', '\t', '\n', '\r', '"', '{', '[':
			if w.Pos == start {
				w.Pos++ // not valid JSON; go on all the same
			}
			return w.Src[start:w.Pos]
		}
		w.Pos++
	}
	return w.Src[start:]
}

// SkipString consumes a string.
func (w *Walker) SkipString() {
	src, i := w.Src, w.Pos+1
	for i < len(src) {
		c := src[i]
		if c == '"' {
			w.Pos = i + 1
			return
		}
		if c == '\\' {
			i++
		}
		i++
	}
	w.Pos = len(src)
}

// Copy consumes a value and appends it in the form in which Python writes it: no
// white space, ASCII only, numbers as they are (B.3.1, B.4).
func (w *Walker) Copy(dst []byte) []byte {
	switch w.Kind() {
	case '"':
		return w.CopyString(dst)
	case '{', '[':
	default:
		return append(dst, w.Literal()...)
	}
	depth, from := 0, w.Pos
	for w.Pos < len(w.Src) {
		switch c := w.Src[w.Pos]; {
		case c == '"':
			dst = append(dst, w.Src[from:w.Pos]...)
			dst = w.CopyString(dst)
			from = w.Pos
			continue
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			depth--
			if depth == 0 {
				w.Pos++
				return append(dst, w.Src[from:w.Pos]...)
			}
		case c <= ' ':
			dst = append(dst, w.Src[from:w.Pos]...)
			from = w.Pos + 1
		}
		w.Pos++
	}
	return append(dst, w.Src[from:w.Pos]...)
}

// CopyString consumes a string and appends it.
func (w *Walker) CopyString(dst []byte) []byte {
	dst, w.Pos = CopyText(append(dst, '"'), w.Src, w.Pos+1)
	w.Pos = min(w.Pos+1, len(w.Src))
	return append(dst, '"')
}

// CopyText appends the inside of a string, which starts at i, and returns where it
// ends: at the closing quote or at the end of src. The escapes are those of
// Python's json, which escapes everything outside of printable ASCII and nothing
// else, whatever came in: Go's API server writes <, > and & as \u003c and so on,
// and other characters raw.
func CopyText(dst, src []byte, i int) ([]byte, int) {
	from := i
	for i < len(src) {
		c := src[i]
		if plain[c] {
			i++
			continue
		}
		if c == '"' {
			break
		}
		if c == '\\' && i+1 < len(src) && src[i+1] != 'u' && src[i+1] != '/' {
			i += 2 // one of \" \\ \b \f \n \r \t, the same for both
			continue
		}
		dst = append(dst, src[from:i]...)
		switch {
		case c != '\\':
			r, size := utf8.DecodeRune(src[i:])
			dst = appendRune(dst, r)
			i += size
		case i+6 <= len(src) && src[i+1] == 'u':
			// Half of a surrogate pair is taken by itself: Python escapes halves.
			dst = appendUnit(dst, hexUnit(src[i+2:i+6]))
			i += 6
		case i+2 <= len(src) && src[i+1] == '/':
			dst = append(dst, '/')
			i += 2
		default: // not valid JSON
			i = len(src)
		}
		from = i
	}
	return append(dst, src[from:i]...), i
}

// plain are the bytes which stand for themselves in Python's JSON strings.
var plain = func() (t [256]bool) {
	for c := ' '; c <= '~'; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// AppendString appends a Go string as Python's json.dumps would write it.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		if plain[s[i]] {
			dst = append(dst, s[i])
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		dst = appendRune(dst, r)
		i += size
	}
	return append(dst, '"')
}

func appendRune(dst []byte, r rune) []byte {
	if r <= 0xffff {
		return appendUnit(dst, uint16(r))
	}
	high, low := utf16.EncodeRune(r)
	return appendUnit(appendUnit(dst, uint16(high)), uint16(low))
}

// appendUnit appends one UTF-16 unit of a string.
func appendUnit(dst []byte, u uint16) []byte {
	const digits = "0123456789abcdef"
	switch u {
	case '"', '\\':
		return append(dst, '\\', byte(u))
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	if u < 0x80 && plain[u] {
		return append(dst, byte(u))
	}
	return append(dst, '\\', 'u', digits[u>>12], digits[u>>8&15], digits[u>>4&15], digits[u&15])
}

func hexUnit(digits []byte) (u uint16) {
	for _, c := range digits {
		u <<= 4
		switch {
		case '0' <= c && c <= '9':
			u |= uint16(c - '0')
		case 'a' <= c && c <= 'f':
			u |= uint16(c-'a') + 10
		case 'A' <= c && c <= 'F':
			u |= uint16(c-'A') + 10
		}
	}
	return u
}

// Unescape returns what a raw name stands for.
func Unescape(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	quoted := append(append([]byte{'"'}, raw...), '"')
	text, _ := jsontext.AppendUnquote(nil, quoted) // half a surrogate pair becomes U+FFFD
	return text
}
