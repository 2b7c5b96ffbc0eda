package on

import (
	"reflect"

	"github.com/kopf-go/kopf/internal/fieldpath"
)

// Sensitive marks fields whose values must not be seen where the object's former state
// is kept, such as "spec.credentials". Instead of each value there is a digest, from
// which changes are seen, but which stands for nothing on other objects; of a map, one
// per member. That is so for all handlers of the same resource, whichever has the
// option, also if it is one for which no state is kept, such as a daemon. The data of secrets are sensitive anyway.
//
// Differences and former states that handlers get have the digests, too. The values
// that the object has now are in it as they are.
//
// The paths must exist in the handler's Go type. Marking a field later is no change of
// the object. Repeatable.
func Sensitive(paths ...string) AnyOption {
	return setting(func(d *draft) {
		if len(paths) == 0 {
			d.mistake("on.Sensitive names no field")
		}
		for _, path := range paths {
			parsed, err := fieldpath.Parse(path)
			if err == nil && d.Type.Kind() == reflect.Pointer { // else it is a mistake anyway
				_, err = fieldpath.Check(d.Type, parsed)
			}
			if err != nil {
				d.mistake("on.Sensitive: %w", err)
				continue
			}
			d.Handler.Sensitive = append(d.Handler.Sensitive, parsed)
		}
	})
}
