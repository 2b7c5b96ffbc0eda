package command

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// value is that of a flag. A wrong one is noted as a problem, so that all are told together.
type value struct {
	flag    string
	kind    string // named in usages
	text    string // the default; empty: none to speak of
	parse   func(text string) error
	problem func(format string, args ...any)
	texts   []string // as they were given
}

func (v *value) String() string { return v.text }
func (v *value) Type() string   { return v.kind }

func (v *value) Set(text string) error {
	if err := v.take(text); err != nil {
		v.problem("--%s is %q: %w", v.flag, text, err)
	}
	return nil
}

func (v *value) take(text string) error {
	v.texts = append(v.texts, text)
	return v.parse(text)
}

var (
	durationType  = reflect.TypeFor[time.Duration]()
	durationsType = reflect.TypeFor[[]time.Duration]()
	readable      = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// scalar tells whether fields of a type can be set by a text.
func scalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64:
		return true
	}
	return t == durationsType || reflect.PointerTo(t).Implements(readable)
}

// valueOf is one that sets a field of a scalar type.
func valueOf(field reflect.Value) *value {
	v := &value{parse: parserOf(field)}
	switch t := field.Type(); {
	case reflect.PointerTo(t).Implements(readable):
		v.kind = "text"
	case t == durationType, t == durationsType:
		v.kind = strings.TrimPrefix(strings.ReplaceAll(t.String(), "time.D", "d"), "[]")
		if t == durationsType {
			v.kind = "durations"
		}
	default:
		v.kind = t.Kind().String()
	}
	return v
}

func parserOf(field reflect.Value) func(string) error {
	t := field.Type()
	if reflect.PointerTo(t).Implements(readable) {
		return func(text string) error {
			return field.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
		}
	}
	switch {
	case t == durationType:
		return func(text string) error {
			d, err := duration(text)
			if err == nil {
				field.SetInt(int64(d))
			}
			return err
		}
	case t == durationsType:
		return func(text string) error {
			all, err := durations(text)
			if err == nil {
				field.Set(reflect.ValueOf(all))
			}
			return err
		}
	case t.Kind() == reflect.Bool:
		return func(text string) error {
			yes, err := truth(text)
			if err == nil {
				field.SetBool(yes)
			}
			return err
		}
	case t.Kind() == reflect.String:
		return func(text string) error {
			field.SetString(text)
			return nil
		}
	}
	return func(text string) error {
		n, err := strconv.ParseInt(text, 10, t.Bits())
		if err != nil {
			return fmt.Errorf("that is no integer of %d bits", t.Bits())
		}
		field.SetInt(n)
		return nil
	}
}

// duration reads one such as 1m30s. A mere number is one of seconds, as in Kopf.
func duration(text string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		d := seconds * float64(time.Second)
		if d != d || d > float64(1<<62) || d < -float64(1<<62) {
			return 0, fmt.Errorf("that is no time")
		}
		return time.Duration(d), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("that is no time such as 90, 90s or 1m30s")
	}
	return d, nil
}

// durations reads several with commas between them.
func durations(text string) (all []time.Duration, err error) {
	for part := range strings.SplitSeq(text, ",") {
		d, err := duration(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%q: %w", part, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// truth reads the words for yes and no (CLI-2).
func truth(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "1", "true", "t", "yes", "y", "on":
		return true, nil
	case "0", "false", "f", "no", "n", "off":
		return false, nil
	}
	return false, fmt.Errorf("say yes or no")
}

// shown is a value of a setting as it is given. Zero values are not worth showing.
func shown(field reflect.Value) string {
	switch v := field.Interface().(type) {
	case time.Duration:
		if v == 0 {
			return ""
		}
		return short(v)
	case []time.Duration:
		var all []string
		for _, d := range v {
			all = append(all, short(d))
		}
		return strings.Join(all, ",")
	}
	if field.IsZero() {
		return ""
	}
	return fmt.Sprint(field.Interface())
}

// short is a duration without parts that are zero: 3m, not 3m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
