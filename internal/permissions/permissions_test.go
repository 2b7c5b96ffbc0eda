package permissions

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kopf-go/kopf/internal/registry"
)

var (
	widgets = Resource{Group: "example.com", Version: "v1", Plural: "widgets", Namespaced: true, Status: true}
	plain   = Resource{Version: "v1", Plural: "secrets", Namespaced: true}
	nodes   = Resource{Version: "v1", Plural: "nodes", Status: true}
	every   = Resource{Group: all, Version: all, Plural: all, Namespaced: true, Status: true}
)

func handler(kind registry.Kind) *registry.Handler {
	return &registry.Handler{Kind: kind, ID: string(kind)}
}

// short is such as: team: patch widgets.example.com/status [name] optional.
func short(needs []Need) (all []string) {
	for _, n := range needs {
		text := n.Verb + " " + n.Target()
		if n.Namespace != "" {
			text = n.Namespace + ": " + text
		}
		if len(n.Names) > 0 {
			text += fmt.Sprint(" ", n.Names)
		}
		if n.Without != "" {
			text += " optional"
		}
		all = append(all, text)
	}
	return all
}

func TestNeedsOfHandlers(t *testing.T) {
	finalizing := handler(registry.Daemon)
	finalizing.Finalize = true
	change := []string{"get widgets.example.com", "list widgets.example.com", "patch widgets.example.com", "watch widgets.example.com", "patch widgets.example.com/status optional"}
	may := []string{"get widgets.example.com optional", "list widgets.example.com", "patch widgets.example.com optional", "watch widgets.example.com", "patch widgets.example.com/status optional"}
	for _, tc := range []struct {
		name    string
		handler *registry.Handler
		want    []string
	}{
		{"create", handler(registry.Create), change},
		{"update", handler(registry.Update), change},
		{"delete", handler(registry.Delete), change},
		{"resume", handler(registry.Resume), change},
		{"field", handler(registry.Field), change},
		{"a daemon that holds", finalizing, change},
		{"event", handler(registry.Event), may},
		{"daemon", handler(registry.Daemon), may},
		{"timer", handler(registry.Timer), may},
		{"index", handler(registry.Index), []string{"list widgets.example.com", "watch widgets.example.com"}},
		{"validate", handler(registry.Validate), nil},
		{"mutate", handler(registry.Mutate), nil},
		{"policy", handler(registry.Policy), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := short(Operator{Served: []Served{{tc.handler, []Resource{widgets}}}}.Needs())
			if !slices.Equal(got, tc.want) {
				t.Errorf("got\n%s", strings.Join(got, "\n"))
			}
		})
	}
}

func TestNeedsOfScopes(t *testing.T) {
	served := func(resources ...Resource) []Served { return []Served{{handler(registry.Index), resources}} }
	for _, tc := range []struct {
		name string
		of   Operator
		want []string
	}{
		{"cluster", Operator{Served: served(widgets, nodes)}, []string{
			"list nodes", "watch nodes", "list widgets.example.com", "watch widgets.example.com"}},
		{"names", Operator{Served: served(plain, nodes), Namespaces: []string{"b", "a"}, Events: true}, []string{
			"list nodes", "watch nodes", "a: create events optional", "a: patch events optional", "a: list secrets", "a: watch secrets",
			"b: create events optional", "b: patch events optional", "b: list secrets", "b: watch secrets", "default: create events optional", "default: patch events optional"}},
		{"patterns", Operator{Served: served(plain), FollowNamespaces: true, FollowCRDs: true, Events: true}, []string{
			"create events optional", "patch events optional", "list namespaces", "watch namespaces", "list secrets", "watch secrets",
			"list customresourcedefinitions.apiextensions.k8s.io optional", "watch customresourcedefinitions.apiextensions.k8s.io optional"}},
		{"everything", Operator{Served: []Served{{handler(registry.Create), []Resource{every}}}}, []string{"get *.*", "list *.*", "patch *.*", "watch *.*"}},
		{"nothing", Operator{Events: true}, nil},
		{"lease", Operator{Lease: Object{"op", "kopf"}}, []string{
			"op: create leases.coordination.k8s.io", "op: get leases.coordination.k8s.io [kopf]", "op: update leases.coordination.k8s.io [kopf]"}},
		{"peering", Operator{Namespaces: []string{"a"}, Peering: Peering{Name: "default", Groups: []string{"kopf.dev"}, Mandatory: true}}, []string{
			"list customresourcedefinitions.apiextensions.k8s.io [kopfpeerings.kopf.dev] optional", "watch customresourcedefinitions.apiextensions.k8s.io [kopfpeerings.kopf.dev] optional",
			"a: get kopfpeerings.kopf.dev [default]", "a: list kopfpeerings.kopf.dev [default]", "a: patch kopfpeerings.kopf.dev [default]", "a: watch kopfpeerings.kopf.dev [default]",
			"a: patch kopfpeerings.kopf.dev/status [default]"}},
		{"peering of clusters", Operator{FollowCRDs: true, Peering: Peering{Name: "default", Groups: []string{"kopf.dev"}, ClusterWide: true}}, []string{
			"list customresourcedefinitions.apiextensions.k8s.io optional", "watch customresourcedefinitions.apiextensions.k8s.io optional",
			"get clusterkopfpeerings.kopf.dev [default] optional", "list clusterkopfpeerings.kopf.dev [default] optional", "patch clusterkopfpeerings.kopf.dev [default] optional",
			"watch clusterkopfpeerings.kopf.dev [default] optional", "patch clusterkopfpeerings.kopf.dev/status [default] optional"}},
		{"events of admission handlers", Operator{Served: []Served{{handler(registry.Validate), []Resource{nodes}}}, Namespaces: []string{"a"}, Events: true}, []string{
			"a: create events optional", "a: patch events optional", "default: create events optional", "default: patch events optional"}},
		{"no events of policies", Operator{Served: []Served{{handler(registry.Policy), []Resource{nodes}}}, Events: true}, nil},
		{"webhooks", Operator{Webhooks: Webhooks{Managed: "m", Secret: Object{"op", "s"}, Validate: true}}, []string{
			"get mutatingwebhookconfigurations.admissionregistration.k8s.io [m]", "update mutatingwebhookconfigurations.admissionregistration.k8s.io [m] optional",
			"watch mutatingwebhookconfigurations.admissionregistration.k8s.io [m]", "create validatingwebhookconfigurations.admissionregistration.k8s.io",
			"get validatingwebhookconfigurations.admissionregistration.k8s.io [m]", "update validatingwebhookconfigurations.admissionregistration.k8s.io [m]",
			"watch validatingwebhookconfigurations.admissionregistration.k8s.io [m]",
			"op: create secrets", "op: get secrets [s]", "op: update secrets [s]", "op: watch secrets [s]"}},
		{"webhooks that others keep", Operator{Webhooks: Webhooks{Validate: true, Policies: true}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := short(tc.of.Needs())
			if !slices.Equal(got, tc.want) {
				t.Errorf("got\n%s", strings.Join(got, "\n"))
			}
		})
	}
	policies := Operator{Webhooks: Webhooks{Managed: "m", Policies: true}}.Needs()
	if n := len(slices.DeleteFunc(policies, func(n Need) bool {
		return !strings.Contains(n.Resource, "policies") && !strings.Contains(n.Resource, "policybindings")
	})); n != 12 {
		t.Errorf("%d needs for policies", n)
	}
}

// One need is for all who have it, and can be done without only if all of them can.
func TestNeedsAreMerged(t *testing.T) {
	needs := Operator{Served: []Served{
		{handler(registry.Event), []Resource{plain}}, {handler(registry.Create), []Resource{plain}}, {handler(registry.Index), []Resource{plain}},
	}}.Needs()
	i := slices.IndexFunc(needs, func(n Need) bool { return n.Verb == "patch" })
	j := slices.IndexFunc(needs, func(n Need) bool { return n.Verb == "list" })
	if len(needs) != 4 || needs[i].String() != "patch on secrets, for event, create" || needs[i].Without != "" || len(needs[j].For) != 3 {
		t.Errorf("got %+v", needs)
	}
	named := Need{Verb: "get", Resource: "leases", Group: "g", Subresource: "status", Namespace: "n", Names: []string{"a", "b"}, For: []string{"x"}}
	if got := named.String(); got != "get on leases.g/status named a, b in namespace n, for x" {
		t.Error(got)
	}
}

func TestRoles(t *testing.T) {
	roles := Roles(Operator{
		Served: []Served{
			{handler(registry.Timer), []Resource{widgets, plain}}, {handler(registry.Create), []Resource{widgets}},
			{handler(registry.Index), []Resource{{Plural: "pods", Namespaced: true}, {Plural: "endpoints", Namespaced: true}, nodes}},
		},
		Namespaces: []string{"a"}, Lease: Object{"a", "kopf"},
	}.Needs())
	var got []string
	for _, role := range roles {
		for _, r := range role.Rules {
			got = append(got, fmt.Sprint(role.Namespace, r.APIGroups, r.Resources, r.ResourceNames, r.Verbs, " ", strings.Join(r.Comments, " | ")))
		}
	}
	want := []string{
		"[] [nodes] [] [list watch] index",
		"a[] [endpoints pods] [] [list watch] index",
		"a[] [secrets] [] [get list patch watch] get, patch: timer; without it, they cannot change objects | list, watch: timer",
		"a[coordination.k8s.io] [leases] [] [create] leader election",
		"a[coordination.k8s.io] [leases] [kopf] [get update] leader election",
		"a[example.com] [widgets] [] [get list patch watch] timer, create",
		"a[example.com] [widgets/status] [] [patch] timer, create; without it, they cannot write the status",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}
