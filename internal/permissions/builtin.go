package permissions

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// builtIn is a resource of Kubernetes itself, which is known without a cluster: by the Go
// types of client-go, and, for what they do not say, by the table below.
type builtIn struct {
	Kind             string
	Plural, Singular string
	Status           bool
}

// builtIns are all of them, by group and version.
var builtIns = sync.OnceValue(func() map[schema.GroupVersion][]builtIn {
	all := map[schema.GroupVersion][]builtIn{}
	for gvk, t := range clientscheme.Scheme.AllKnownTypes() {
		if !reflect.PointerTo(t).Implements(reflect.TypeFor[metav1.Object]()) {
			continue // a list, or options
		}
		plural, singular := plurals(gvk)
		_, status := t.FieldByName("Status")
		gv := gvk.GroupVersion()
		all[gv] = append(all[gv], builtIn{
			Kind: gvk.Kind, Plural: plural, Singular: singular,
			Status: status && !slices.Contains(withoutStatusEndpoint, plural),
		})
	}
	return all
})

// plurals are what the resource of one of Kubernetes' kinds is called, by its own rules.
func plurals(gvk schema.GroupVersionKind) (plural, singular string) {
	many, one := meta.UnsafeGuessKindToResource(gvk)
	return many.Resource, one.Resource
}

// isBuiltIn tells whether a group is one of Kubernetes itself.
func isBuiltIn(group string) bool { return clientscheme.Scheme.IsGroupRegistered(group) }

// withoutStatusEndpoint are resources that have a status, but no endpoint of its own for it.
var withoutStatusEndpoint = []string{"componentstatuses"}

// clusterScoped are the resources of Kubernetes whose objects are in no namespace.
var clusterScoped = map[string][]string{
	"":                             {"componentstatuses", "namespaces", "nodes", "persistentvolumes"},
	"admissionregistration.k8s.io": {all},
	"apiextensions.k8s.io":         {all},
	"apiregistration.k8s.io":       {all},
	"authentication.k8s.io":        {all},
	"authorization.k8s.io":         {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"},
	"certificates.k8s.io":          {"certificatesigningrequests", "clustertrustbundles"},
	"flowcontrol.apiserver.k8s.io": {all},
	"imagepolicy.k8s.io":           {all},
	"internal.apiserver.k8s.io":    {all},
	"networking.k8s.io":            {"ingressclasses", "ipaddresses", "servicecidrs"},
	"node.k8s.io":                  {all},
	"rbac.authorization.k8s.io":    {"clusterrolebindings", "clusterroles"},
	"resource.k8s.io":              {"deviceclasses", "devicetaintrules", "resourcepoolstatusrequests", "resourceslices"},
	"scheduling.k8s.io":            {"priorityclasses"},
	"storage.k8s.io":               {"csidrivers", "csinodes", "storageclasses", "volumeattachments", "volumeattributesclasses"},
	"storagemigration.k8s.io":      {all},
}

// namespaced tells whether objects of a resource of Kubernetes are in namespaces.
func namespaced(group, plural string) bool {
	return !slices.Contains(clusterScoped[group], all) && !slices.Contains(clusterScoped[group], plural)
}

// named finds a resource of Kubernetes by its plural or singular name, or kind; in any
// version of the group if none is given.
func named(group, version, name string, by func(builtIn) []string) (schema.GroupVersion, builtIn, bool) {
	var versions []schema.GroupVersion
	for gv := range builtIns() {
		if gv.Group == group && (version == "" || version == gv.Version) {
			versions = append(versions, gv)
		}
	}
	slices.SortFunc(versions, func(a, b schema.GroupVersion) int { return strings.Compare(a.Version, b.Version) })
	for _, gv := range versions {
		for _, b := range builtIns()[gv] {
			if slices.Contains(by(b), name) {
				return gv, b, true
			}
		}
	}
	return schema.GroupVersion{}, builtIn{}, false
}
