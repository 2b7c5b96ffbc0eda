package peering

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// record is what an operator says of itself in a peering object, under its identity (B.6).
type record struct {
	priority int64
	lifetime time.Duration
	lastSeen time.Time // zero: it does not say when, so that it lives until somebody removes it
	message  string    // of a freeze; Kopf takes no notice of it
}

const defaultLifetime = time.Minute

// encode returns the record as the value of a field. Python reads it, too: numbers are
// whole, and the time has an offset.
func (r record) encode() map[string]any {
	fields := map[string]any{
		"priority": r.priority,
		"lifetime": int64(r.lifetime / time.Second),
		"lastseen": r.lastSeen.UTC().Format("2006-01-02T15:04:05.000000+00:00"),
	}
	if r.message != "" {
		fields["message"] = r.message
	}
	return fields
}

// decodeRecord reads what anybody may have written. What is not there has Kopf's defaults;
// unknown fields mean nothing (PEER-6).
func decodeRecord(value any) (record, error) {
	fields, is := value.(map[string]any)
	if !is {
		return record{}, errors.New("it is no object")
	}
	r := record{lifetime: defaultLifetime}
	var err error
	if r.priority, err = whole(fields["priority"], 0); err != nil {
		return record{}, fmt.Errorf("priority: %w", err)
	}
	seconds, err := whole(fields["lifetime"], int64(defaultLifetime/time.Second))
	if err != nil {
		return record{}, fmt.Errorf("lifetime: %w", err)
	}
	r.lifetime = time.Duration(min(max(seconds, 0), math.MaxInt64/int64(time.Second))) * time.Second
	if r.lastSeen, err = instant(fields["lastseen"]); err != nil {
		return record{}, fmt.Errorf("lastseen: %w", err)
	}
	r.message, _ = fields["message"].(string)
	return r, nil
}

// whole reads a number. As in Python, a fraction is cut off, and a text will do.
func whole(value any, otherwise int64) (int64, error) {
	switch value := value.(type) {
	case nil:
		return otherwise, nil
	case int64:
		return value, nil
	case float64:
		if math.Abs(value) < math.MaxInt64 {
			return int64(value), nil
		}
	case json.Number:
		if n, err := value.Int64(); err == nil {
			return n, nil
		}
	case string:
		if n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%v is no whole number", value)
}

// instants are what is read as a time; Go accepts a fraction after the seconds in any of
// them, and a time without an offset is UTC.
var instants = []string{
	"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07", "2006-01-02T15:04:05",
	"2006-01-02T15:04Z07:00", "2006-01-02T15:04", "20060102T150405Z0700", "20060102T150405", "2006-01-02",
}

func instant(value any) (time.Time, error) {
	if value == nil {
		return time.Time{}, nil
	}
	text, is := value.(string)
	for _, layout := range instants {
		if t, err := time.Parse(layout, strings.Replace(text, " ", "T", 1)); err == nil && is && !t.IsZero() {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%v is not a time like 2026-11-30T01:32:58.834105+00:00", value)
}
