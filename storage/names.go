package storage

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/blake2b"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The names and strings of Kopf's, all part of the wire format (B.2.1, B.2.5).
const (
	// DefaultPrefix is the part before the slash of Kopf's annotations.
	DefaultPrefix = "kopf.zalando.org"

	lastHandledKey = "last-handled-configuration"
	uidKey         = "last-handled-uid" // ours; Kopf ignores it
	seenKey        = "seen-"            // the beginning of; ours, too
	touchKey       = "touch-dummy"
	markerKey      = "kopf-managed"
	markerValue    = "yes"
)

// marks are appended to logical keys: the first for all objects, the second for
// ReplicaSets of Deployments (B.2.2). Kubernetes copies the annotations of a
// Deployment to its ReplicaSets, so that without a mark of its own a ReplicaSet
// would be taken as handled when its Deployment was.
var marks = [2]string{"", "-ofDRS"}

// markOf returns the index in marks for the object.
func markOf(o Object) int {
	if o.GroupVersionKind().Kind != "ReplicaSet" {
		return 0
	}
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == "Deployment" {
			return 1
		}
	}
	return 0
}

// maxName is how long Kubernetes lets the part of an annotation's name after the
// slash be.
const maxName = 63

// SameNames tells whether two handler ids would keep their progress in the same
// annotation, as "a/b" and "a.b" do.
func SameNames(a, b string) bool {
	return recordNames(DefaultPrefix, a, reserved)[0] == recordNames(DefaultPrefix, b, reserved)[0]
}

// recordNames are Kopf's names of a logical key, made legal.
func recordNames(prefix, key string, reserved func(name string) bool) []string {
	names := kopfNames(prefix, key)
	for i, full := range names {
		name := full[len(prefix)+1:]
		if len(validation.IsQualifiedName(name)) == 0 && !reserved(name) {
			continue
		}
		if i > 0 {
			return names[:i]
		}
		legal := legalName(key)
		if reserved(legal) { // "seen!" would become the word and a hash, as a seen state's is
			legal = "id-" + legal
		}
		return []string{prefix + "/" + legal}
	}
	return names
}

// reserved tells whether handlers can't have a name, for it is that of something else.
func reserved(name string) bool {
	name = strings.TrimSuffix(name, marks[1])
	switch name {
	case lastHandledKey, uidKey, touchKey, markerKey:
		return true
	}
	return isSeen(name)
}

// isSeen tells whether this is a name of what a handler has seen: "seen-" and the 16
// digits of a digest, without a mark.
func isSeen(name string) bool {
	digest, ok := strings.CutPrefix(name, seenKey)
	return ok && len(digest) == 16 && strings.Trim(digest, "0123456789abcdef") == ""
}

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
