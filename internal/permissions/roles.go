package permissions

import (
	"cmp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Role is what is granted in a namespace, or, in none, in the whole cluster.
type Role struct {
	Namespace string
	Rules     []Rule
}

// Rule is a rule of a role, with who needs it.
type Rule struct {
	rbacv1.PolicyRule
	Comments []string
}

// Roles grant all needs, and nothing else: one for the whole cluster, if there is
// anything in it, and one for each namespace.
func Roles(needs []Need) []Role {
	var roles []Role
	for _, namespace := range namespacesOf(needs) {
		role := Role{Namespace: namespace}
		for rest := slices.Clone(needs); len(rest) > 0; {
			first := rest[0]
			var together []Need
			for _, n := range rest {
				if n.alike(first) {
					together = append(together, n)
				}
			}
			rest = slices.DeleteFunc(rest, first.alike)
			if first.Namespace == namespace {
				role.Rules = append(role.Rules, rule(together))
			}
		}
		role.Rules = merged(role.Rules)
		roles = append(roles, role)
	}
	return roles
}

// alike tells whether two needs differ only in their verb.
func (n Need) alike(other Need) bool {
	return n.Namespace == other.Namespace && n.Group == other.Group && n.qualified() == other.qualified() && slices.Equal(n.Names, other.Names)
}

// rule is for needs that differ only in their verb.
func rule(needs []Need) Rule {
	first := needs[0]
	r := Rule{PolicyRule: rbacv1.PolicyRule{
		APIGroups: []string{first.Group}, Resources: []string{first.qualified()}, ResourceNames: first.Names,
	}}
	type user struct{ verbs, who string }
	var users []user
	for _, n := range needs {
		r.Verbs = append(r.Verbs, n.Verb)
		who := strings.Join(n.For, ", ")
		if n.Without != "" {
			who += "; without it, " + n.Without
		}
		if i := slices.IndexFunc(users, func(u user) bool { return u.who == who }); i >= 0 {
			users[i].verbs += ", " + n.Verb
		} else {
			users = append(users, user{n.Verb, who})
		}
	}
	for _, u := range users {
		if len(users) == 1 {
			r.Comments = append(r.Comments, u.who)
		} else {
			r.Comments = append(r.Comments, u.verbs+": "+u.who)
		}
	}
	return r
}

// merged makes one rule of those that differ only in their resource.
func merged(rules []Rule) []Rule {
	var out []Rule
	for _, r := range rules {
		i := slices.IndexFunc(out, func(other Rule) bool {
			return slices.Equal(other.APIGroups, r.APIGroups) && slices.Equal(other.ResourceNames, r.ResourceNames) &&
				slices.Equal(other.Verbs, r.Verbs) && slices.Equal(other.Comments, r.Comments)
		})
		if i < 0 {
			out = append(out, r)
			continue
		}
		out[i].Resources = append(out[i].Resources, r.Resources...)
	}
	slices.SortStableFunc(out, func(a, b Rule) int {
		return cmp.Or(slices.Compare(a.APIGroups, b.APIGroups), slices.Compare(a.Resources, b.Resources), slices.Compare(a.ResourceNames, b.ResourceNames))
	})
	return out
}
