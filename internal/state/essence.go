package state

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	utiljson "sigs.k8s.io/json"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/rawjson"
)

// Essence is what counts of an object when it is asked whether the object has
// changed (ESS-1 to ESS-5): everything but apiVersion, kind, status and metadata;
// of the metadata the labels, and the annotations that are not bookkeeping; and
// the extra fields that handlers name. It never holds values that are marked as
// sensitive, but digests of them. It is immutable and safe for concurrent use.
type Essence struct {
	text   []byte            // nil if it is not complete
	fields map[string]string // only if it is not complete: digests by top-level field

	decode sync.Once
	tree   map[string]any
	err    error

	sum    sync.Once
	digest string
}

// ErrIncomplete is what [Essence.Tree] returns if only digests are known.
var ErrIncomplete = errors.New("the object is too large for its former state to be kept: only which fields have changed is known")

// Complete tells whether the essence itself is known. If not, it was too large to be
// kept, and there are digests of its top-level fields only (B24): it can be compared,
// but not be looked at.
func (e *Essence) Complete() bool { return e.fields == nil }

// Bytes returns the essence as Kopf writes it: compact ASCII JSON, keys in the
// order of the body with metadata and status last. The slice is shared and must
// not be changed. It is nil if the essence is not complete.
func (e *Essence) Bytes() []byte { return e.text }

// Tree returns the essence as maps, slices, strings, bools, int64 and float64. It
// is decoded on the first call and shared. Numbers that are too large for int64
// are rounded in it, though not for [Essence.Equal]. Of an essence that is not complete
// it is empty, and the error is [ErrIncomplete].
func (e *Essence) Tree() (map[string]any, error) {
	if !e.Complete() {
		return map[string]any{}, ErrIncomplete
	}
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
	if !e.Complete() || !other.Complete() {
		return maps.Equal(e.fieldDigests(), other.fieldDigests())
	}
	return bytes.Equal(e.text, other.text) || rawjson.Equal(e.text, other.text)
}

// Changed returns the names of the top-level fields that differ, sorted: metadata
// stands for labels and annotations. An absent essence has no fields.
func (e *Essence) Changed(other *Essence) (names []string) {
	mine, others := e.fieldDigests(), other.fieldDigests()
	for name, digest := range mine {
		if others[name] != digest {
			names = append(names, name)
		}
	}
	for name := range others {
		if _, both := mine[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// fieldDigests returns 32 hex digits for each top-level field that is not null.
func (e *Essence) fieldDigests() map[string]string {
	switch {
	case e == nil:
		return nil
	case !e.Complete():
		return e.fields
	}
	digests := map[string]string{}
	for w := (rawjson.Walker{Src: e.text}); w.Member(); {
		name, value := string(rawjson.Unescape(w.Name)), w.Raw()
		delete(digests, name) // of a repeated name, the last one counts
		if string(value) != "null" {
			digests[name] = rawjson.Digest(value, 16)
		}
	}
	return digests
}

// Digest returns 16 hex digits that are the same for equal essences, in the sense
// of [Essence.Equal], of any operator and any time. It is computed once.
func (e *Essence) Digest() string {
	e.sum.Do(func() {
		if e.digest == "" {
			e.digest = rawjson.Digest(e.text, 8)
		}
	})
	return e.digest
}

// appendEssence appends the essence of the body (ESS-1), with everything in it that
// the selection does not leave out.
//
// Extra fields are copied literally (ESS-3): an annotation named by its path, or all of
// them with {"metadata", "annotations"}, comes along even if it is somebody's
// bookkeeping, but never our own (ESS-4). Paths lead through objects only, not into
// lists; ones that lead nowhere are ignored.
func appendEssence(dst []byte, b *body.Body, s selection) []byte {
	for name := range b.Annotations {
		if prefix, ok := strings.CutSuffix(name, "/"+markerKey); ok {
			s.marked = append(s.marked, prefix)
		}
	}
	var apiVersion, kind, status []byte
	var meta metadata
	dst = append(dst, '{')
	for w := (rawjson.Walker{Src: b.Raw()}); w.Member(); {
		switch string(rawjson.Unescape(w.Name)) {
		case "apiVersion":
			apiVersion = w.Raw()
		case "kind":
			kind = w.Raw()
		case "metadata":
			meta.read(&w)
		case "status":
			status = w.Raw()
		default:
			dst = w.Copy(appendName(dst, w.Name))
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

func (m *metadata) read(w *rawjson.Walker) {
	if w.Kind() != '{' {
		w.Skip()
		return
	}
	start := w.Pos
	for w.Member() {
		switch string(rawjson.Unescape(w.Name)) {
		case "labels":
			m.labels = w.Raw()
		case "annotations":
			m.annotations = w.Raw()
		default:
			w.Skip()
		}
	}
	m.all = w.Src[start:w.Pos]
}

// selection says what of the fields that are not essential as a whole is.
type selection struct {
	prefixes []string // our own
	marked   []string // further prefixes of Kopf operators, by their markers
	extra    [][]string
}

// appendMetadata appends labels, annotations and extra fields, in this order,
// which is Kopf's: it is not the order of the API server.
func (s *selection) appendMetadata(dst []byte, meta *metadata) []byte {
	start := len(dst)
	dst = append(appendName(dst, []byte("metadata")), '{')
	if len(meta.labels) > 0 {
		at := len(dst)
		w := rawjson.Walker{Src: meta.labels}
		dst = withoutEmpty(w.Copy(appendName(dst, []byte("labels"))), at)
	}
	dst = s.appendAnnotations(dst, meta.annotations)
	if s.wants(nil, []byte("metadata")) != nothing {
		for w := (rawjson.Walker{Src: meta.all}); w.Member(); {
			switch string(rawjson.Unescape(w.Name)) {
			case "labels", "annotations":
				w.Skip()
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
	for w := (rawjson.Walker{Src: annotations}); w.Member(); {
		if s.isEssential(rawjson.Unescape(w.Name)) {
			dst = w.Copy(appendName(dst, w.Name))
		} else {
			w.Skip()
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
	case slices.ContainsFunc(s.prefixes, func(own string) bool { return string(prefix) == own }):
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
	w := rawjson.Walker{Src: value, Name: []byte(name)}
	return withoutEmpty(s.appendField(dst, &w, nil), start)
}

// appendField consumes the member that the Walker is at, of the object at the
// path, and appends what is wanted of it.
func (s *selection) appendField(dst []byte, w *rawjson.Walker, at []string) []byte {
	switch s.wants(at, w.Name) {
	case whole:
		return w.Copy(appendName(dst, w.Name))
	case partly:
		start := len(dst)
		dst = append(appendName(dst, w.Name), '{')
		empty := len(dst)
		path := append(at[:len(at):len(at)], string(rawjson.Unescape(w.Name)))
		for inner := (rawjson.Walker{Src: w.Raw()}); inner.Member(); {
			dst = s.appendField(dst, &inner, path)
		}
		if len(dst) == empty { // the path leads nowhere
			return dst[:start]
		}
		return append(dst, '}')
	default:
		w.Skip()
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
		case slices.Equal(path[:depth], at) && string(rawjson.Unescape(name)) == path[depth]:
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
	dst, _ = rawjson.CopyText(append(dst, '"'), raw, 0)
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
