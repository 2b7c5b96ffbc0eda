package engine

import (
	"slices"
	"strings"
	"testing"
)

// NS-2, T033: the last pattern that fits decides.
func TestNamespacesMatch_T033(t *testing.T) {
	for _, c := range []struct {
		patterns string // with commas, or with spaces for repeated ones
		match    string
		mismatch string
	}{
		{"", "default kube-system x", ""},
		{"team", "team", "team-a ateam Team x"},
		{"team-*", "team-a team-", "team myteam-a"},
		{"*-prod", "a-prod -prod", "a-prod-b prod"},
		{"a*z", "az abz", "a abzc"},
		{"team-?", "team-a team-1", "team- team-ab"},
		{"team-[abc]", "team-a team-c", "team-d"},
		{"team-[a-c]", "team-b", "team-d team--"},
		{"team-[!a-c]", "team-d", "team-a"},
		{"*", "default x", ""},
		{"a b", "a b", "c ab"},
		{"a,b", "a b", "c"},
		{"a,,b", "", ""}, // an error
		{"!team-secret", "default team-a", "team-secret"},
		{"!team-* team-open", "default team-open", "team-a"},
		{"!team-*,team-open,!team-open", "default", "team-open team-a"},
		{"team-* !team-secret", "team-a", "team-secret default"},
		{"team-*,!team-secret", "team-a", "team-secret default"},
		{"team-* !team-s* team-spare", "team-a team-spare", "team-secret"},
		{"!team-secret team-*", "team-a team-secret default", ""}, // what is said last decides
		{"a !a", "", "a b"},
		{"a !*", "", "a b"},
	} {
		n, err := ParseNamespaces(strings.Fields(c.patterns))
		if c.patterns == "a,,b" {
			if err == nil {
				t.Error("an empty pattern was taken")
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.patterns, err)
		}
		for _, name := range strings.Fields(c.match) {
			if !n.Match(name) {
				t.Errorf("%q does not match %s", c.patterns, name)
			}
		}
		for _, name := range strings.Fields(c.mismatch) {
			if n.Match(name) {
				t.Errorf("%q matches %s", c.patterns, name)
			}
		}
	}
}

func TestNamespacesAreTrimmed(t *testing.T) {
	n, err := ParseNamespaces([]string{" a , !b ", "c"})
	if err != nil || !slices.Equal(n, []string{"a", "!b", "c"}) {
		t.Errorf("%q, %v", n, err)
	}
}

func TestNamespaceMistakes(t *testing.T) {
	for _, pattern := range []string{"", " ", ",", "a,", ",a", "!", "a[", "[", "![a", "a[]", `a\`} {
		if n, err := ParseNamespaces([]string{"fine", pattern}); err == nil || !strings.Contains(err.Error(), "is not a name or a glob") {
			t.Errorf("%q became %q, %v", pattern, n, err)
		}
	}
	if n, err := ParseNamespaces(nil); err != nil || !n.all() {
		t.Errorf("%q, %v", n, err)
	}
}

// NS-6, T034: exact names, and whether the cluster must be asked for others.
func TestNamespacesExact_T034(t *testing.T) {
	for _, c := range []struct {
		patterns string
		exact    string
		dynamic  bool
	}{
		{"", "", false},
		{"a", "a", false},
		{"a b", "a b", false},
		{"a team-*", "a", true},
		{"team-? x[ab]", "", true},
		{"!a", "", true},
		{"a !b", "a", true},
		{"a !a", "", true},
		{"a !a a", "a a", true},
	} {
		n, err := ParseNamespaces(strings.Fields(c.patterns))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(n.exact(), " "); got != c.exact || n.dynamic() != c.dynamic || n.all() != (c.patterns == "") {
			t.Errorf("%q: exact %q, dynamic %t, all %t", c.patterns, got, n.dynamic(), n.all())
		}
	}
}
