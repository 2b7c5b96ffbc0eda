package state

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"

	utiljson "sigs.k8s.io/json"

	"github.com/kopf-go/kopf/internal/body"
)

// Essence is what counts of an object when it is asked whether the object has
// changed (ESS-1 to ESS-5): everything but apiVersion, kind, status and metadata;
// of the metadata the labels, and the annotations that are not bookkeeping; and
// the extra fields that handlers name. It is immutable and safe for concurrent use.
type Essence struct {
	text []byte

	decode sync.Once
	tree   map[string]any
	err    error

	sum    sync.Once
	digest string
}

// EssenceOf takes the essence of an object: one pass over its bytes, two
// allocations, nothing is decoded.
//
// extra are the paths of fields to have in addition, even if they are in the
// status or system metadata (ESS-3). They are copied literally: an annotation named
// by its path, or all of them with {"metadata", "annotations"}, comes along even
// if it is somebody's bookkeeping, but never our own (ESS-4). Paths lead through
// objects only, not into lists; ones that lead nowhere are ignored.
func EssenceOf(b *body.Body, n Naming, extra [][]string) *Essence {
	buffer := getBuffer()
	defer putBuffer(buffer)
	*buffer = appendEssence(*buffer, b, n, extra)
	return &Essence{text: bytes.Clone(*buffer)}
}

// Bytes returns the essence as Kopf writes it: compact ASCII JSON, keys in the
// order of the body with metadata and status last. The slice is shared and must
// not be changed.
func (e *Essence) Bytes() []byte { return e.text }

// Tree returns the essence as maps, slices, strings, bools, int64 and float64. It
// is decoded on the first call and shared. Numbers that are too large for int64
// are rounded in it, though not for [Essence.Equal].
func (e *Essence) Tree() (map[string]any, error) {
	e.decode.Do(func() {
		e.tree = map[string]any{}
		if err := utiljson.UnmarshalCaseSensitivePreserveInts(e.text, &e.tree); err != nil {
			e.err = fmt.Errorf("essence is not readable: %w", err)
		}
	})
	return e.tree, e.err
}

// Equal tells whether there is no difference that a handler should hear of. The
// order of keys is irrelevant, a null equals an absent key (DIF-1), and numbers are
// compared by their exact value: 1 and 1.0 are equal, 2^53 and 2^53+1 are not
// (DIF-4, X25). An absent essence, nil, equals only another one.
func (e *Essence) Equal(other *Essence) bool {
	if e == nil || other == nil {
		return e == other
	}
	return bytes.Equal(e.text, other.text) || sameValue(e.text, other.text)
}

// Digest returns 16 hex digits that are the same for equal essences, in the sense
// of [Essence.Equal], of any operator and any time. It is computed once.
func (e *Essence) Digest() string {
	e.sum.Do(func() { e.digest = digestOf(e.text) })
	return e.digest
}

// buffers are for essences and canonical forms on their way. Large ones are not
// kept: one huge object would hold its memory for ever.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const keptBuffer = 64 << 10

func getBuffer() *[]byte {
	buffer := buffers.Get().(*[]byte)
	*buffer = (*buffer)[:0]
	return buffer
}

func putBuffer(buffer *[]byte) {
	if cap(*buffer) <= keptBuffer {
		buffers.Put(buffer)
	}
}

// appendEssence appends the essence of the body (ESS-1).
func appendEssence(dst []byte, b *body.Body, n Naming, extra [][]string) []byte {
	s := selection{prefix: n.Prefix, extra: extra}
	for name := range b.Annotations {
		if prefix, ok := strings.CutSuffix(name, "/"+markerKey); ok {
			s.marked = append(s.marked, prefix)
		}
	}
	var apiVersion, kind, status []byte
	var meta metadata
	dst = append(dst, '{')
	for w := (walker{src: b.Raw()}); w.member(); {
		switch string(plainName(w.name)) {
		case "apiVersion":
			apiVersion = w.raw()
		case "kind":
			kind = w.raw()
		case "metadata":
			meta.read(&w)
		case "status":
			status = w.raw()
		default:
			dst = w.copy(appendName(dst, w.name))
		}
	}
	dst = s.appendMetadata(dst, &meta)
	dst = s.appendTop(dst, "status", status)
	dst = s.appendTop(dst, "apiVersion", apiVersion)
	dst = s.appendTop(dst, "kind", kind)
	return append(dst, '}')
}

// metadata are the parts of an object's metadata as they are in its bytes.
type metadata struct{ all, labels, annotations []byte }

func (m *metadata) read(w *walker) {
	if w.kind() != '{' {
		w.skip()
		return
	}
	start := w.pos
	for w.member() {
		switch string(plainName(w.name)) {
		case "labels":
			m.labels = w.raw()
		case "annotations":
			m.annotations = w.raw()
		default:
			w.skip()
		}
	}
	m.all = w.src[start:w.pos]
}

// selection says what of the fields that are not essential as a whole is.
type selection struct {
	prefix string   // our own
	marked []string // further prefixes of Kopf operators, by their markers
	extra  [][]string
}

// appendMetadata appends labels, annotations and extra fields, in this order,
// which is Kopf's: it is not the order of the API server.
func (s *selection) appendMetadata(dst []byte, meta *metadata) []byte {
	start := len(dst)
	dst = append(appendName(dst, []byte("metadata")), '{')
	if len(meta.labels) > 0 {
		at := len(dst)
		w := walker{src: meta.labels}
		dst = withoutEmpty(w.copy(appendName(dst, []byte("labels"))), at)
	}
	dst = s.appendAnnotations(dst, meta.annotations)
	if s.wants(nil, []byte("metadata")) != nothing {
		for w := (walker{src: meta.all}); w.member(); {
			switch string(plainName(w.name)) {
			case "labels", "annotations":
				w.skip()
			default:
				dst = s.appendField(dst, &w, metadataPath)
			}
		}
	}
	return withoutEmpty(append(dst, '}'), start)
}

func (s *selection) appendAnnotations(dst, annotations []byte) []byte {
	start := len(dst)
	dst = append(appendName(dst, []byte("annotations")), '{')
	for w := (walker{src: annotations}); w.member(); {
		if s.isEssential(plainName(w.name)) {
			dst = w.copy(appendName(dst, w.name))
		} else {
			w.skip()
		}
	}
	return withoutEmpty(append(dst, '}'), start)
}

// isEssential tells whether an annotation is the user's, and not bookkeeping of
// kubectl or of a Kopf operator (ESS-1, ESS-2, ESS-4).
func (s *selection) isEssential(name []byte) bool {
	slash := bytes.IndexByte(name, '/')
	if slash < 0 {
		return true
	}
	prefix := name[:slash]
	switch {
	case string(prefix) == s.prefix:
		return false
	case s.wants(annotationsPath, name) == whole:
		return true
	case string(name) == kubectlApplied,
		string(prefix) == kopfPrefix,
		bytes.HasSuffix(prefix, []byte("."+kopfPrefix)):
		return false
	}
	for _, marked := range s.marked {
		if string(prefix) == marked {
			return false
		}
	}
	return true
}

var (
	metadataPath    = []string{"metadata"}
	annotationsPath = []string{"metadata", "annotations"}
)

// appendTop appends what is wanted of a top-level field that is not essential.
func (s *selection) appendTop(dst []byte, name string, value []byte) []byte {
	if len(value) == 0 || len(s.extra) == 0 {
		return dst
	}
	start := len(dst)
	w := walker{src: value, name: []byte(name)}
	return withoutEmpty(s.appendField(dst, &w, nil), start)
}

// appendField consumes the member that the walker is at, of the object at the
// path, and appends what is wanted of it.
func (s *selection) appendField(dst []byte, w *walker, at []string) []byte {
	switch s.wants(at, w.name) {
	case whole:
		return w.copy(appendName(dst, w.name))
	case partly:
		start := len(dst)
		dst = append(appendName(dst, w.name), '{')
		empty := len(dst)
		path := append(at[:len(at):len(at)], string(plainName(w.name)))
		for inner := (walker{src: w.raw()}); inner.member(); {
			dst = s.appendField(dst, &inner, path)
		}
		if len(dst) == empty { // the path leads nowhere
			return dst[:start]
		}
		return append(dst, '}')
	default:
		w.skip()
		return dst
	}
}

// want says how much of a field is wanted.
type want int

const (
	nothing want = iota
	partly
	whole
)

// wants tells how much of the member of the object at the path is an extra field.
func (s *selection) wants(at []string, name []byte) want {
	found := nothing
	for _, path := range s.extra {
		switch depth := len(at); {
		case len(path) == 0:
		case len(path) <= depth:
			if slices.Equal(path, at[:len(path)]) {
				return whole
			}
		case slices.Equal(path[:depth], at) && string(plainName(name)) == path[depth]:
			if len(path) == depth+1 {
				return whole
			}
			found = partly
		}
	}
	return found
}

// appendName begins a member of the object that dst ends in.
func appendName(dst, raw []byte) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	dst, _ = copyText(append(dst, '"'), raw, 0)
	return append(dst, '"', ':')
}

// withoutEmpty takes the member that begins at start off again if there is nothing
// in it (ESS-1).
func withoutEmpty(dst []byte, start int) []byte {
	for _, empty := range [...]string{`":{}`, `":null`, `":[]`, `":""`} {
		if bytes.HasSuffix(dst[start:], []byte(empty)) {
			return dst[:start]
		}
	}
	return dst
}
