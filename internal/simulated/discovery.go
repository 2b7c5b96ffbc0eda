package simulated

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// wants tells whether the client asks for objects in another form, such as
// PartialObjectMetadata, or APIGroupDiscoveryList.
func (p *parsed) wants(form string) bool {
	return slices.ContainsFunc(strings.Split(strings.ReplaceAll(p.Accept, " ", ""), ","), func(accepted string) bool {
		parts := strings.Split(accepted, ";")
		return parts[0] == "application/json" && slices.Contains(parts, "as="+form)
	})
}

// shown returns the bytes of an object in the form that was asked for.
func (p *parsed) shown(v *version) json.RawMessage {
	if p.whole || !p.wants("PartialObjectMetadata") && !p.wants("PartialObjectMetadataList") {
		return v.raw
	}
	o := &unstructured.Unstructured{Object: map[string]any{"metadata": v.tree["metadata"]}}
	o.SetAPIVersion("meta.k8s.io/v1")
	o.SetKind("PartialObjectMetadata")
	return newVersion(o).raw
}

// discover answers what is served. The caller holds the lock.
func (s *Server) discover(p *parsed) *http.Response {
	switch what := p.Resource; {
	case what == "version":
		return answer(http.StatusOK, map[string]string{"major": "1", "minor": "37", "gitVersion": "v1.37.2"})
	case (what == "api" || what == "apis") && !s.LegacyDiscovery && p.wants("APIGroupDiscoveryList"):
		response := answer(http.StatusOK, s.aggregated(what == "api"))
		response.Header.Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		return response
	case what == "api":
		return answer(http.StatusOK, &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case what == "apis":
		list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for _, group := range s.groups() {
			if group.Name != "" {
				list.Groups = append(list.Groups, group)
			}
		}
		return answer(http.StatusOK, list)
	case strings.HasPrefix(what, "apis/"):
		for _, group := range s.groups() {
			if "apis/"+group.Name == what {
				group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
				return answer(http.StatusOK, group)
			}
		}
	default:
		if list := s.resources(what); len(list.APIResources) > 0 {
			return answer(http.StatusOK, list)
		}
	}
	return answerError(notServed(&parsed{groupVersion: p.groupVersion, Request: Request{Verb: "get"}}))
}

func (s *Server) resources(groupVersion string) *metav1.APIResourceList {
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: groupVersion}
	for _, c := range s.order {
		k := &c.kind
		if k.GroupVersion != groupVersion {
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: k.Plural, SingularName: k.Singular, ShortNames: k.ShortNames, Kind: k.Kind, Namespaced: k.Namespaced,
			Categories: k.Categories, Verbs: k.Verbs,
		})
		if k.Status {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.Plural + "/status", Kind: k.Kind, Namespaced: k.Namespaced, Verbs: metav1.Verbs{"get", "patch", "update"},
			})
		}
	}
	return list
}

// groups returns all groups, the core among them, each with the preferred version first.
func (s *Server) groups() (groups []metav1.APIGroup) {
	for _, c := range s.order {
		gvk := c.kind.gvk()
		i := slices.IndexFunc(groups, func(g metav1.APIGroup) bool { return g.Name == gvk.Group })
		if i < 0 {
			i = len(groups)
			groups = append(groups, metav1.APIGroup{Name: gvk.Group})
		}
		group := &groups[i]
		version := metav1.GroupVersionForDiscovery{GroupVersion: c.kind.GroupVersion, Version: gvk.Version}
		switch {
		case slices.Contains(group.Versions, version):
		case s.preferred[gvk.Group] == gvk.Version:
			group.Versions = slices.Insert(group.Versions, 0, version)
		default:
			group.Versions = append(group.Versions, version)
		}
		group.PreferredVersion = group.Versions[0]
	}
	return groups
}

func (s *Server) aggregated(core bool) *apidiscovery.APIGroupDiscoveryList {
	list := &apidiscovery.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}}
	for _, group := range s.groups() {
		if core != (group.Name == "") {
			continue
		}
		item := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: group.Name}}
		for _, v := range group.Versions {
			version := apidiscovery.APIVersionDiscovery{Version: v.Version, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
			if s.broken[v.GroupVersion] {
				version.Freshness = apidiscovery.DiscoveryFreshnessStale
			} else {
				version.Resources = aggregate(group.Name, v.Version, s.resources(v.GroupVersion))
			}
			item.Versions = append(item.Versions, version)
		}
		list.Items = append(list.Items, item)
	}
	return list
}

// aggregate puts subresources, which come after their parents, into them.
func aggregate(group, version string, list *metav1.APIResourceList) (out []apidiscovery.APIResourceDiscovery) {
	for _, r := range list.APIResources {
		kind := &metav1.GroupVersionKind{Group: group, Version: version, Kind: r.Kind}
		if _, sub, is := strings.Cut(r.Name, "/"); is {
			parent := &out[len(out)-1]
			parent.Subresources = append(parent.Subresources, apidiscovery.APISubresourceDiscovery{Subresource: sub, ResponseKind: kind, Verbs: r.Verbs})
			continue
		}
		scope := apidiscovery.ScopeCluster
		if r.Namespaced {
			scope = apidiscovery.ScopeNamespace
		}
		out = append(out, apidiscovery.APIResourceDiscovery{
			Resource: r.Name, ResponseKind: kind, Scope: scope, SingularResource: r.SingularName,
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		})
	}
	return out
}
