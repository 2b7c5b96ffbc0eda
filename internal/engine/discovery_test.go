package engine

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/simulated"
)

// api is a server with some groups and versions, in virtual time.
func api(t *testing.T, test func(t *testing.T, server *simulated.Server)) {
	synctest.Test(t, func(t *testing.T) {
		server := simulated.New()
		for _, k := range []simulated.Kind{
			{GroupVersion: "v1", Kind: "Pod", Plural: "pods", ShortNames: []string{"po"}, Categories: []string{"all"}, Namespaced: true, Status: true},
			{GroupVersion: "apps/v1", Kind: "Deployment", Plural: "deployments", Namespaced: true},
			{GroupVersion: "a.example/v1", Kind: "Thing", Plural: "things"},
			{GroupVersion: "a.example/v2", Kind: "Thing", Plural: "things"},
			{GroupVersion: "b.example/v1", Kind: "Thing", Plural: "things", Verbs: []string{"get"}},
		} {
			server.Serve(k)
		}
		server.Prefer("a.example/v2")
		test(t, server)
	})
}

func readerOf(t *testing.T, server *simulated.Server, selectors ...registry.Selector) *reader {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	var handlers []*registry.Handler
	for _, s := range selectors {
		handlers = append(handlers, &registry.Handler{Selector: s})
	}
	return &reader{discovery: client, interest: interestIn(handlers), timeout: 30 * time.Second, followed: map[schema.GroupVersion]bool{}, beat: func() {}}
}

func read(t *testing.T, r *reader) catalogue {
	t.Helper()
	c, err := r.everything(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func texts(resources []registry.APIResource) string {
	var all []string
	for _, r := range resources {
		text := r.String()
		if r.Preferred {
			text += "!"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func function(r registry.Selector) registry.Selector {
	r.By, r.Predicate = registry.ByFunc, &registry.Predicate{}
	return r
}

// Only what selectors mention is read.
func TestReading_OBS3(t *testing.T) {
	a := registry.Selector{By: registry.ByKind, Name: "Thing", Group: "a.example", HasGroup: true}
	a1, core, all, all1 := a, a, registry.Selector{By: registry.ByEverything}, registry.Selector{By: registry.ByEverything, Version: "v1"}
	a1.Version, core.Group = "v1", ""
	none := registry.Selector{By: registry.ByKind, Name: "X", Group: "none.example", HasGroup: true}
	for name, c := range map[string]struct {
		selectors []registry.Selector
		want      string
		requests  string // with aggregated discovery
	}{
		"OBS-3 group and version":             {[]registry.Selector{a1}, "things.v1.a.example", "a.example/v1"},
		"OBS-3 group":                         {[]registry.Selector{a}, "things.v2.a.example!", "apis/a.example a.example/v2"},
		"OBS-3 function in a group":           {[]registry.Selector{function(a)}, "things.v1.a.example things.v2.a.example!", "apis/a.example a.example/v1 a.example/v2"},
		"OBS-3 function in a version":         {[]registry.Selector{function(a1)}, "things.v1.a.example things.v2.a.example!", "apis/a.example a.example/v1 a.example/v2"},
		"OBS-3 the core":                      {[]registry.Selector{core}, "namespaces.v1! events.v1! pods.v1!", "v1"},
		"OBS-3 two groups":                    {[]registry.Selector{core, a1}, "namespaces.v1! events.v1! pods.v1! things.v1.a.example", "a.example/v1 v1"},
		"OBS-1 no such group":                 {[]registry.Selector{none}, "", "apis/none.example"},
		"OBS-3 any group":                     {[]registry.Selector{all}, "namespaces.v1! events.v1! pods.v1! things.v2.a.example! customresourcedefinitions.v1.apiextensions.k8s.io! deployments.v1.apps! things.v1.b.example!", "api apis"},
		"OBS-3 any group, a version":          {[]registry.Selector{all1}, "namespaces.v1! events.v1! pods.v1! things.v1.a.example customresourcedefinitions.v1.apiextensions.k8s.io! deployments.v1.apps! things.v1.b.example!", "api apis"},
		"OBS-3 any group, and one of its own": {[]registry.Selector{all, a1}, "namespaces.v1! events.v1! pods.v1! things.v1.a.example things.v2.a.example! customresourcedefinitions.v1.apiextensions.k8s.io! deployments.v1.apps! things.v1.b.example!", "api apis"},
		"OBS-3 nothing":                       {nil, "", ""},
	} {
		for _, legacy := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				api(t, func(t *testing.T, server *simulated.Server) {
					server.LegacyDiscovery = legacy
					got := strings.Fields(texts(read(t, readerOf(t, server, c.selectors...)).resources()))
					want := strings.Fields(c.want)
					slices.Sort(got)
					slices.Sort(want)
					if !slices.Equal(got, want) {
						t.Errorf("got %q, want %q", got, want)
					}
					var asked []string
					for _, r := range server.Requests(simulated.On{}) {
						asked = append(asked, r.Resource)
					}
					slices.Sort(asked)
					want = strings.Fields(c.requests)
					slices.Sort(want)
					if !legacy && !slices.Equal(asked, want) {
						t.Errorf("asked for %q, want %q", asked, want)
					}
				})
			})
		}
	}
}

// A version that is followed is read on, though another one is preferred now.
func TestReadingFollowedVersions(t *testing.T) {
	api(t, func(t *testing.T, server *simulated.Server) {
		r := readerOf(t, server, registry.Selector{By: registry.ByKind, Name: "Thing", Group: "a.example", HasGroup: true})
		r.followed[schema.GroupVersion{Group: "a.example", Version: "v1"}] = true
		if got := texts(r.group(t.Context(), "a.example").resources); got != "things.v2.a.example! things.v1.a.example" {
			t.Error(got)
		}
	})
}

// What fails in one group or version is no matter of the others; what was known of
// it stays (T040: statuses other than 404 are no absence).
func TestPartialFailure_T040_OBS1(t *testing.T) {
	for name, selectors := range map[string][]registry.Selector{
		"all groups": {{By: registry.ByEverything}, function(registry.Selector{})},
		"by name": {
			function(registry.Selector{Group: "a.example", HasGroup: true}), function(registry.Selector{Group: "b.example", HasGroup: true}),
		},
	} {
		for _, legacy := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				api(t, func(t *testing.T, server *simulated.Server) {
					server.LegacyDiscovery = legacy
					r := readerOf(t, server, selectors...)
					before := read(t, r)
					mend := server.Break("a.example/v2")
					broken := read(t, r)
					gv := schema.GroupVersion{Group: "a.example", Version: "v2"}
					if failures := broken.failures(); len(failures) != 1 || failures[gv] == nil {
						t.Fatalf("failures are %v", failures)
					}
					if got := texts(broken["a.example"].resources); !strings.HasPrefix(got, "things.v1.a.example") || strings.Contains(got, "v2") {
						t.Errorf("a.example has %s", got)
					}
					if got := texts(broken["b.example"].resources); got != "things.v1.b.example!" {
						t.Errorf("b.example has %s", got)
					}
					before.replace("a.example", broken["a.example"])
					if got := texts(before["a.example"].resources); !strings.Contains(got, "things.v2.a.example!") {
						t.Errorf("what was known is lost: %s", got)
					}
					mend()
					before.replace("a.example", read(t, r)["a.example"])
					if len(before.failures()) != 0 || len(before["a.example"].resources) != 2 {
						t.Errorf("after mending: %v", before["a.example"])
					}
				})
			})
		}
	}
}

// Without the list of versions, nothing of a group is known any better than before.
func TestGroupFails_OBS1(t *testing.T) {
	api(t, func(t *testing.T, server *simulated.Server) {
		r := readerOf(t, server, registry.Selector{By: registry.ByKind, Name: "Thing", Group: "a.example", HasGroup: true})
		c := read(t, r)
		remove := server.Before(simulated.On{Verb: "discover", Resource: "apis/a.example"}, simulated.Always(simulated.Fail(http.StatusForbidden)))
		c.replace("a.example", r.group(t.Context(), "a.example"))
		if got := texts(c.resources()); got != "things.v2.a.example!" || len(c.failures()) != 1 {
			t.Errorf("got %s, %v", got, c.failures())
		}
		remove()
		all := readerOf(t, server, registry.Selector{By: registry.ByEverything})
		server.Before(simulated.On{Verb: "discover", Resource: "apis"}, simulated.Always(simulated.Fail(http.StatusForbidden)))
		if _, err := all.everything(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "cannot find out what the API serves: ") {
			t.Error(err)
		}
	})
}

// A group that hangs is given up; the others are read meanwhile.
func TestGroupHangs(t *testing.T) {
	api(t, func(t *testing.T, server *simulated.Server) {
		server.Before(simulated.On{Verb: "discover", Resource: "a.example/v1"}, simulated.Always(&simulated.Fault{Hang: true}))
		named := func(group string) registry.Selector {
			return registry.Selector{By: registry.ByKind, Name: "Thing", Group: group, HasGroup: true, Version: "v1"}
		}
		begun := time.Now()
		c := read(t, readerOf(t, server, named("a.example"), named("b.example")))
		if got := texts(c.resources()); got != "things.v1.b.example" || len(c.failures()) != 1 || time.Since(begun) != 30*time.Second {
			t.Errorf("got %s, %v after %s", got, c.failures(), time.Since(begun))
		}
	})
}

// T038: a look at one group replaces only that group; an empty one takes it away.
func TestReplace_T038(t *testing.T) {
	of := func(name, plural string) group {
		return group{resources: []registry.APIResource{{Group: name, Version: "v1", Plural: plural}}}
	}
	c := catalogue{"a": of("a", "one"), "b": of("b", "two")}
	c.replace("a", of("a", "three"))
	if got := texts(c.resources()); got != "three.v1.a two.v1.b" {
		t.Error(got)
	}
	c.replace("b", group{})
	if got := texts(c.resources()); got != "three.v1.a" || len(c) != 1 {
		t.Error(got)
	}
	if !c.has(schema.GroupResource{Group: "a", Resource: "three"}) || c.has(schema.GroupResource{Group: "b", Resource: "two"}) {
		t.Error("has is wrong")
	}
}

// T040, OBS-2: subresources belong to their parents, wherever they are in the list, and
// the singular is the kind in lower case if there is none.
func TestDescribe_T040_OBS2(t *testing.T) {
	got := describe(schema.GroupVersion{Group: "g", Version: "v1"}, true, []metav1.APIResource{
		{Name: "boxes/scale", Kind: "Scale", Group: "autoscaling", Version: "v1"},
		{Name: "boxes", Kind: "Box", Namespaced: true, Categories: []string{"all"}, ShortNames: []string{"bx"}, Verbs: metav1.Verbs{"list"}},
		{Name: "boxes/status", Kind: "Box"},
		{Name: "lids", SingularName: "lid", Kind: "Lid"},
	})
	if len(got) != 2 || got[0].Singular != "box" || !slices.Equal(got[0].Subresources, []string{"scale", "status"}) || !got[0].Namespaced ||
		!slices.Equal(got[0].Categories, []string{"all"}) || !slices.Equal(got[0].ShortNames, []string{"bx"}) || !slices.Equal(got[0].Verbs, []string{"list"}) ||
		got[1].Singular != "lid" || got[1].Subresources != nil || got[1].Group != "g" || !got[1].Preferred {
		t.Errorf("%+v", got)
	}
	if r := resourceOf(got[0]); !r.Status || r.GVK.Kind != "Box" || r.GVR.Resource != "boxes" || !r.Namespaced {
		t.Errorf("%+v", r)
	}
	if r := resourceOf(got[1]); r.Status {
		t.Errorf("%+v", r)
	}
}

// Groups of Kubernetes itself have no custom resources to look for.
func TestExtendable_OBS6(t *testing.T) {
	for group, want := range map[string]bool{
		"": false, "apps": false, "networking.k8s.io": false, "rbac.authorization.k8s.io": false,
		"gateway.networking.k8s.io": true, "example.com": true, anyGroup: true,
	} {
		if got := extendable(group); got != want {
			t.Errorf("%q: %t", group, got)
		}
	}
}

var _ Discovery = (*discovery.DiscoveryClient)(nil)
