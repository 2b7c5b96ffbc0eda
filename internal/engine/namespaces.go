package engine

import (
	"fmt"
	"path"
	"strings"
)

// Namespaces are patterns that say where objects are handled; none stands for
// everywhere.
//
// A pattern is a name or a glob with *, ? and [...]; one that begins with ! excludes.
// The last pattern that fits a name decides; if the first one excludes, everything
// else is included (NS-2).
type Namespaces []string

// ParseNamespaces checks patterns. Each may be a comma-separated list of them.
func ParseNamespaces(patterns []string) (Namespaces, error) {
	var out Namespaces
	for _, list := range patterns {
		for part := range strings.SplitSeq(list, ",") {
			part = strings.ReplaceAll(strings.TrimSpace(part), "[!", "[^") // as in shells, and in Kopf
			glob := strings.TrimPrefix(part, "!")
			if _, err := path.Match(glob, "x"); err != nil || glob == "" {
				return nil, fmt.Errorf("namespace pattern %q is not a name or a glob", part)
			}
			out = append(out, part)
		}
	}
	return out, nil
}

func (n Namespaces) all() bool { return len(n) == 0 }

// exact are the names that are served whether they can be found or not.
func (n Namespaces) exact() (names []string) {
	for _, part := range n {
		if !strings.ContainsAny(part, "*?[!") && n.Match(part) {
			names = append(names, part)
		}
	}
	return names
}

// dynamic tells whether the cluster's namespaces have to be looked at.
func (n Namespaces) dynamic() bool { return !n.all() && len(n.exact()) < len(n) }

// Only returns the namespaces if they are known by name, and none else.
func (n Namespaces) Only() []string {
	if n.all() || n.dynamic() {
		return nil
	}
	return n.exact()
}

// Match tells whether objects of a namespace are handled.
func (n Namespaces) Match(name string) bool {
	matches := len(n) == 0 || strings.HasPrefix(n[0], "!")
	for _, part := range n {
		glob, excludes := strings.CutPrefix(part, "!")
		if fits, _ := path.Match(glob, name); fits {
			matches = !excludes
		}
	}
	return matches
}
