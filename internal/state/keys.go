package state

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/blake2b"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kopf-go/kopf/internal/body"
)

// maxName is how long Kubernetes lets the part of an annotation's name after the
// slash be.
const maxName = 63

// Keys are the names of the annotations that hold the progress record of one
// handler. Make them once per handler id with [NewKeys]; they are immutable.
//
// A record has two names in Kopf, called V2 and V1 (B.2.3), which are the same
// unless the id is long; both are written, so that a rollback to an older Kopf
// remains possible, and V2 wins when reading (B.2.4).
//
// Any id gives legal names (B21). Where Kopf's own forms are legal these are
// exactly Kopf's. Where they are not, Kopf could not have stored anything, for
// the API server refuses the whole patch, and we are free: every character that
// is not allowed becomes "_", the ends are trimmed to letters and digits, and 16
// hex digits of a hash of the raw id follow, so that such ids never share a name:
//
//	"on update [v1]"  kopf.zalando.org/on_update__v1-abe88dcb8d1809e7
//
// The same is done for an id that Kopf would store in one of its bookkeeping
// annotations, such as "touch-dummy". If only Kopf's V1 is illegal, V2 is used
// alone.
//
// Distinct ids that differ only in "/" against ".", or "<>" against "_", share a
// name as they do in Kopf; [Keys.Names] shows it.
type Keys struct {
	// ID is the raw handler id, as it is used in results and subrefs.
	ID string

	names [2][]string
}

// NewKeys computes the names for a handler id.
func NewKeys(n Naming, id string) *Keys {
	k := &Keys{ID: id}
	for i, mark := range marks {
		k.names[i] = recordNames(n.Prefix, id+mark)
	}
	return k
}

// Names returns the full annotation names on this object, the preferred one first.
// The slice is shared and must not be changed.
func (k *Keys) Names(b *body.Body) []string { return k.names[markOf(b)] }

// SameNames tells whether two handler ids would keep their progress in the same
// annotation, as "a/b" and "a.b" do.
func SameNames(a, b string) bool {
	return NewKeys(standard, a).names[0][0] == NewKeys(standard, b).names[0][0]
}

// recordNames are Kopf's names of a logical key, made legal.
func recordNames(prefix, key string) []string {
	names := kopfNames(prefix, key)
	for i, full := range names {
		name := full[len(prefix)+1:]
		if len(validation.IsQualifiedName(name)) == 0 && !reserved[name] {
			continue
		}
		if i > 0 {
			return names[:i]
		}
		return []string{prefix + "/" + legalName(key)}
	}
	return names
}

// reserved are the names which handlers can't have, for they are other things.
var reserved = func() map[string]bool {
	r := map[string]bool{}
	for _, mark := range marks {
		for _, key := range []string{lastHandledKey, uidKey, touchKey, markerKey} {
			r[key+mark] = true
		}
	}
	return r
}()

// legalName is our own form: readable, legal, and unique for the raw key.
func legalName(key string) string {
	sum, _ := blake2b.New(8, nil) // fails for sizes and keys out of range only
	sum.Write([]byte(key))
	suffix := hex.EncodeToString(sum.Sum(nil))

	legal := func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '.':
			return r
		case r == '/':
			return '.' // as Kopf does
		}
		return '_'
	}
	readable := strings.Trim(strings.Map(legal, key), "-_.")
	readable = readable[:min(len(readable), maxName-1-len(suffix))] // ASCII by now
	if readable = strings.TrimRight(readable, "-_."); readable == "" {
		return suffix
	}
	return readable + "-" + suffix
}

// kopfNames are the names of a logical key exactly as Kopf forms them (B.2.3): V2,
// then V1 if it differs.
func kopfNames(prefix, key string) []string {
	safe := safeReplacer.Replace(key)
	v2 := safe
	if utf8.RuneCountInString(key) > maxName {
		suffix := kopfSuffix(key) // of the raw key
		v2 = leading(safe, maxName-len(suffix)) + suffix
	}
	v1, limit := safe, maxName-len(prefix)-1
	if utf8.RuneCountInString(safe) > limit {
		suffix := kopfSuffix(safe) // of the safe key
		v1 = leading(safe, limit-len(suffix)) + suffix
	}
	if v1 == v2 {
		return []string{prefix + "/" + v2}
	}
	return []string{prefix + "/" + v2, prefix + "/" + v1}
}

var safeReplacer = strings.NewReplacer("/", ".", "<", "_", ">", "_")

// kopfSuffix tells apart the names of long keys whose beginnings are the same.
func kopfSuffix(key string) string {
	sum, _ := blake2b.New(4, nil) // fails for sizes and keys out of range only
	sum.Write([]byte(key))
	digest := base64.StdEncoding.EncodeToString(sum.Sum(nil))
	return strings.TrimRight("-"+suffixReplacer.Replace(digest), "=-.")
}

var suffixReplacer = strings.NewReplacer("+", "-", "/", ".")

// leading is Python's s[:n], in characters: a negative n, which V1 arrives at with
// a prefix of 55 characters or more, drops characters at the end.
func leading(s string, n int) string {
	runes := []rune(s)
	if n < 0 {
		n = max(0, len(runes)+n)
	}
	return string(runes[:min(n, len(runes))])
}
