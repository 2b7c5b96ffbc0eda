package on

import (
	"errors"
	"reflect"
	"strings"

	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/fieldpath"
	"github.com/kopf-go/kopf/internal/registry"
)

// check completes the registration and looks for mistakes that the compiler could
// not see.
func (d *draft) check() {
	d.checkSelection()
	if d.Type.Kind() != reflect.Pointer || d.Type.Elem().Kind() != reflect.Struct {
		d.mistake("handlers are for pointers to structs, not for %s", d.Type)
		return
	}
	if d.snapshot != nil && d.snapshot != d.Type {
		d.mistake("on.When is for %s, the handler for %s", d.snapshot, d.Type)
	}
	if d.value != nil && (d.old != nil || d.new != nil) {
		d.mistake("on.Value does not go with on.Old or on.New") // FLT-2
	}
	var field reflect.Type // nil: any value may be there
	if len(d.Field) > 0 {
		var err error
		if field, err = fieldpath.Check(d.Type, d.Field); err != nil {
			d.mistakes = append(d.mistakes, err)
		}
		if !d.inside && d.Kind != registry.Index { // HID-2
			d.Handler.ID += "/" + strings.Join(d.Field, ".")
		}
	}
	for _, criterion := range []struct {
		option string
		value  any
		into   *filters.Criterion
	}{{"on.Value", d.value, &d.Value}, {"on.Old", d.old, &d.Old}, {"on.New", d.new, &d.New}} {
		if criterion.value == nil {
			continue
		}
		match, err := filters.Of(criterion.value)
		if err == nil && field != nil {
			err = filters.Check(match, field)
		}
		if err == nil && len(d.Field) == 0 {
			err = errors.New("it needs a field: add on.Field, on.Path or on.FieldOf")
		}
		if err != nil {
			d.mistake("%s: %w", criterion.option, err)
		}
		*criterion.into = match
	}
}
