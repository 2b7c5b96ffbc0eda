package kopf

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kopf-go/kopf/owners"
)

// Objects are several ones of any Go types, for Adopt, Post and the like:
// kopf.Objects{deployment, service}. ObjectsOf makes them of a slice.
type Objects = owners.Objects

// ObjectsOf makes Objects of those of one Go type, or of a slice: ObjectsOf(pods...).
func ObjectsOf[T Object](objects ...T) Objects { return owners.Of(objects...) }

// Adopt makes objects, in memory, belong to an owner, as a rule c.Object: with a reference, so
// that Kubernetes removes them with it, in its namespace, named after it, and with its
// labels; see [owners.Adopt]. Package owners has the parts of that, and the options.
//
//	if err := kopf.Adopt(c.Object, deployment, owners.Nested("spec.template")); err != nil {
//		return err
//	}
func Adopt(owner Object, objects runtime.Object, options ...owners.AdoptOption) error {
	return owners.Adopt(owner, objects, options...)
}
