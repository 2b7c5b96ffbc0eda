package registry

import (
	"slices"
	"strings"
	"testing"
)

// served is what an API server serves: plural.version.group, then flags.
func served() []APIResource {
	of := func(group, version, kind, plural, singular string, preferred bool, shortNames, categories string) APIResource {
		return APIResource{
			Group: group, Version: version, Kind: kind, Plural: plural, Singular: singular, Preferred: preferred,
			ShortNames: strings.Fields(shortNames), Categories: strings.Fields(categories),
		}
	}
	return []APIResource{
		of("", "v1", "Pod", "pods", "pod", true, "po", "all"),
		of("", "v1", "Event", "events", "event", true, "ev", "all"),
		of("", "v1", "Node", "nodes", "node", true, "no", ""),
		of("apps", "v1", "Deployment", "deployments", "deployment", true, "deploy", "all"),
		of("apps", "v1beta1", "Deployment", "deployments", "deployment", false, "deploy", "all"),
		of("events.k8s.io", "v1", "Event", "events", "event", true, "ev", "all"),
		of("events.k8s.io", "v1beta1", "Event", "events", "event", false, "ev", "all"),
		of("a.example", "v1", "Database", "databases", "database", true, "db", "data"),
		of("b.example", "v1", "Database", "databases", "database", true, "dbs", "data"),
		of("b.example", "v1", "Event", "events", "event", true, "", ""),
		of("b.example", "v1", "DB", "dbs", "db", true, "", ""),
		of("metrics.k8s.io", "v1beta1", "PodMetrics", "pods", "pod", true, "", ""),
	}
}

func TestSelect(t *testing.T) {
	all := func(APIResource) bool { return true }
	const everything = "pods.v1 nodes.v1 deployments.v1.apps databases.v1.a.example databases.v1.b.example events.v1.b.example dbs.v1.b.example pods.v1beta1.metrics.k8s.io"
	for name, c := range map[string]struct {
		selector Selector
		want     string
	}{
		"SEL-6 kind":                          {Selector{By: ByKind, Name: "Deployment"}, "deployments.v1.apps"},
		"SEL-6 plural":                        {Selector{By: ByPlural, Name: "deployments"}, "deployments.v1.apps"},
		"SEL-6 singular":                      {Selector{By: BySingular, Name: "deployment"}, "deployments.v1.apps"},
		"SEL-6 short name":                    {Selector{By: ByShortName, Name: "deploy"}, "deployments.v1.apps"},
		"SEL-6 a kind is no plural":           {Selector{By: ByPlural, Name: "Deployment"}, ""},
		"SEL-6 a plural is no kind":           {Selector{By: ByKind, Name: "deployments"}, ""},
		"SEL-6 a plural is no singular":       {Selector{By: BySingular, Name: "deployments"}, ""},
		"SEL-6 a plural is no short name":     {Selector{By: ByShortName, Name: "deployments"}, ""},
		"SEL-6 case counts":                   {Selector{By: ByKind, Name: "deployment"}, ""},
		"SEL-6 category":                      {Selector{By: ByCategory, Name: "all"}, "pods.v1 deployments.v1.apps"},
		"SEL-6 group":                         {Selector{By: ByKind, Name: "Database", Group: "b.example", HasGroup: true}, "databases.v1.b.example"},
		"SEL-6 another group":                 {Selector{By: ByKind, Name: "Deployment", Group: "b.example", HasGroup: true}, ""},
		"SEL-6 the core group":                {Selector{By: ByEverything, HasGroup: true}, "pods.v1 nodes.v1"},
		"SEL-6 version":                       {Selector{By: ByKind, Name: "Deployment", Version: "v1beta1"}, "deployments.v1beta1.apps"},
		"SEL-6 category in a version":         {Selector{By: ByCategory, Name: "all", Version: "v1beta1"}, "deployments.v1beta1.apps"},
		"T029 any name: plural":               {Selector{By: ByName, Name: "deployments"}, "deployments.v1.apps"},
		"T029 any name: singular":             {Selector{By: ByName, Name: "deployment"}, "deployments.v1.apps"},
		"T029 any name: kind":                 {Selector{By: ByName, Name: "Deployment"}, "deployments.v1.apps"},
		"T029 any name: short name":           {Selector{By: ByName, Name: "deploy"}, "deployments.v1.apps"},
		"T029 any name: no category":          {Selector{By: ByName, Name: "data"}, ""},
		"T029 any name: the plural is unique": {Selector{By: ByName, Name: "dbs"}, "dbs.v1.b.example"},
		"T030 function: all versions": {
			Selector{By: ByFunc, Predicate: &Predicate{func(r APIResource) bool { return r.Group == "apps" }}},
			"deployments.v1.apps deployments.v1beta1.apps",
		},
		"T030 function in a version": {
			Selector{By: ByFunc, Version: "v1beta1", Predicate: &Predicate{all}},
			"deployments.v1beta1.apps pods.v1beta1.metrics.k8s.io",
		},
		"T031 SEL-7 everything but events":      {Selector{By: ByEverything}, everything},
		"T031 SEL-7 everything in a version":    {Selector{By: ByEverything, Group: "events.k8s.io", HasGroup: true, Version: "v1beta1"}, ""},
		"T031 SEL-7 functions see no events":    {Selector{By: ByFunc, Predicate: &Predicate{func(r APIResource) bool { return r.Kind == "Event" }}}, "events.v1.b.example"},
		"T031 SEL-7 events of the core":         {Selector{By: ByPlural, Name: "events"}, "events.v1"},
		"T031 SEL-7 events of events.k8s.io":    {Selector{By: ByKind, Name: "Event", Group: "events.k8s.io", HasGroup: true}, "events.v1.events.k8s.io"},
		"T032 SEL-9 pods are those of the core": {Selector{By: ByPlural, Name: "pods"}, "pods.v1"},
		"T032 SEL-9 unless a group is given":    {Selector{By: ByPlural, Name: "pods", Group: "metrics.k8s.io", HasGroup: true}, "pods.v1beta1.metrics.k8s.io"},
		"T032 SEL-9 not for functions": {
			Selector{By: ByFunc, Predicate: &Predicate{func(r APIResource) bool { return r.Plural == "pods" }}},
			"pods.v1 pods.v1beta1.metrics.k8s.io",
		},
		"SEL-8 two of a kind are left for the caller": {Selector{By: ByKind, Name: "Database"}, "databases.v1.a.example databases.v1.b.example"},
		"the zero selector selects nothing":           {Selector{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range c.selector.Select(served()) {
				got = append(got, r.String())
			}
			if !slices.Equal(got, strings.Fields(c.want)) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestSpecific_SEL8(t *testing.T) {
	for by, want := range map[By]bool{
		ByType: true, ByName: true, ByKind: true, ByPlural: true, BySingular: true, ByShortName: true,
		ByCategory: false, ByEverything: false, ByFunc: false,
	} {
		if got := (Selector{By: by}).Specific(); got != want {
			t.Errorf("%d: %t", by, got)
		}
	}
}

func TestSelectorText_SEL11(t *testing.T) {
	if !(Selector{}).Empty() {
		t.Error("the zero selector is not empty")
	}
	for want, s := range map[string]Selector{
		"pods.v1":                  {By: ByName, Name: "pods", HasGroup: true, Version: "v1"},
		"databases.v1.example.com": {By: ByPlural, Name: "databases", Group: "example.com", HasGroup: true, Version: "v1"},
		"category all.apps":        {By: ByCategory, Name: "all", Group: "apps", HasGroup: true},
		"everything":               {By: ByEverything},
		"function.v1":              {By: ByFunc, Version: "v1", Predicate: &Predicate{}},
	} {
		if s.Empty() || s.String() != want {
			t.Errorf("got %s, want %s", s, want)
		}
	}
}

// Selectors with functions are the same only if they come from one option.
func TestSelectorsAreComparable(t *testing.T) {
	match := func(APIResource) bool { return true }
	a, b := Selector{By: ByFunc, Predicate: &Predicate{match}}, Selector{By: ByFunc, Predicate: &Predicate{match}}
	if a == b {
		t.Error("two options are the same")
	}
	r := new(Registry)
	for i, s := range []Selector{a, b, a, {By: ByCategory, Name: "all"}, {By: ByCategory, Name: "all"}} {
		h := handler(Create, "h")
		h.Selector = s
		r.Add(h)
		if clashes := r.Err() != nil; clashes != (i >= 2) {
			t.Errorf("after the registration %d: %v", i, r.Err())
		}
	}
	if n := strings.Count(r.Err().Error(), "its id is taken"); n != 2 {
		t.Error(r.Err())
	}
}

// On one resource, ids clash whatever the selectors and Go types.
func TestClashes(t *testing.T) {
	h, other := handler(Create, "h"), handler(Create, "h")
	other.Selector, other.Type = Selector{By: ByKind, Name: "Pod"}, nil
	if !h.Clashes(other) {
		t.Error("two create handlers of one id do not clash")
	}
	other.Kind = Delete
	if h.Clashes(other) {
		t.Error("create and delete clash")
	}
}
