package on

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/internal/registry"
)

// Resource says which resource the handler is for: a group and version as in
// apiVersion, and a name: plural, singular, short name or kind. Default: the
// resource that the operator's scheme knows for the handler's Go type.
func Resource(groupVersion, name string) AnyOption {
	return setting(func(d *draft) {
		gv, err := schema.ParseGroupVersion(groupVersion)
		if err != nil || gv.Version == "" || name == "" {
			d.mistake("on.Resource(%q, %q) needs a group and version, such as apps/v1 or v1, and a name", groupVersion, name)
			return
		}
		if !d.Selector.Empty() {
			d.mistake("on.Resource is given twice")
		}
		d.Selector = registry.Selector{GroupVersion: gv, Name: name}
	})
}
