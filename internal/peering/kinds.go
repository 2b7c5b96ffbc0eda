package peering

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/body"
)

// Discovery says what the API serves. client-go's discovery client is one.
type Discovery interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// groups are those that peering objects can be in; Kopf uses all that there are (PEER-1).
var groups = []schema.GroupVersion{{Group: "kopf.dev", Version: "v1"}, {Group: "zalando.org", Version: "v1"}}

// kind is a kind of peering objects that is served.
type kind struct {
	schema.GroupVersionResource
	name   string // as in manifests
	status bool   // there is a status endpoint, as not in Kopf's own manifests
}

func (k kind) gvk() schema.GroupVersionKind { return k.GroupVersion().WithKind(k.name) }

// spot is where a peering object is, or could be.
type spot struct {
	kind      kind
	namespace string // empty: it is one of the cluster
	name      string
}

// String names the object for people, as kubectl does.
func (s spot) String() string {
	text := s.kind.GroupResource().String() + "/" + s.name
	if s.namespace != "" {
		text += " in namespace " + s.namespace
	}
	return text
}

// patch changes the object where its status is changed.
func (s spot) patch(ctx context.Context, client Client, change map[string]any) (*body.Body, error) {
	raw, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	var endpoint []string
	if s.kind.status {
		endpoint = []string{"status"}
	}
	return client.Patch(ctx, s.kind.GroupVersionResource, s.namespace, s.name, types.MergePatchType, raw, endpoint...)
}

// plural is that of the kind for operators of a scope.
func plural(clusterWide bool) string {
	if clusterWide {
		return "clusterkopfpeerings"
	}
	return "kopfpeerings"
}

// kindName is as in manifests.
func kindName(clusterWide bool) string {
	if clusterWide {
		return "ClusterKopfPeering"
	}
	return "KopfPeering"
}

// served looks which kinds of peering objects there are for a scope. What could be read is
// returned even if something could not, but then nobody knows about the rest.
func served(ctx context.Context, discovery Discovery, clusterWide bool) (kinds []kind, err error) {
	var failures []error
	for _, gv := range groups {
		list, err := discovery.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
		if err != nil && !apierrors.IsNotFound(err) {
			failures = append(failures, fmt.Errorf("cannot find out which resources %s has: %w", gv, err))
		}
		if err != nil {
			continue
		}
		name := plural(clusterWide)
		for _, r := range list.APIResources {
			if r.Name == name && r.Namespaced != clusterWide {
				kinds = append(kinds, kind{
					GroupVersionResource: gv.WithResource(name), name: r.Kind,
					status: slices.ContainsFunc(list.APIResources, func(sub metav1.APIResource) bool { return sub.Name == name+"/status" }),
				})
			}
		}
	}
	return kinds, errors.Join(failures...)
}

// noKind says what to do about it that there is none.
func noKind(clusterWide bool) string {
	resources := make([]string, len(groups))
	for i, gv := range groups {
		resources[i] = gv.WithResource(plural(clusterWide)).GroupResource().String()
	}
	return "the cluster has no kind of peering objects, " + strings.Join(resources, " or ") +
		": install its CustomResourceDefinition, or run the operator without peering"
}
