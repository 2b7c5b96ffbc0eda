package schemas

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// scalar tells whether values of a type are written as one word.
func scalar(name string) bool {
	return name == "string" || name == "boolean" || numeric(name)
}

func numeric(name string) bool { return name == "integer" || name == "number" }

// tags adds to a field's schema what its tags say.
func (d *describer) tags(s *Schema, tag reflect.StructTag, path string) {
	s.Description = tag.Get("doc")
	if format, given := tag.Lookup("format"); given {
		s.Format = format
	}
	for _, limit := range []struct {
		name string
		fits bool
		set  func(text string) error
	}{
		{"minimum", numeric(s.Type), number(&s.Minimum)},
		{"maximum", numeric(s.Type), number(&s.Maximum)},
		{"minLength", s.Type == "string", length(&s.MinLength)},
		{"maxLength", s.Type == "string", length(&s.MaxLength)},
		{"minItems", s.Type == "array", length(&s.MinItems)},
		{"maxItems", s.Type == "array", length(&s.MaxItems)},
		{"pattern", s.Type == "string", func(text string) (err error) {
			s.Pattern = text
			_, err = regexp.Compile(text)
			return err
		}},
		{"enum", scalar(s.Type), func(text string) error { return s.choices(text) }},
		{"default", true, func(text string) error { return s.initial(text) }},
	} {
		text, given := tag.Lookup(limit.name)
		switch {
		case !given:
		case !limit.fits:
			d.mistake(path, "the tag %s does not fit a field of type %s", limit.name, s.Type)
		default:
			if err := limit.set(text); err != nil {
				d.mistake(path, "the tag %s: %w", limit.name, err)
			}
		}
	}
}

func number(into **float64) func(string) error {
	return func(text string) error {
		value, err := strconv.ParseFloat(text, 64)
		*into = &value
		return err
	}
}

func length(into **int64) func(string) error {
	return func(text string) error {
		value, err := strconv.ParseUint(text, 10, 31)
		*into = new(int64(value))
		return err
	}
}

// choices are the only values that there can be.
func (s *Schema) choices(text string) error {
	for choice := range strings.SplitSeq(text, ",") {
		choice = strings.TrimSpace(choice)
		if s.Type == "string" {
			s.Enum = append(s.Enum, choice)
			continue
		}
		value, err := s.value(choice)
		if err != nil {
			return err
		}
		s.Enum = append(s.Enum, value)
	}
	if s.Nullable {
		s.Enum = append(s.Enum, nil)
	}
	return nil
}

// initial is the value of a field that is not there.
func (s *Schema) initial(text string) (err error) {
	if s.Default, err = s.value(text); err != nil {
		return err
	}
	if len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(choice any) bool { return reflect.DeepEqual(choice, s.Default) }) {
		return fmt.Errorf("%s is not one of enum", text)
	}
	return nil
}

// value reads one in JSON, of the schema's type.
func (s *Schema) value(text string) (value any, err error) {
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return nil, fmt.Errorf("%s is not in JSON: %w", text, err)
	}
	fits := true
	switch v := value.(type) {
	case string:
		fits = s.Type == "string"
	case bool:
		fits = s.Type == "boolean"
	case float64:
		fits = s.Type == "number" || s.Type == "integer" && v == float64(int64(v))
	case map[string]any:
		fits = s.Type == "object"
	case []any:
		fits = s.Type == "array"
	case nil:
		fits = s.Nullable
	}
	if !fits && s.Type != "" {
		return nil, fmt.Errorf("%s is no %s", text, s.Type)
	}
	return value, nil
}
