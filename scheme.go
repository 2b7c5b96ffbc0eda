package kopf

import (
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kopf-go/kopf/internal/registry"
)

// schemeSelector names the resource of a handler's Go type by its group, version
// and kind.
func schemeSelector(h *registry.Handler, scheme *runtime.Scheme) (registry.Selector, error) {
	object, ok := reflect.New(h.Type.Elem()).Interface().(runtime.Object)
	if !ok {
		return registry.Selector{}, fmt.Errorf("%s is no object of an API", h.Type)
	}
	if ofAnyKind(object) {
		return registry.Selector{}, fmt.Errorf("%s can be of any kind: say of which resources with on.Resource, "+
			"on.Kind, on.Category, on.Everything or the like", h.Type)
	}
	kinds, _, err := scheme.ObjectKinds(object)
	switch {
	case err != nil:
		return registry.Selector{}, fmt.Errorf("the scheme does not know %s: name its resource with on.Resource, "+
			"or register the type in Options.Scheme", h.Type)
	case len(kinds) > 1:
		return registry.Selector{}, fmt.Errorf("the scheme knows %s as several kinds, %s and %s among them: "+
			"name its resource with on.Resource", h.Type, kinds[0], kinds[1])
	}
	gvk := kinds[0]
	return registry.Selector{By: registry.ByKind, Name: gvk.Kind, Group: gvk.Group, HasGroup: true, Version: gvk.Version}, nil
}

// ofAnyKind tells whether a Go type says nothing of the kind of its objects.
func ofAnyKind(object runtime.Object) bool {
	switch object.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata:
		return true
	}
	return false
}
