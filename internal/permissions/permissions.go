// Package permissions says what an operator needs to be permitted: what its handlers and its
// other parts request of the API server, and nothing else. It makes roles of that, and asks
// the API server whether it is granted.
package permissions

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/kopf-go/kopf/internal/registry"
)

// Need is one verb on one resource.
type Need struct {
	Group       string // empty: the core group; *: all
	Resource    string // plural; *: all
	Subresource string
	Verb        string
	Namespace   string   // empty: the whole cluster
	Names       []string // of the objects; none: all
	// Namespaced tells that it would do to have it in each of the namespaces that are served.
	Namespaced bool
	// For are the ids of the handlers, or the parts of the operator, that need it.
	For []string
	// Without says what happens if it is missing, if the handlers can do without; empty:
	// they cannot.
	Without string
}

// String is such as: patch on databases.example.com/status in namespace a, for create, update.
func (n Need) String() string {
	var b strings.Builder
	b.WriteString(n.Verb + " on " + n.Target())
	if len(n.Names) > 0 {
		b.WriteString(" named " + strings.Join(n.Names, ", "))
	}
	if n.Namespace != "" {
		b.WriteString(" in namespace " + n.Namespace)
	}
	b.WriteString(", for " + strings.Join(n.For, ", "))
	return b.String()
}

// Target is what it is about, such as databases.example.com/status.
func (n Need) Target() string {
	name := n.Resource
	if n.Group != "" {
		name += "." + n.Group
	}
	if n.Subresource != "" {
		name += "/" + n.Subresource
	}
	return name
}

// qualified is the resource as rules have it, such as databases/status.
func (n Need) qualified() string {
	if n.Subresource == "" {
		return n.Resource
	}
	return n.Resource + "/" + n.Subresource
}

// Resource is a resource that is served, as far as it matters here.
type Resource struct {
	Group, Version, Plural string // of Everything, * in place of what is not known
	Kind                   string // empty: not known
	Namespaced             bool
	Status                 bool // it has a status endpoint, or may have one
}

// Served is a handler with the resources that it is for.
type Served struct {
	Handler   *registry.Handler
	Resources []Resource
}

// Operator is what an operator does that needs permissions.
type Operator struct {
	Served []Served
	// Namespaces are the only ones that are served, by name; none: it is the whole cluster.
	Namespaces []string
	// FollowNamespaces tells that the namespaces are known by patterns or labels.
	FollowNamespaces bool
	// FollowCRDs tells that resources which come and go are noticed.
	FollowCRDs bool
	// Events tells that Kubernetes events are posted.
	Events   bool
	Webhooks Webhooks
	Lease    Object // of the leader; no name: none is elected
	Peering  Peering
}

// Object is an object in a namespace.
type Object struct{ Namespace, Name string }

// Webhooks are what is kept for handlers for requests.
type Webhooks struct {
	Managed  string // the name of the configurations; empty: they are kept by others
	Secret   Object // of the certificates; no name: there is none
	Validate bool   // there are handlers of on.Validate
	Mutate   bool
	Policies bool // there are rules of on.ValidateCEL
}

// Peering is what is read and written to know of other operators.
type Peering struct {
	Name        string // of the objects; empty: there is no peering
	Groups      []string
	ClusterWide bool
	Mandatory   bool // nothing is handled without it
}

// Needs are what the operator needs, each once, sorted.
func (o Operator) Needs() []Need {
	c := collection{needs: map[string]*Need{}}
	o.ofHandlers(&c)
	o.ofParts(&c)
	if o.Webhooks != (Webhooks{}) {
		o.Webhooks.needs(&c)
	}
	return c.sorted()
}

// What happens where a permission is missing that can be done without.
const (
	withoutCRDs     = "resources that come and go are noticed later"
	withoutEvents   = "no events are posted"
	withoutPatch    = "they cannot change objects"
	withoutStatus   = "they cannot write the status"
	withoutPeering  = "other operators are not noticed"
	withoutEmptying = "those of handlers that are gone are not taken away"
)

// ofHandlers follows what the engine does: it lists and watches, writes with patches, and
// reads an object when a write came to nothing, as after a conflict. Change handlers have
// something written in any case. Others may change objects, which nobody knows before they
// do, but for index functions, which cannot.
func (o Operator) ofHandlers(c *collection) {
	for _, s := range o.Served {
		h := s.Handler
		if h.Admission() {
			continue
		}
		for _, r := range s.Resources {
			of := Need{Group: r.Group, Resource: r.Plural, Namespaced: r.Namespaced, For: []string{h.ID}}
			in := o.Namespaces
			if !r.Namespaced {
				in = nil
			}
			c.add(of, in, "list", "watch")
			if h.Kind == registry.Index {
				continue
			}
			if !h.Keeps() && !h.Finalize {
				of.Without = withoutPatch
			}
			c.add(of, in, "get", "patch")
			if r.Status && r.Plural != all { // which has subresources in it
				of.Subresource, of.Without = "status", withoutStatus
				c.add(of, in, "patch")
			}
		}
	}
}

// all stands for all groups, or resources.
const all = "*"

func (o Operator) ofParts(c *collection) {
	if o.FollowNamespaces {
		c.add(Need{Resource: "namespaces", For: []string{"namespaces that come and go"}}, nil, "list", "watch")
	}
	if o.FollowCRDs {
		c.add(Need{
			Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions",
			For: []string{"resources that come and go"}, Without: withoutCRDs,
		}, nil, "list", "watch")
	}
	if o.Events && o.posts(func(Resource) bool { return true }) {
		in := o.Namespaces
		if len(in) > 0 && o.posts(func(r Resource) bool { return !r.Namespaced }) {
			in = append(slices.Clone(in), "default") // where events of such objects are
		}
		c.add(Need{Resource: "events", Namespaced: true, For: []string{"events about objects"}, Without: withoutEvents}, in, "create", "patch")
	}
	if o.Lease.Name != "" {
		lease := Need{Group: "coordination.k8s.io", Resource: "leases", For: []string{"leader election"}}
		c.add(lease, []string{o.Lease.Namespace}, "create")
		lease.Names = []string{o.Lease.Name}
		c.add(lease, []string{o.Lease.Namespace}, "get", "update")
	}
	o.ofPeering(c)
}

// posts tells whether there may be events about such resources: all functions can post some.
func (o Operator) posts(such func(Resource) bool) bool {
	return slices.ContainsFunc(o.Served, func(s Served) bool {
		return s.Handler.Kind != registry.Policy && slices.ContainsFunc(s.Resources, such)
	})
}

// ofPeering follows package peering: it lists and watches one object in each place, writes
// to its status, where there is an endpoint for that, and else to the object, and watches
// the definitions of these kinds, unless all definitions are watched.
func (o Operator) ofPeering(c *collection) {
	if o.Peering.Name == "" {
		return
	}
	plural, in := "kopfpeerings", o.Namespaces
	if o.Peering.ClusterWide {
		plural, in = "clusterkopfpeerings", nil
	}
	var definitions []string
	for _, group := range o.Peering.Groups {
		peering := Need{Group: group, Resource: plural, Names: []string{o.Peering.Name}, Namespaced: !o.Peering.ClusterWide, For: []string{"peering"}}
		if !o.Peering.Mandatory {
			peering.Without = withoutPeering
		}
		c.add(peering, in, "get", "list", "patch", "watch")
		peering.Subresource = "status"
		c.add(peering, in, "patch")
		definitions = append(definitions, plural+"."+group)
	}
	if !o.FollowCRDs {
		for _, name := range definitions {
			c.add(Need{
				Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions", Names: []string{name},
				For: []string{"peering"}, Without: withoutCRDs,
			}, nil, "list", "watch")
		}
	}
}

const admissionGroup = "admissionregistration.k8s.io"

// needs follows package webhook. What there is a name for is not granted beyond it; to
// create something there is none.
func (w Webhooks) needs(c *collection) {
	if w.Secret.Name != "" && (w.Validate || w.Mutate) {
		secret := Need{Resource: "secrets", For: []string{"certificates of webhooks"}}
		c.add(secret, []string{w.Secret.Namespace}, "create")
		secret.Names = []string{w.Secret.Name}
		c.add(secret, []string{w.Secret.Namespace}, "get", "update", "watch")
	}
	if w.Managed == "" {
		return
	}
	for resource, used := range map[string]bool{"validatingwebhookconfigurations": w.Validate, "mutatingwebhookconfigurations": w.Mutate} {
		configuration := Need{Group: admissionGroup, Resource: resource, For: []string{"configurations of webhooks"}}
		if used {
			c.add(configuration, nil, "create")
		}
		configuration.Names = []string{w.Managed}
		c.add(configuration, nil, "get", "watch")
		if !used {
			configuration.Without = withoutEmptying
		}
		c.add(configuration, nil, "update")
	}
	if w.Policies {
		for _, resource := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
			c.add(Need{Group: admissionGroup, Resource: resource, For: []string{"rules in CEL"}}, nil,
				"get", "list", "watch", "create", "update", "delete")
		}
	}
}

// collection has each need once.
type collection struct{ needs map[string]*Need }

// add puts verbs in, in each of the namespaces, or in the whole cluster if there are none.
func (c *collection) add(n Need, namespaces []string, verbs ...string) {
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, n.Namespace = range namespaces {
		for _, n.Verb = range verbs {
			key := strings.Join(append([]string{n.Namespace, n.Group, n.qualified(), n.Verb}, n.Names...), "\x00")
			known := c.needs[key]
			if known == nil {
				fresh := n
				fresh.For = slices.Clone(n.For)
				c.needs[key] = &fresh
				continue
			}
			for _, who := range n.For {
				if !slices.Contains(known.For, who) {
					known.For = append(known.For, who)
				}
			}
			if n.Without == "" {
				known.Without = ""
			}
		}
	}
}

func (c *collection) sorted() []Need {
	needs := make([]Need, 0, len(c.needs))
	for _, n := range c.needs {
		needs = append(needs, *n)
	}
	slices.SortFunc(needs, func(a, b Need) int {
		return cmp.Or(
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Subresource, b.Subresource), slices.Compare(a.Names, b.Names), cmp.Compare(a.Verb, b.Verb),
		)
	})
	return needs
}

// namespacesOf are those in which there are needs, sorted; the whole cluster, "", first.
func namespacesOf(needs []Need) []string {
	found := map[string]bool{}
	for _, n := range needs {
		found[n.Namespace] = true
	}
	return slices.Sorted(maps.Keys(found))
}
