package kopf

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/owners"
)

// Objects are several ones of any Go types, for Adopt, Post and the like:
// kopf.Objects{deployment, service}. ObjectsOf makes them of a slice.
type Objects = owners.Objects

// ObjectsOf makes Objects of those of one Go type, or of a slice: ObjectsOf(pods...).
func ObjectsOf[T Object](objects ...T) Objects { return owners.Of(objects...) }

// What Adopt and the others take; see package owners.
type (
	// AdoptOption is an option of Adopt: any of these.
	AdoptOption = owners.AdoptOption
	// ReferenceOption is an option of AppendOwnerReference.
	ReferenceOption = owners.ReferenceOption
	// LabelOption is an option of Label.
	LabelOption = owners.LabelOption
	// NamingOption is an option of HarmonizeNaming.
	NamingOption = owners.NamingOption
	// NamespaceOption is an option of AdjustNamespace.
	NamespaceOption = owners.NamespaceOption
)

// Adopt makes objects, in memory, belong to an owner, as a rule c.Object: with a reference, so
// that Kubernetes removes them with it, in its namespace, named after it, and with its
// labels; see [owners.Adopt].
//
//	if err := kopf.Adopt(c.Object, deployment, kopf.Nested("spec.template")); err != nil {
//		return err
//	}
func Adopt(owner Object, objects runtime.Object, options ...AdoptOption) error {
	return owners.Adopt(owner, objects, options...)
}

// AppendOwnerReference has Kubernetes remove objects with the owner; see [owners.AppendReference].
func AppendOwnerReference(owner Object, objects runtime.Object, options ...ReferenceOption) error {
	return owners.AppendReference(owner, objects, options...)
}

// RemoveOwnerReference has objects live on without the owner; see [owners.RemoveReference].
func RemoveOwnerReference(owner Object, objects runtime.Object) error {
	return owners.RemoveReference(owner, objects)
}

// Label puts labels on objects, and with Nested on what is inside of them; see [owners.Label].
func Label(objects runtime.Object, labels map[string]string, options ...LabelOption) error {
	return owners.Label(objects, labels, options...)
}

// HarmonizeNaming names objects after something, as a rule their owner; see [owners.HarmonizeNaming].
func HarmonizeNaming(objects runtime.Object, name string, options ...NamingOption) error {
	return owners.HarmonizeNaming(objects, name, options...)
}

// AdjustNamespace puts objects into a namespace; see [owners.AdjustNamespace].
func AdjustNamespace(objects runtime.Object, namespace string, options ...NamespaceOption) error {
	return owners.AdjustNamespace(objects, namespace, options...)
}

// Forced overrides what objects have already; see [owners.Forced].
func Forced() interface {
	LabelOption
	NamingOption
	NamespaceOption
} {
	return owners.Forced()
}

// Strict gives the very name of the owner; see [owners.Strict].
func Strict() NamingOption { return owners.Strict() }

// Nested labels also what is inside of objects at dotted paths; see [owners.Nested].
func Nested(paths ...string) LabelOption { return owners.Nested(paths...) }

// NotController makes the owner one of several; see [owners.NotController].
func NotController() ReferenceOption { return owners.NotController() }

// NotBlocking lets the owner go before its objects; see [owners.NotBlocking].
func NotBlocking() ReferenceOption { return owners.NotBlocking() }

// OwnerKind says of which kind the owner is, if it does not itself; see [owners.OwnerKind].
func OwnerKind(kind schema.GroupVersionKind) ReferenceOption { return owners.OwnerKind(kind) }
