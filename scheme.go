package kopf

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kopf-go/kopf/internal/engine"
	"github.com/kopf-go/kopf/internal/registry"
)

// schemeSelector names the resource of a handler's Go type by its kind.
func schemeSelector(h *registry.Handler, scheme *runtime.Scheme) (registry.Selector, error) {
	object, ok := reflect.New(h.Type.Elem()).Interface().(runtime.Object)
	if !ok {
		return registry.Selector{}, fmt.Errorf("%s is no object of an API", h.Type)
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
	return engine.KindSelector(kinds[0]), nil
}
