package engine

import (
	"fmt"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Namespaces say where objects are handled: in namespaces whose names fit one of the
// patterns, and whose labels fit the selector. Without patterns all names fit, without a
// selector all labels. The zero value stands for everywhere.
//
// A pattern is a list of names and globs with *, ? and [...]; those that begin with !
// exclude. The last one of the list that fits a name decides; if the first one excludes,
// everything else is included (NS-2). Several patterns are alternatives (NS-3).
type Namespaces struct {
	patterns []pattern
	selector labels.Selector // nil: none
}

// pattern is a list of globs, as they are for path.Match, with a ! before those that exclude.
type pattern []string

// ParseNamespaces checks patterns.
func ParseNamespaces(patterns []string) (n Namespaces, err error) {
	for i, list := range patterns {
		var p pattern
		for part := range strings.SplitSeq(list, ",") {
			part = strings.ReplaceAll(strings.TrimSpace(part), "[!", "[^") // as in shells, and in Kopf
			glob := strings.TrimPrefix(part, "!")
			if _, err := path.Match(glob, "x"); err != nil || glob == "" {
				return Namespaces{}, fmt.Errorf("namespace pattern %q is not a name or a glob", part)
			}
			p = append(p, part)
		}
		if i > 0 && strings.HasPrefix(p[0], "!") {
			return Namespaces{}, fmt.Errorf("namespace pattern %q would include all other namespaces, whatever the patterns before it say: "+
				"to exclude from one of those, write it behind a comma, as in %q; to mean it, make it the first one", list, patterns[0]+","+list)
		}
		n.patterns = append(n.patterns, p)
	}
	return n, nil
}

// Select restricts the namespaces to those whose labels fit a selector, which is written
// as for kubectl -l. An empty one is none.
func (n Namespaces) Select(selector string) (Namespaces, error) {
	if strings.TrimSpace(selector) == "" {
		return n, nil
	}
	parsed, err := labels.Parse(selector)
	if err == nil {
		_, err = inAPI(parsed)
	}
	if err != nil {
		return Namespaces{}, fmt.Errorf("namespace selector %q is not one of labels, such as \"team=a,stage in (test, prod),!frozen\": %w", selector, err)
	}
	n.selector = parsed
	return n, nil
}

// inAPI returns a selector in the form of the API, which does not compare numbers.
func inAPI(selector labels.Selector) (*metav1.LabelSelector, error) {
	out := &metav1.LabelSelector{}
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		e := metav1.LabelSelectorRequirement{Key: r.Key(), Values: slices.Sorted(slices.Values(r.ValuesUnsorted()))}
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			e.Operator = metav1.LabelSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			e.Operator = metav1.LabelSelectorOpNotIn
		case selection.Exists:
			e.Operator = metav1.LabelSelectorOpExists
		case selection.DoesNotExist:
			e.Operator = metav1.LabelSelectorOpDoesNotExist
		default:
			return nil, fmt.Errorf("namespaces cannot be selected with %q", r.Operator())
		}
		out.MatchExpressions = append(out.MatchExpressions, e)
	}
	return out, nil
}

// All tells whether objects are handled everywhere.
func (n Namespaces) All() bool { return len(n.patterns) == 0 && n.selector == nil }

// Match tells whether objects of a namespace are handled.
func (n Namespaces) Match(name string, having map[string]string) bool {
	return n.Named(name) && (n.selector == nil || n.selector.Matches(labels.Set(having)))
}

// Named tells whether the name of a namespace fits, whatever its labels say.
func (n Namespaces) Named(name string) bool {
	return len(n.patterns) == 0 || slices.ContainsFunc(n.patterns, func(p pattern) bool { return p.match(name) })
}

func (p pattern) match(name string) bool {
	matches := strings.HasPrefix(p[0], "!")
	for _, part := range p {
		glob, excludes := strings.CutPrefix(part, "!")
		if fits, _ := path.Match(glob, name); fits {
			matches = !excludes
		}
	}
	return matches
}

// exact are the names that are served whether they can be found or not (NS-6).
func (n Namespaces) exact() (names []string) {
	if n.selector != nil {
		return nil
	}
	for _, p := range n.patterns {
		for _, part := range p {
			if !strings.ContainsAny(part, "*?[!") && n.Named(part) {
				names = append(names, part)
			}
		}
	}
	return names
}

// dynamic tells whether the cluster's namespaces have to be looked at.
func (n Namespaces) dynamic() bool {
	parts := 0
	for _, p := range n.patterns {
		parts += len(p)
	}
	return n.selector != nil || len(n.exact()) < parts
}

// Only returns the namespaces if they are known by name, and none else.
func (n Namespaces) Only() []string {
	if n.All() || n.dynamic() {
		return nil
	}
	return n.exact()
}

// Selector is the selector in the form of the API; nil: there is none.
func (n Namespaces) Selector() *metav1.LabelSelector {
	if n.selector == nil {
		return nil
	}
	selector, _ := inAPI(n.selector) // was checked
	return selector
}
