package owners

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
)

// Adopt makes objects belong to the owner in every way (HIE-8): with a reference to it
// (AppendReference), in its namespace (AdjustNamespace), with a name that begins with the
// owner's unless they have one (HarmonizeNaming), and with its labels, where they have none
// of the same keys (Label). Objects may be created already, or not yet.
func Adopt(owner Object, objects runtime.Object, options ...AdoptOption) error {
	c := configOf(options)
	ref, err := c.reference(owner)
	if err != nil {
		return err
	}
	if err := c.checkPaths(objects); err != nil {
		return err
	}
	return Each(objects, func(o Object) error {
		namespace := c.namespaceOf(o, owner.GetNamespace())
		if err := c.mayOwn(owner, ref, o, namespace); err != nil {
			return err
		}
		if err := c.checkNested(o); err != nil {
			return err
		}
		c.append(ref, o)
		c.rename(o, owner.GetName())
		o.SetNamespace(namespace)
		c.label(o, owner.GetLabels())
		return nil
	})
}

// HarmonizeNaming gives objects that have neither a name nor a prefix of one, or with Forced
// all of them, a prefix from which the API server makes a name: the given name and a dash.
// With Strict it is the name itself (HIE-6). The name must not be empty.
func HarmonizeNaming(objects runtime.Object, name string, options ...NamingOption) error {
	if name == "" {
		return errors.New("there is no name to go by")
	}
	c := configOf(options)
	return Each(objects, func(o Object) error {
		c.rename(o, name)
		return nil
	})
}

func (c config) rename(o Object, name string) {
	switch {
	case (o.GetName() != "" || o.GetGenerateName() != "") && !c.forced:
	case c.strict:
		o.SetName(name)
		o.SetGenerateName("")
	default:
		o.SetName("")
		o.SetGenerateName(name + "-")
	}
}

// AdjustNamespace puts objects that are in no namespace, or with Forced all of them, into
// one, or with an empty name into none (HIE-7). Objects that are known not to be in
// namespaces stay in none.
func AdjustNamespace(objects runtime.Object, namespace string, options ...NamespaceOption) error {
	c := configOf(options)
	return Each(objects, func(o Object) error {
		o.SetNamespace(c.namespaceOf(o, namespace))
		return nil
	})
}

// namespaceOf is where an object has to be.
func (c config) namespaceOf(o Object, namespace string) string {
	switch {
	case isClusterScoped(o):
		return ""
	case o.GetNamespace() != "" && !c.forced:
		return o.GetNamespace()
	}
	return namespace
}
