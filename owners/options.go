package owners

import "k8s.io/apimachinery/pkg/runtime/schema"

// AdoptOption is an option of Adopt: any of this package.
type AdoptOption interface{ set(*config) }

// ReferenceOption is an option of AppendReference.
type ReferenceOption interface {
	AdoptOption
	forReferences()
}

// LabelOption is an option of Label.
type LabelOption interface {
	AdoptOption
	forLabels()
}

// NamingOption is an option of HarmonizeNaming.
type NamingOption interface {
	AdoptOption
	forNames()
}

// NamespaceOption is an option of AdjustNamespace.
type NamespaceOption interface {
	AdoptOption
	forNamespaces()
}

// config is what options say.
type config struct {
	kind          schema.GroupVersionKind
	notController bool
	notBlocking   bool
	forced        bool
	strict        bool
	nested        []string
}

func configOf[O AdoptOption](options []O) (c config) {
	for _, o := range options {
		o.set(&c)
	}
	return c
}

type forced struct{}

// Forced overrides what is there already: names, namespaces, and values of labels. An owner
// that has no namespace takes that of the objects away.
func Forced() interface {
	LabelOption
	NamingOption
	NamespaceOption
} {
	return forced{}
}

func (forced) set(c *config)  { c.forced = true }
func (forced) forLabels()     {}
func (forced) forNames()      {}
func (forced) forNamespaces() {}

type strict struct{}

// Strict gives objects the very name, instead of letting the API server make one that begins
// with it. Two of one kind cannot have it.
func Strict() NamingOption { return strict{} }

func (strict) set(c *config) { c.strict = true }
func (strict) forNames()     {}

type nested []string

// Nested has labels put also on what is inside of objects at dotted paths, such as
// spec.template, or spec.volumeClaimTemplates with all elements of the list. Where an object
// has nothing at a path, nothing is done; a path that none of the objects' Go types has is an
// error.
func Nested(paths ...string) LabelOption { return nested(paths) }

func (n nested) set(c *config) { c.nested = append(c.nested, n...) }
func (nested) forLabels()      {}

type reference func(*config)

// NotController makes the owner one of several, and not the one that controls the object,
// of which there can be only one.
func NotController() ReferenceOption { return reference(func(c *config) { c.notController = true }) }

// NotBlocking lets the owner go before its objects when it is deleted in the foreground.
func NotBlocking() ReferenceOption { return reference(func(c *config) { c.notBlocking = true }) }

// OwnerKind says of which kind the owner is. It is needed for objects that do not say it
// themselves, as those of Go types do not that clients have read or created; those that
// handlers get do.
func OwnerKind(kind schema.GroupVersionKind) ReferenceOption {
	return reference(func(c *config) { c.kind = kind })
}

func (r reference) set(c *config) { r(c) }
func (reference) forReferences()  {}
