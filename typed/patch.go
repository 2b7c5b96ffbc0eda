package typed

import (
	"encoding/json"
	"reflect"

	utiljson "sigs.k8s.io/json"

	"github.com/kopf-go/kopf/internal/registry"
)

// Patch collects the changes that a handler wants made to its object. They are
// sent when the cycle's handlers have run, together with the bookkeeping: one
// request for the object, one more for its status if that changed, none if
// nothing did (PAT-3, PAT-6).
type Patch[T Object] struct{ edits *registry.Edits }

// Apply changes the object with fn, which gets a copy of it and changes it in
// place:
//
//	c.Patch.Apply(func(d *appsv1.Deployment) { d.Spec.Paused = true })
//
// fn runs after the handler has returned, and again on a fresher copy if somebody
// else wrote meanwhile, so it should do nothing but set fields. Only what fn
// changed is sent; fields that T does not know stay as they are. A list is
// written as a whole, and then only if nobody else wrote meanwhile.
func (p *Patch[T]) Apply(fn func(T)) {
	p.edits.Add(registry.Edit{
		Type:  reflect.TypeFor[T](),
		Apply: func(object any) { fn(object.(T)) },
	})
}

// convert gives a value of a JSON tree the type that a handler wants.
func convert(value any, into any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return utiljson.UnmarshalCaseSensitivePreserveInts(raw, into)
}
