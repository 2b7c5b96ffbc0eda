package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/internal/registry"
)

// Discovery says what the API serves. client-go's discovery client is one.
type Discovery interface {
	RESTClient() rest.Interface
	GroupsAndMaybeResourcesWithContext(context.Context) (*metav1.APIGroupList, map[schema.GroupVersion]*metav1.APIResourceList, map[schema.GroupVersion]error, error)
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// interest is what selectors want to know of the API: no more is read (OBS-3).
type interest struct {
	all    bool // groups, for some selector names none
	groups map[string]wish
}

// wish is what is wanted of one group.
type wish struct {
	versions  map[string]bool
	preferred bool // the preferred version, whichever that is
	every     bool // version
}

func interestIn(handlers []*registry.Handler) interest {
	i := interest{groups: map[string]wish{}}
	var anywhere []registry.Selector
	for _, h := range handlers {
		if !h.Selector.HasGroup {
			i.all = true
			anywhere = append(anywhere, h.Selector)
			continue
		}
		i.groups[h.Selector.Group] = i.groups[h.Selector.Group].with(h.Selector)
	}
	var others wish
	for _, s := range anywhere {
		others = others.with(s)
		for name, w := range i.groups {
			i.groups[name] = w.with(s)
		}
	}
	if i.all {
		i.groups[anyGroup] = others
	}
	return i
}

const anyGroup = "*" // stands for all that are not mentioned

func (w wish) with(s registry.Selector) wish {
	w.versions = maps.Clone(w.versions)
	if w.versions == nil {
		w.versions = map[string]bool{}
	}
	switch {
	case s.Version != "":
		w.versions[s.Version] = true
		// A function is told whether the version is the preferred one.
		w.preferred = w.preferred || s.By == registry.ByFunc
	case s.By == registry.ByFunc:
		w.every = true
	default:
		w.preferred = true
	}
	return w
}

func (i interest) in(group string) wish {
	if w, ok := i.groups[group]; ok {
		return w
	}
	return i.groups[anyGroup]
}

func (i interest) mentions(group string) bool {
	_, ok := i.groups[group]
	return ok || i.all
}

// group is what was read of an API group.
type group struct {
	resources []registry.APIResource
	// failed are the versions that could not be read; under "" is why it is not known
	// which versions there are.
	failed map[string]error
}

func (g *group) fail(version string, err error) {
	if g.failed == nil {
		g.failed = map[string]error{}
	}
	g.failed[version] = err
}

// reader reads what is of interest.
type reader struct {
	discovery Discovery
	interest  interest
	timeout   time.Duration                // of each request
	followed  map[schema.GroupVersion]bool // read whether they are still preferred or not
	beat      func()                       // called for each request: it goes on
}

// everything reads all groups of interest. What fails in one group is no matter of
// the others.
func (r *reader) everything(ctx context.Context) (map[string]group, error) {
	if !r.interest.all {
		return r.each(slices.Sorted(maps.Keys(r.interest.groups)), func(name string) group {
			return r.group(ctx, name)
		}), nil
	}
	within, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	list, known, failed, err := r.discovery.GroupsAndMaybeResourcesWithContext(within)
	if err != nil {
		return nil, fmt.Errorf("cannot find out what the API serves: %w", err)
	}
	byName := map[string]metav1.APIGroup{}
	for _, g := range list.Groups {
		byName[g.Name] = g
	}
	out := r.each(slices.Sorted(maps.Keys(byName)), func(name string) group {
		return r.versions(ctx, byName[name], known)
	})
	for gv, err := range failed {
		g := out[gv.Group]
		g.fail(gv.Version, err)
		out[gv.Group] = g
	}
	return out, nil
}

// each reads several groups, at most eight at a time.
func (r *reader) each(names []string, read func(name string) group) map[string]group {
	out := map[string]group{}
	slots := make(chan struct{}, 8)
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, name := range names {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			g := read(name)
			mu.Lock()
			defer mu.Unlock()
			out[name] = g
		})
	}
	all.Wait()
	return out
}

// group reads one group. One that does not exist is empty.
func (r *reader) group(ctx context.Context, name string) group {
	wanted := r.interest.in(name)
	g := metav1.APIGroup{Name: name}
	switch {
	case name == "":
		g.Versions = []metav1.GroupVersionForDiscovery{{GroupVersion: "v1", Version: "v1"}}
		g.PreferredVersion = g.Versions[0]
	case !wanted.preferred && !wanted.every:
		for _, version := range slices.Sorted(maps.Keys(wanted.versions)) {
			g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + version, Version: version})
		}
	default:
		within, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		raw, err := r.discovery.RESTClient().Get().AbsPath("/apis", name).DoRaw(within)
		if err == nil {
			err = json.Unmarshal(raw, &g)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			var failed group
			failed.fail("", fmt.Errorf("cannot find out which versions the group %s has: %w", name, err))
			return failed
		}
	}
	return r.versions(ctx, g, nil)
}

// versions reads the versions of a group that are wanted, unless their resources are
// known already. A version that is not there has no resources (OBS-1).
func (r *reader) versions(ctx context.Context, g metav1.APIGroup, known map[schema.GroupVersion]*metav1.APIResourceList) (out group) {
	wanted := r.interest.in(g.Name)
	for _, v := range g.Versions {
		preferred := v.Version == g.PreferredVersion.Version
		gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
		if !wanted.every && !wanted.versions[v.Version] && !r.followed[gv] && (!wanted.preferred || !preferred) {
			continue
		}
		list := known[gv]
		if known == nil {
			var err error
			list, err = r.list(ctx, gv)
			if err != nil && !apierrors.IsNotFound(err) {
				out.fail(v.Version, fmt.Errorf("cannot find out which resources %s has: %w", gv, err))
			}
			if err != nil {
				continue
			}
		}
		if list != nil {
			out.resources = append(out.resources, describe(gv, preferred, list.APIResources)...)
		}
	}
	return out
}

func (r *reader) list(ctx context.Context, gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	r.beat()
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	return r.discovery.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
}

// describe makes of the resources and subresources of a list resources that have
// subresources (OBS-2).
func describe(gv schema.GroupVersion, preferred bool, list []metav1.APIResource) []registry.APIResource {
	var out []registry.APIResource
	subresources := map[string][]string{}
	for _, r := range list {
		if parent, sub, is := strings.Cut(r.Name, "/"); is {
			subresources[parent] = append(subresources[parent], sub)
			continue
		}
		out = append(out, registry.APIResource{
			Group: gv.Group, Version: gv.Version, Kind: r.Kind, Plural: r.Name,
			Singular:   cmp.Or(r.SingularName, strings.ToLower(r.Kind)), // older servers name none (T040)
			ShortNames: r.ShortNames, Categories: r.Categories, Verbs: r.Verbs,
			Namespaced: r.Namespaced, Preferred: preferred,
		})
	}
	for i := range out {
		out[i].Subresources = subresources[out[i].Plural]
	}
	return out
}

// catalogue is what the API is known to serve, by group.
type catalogue map[string]group

// replace takes a fresh look at one group for what is known of it. Where the look
// failed, the old knowledge stays: a server that does not answer takes no resource away
// (T038).
func (c catalogue) replace(name string, fresh group) {
	for _, r := range c[name].resources {
		if fresh.failed[""] != nil || fresh.failed[r.Version] != nil {
			fresh.resources = append(fresh.resources, r)
		}
	}
	if fresh.resources == nil && fresh.failed == nil {
		delete(c, name)
		return
	}
	c[name] = fresh
}

// resources returns what is served, the core group first.
func (c catalogue) resources() (all []registry.APIResource) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		all = append(all, c[name].resources...)
	}
	return all
}

// has tells whether any version of a resource is served.
func (c catalogue) has(gr schema.GroupResource) bool {
	return slices.ContainsFunc(c[gr.Group].resources, func(r registry.APIResource) bool { return r.Plural == gr.Resource })
}

// failures are what could not be read, by group and version.
func (c catalogue) failures() map[schema.GroupVersion]error {
	all := map[schema.GroupVersion]error{}
	for name, g := range c {
		for version, err := range g.failed {
			all[schema.GroupVersion{Group: name, Version: version}] = err
		}
	}
	return all
}

// resourceOf is what the engine needs to know of a resource.
func resourceOf(r registry.APIResource) Resource {
	gv := schema.GroupVersion{Group: r.Group, Version: r.Version}
	return Resource{
		GVR: gv.WithResource(r.Plural), GVK: gv.WithKind(r.Kind),
		Namespaced: r.Namespaced, Status: slices.Contains(r.Subresources, "status"),
	}
}
