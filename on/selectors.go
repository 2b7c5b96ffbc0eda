package on

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/internal/registry"
)

// APIResource is a resource of the API as its discovery describes it, for
// ResourceFunc. It is shared: do not change what its slices hold (SEL-11).
type APIResource struct {
	Group        string   // empty: the core group
	Version      string   // such as v1
	Kind         string   // such as Deployment
	Plural       string   // such as deployments; unique within group and version
	Singular     string   // such as deployment
	ShortNames   []string // such as deploy
	Categories   []string // such as all
	Subresources []string // such as status and scale
	Namespaced   bool     // else its objects belong to the cluster
	Preferred    bool     // its version is the one that the API server prefers for the group
	Verbs        []string // such as list, watch and patch
}

// Resource says which resource the handler is for: a group and version as in
// apiVersion, and a name: plural, singular, short name or kind. Default: the
// resource that the operator's scheme knows for the handler's Go type, by its group,
// version and kind.
//
// A resource that is not served yet is waited for. A name that fits several resources
// is an error in the log that names them, and the handler is not called.
func Resource(groupVersion, name string) SelectionOption {
	return setting(func(d *draft) {
		gv, err := schema.ParseGroupVersion(groupVersion)
		if err != nil || gv.Version == "" || name == "" {
			d.mistake("on.Resource(%q, %q) needs a group and version, such as apps/v1 or v1, and a name", groupVersion, name)
			return
		}
		d.selectBy("on.Resource", registry.ByName, name)
		d.exact = &gv
	})
}

// Kind takes the resource of a kind, such as "Deployment". Without Group it is looked
// for in all groups, but if the core group has one, it is that one (SEL-9); without
// Version it is the preferred version of its group (SEL-6). If several fit, that is an
// error in the log that names them, and the handler is not called (OBS-4).
//
// A handler has one of Kind, Plural, Singular, ShortName, Category, Everything,
// ResourceFunc and Resource (SEL-4).
func Kind(kind string) SelectionOption { return named("on.Kind", registry.ByKind, kind) }

// Plural takes the resource of a plural name, such as "deployments"; see Kind.
func Plural(plural string) SelectionOption { return named("on.Plural", registry.ByPlural, plural) }

// Singular takes the resource of a singular name, such as "deployment"; see Kind.
// Where the API server names none, it is the kind in lower case.
func Singular(singular string) SelectionOption {
	return named("on.Singular", registry.BySingular, singular)
}

// ShortName takes the resource of a short name, such as "deploy"; see Kind.
func ShortName(name string) SelectionOption { return named("on.ShortName", registry.ByShortName, name) }

// Category takes all resources of a category, such as "all": each in the preferred
// version of its group, unless Version says another. Resources that join the category
// while the operator runs are taken, too. Events are never among them (SEL-7).
func Category(category string) SelectionOption {
	return named("on.Category", registry.ByCategory, category)
}

// Everything takes all resources, with Group or Version those of a group or version;
// else each in the preferred version of its group, and those of CRDs that come later as
// well. Events are never among them, for handling makes events: name them to get
// them (SEL-7). Resources that cannot be listed and watched are left out, for all but
// event handlers also those that cannot be patched.
//
// It costs a watch per resource. A handler for *metav1.PartialObjectMetadata gets by
// with the objects' metadata.
func Everything() SelectionOption {
	return setting(func(d *draft) { d.selectBy("on.Everything", registry.ByEverything, "") })
}

// ResourceFunc takes the resources for which fn says so. It is asked about all
// versions, not only the preferred ones, so that it may see, and take, the same objects
// in several: look at Preferred, or add Version (SEL-6, T030). Events are never taken
// (SEL-7). fn is asked again whenever resources come or go; it must be quick, and
// always answer the same for the same resource.
func ResourceFunc(fn func(APIResource) bool) SelectionOption {
	if fn == nil {
		return setting(func(d *draft) { d.mistake("on.ResourceFunc got no function") })
	}
	predicate := &registry.Predicate{Match: func(r registry.APIResource) bool { return fn(APIResource(r)) }}
	return setting(func(d *draft) {
		d.selectBy("on.ResourceFunc", registry.ByFunc, "")
		d.Selector.Predicate = predicate
	})
}

// Group narrows Kind, Plural, Singular, ShortName, Category, Everything or
// ResourceFunc, without one of which it is a mistake, to an API group, such as "apps";
// "" is the core group. Groups that no handler mentions are not even read, unless
// there is a handler without a group (OBS-3).
func Group(group string) SelectionOption {
	return setting(func(d *draft) {
		d.narrow("on.Group", d.Selector.HasGroup)
		d.Selector.Group, d.Selector.HasGroup = group, true
	})
}

// Version narrows Kind, Plural, Singular, ShortName, Category, Everything or
// ResourceFunc, without one of which it is a mistake, to a version, such as "v1".
// Default: the version that the API server prefers for the group when the resource is
// found; if it prefers another one later, the handler stays with the first one as long
// as that is served.
func Version(version string) SelectionOption {
	return setting(func(d *draft) {
		if version == "" {
			d.mistake("on.Version is empty")
			return
		}
		d.narrow("on.Version", d.Selector.Version != "")
		d.Selector.Version = version
	})
}

// selection is what a draft knows of its options for resources.
type selection struct {
	by       string               // the option that names the resource
	narrowed string               // an option that only narrows it
	exact    *schema.GroupVersion // of on.Resource
}

func named(option string, by registry.By, name string) SelectionOption {
	return setting(func(d *draft) {
		if name == "" { // would fit all resources that have none
			d.mistake("%s is empty", option)
			return
		}
		d.selectBy(option, by, name)
	})
}

func (d *draft) selectBy(option string, by registry.By, name string) {
	switch d.by {
	case "":
	case option:
		d.mistake("%s is given twice", option)
	default:
		d.mistake("%s does not go with %s: name the resource in one way", option, d.by)
	}
	d.by = option
	d.Selector.By, d.Selector.Name = by, name
}

func (d *draft) narrow(option string, again bool) {
	if again {
		d.mistake("%s is given twice", option)
	}
	d.narrowed = option
}

// checkSelection looks at the options for resources together (SEL-4).
func (d *draft) checkSelection() {
	switch {
	case d.narrowed == "":
	case d.exact != nil:
		d.mistake("%s does not go with on.Resource, which says group and version itself", d.narrowed)
	case d.by == "" && len(d.mistakes) == 0: // else what it goes with may be the mistake
		d.mistake("%s does not name a resource: add on.Kind, on.Plural, on.Category or the like", d.narrowed)
	}
	if d.exact != nil {
		d.Selector.Group, d.Selector.HasGroup, d.Selector.Version = d.exact.Group, true, d.exact.Version
	}
}
