// Package owners makes objects belong to another one, as children that a handler creates
// belong to the object that it is called for: by a reference, so that Kubernetes removes
// them together with their owner, and by names, namespaces and labels that tell whose
// they are. Package kopf has all of it under the same names.
//
//	deployment := newDeployment(c.Object)
//	if err := owners.Adopt(c.Object, deployment, owners.Nested("spec.template")); err != nil {
//		return err
//	}
//	return cl.Create(ctx, deployment)
//
// All functions change objects in place, in memory only. They take one object of any Go
// type, several as [Objects] or by [Of], or a list such as *corev1.PodList; those that are nil
// are passed over. What cannot be done to an object is an error, which names it: that
// object stays as it was, and the others are still seen to. What is done twice is as if
// it was done once. Nothing is shared between objects afterwards. The functions are safe
// for concurrent use on different objects.
package owners

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is one object of an API, such as *appsv1.Deployment, *kopf.Resource[Spec, Status]
// or *unstructured.Unstructured. Any client.Object of controller-runtime is one.
type Object interface {
	metav1.Object
	runtime.Object
}

// Objects are several ones, of any Go types:
//
//	owners.Adopt(c.Object, owners.Objects{deployment, service})
type Objects []Object

// Of makes Objects of those of one Go type, or of a slice of them: Of(pods...), Of(children...).
func Of[T Object](objects ...T) Objects {
	all := make(Objects, len(objects))
	for i, o := range objects {
		all[i] = o
	}
	return all
}

// GetObjectKind makes them a runtime.Object, as lists are. They have no kind.
func (Objects) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns copies of all of them.
func (all Objects) DeepCopyObject() runtime.Object {
	if all == nil {
		return nil
	}
	copies := make(Objects, len(all))
	for i, o := range all {
		if !isNil(o) {
			copies[i] = o.DeepCopyObject().(Object)
		}
	}
	return copies
}

// Each calls do for an object, or for each one of Objects or of a list, but not for those
// that are nil, and returns the errors of all calls.
func Each(objects runtime.Object, do func(Object) error) error {
	if isNil(objects) {
		return nil
	}
	var errs []error
	each := func(o runtime.Object) error {
		if isNil(o) {
			return nil
		}
		object, is := o.(Object)
		if !is {
			errs = append(errs, fmt.Errorf("%T has no metadata of an object", o))
		} else if err := do(object); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", describe(object), err))
		}
		return nil
	}
	if all, are := objects.(Objects); are {
		for _, o := range all {
			_ = each(o)
		}
		return errors.Join(errs...)
	}
	if _, is := objects.(Object); !is && meta.IsListType(objects) {
		err := meta.EachListItem(objects, each)
		return errors.Join(append(errs, err)...)
	}
	_ = each(objects)
	return errors.Join(errs...)
}

// isNil tells whether there is no object, be it in a typed pointer.
func isNil(o any) bool {
	if o == nil {
		return true
	}
	v := reflect.ValueOf(o)
	return (v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice) && v.IsNil()
}

// describe names an object in errors, by what it has of a name yet.
func describe(o Object) string {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind, _, _ = strings.Cut(goType(o).Name(), "[") // of generic types, without arguments
	}
	name := o.GetName()
	if name == "" && o.GetGenerateName() != "" {
		name = o.GetGenerateName() + "*"
	}
	if name == "" {
		return kind + " without a name"
	}
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	return kind + " " + name
}

func goType(o Object) reflect.Type {
	t := reflect.TypeOf(o)
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}
