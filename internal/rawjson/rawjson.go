// Package rawjson works on JSON texts as they are, without decoding them: it walks
// through them, copies them in the form in which Python's json writes them, compares
// and digests their values.
//
// Bodies that came from the API server are parsed already, so their bytes are known
// to be valid. The walker relies on that and is therefore several times faster than a
// decoder that has to check; what anybody may have written is to be checked with
// [Valid] before. Everything here is safe for concurrent use but for a walker.
package rawjson

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// WhiteSpace is what JSON takes for it.
const WhiteSpace = " \t\r\n"

// Valid tells whether a walker can rely on the text. What Python's json reads and
// writes passes: half surrogate pairs, and repeated names.
func Valid(text []byte) bool { return jsontext.Value(text).IsValid(tolerant...) }

var tolerant = []jsontext.Options{jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)}

// IsObject tells whether the text begins as an object does.
func IsObject(text []byte) bool { return jsontext.Value(text).Kind() == '{' }

// Find returns the raw value of the field at the path, or nil if the path leads
// nowhere. For a field that is not there, which is the usual case, it costs a quick
// search for its names: none of them can be in the text in another form, for the
// API server escapes no plain characters.
func Find(text []byte, path ...string) []byte {
	for _, name := range slices.Backward(path) { // the last one is the rarest
		if !bytes.Contains(text, []byte(name)) && isPlain(name) {
			return nil
		}
	}
	for _, name := range path {
		if text = find(text, name); text == nil {
			return nil
		}
	}
	return text
}

func find(text []byte, name string) (found []byte) {
	if !IsObject(text) {
		return nil
	}
	for w := (Walker{Src: text}); w.Member(); {
		if string(Unescape(w.Name)) == name {
			found = w.Raw() // of a repeated name, the last one
		} else {
			w.Skip()
		}
	}
	return found
}

// isPlain tells whether nobody has a reason to escape anything in the name.
func isPlain(name string) bool {
	return strings.IndexFunc(name, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '-' && r != '_' && r != '.'
	}) < 0
}

// buffers are for texts on their way. Large ones are not
// kept: one huge object would hold its memory for ever.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const keptBuffer = 64 << 10

// GetBuffer returns an empty buffer, to be given back with [PutBuffer].
func GetBuffer() *[]byte {
	buffer := buffers.Get().(*[]byte)
	*buffer = (*buffer)[:0]
	return buffer
}

// PutBuffer gives a buffer back. Nothing may refer to it any more.
func PutBuffer(buffer *[]byte) {
	if cap(*buffer) <= keptBuffer {
		buffers.Put(buffer)
	}
}
