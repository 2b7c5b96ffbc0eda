package state

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/rawjson"
)

// Sensitive values are replaced by keyed digests, wherever an essence is taken or read
// (B25). A digest is a text that is valid base64, so that it decodes into []byte where
// a secret's data do. The key is derived from the object's UID, so equal values of two
// objects have nothing in common, and so is the path of the value within.

// digestMark begins all digests. It is base64 for six bytes.
const digestMark = "kopfhmac"

const digestSize = 18 // bytes, without padding in base64

// IsDigest tells whether a text is the digest of a sensitive value.
func IsDigest(text string) bool {
	digest, ok := strings.CutPrefix(text, digestMark)
	if !ok || len(digest) != base64.StdEncoding.EncodedLen(digestSize) {
		return false
	}
	_, err := base64.StdEncoding.DecodeString(digest)
	return err == nil
}

// Sensitive tells whether digests stand in an essence for what the object has at the
// path: for all of it, if the path is within a sensitive field, or for parts of it, if a
// sensitive field is within the path. The real value is in the object only.
func (s *Store) Sensitive(path []string) bool {
	return s.rules != nil && overlaps(s.rules.hidden, path)
}

// overlaps tells whether one of the paths is the beginning of the other.
func overlaps(paths [][]string, path []string) bool {
	return slices.ContainsFunc(paths, func(p []string) bool {
		n := min(len(p), len(path))
		return slices.Equal(p[:n], path[:n])
	})
}

// rules say what of the selected fields is not essential, or must not be seen.
type rules struct {
	excluded [][]string
	hidden   [][]string
	key      []byte
}

// newRules returns nil if there are none.
func newRules(c Config, excluded [][]string) *rules {
	r := &rules{excluded: excluded, hidden: c.Sensitive, key: c.DigestKey}
	if c.Secret {
		r.hidden = append(slices.Clone(r.hidden), []string{"data"}, []string{"stringData"})
	}
	if len(r.hidden) > 0 { // a copy of everything, if a handler names it as its field
		r.excluded = append(r.excluded, []string{"metadata", "annotations", kubectlApplied})
	}
	if len(r.hidden) == 0 && len(r.excluded) == 0 {
		return nil
	}
	return r
}

// reaches tells whether anything at the path can be in an essence.
func (s *selection) reaches(path []string) bool {
	if len(path) == 0 {
		return false
	}
	switch path[0] {
	case "status", "apiVersion", "kind":
		return overlaps(s.extra, path)
	case "metadata":
		return len(path) == 1 || path[1] == "labels" || path[1] == "annotations" || overlaps(s.extra, path)
	}
	return true
}

// apply appends the essence without what is excluded, and with digests for what is
// hidden. stored tells that the essence was read, and may have digests in it already;
// exposed, that something was hidden that was not a digest.
func (r *rules) apply(dst, text []byte, uid types.UID, stored bool) (out []byte, exposed bool) {
	a := application{rules: r, uid: uid, stored: stored}
	dst = a.object(dst, text, nil)
	return dst, a.exposed
}

type application struct {
	*rules
	uid     types.UID
	stored  bool
	exposed bool
	mac     hash.Hash // made when it is needed
}

// object appends an object at the path, of which something is excluded or hidden.
func (a *application) object(dst, text []byte, at []string) []byte {
	dst = append(dst, '{')
	for w := (rawjson.Walker{Src: text}); w.Member(); {
		path := append(at[:len(at):len(at)], string(rawjson.Unescape(w.Name)))
		start := len(dst)
		switch hidden := has(a.hidden, path); {
		case has(a.excluded, path) == whole:
			w.Skip()
		case hidden == whole:
			dst = a.hide(appendName(dst, w.Name), w.Raw(), path)
		case hidden == nothing && has(a.excluded, path) == nothing || w.Kind() != '{':
			dst = w.Copy(appendName(dst, w.Name))
		default:
			raw := w.Raw()
			dst = a.object(appendName(dst, w.Name), raw, path)
			if bytes.HasSuffix(dst, []byte(":{}")) && len(raw) > len("{}") { // emptied by us (ESS-4)
				dst = dst[:start]
			}
		}
	}
	return append(dst, '}')
}

// has tells how much of the field at the path is meant by one of the paths.
func has(paths [][]string, path []string) want {
	found := nothing
	for _, p := range paths {
		switch {
		case len(p) == 0:
		case len(p) <= len(path) && slices.Equal(p, path[:len(p)]):
			return whole
		case len(p) > len(path) && slices.Equal(p[:len(path)], path):
			found = partly
		}
	}
	return found
}

// hide appends digests instead of a value: of an object's members each, of anything
// else one. What is null, or an empty object, is no secret.
func (a *application) hide(dst, value []byte, at []string) []byte {
	switch w := (rawjson.Walker{Src: value}); w.Kind() {
	case 'n':
		return append(dst, "null"...)
	case '{':
		dst = append(dst, '{')
		for w.Member() {
			path := append(at[:len(at):len(at)], string(rawjson.Unescape(w.Name)))
			dst = a.hide(appendName(dst, w.Name), w.Raw(), path)
		}
		return append(dst, '}')
	case '"':
		if a.stored && IsDigest(string(bytes.Trim(value, `"`))) {
			return append(dst, value...)
		}
	}
	a.exposed = true
	return append(append(append(dst, '"'), a.digest(value, at)...), '"')
}

// digest is that of a value at a path: of its canonical form, so that 1 and 1.0 have
// the same.
func (a *application) digest(value []byte, at []string) []byte {
	if a.mac == nil {
		key := hmac.New(sha256.New, append([]byte("kopf sensitive value\x00"), a.key...))
		key.Write([]byte(a.uid))
		a.mac = hmac.New(sha256.New, key.Sum(nil))
	}
	buffer := rawjson.GetBuffer()
	defer rawjson.PutBuffer(buffer)
	for _, key := range at {
		*buffer = rawjson.AppendString(*buffer, key) // quoted, so that paths differ
	}
	*buffer = rawjson.AppendCanonical(*buffer, value)
	a.mac.Reset()
	a.mac.Write(*buffer)
	clear(*buffer)
	return base64.StdEncoding.AppendEncode([]byte(digestMark), a.mac.Sum(nil)[:digestSize])
}
