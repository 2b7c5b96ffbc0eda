package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/internal/registry"
)

// Discovery says which resources a group and version has. client-go's discovery
// client is one.
type Discovery interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// find looks a selector up among what the API serves; nil if it is not served.
func find(d Discovery, s registry.Selector) (*Resource, error) {
	list, err := d.ServerResourcesForGroupVersion(s.GroupVersion.String())
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find out which resources %s has: %w", s.GroupVersion, err)
	}
	var found *Resource
	var ambiguous error
	for _, r := range list.APIResources {
		if strings.Contains(r.Name, "/") || !named(r, s.Name) {
			continue
		}
		resource := &Resource{
			GVR:        s.GroupVersion.WithResource(r.Name),
			GVK:        s.GroupVersion.WithKind(r.Kind),
			Namespaced: r.Namespaced,
			Status: slices.ContainsFunc(list.APIResources, func(sub metav1.APIResource) bool {
				return sub.Name == r.Name+"/status"
			}),
		}
		if r.Name == s.Name {
			return resource, nil // the plural is unique
		}
		if found != nil {
			ambiguous = fmt.Errorf("%s is ambiguous: it names %s and %s; use the plural", s, found.GVR.Resource, r.Name)
			continue
		}
		found = resource
	}
	if ambiguous != nil {
		return nil, ambiguous
	}
	return found, nil
}

func named(r metav1.APIResource, name string) bool {
	singular := cmp.Or(r.SingularName, strings.ToLower(r.Kind)) // older servers name none (T040)
	return name == r.Name || name == singular || name == r.Kind || slices.Contains(r.ShortNames, name)
}

// KindSelector selects a resource by its kind, as a scheme knows it.
func KindSelector(gvk schema.GroupVersionKind) registry.Selector {
	return registry.Selector{GroupVersion: gvk.GroupVersion(), Name: gvk.Kind}
}
