package engine

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// NS-2, NS-3, NS-4, T033: in a list, the last one that fits decides; of several lists, one
// is enough; letters are compared as they are.
func TestNamespacesMatch_NS2_NS3_NS4_T033(t *testing.T) {
	for _, c := range []struct {
		patterns string // of several, with spaces between them
		match    string
		mismatch string
	}{
		{"", "default kube-system x", ""},
		{"team", "team", "team-a ateam Team TEAM x"},
		{"team-*", "team-a team-", "team myteam-a Team-a"},
		{"*-prod", "a-prod -prod", "a-prod-b prod"},
		{"a*z", "az abz", "a abzc"},
		{"team-?", "team-a team-1", "team- team-ab"},
		{"team-[abc]", "team-a team-c", "team-d"},
		{"team-[a-c]", "team-b", "team-d team--"},
		{"team-[!a-c]", "team-d", "team-a"},
		{"*", "default x", ""},
		{"a b", "a b", "c ab"},
		{"team-* a", "a team-b", "b"},
		// What an exclusion leaves of the list that it is in.
		{"!team-secret", "default team-a", "team-secret"},
		{"!team-secret,!team-x", "default team-a", "team-secret team-x"},
		{"!team-*,team-open", "default team-open", "team-a"},
		{"!team-*,team-open,!team-open", "default", "team-open team-a"},
		{"team-*,!team-secret", "team-a", "team-secret default"},
		{"team-*,!*-prod,!*-test", "team-a", "team-prod team-test prod a-prod"},
		{"team-*,!team-s*,team-spare", "team-a team-spare", "team-secret spare"},
		{"*,!team-*,team-a", "default team-a", "team-b"},
		{"!team-secret,team-*", "team-a team-secret default", ""}, // what is said last decides
		{"a,!a", "", "a b"},
		{"a,!*", "", "a b"},
		// An inclusion counts where the first glob does not fit, too: in Kopf it does not.
		{"a,b", "a b", "c"},
		{"team-*,!team-s*,other", "team-a other", "team-secret x"},
		// One list takes nothing from another one.
		{"team-*,!team-secret team-secret", "team-a team-secret", "default"},
		{"!team-* team-open", "default team-open", "team-a"},
		{"!a*,!b* a1", "default a1", "a2 b1"},
	} {
		n, err := ParseNamespaces(strings.Fields(c.patterns))
		if err != nil {
			t.Errorf("%s: %v", c.patterns, err)
		}
		for _, name := range strings.Fields(c.match) {
			if !n.Match(name, nil) {
				t.Errorf("%q does not match %s", c.patterns, name)
			}
		}
		for _, name := range strings.Fields(c.mismatch) {
			if n.Match(name, nil) {
				t.Errorf("%q matches %s", c.patterns, name)
			}
		}
	}
}

func TestNamespacesAreTrimmed_NS2(t *testing.T) {
	n, err := ParseNamespaces([]string{" a , !b ", "c"})
	if want := [][]string{{"a", "!b"}, {"c"}}; err != nil || fmt.Sprint(n.patterns) != fmt.Sprint(want) {
		t.Errorf("%q, %v", n.patterns, err)
	}
}

func TestNamespaceMistakes_NS1_NS3(t *testing.T) {
	for _, pattern := range []string{"", " ", ",", "a,", ",a", "a,,b", "!", "a[", "[", "![a", "a[]", `a\`} {
		if n, err := ParseNamespaces([]string{"fine", pattern}); err == nil || !strings.Contains(err.Error(), "is not a name or a glob") {
			t.Errorf("%q became %q, %v", pattern, n.patterns, err)
		}
	}
	if n, err := ParseNamespaces(nil); err != nil || !n.All() {
		t.Errorf("%q, %v", n.patterns, err)
	}
	// Alternatives are OR-ed, so that this would be everywhere, which nobody can mean (NS-3).
	_, err := ParseNamespaces([]string{"team-*", "!team-secret"})
	if err == nil || !strings.Contains(err.Error(), `as in "team-*,!team-secret"`) {
		t.Errorf("an exclusion behind another pattern: %v", err)
	}
}

// NS-6, T034: exact names, and whether the cluster must be asked for others.
func TestNamespacesExact_NS6_T034(t *testing.T) {
	for _, c := range []struct {
		patterns string
		selector string
		exact    string
		dynamic  bool
	}{
		{"", "", "", false},
		{"a", "", "a", false},
		{"a b", "", "a b", false},
		{"a,b", "", "a b", false},
		{"a team-*", "", "a", true},
		{"team-? x[ab]", "", "", true},
		{"!a", "", "", true},
		{"a,!b", "", "a", true},
		{"a,!a", "", "", true},
		{"a,!a,a", "", "a a", true},
		{"a,!a a", "", "a a", true},
		{"", "on", "", true},
		{"a b", "on", "", true}, // whether it is served, its labels say
	} {
		n, err := ParseNamespaces(strings.Fields(c.patterns))
		if err != nil {
			t.Fatal(err)
		}
		if n, err = n.Select(c.selector); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(n.exact(), " "); got != c.exact || n.dynamic() != c.dynamic || n.All() != (c.patterns+c.selector == "") {
			t.Errorf("%q, %q: exact %q, dynamic %t, all %t", c.patterns, c.selector, got, n.dynamic(), n.All())
		}
		if only := strings.Join(n.Only(), " "); c.dynamic && only != "" || !c.dynamic && only != c.exact {
			t.Errorf("%q, %q: only %q", c.patterns, c.selector, only)
		}
	}
}

func TestNamespaceSelector(t *testing.T) {
	for _, c := range []struct {
		patterns, selector string
		name               string
		labels             string
		matches            bool
	}{
		{"", "", "x", "", true},
		{"", " ", "x", "", true},
		{"", "on=yes", "x", "on=yes", true},
		{"", "on==yes", "x", "on=yes,a=b", true},
		{"", "on=yes", "x", "on=no", false},
		{"", "on=yes", "x", "", false},
		{"", "on", "x", "on=", true},
		{"", "!on", "x", "on=", false},
		{"", "!on", "x", "", true},
		{"", "on!=no", "x", "", true},
		{"", "stage in (test, prod),!frozen", "x", "stage=prod", true},
		{"", "stage in (test, prod),!frozen", "x", "stage=prod,frozen=", false},
		{"", "stage notin (prod)", "x", "stage=prod", false},
		{"team-*", "on=yes", "team-a", "on=yes", true},
		{"team-*", "on=yes", "team-a", "", false},
		{"team-*", "on=yes", "x", "on=yes", false},
		{"a b", "on", "b", "on=", true},
	} {
		n, err := ParseNamespaces(strings.Fields(c.patterns))
		if err != nil {
			t.Fatal(err)
		}
		if n, err = n.Select(c.selector); err != nil {
			t.Fatal(err)
		}
		having := map[string]string{}
		for part := range strings.SplitSeq(c.labels, ",") {
			if key, value, is := strings.Cut(part, "="); is {
				having[key] = value
			}
		}
		if n.Match(c.name, having) != c.matches {
			t.Errorf("%q and %q match %s (%s): %t", c.patterns, c.selector, c.name, c.labels, !c.matches)
		}
		selector := n.Selector()
		if selector == nil {
			selector = &metav1.LabelSelector{}
		}
		inAPI, err := metav1.LabelSelectorAsSelector(selector) // as of webhooks
		if err != nil || inAPI.Matches(labels.Set(having)) != (c.matches || c.name == "x" && c.patterns != "") {
			t.Errorf("%q is %v, %v", c.selector, inAPI, err)
		}
	}
	for _, selector := range []string{"a=b=c", "a in", "a b", "-", "a=ö", "size>1", ",", "a in (x"} {
		if n, err := (Namespaces{}).Select(selector); err == nil || !strings.Contains(err.Error(), `such as "team=a`) {
			t.Errorf("%q became %v, %v", selector, n, err)
		}
	}
}
