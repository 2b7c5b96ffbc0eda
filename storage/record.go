package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kopf-go/kopf/internal/rawjson"
)

// Record is the progress of one handler on one object, as it is kept between
// attempts and over restarts (PRG-1, B.3). Times are kept to the microsecond.
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

// Encode returns the record as one line of JSON, byte for byte as Kopf writes it
// (B.3.1).
func (r *Record) Encode() string { return r.encode(false) }

// encode writes nulls for what is absent if they are wanted (T063).
func (r *Record) encode(verbose bool) string {
	dst := append(make([]byte, 0, 256), '{')
	key := func(name string) {
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), name...), '"', ':')
	}
	absent := func(name string) {
		if verbose {
			key(name)
			dst = append(dst, "null"...)
		}
	}
	text := func(name, s string) {
		if s == "" {
			absent(name)
			return
		}
		key(name)
		dst = rawjson.AppendString(dst, s)
	}
	instant := func(name string, t time.Time) {
		if t.IsZero() {
			absent(name)
			return
		}
		key(name)
		dst = t.UTC().AppendFormat(dst, instantLayout)
	}
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
	if len(r.Subrefs) == 0 {
		absent("subrefs")
	}
	for i, id := range sortedSet(r.Subrefs) {
		if i == 0 {
			key("subrefs")
			dst = append(dst, '[')
		} else {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendString(dst, id)
	}
	if len(r.Subrefs) > 0 {
		dst = append(dst, ']')
	}
	if r.Digest != "" { // Kopf knows no such key, not even as a null
		text("digest", r.Digest)
	}
	return string(append(dst, '}'))
}

// Fields returns the record as the value of a field (B.3.5). All keys are in it, with
// nulls for what is absent, so that in a merge patch it replaces an older record.
func (r *Record) Fields() map[string]any {
	text := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	instant := func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return strings.Trim(t.UTC().Format(instantLayout), `"`)
	}
	var subrefs any
	if len(r.Subrefs) > 0 {
		ids := []any{}
		for _, id := range sortedSet(r.Subrefs) {
			ids = append(ids, id)
		}
		subrefs = ids
	}
	return map[string]any{
		"started": instant(r.Started), "stopped": instant(r.Stopped), "delayed": instant(r.Delayed),
		"purpose": text(r.Purpose), "retries": int64(r.Retries), "success": r.Success, "failure": r.Failure,
		"message": text(r.Message), "subrefs": subrefs, "digest": text(r.Digest),
	}
}

// DecodeRecord reads a record from its JSON text. It takes what Kopf, older Kopfs
// and other writers may have written: absent or null keys, unknown keys, any zone
// of a time or none, which is UTC, with or without a fraction (B.3.2, B.3.3).
func DecodeRecord(value string) (Record, error) {
	var r Record
	raw := []byte(value)
	if !rawjson.IsObject(raw) {
		return r, errors.New("not a JSON object")
	}
	if !rawjson.Valid(raw) {
		return r, errors.New("not valid JSON")
	}
	for w := (rawjson.Walker{Src: raw}); w.Member(); {
		name, value := string(rawjson.Unescape(w.Name)), jsontext.Value(w.Raw())
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
