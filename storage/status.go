package storage

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kopf-go/kopf/internal/rawjson"
)

// StatusOptions are what can be chosen for [StatusProgress]. The zero value is Kopf's
// default.
type StatusOptions struct {
	// Name is of the operator; it takes the place of {name} in fields. Default: kopf.
	Name string
	// Field holds the records, by the ids of handlers. Dots separate its keys. Default:
	// status.{name}.progress.
	Field string
	// TouchField is what a Python operator wakes itself up by. Default:
	// status.{name}.dummy.
	TouchField string
}

// StatusProgress returns the storage that keeps the records in the status of the
// object (B.3.5): Kopf's StatusProgressStorage. The schema of a custom resource must
// have the field, or preserve unknown ones: else the API server drops the records, and
// nothing is remembered. On resources with a status endpoint it costs a second request
// per write.
//
// A field that is not one is reported by kopf.New.
func StatusProgress(o StatusOptions) Progress { return newStatus(o) }

func newStatus(o StatusOptions) *status {
	return &status{
		field: fieldOf(o.Name, cmp.Or(o.Field, "status.{name}.progress")),
		touch: fieldOf(o.Name, cmp.Or(o.TouchField, "status.{name}.dummy")),
	}
}

// fieldOf returns the path of a field of Kopf's settings (SET-3).
func fieldOf(name, dotted string) []string {
	return strings.Split(strings.Replace(dotted, "{name}", cmp.Or(name, "kopf"), 1), ".")
}

func checkField(path []string) error {
	dotted := strings.Join(path, ".")
	if slices.Contains(path, "") {
		return fmt.Errorf("storage field %q has an empty key, choose one like \"status.{name}.progress\"", dotted)
	}
	switch path[0] {
	case "metadata", "apiVersion", "kind":
		return fmt.Errorf("storage field %q is none of the operator's, choose one like \"status.{name}.progress\"", dotted)
	}
	return nil
}

// status is a [StatusProgress].
type status struct{ field, touch []string }

// Validate reports what is not a field.
func (s *status) Validate() error { return errors.Join(checkField(s.field), checkField(s.touch)) }

func (s *status) at(id string) []string {
	return append(s.field[:len(s.field):len(s.field)], id)
}

func (s *status) Fetch(o Object, id string) (Record, bool, error) {
	records := rawjson.Find(o.Raw(), s.field...)
	if records == nil {
		return Record{}, false, nil
	}
	value := rawjson.Find(records, id)
	if value == nil || string(value) == "null" {
		return Record{}, false, nil
	}
	r, err := DecodeRecord(string(value))
	if err != nil {
		where := "field " + strings.Join(s.field, ".") + ", " + id
		return Record{}, false, &CorruptError{Where: where, Err: err}
	}
	return r, true, nil
}

func (s *status) Store(_ Object, p *Patch, id string, r Record) {
	p.Set(r.Fields(), s.at(id)...)
}

func (s *status) Purge(_ Object, p *Patch, id string) { p.Remove(s.at(id)...) }

func (s *status) PurgeOthers(o Object, p *Patch, keep ...string) {
	for _, id := range append(s.ids(o), p.keys(s.field)...) {
		if !slices.Contains(keep, id) {
			p.Remove(s.at(id)...)
		}
	}
}

func (s *status) HasOthers(o Object, keep ...string) bool {
	return slices.ContainsFunc(s.ids(o), func(id string) bool { return !slices.Contains(keep, id) })
}

// ids are those of all records on the object.
func (s *status) ids(o Object) (ids []string) {
	records := rawjson.Find(o.Raw(), s.field...)
	if !rawjson.IsObject(records) {
		return nil
	}
	for w := (rawjson.Walker{Src: records}); w.Member(); w.Skip() {
		ids = append(ids, string(rawjson.Unescape(w.Name)))
	}
	return ids
}

func (s *status) RemoveTouch(_ Object, p *Patch) { p.Remove(s.touch...) }

func (s *status) Own() Fields { return Fields{Paths: [][]string{s.field, s.touch}} }

// StatusLastHandledOptions are what can be chosen for [StatusLastHandled]. The zero
// value is Kopf's default.
type StatusLastHandledOptions struct {
	// Name is of the operator; it takes the place of {name} in the field. Default: kopf.
	Name string
	// Field holds the text. Dots separate its keys. Default:
	// status.{name}.last-handled-configuration.
	Field string
	// Ignored are fields whose changes are none of the object, key by key.
	Ignored [][]string
}

// StatusLastHandled returns the storage that keeps the text in the status of the
// object (B.4): Kopf's StatusDiffBaseStorage. See [StatusProgress] for what the schema
// needs and what it costs. A field that is not one is reported by kopf.New.
func StatusLastHandled(o StatusLastHandledOptions) LastHandled {
	return &lastHandledStatus{field: fieldOf(o.Name, cmp.Or(o.Field, "status.{name}."+lastHandledKey)), ignored: o.Ignored}
}

// lastHandledStatus is a [StatusLastHandled].
type lastHandledStatus struct {
	field   []string
	ignored [][]string
}

// Validate reports what is not a field.
func (s *lastHandledStatus) Validate() error { return checkField(s.field) }

func (s *lastHandledStatus) Fetch(o Object) (string, error) {
	value := rawjson.Find(o.Raw(), s.field...)
	if value == nil || string(value) == "null" {
		return "", nil
	}
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return "", &CorruptError{Where: s.Where(o), Err: errors.New("it is not a text")}
	}
	return strings.Trim(string(text), rawjson.WhiteSpace), nil
}

func (s *lastHandledStatus) Where(Object) string { return "field " + strings.Join(s.field, ".") }

func (s *lastHandledStatus) Store(_ Object, p *Patch, text string) { p.Set(text, s.field...) }

func (s *lastHandledStatus) Purge(_ Object, p *Patch) { p.Remove(s.field...) }

func (s *lastHandledStatus) Own() Fields {
	return Fields{Paths: append([][]string{s.field}, s.ignored...)}
}
