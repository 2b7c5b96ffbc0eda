package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kopf-go/kopf/internal/body"
)

// Record is the progress of one handler on one object, as it is kept in an
// annotation between attempts and over restarts (PRG-1, B.3). Times are kept to
// the microsecond.
type Record struct {
	// Started is the time of the first attempt, or of the selection before it.
	// Zero, in a record of somebody else's, stands for now (B.3.3).
	Started time.Time
	// Stopped is when the final outcome was known.
	Stopped time.Time
	// Delayed is the time not to make the next attempt before.
	Delayed time.Time
	// Purpose is create, update, delete or resume; empty, in records of very old
	// versions, matches any.
	Purpose string
	// Retries counts the attempts made.
	Retries int
	// Success and Failure are the final states.
	Success, Failure bool
	// Message is the text of the last error.
	Message string
	// Subrefs are the ids of all sub-handlers. They are written sorted.
	Subrefs []string
	// Digest is the digest of the essence that the handler succeeded with, so
	// that later changes can be told to it. It is ours: Kopf ignores the key and
	// drops it at its next write.
	Digest string
}

// Finished tells whether the handler has come to its end, well or not.
func (r *Record) Finished() bool { return r.Success || r.Failure }

// Sleeping tells whether the handler waits for its time.
func (r *Record) Sleeping(now time.Time) bool { return !r.Finished() && r.Delayed.After(now) }

// Awake tells whether the handler is to be run now.
func (r *Record) Awake(now time.Time) bool { return !r.Finished() && !r.Delayed.After(now) }

// Equal tells whether writing one instead of the other would change nothing that
// matters, so that it can be left out (B.3.6).
func (r *Record) Equal(other *Record) bool {
	return sameInstant(r.Started, other.Started) && sameInstant(r.Stopped, other.Stopped) &&
		sameInstant(r.Delayed, other.Delayed) &&
		r.Purpose == other.Purpose && r.Retries == other.Retries &&
		r.Success == other.Success && r.Failure == other.Failure &&
		r.Message == other.Message && r.Digest == other.Digest &&
		slices.Equal(sortedSet(r.Subrefs), sortedSet(other.Subrefs))
}

// Encode returns the value of the annotation, byte for byte as Kopf writes it
// (B.3.1).
func (r *Record) Encode() string {
	dst := make([]byte, 0, 256)
	key := func(name string) {
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), name...), '"', ':')
	}
	text := func(name, s string) {
		if s != "" {
			key(name)
			dst = appendString(dst, s)
		}
	}
	instant := func(name string, t time.Time) {
		if !t.IsZero() {
			key(name)
			dst = t.UTC().AppendFormat(dst, instantLayout)
		}
	}
	dst = append(dst, '{')
	instant("started", r.Started)
	instant("stopped", r.Stopped)
	instant("delayed", r.Delayed)
	text("purpose", r.Purpose)
	key("retries")
	dst = strconv.AppendInt(dst, int64(r.Retries), 10)
	key("success")
	dst = strconv.AppendBool(dst, r.Success)
	key("failure")
	dst = strconv.AppendBool(dst, r.Failure)
	text("message", r.Message)
	for i, id := range sortedSet(r.Subrefs) {
		if i == 0 {
			key("subrefs")
			dst = append(dst, '[')
		} else {
			dst = append(dst, ',')
		}
		dst = appendString(dst, id)
	}
	if len(r.Subrefs) > 0 {
		dst = append(dst, ']')
	}
	text("digest", r.Digest)
	return string(append(dst, '}'))
}

// DecodeRecord reads the value of an annotation. It takes what Kopf, older Kopfs
// and other writers may have written: absent or null keys, unknown keys, any zone
// of a time or none, which is UTC, with or without a fraction (B.3.2, B.3.3).
func DecodeRecord(value string) (Record, error) {
	var r Record
	raw := []byte(value)
	if k := jsontext.Value(raw).Kind(); k != '{' {
		return r, errors.New("not a JSON object")
	}
	if !jsontext.Value(raw).IsValid(tolerant...) {
		return r, errors.New("not valid JSON")
	}
	for w := (walker{src: raw}); w.member(); {
		name, value := string(plainName(w.name)), jsontext.Value(w.raw())
		if value.Kind() == 'n' {
			continue
		}
		var err error
		switch name {
		case "started":
			r.Started, err = decodeInstant(value)
		case "stopped":
			r.Stopped, err = decodeInstant(value)
		case "delayed":
			r.Delayed, err = decodeInstant(value)
		case "purpose":
			err = json.Unmarshal(value, &r.Purpose)
		case "retries":
			err = json.Unmarshal(value, &r.Retries)
		case "success":
			err = json.Unmarshal(value, &r.Success)
		case "failure":
			err = json.Unmarshal(value, &r.Failure)
		case "message":
			err = json.Unmarshal(value, &r.Message)
		case "subrefs":
			err = json.Unmarshal(value, &r.Subrefs)
		case "digest":
			err = json.Unmarshal(value, &r.Digest)
		}
		if err != nil {
			return Record{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r, nil
}

// tolerant lets pass what Python's json reads and writes: half surrogate pairs.
var tolerant = []jsontext.Options{jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)}

// Records reads the progress of handlers: by id, for those that have any on the
// object. Records that can't be read are left out and reported together, each as a
// *[CorruptError]; the others are good to use.
//
// Records that came along with a copied manifest are read as well; whoever asks
// for them is to look at [Foreign] first.
func Records(b *body.Body, keys ...*Keys) (map[string]Record, error) {
	var (
		found  map[string]Record
		broken []error
	)
	if len(b.Annotations) == 0 {
		return nil, nil
	}
	for _, k := range keys {
		r, ok, err := recordOf(b, k)
		if err != nil {
			broken = append(broken, err)
		}
		if !ok {
			continue
		}
		if found == nil {
			found = make(map[string]Record, len(keys))
		}
		found[k.ID] = r
	}
	return found, errors.Join(broken...)
}

// recordOf reads one record, V2 before V1 (B.2.4).
func recordOf(b *body.Body, k *Keys) (Record, bool, error) {
	for _, name := range k.Names(b) {
		value, ok := b.Annotations[name]
		if !ok || strings.Trim(value, whiteSpace) == "null" {
			continue
		}
		r, err := DecodeRecord(value)
		if err != nil {
			return Record{}, false, &CorruptError{Annotation: name, Err: err}
		}
		return r, true, nil
	}
	return Record{}, false, nil
}

// instantLayout always has six digits of a fraction and the offset, without which
// Kopf fails (B.3.2). It is for times in UTC, and has the quotes of JSON.
const instantLayout = `"2006-01-02T15:04:05.000000+00:00"`

// instantLayouts are what is accepted; Go accepts a fraction after the seconds in
// any of them, and a time without a zone is UTC.
var instantLayouts = []string{
	"2006-01-02T15:04:05Z07:00",
	"2006-01-02T15:04:05Z0700",
	"2006-01-02T15:04:05Z07",
	"2006-01-02T15:04:05",
}

func decodeInstant(value jsontext.Value) (time.Time, error) {
	var s string
	if err := json.Unmarshal(value, &s); err != nil {
		return time.Time{}, err
	}
	if len(s) > len("2006-01-02") && s[len("2006-01-02")] == ' ' {
		s = strings.Replace(s, " ", "T", 1)
	}
	for _, layout := range instantLayouts {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC().Truncate(time.Microsecond), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time like 2026-11-30T01:32:58.834105+00:00", s)
}

// sameInstant compares to the microsecond, for more is not written.
func sameInstant(a, b time.Time) bool {
	if a.IsZero() || b.IsZero() {
		return a.IsZero() == b.IsZero()
	}
	return a.Truncate(time.Microsecond).Equal(b.Truncate(time.Microsecond))
}

// sortedSet returns the ids as Kopf writes them: sorted, each once.
func sortedSet(ids []string) []string {
	if slices.IsSorted(ids) && !hasRepeats(ids) {
		return ids
	}
	return slices.Compact(slices.Sorted(slices.Values(ids)))
}

func hasRepeats(sorted []string) bool {
	for i := 1; i < len(sorted); i++ {
		if sorted[i-1] == sorted[i] {
			return true
		}
	}
	return false
}
