package manifests

import (
	"encoding/json"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kopf-go/kopf/internal/permissions"
)

// tree is an object, or part of one. Keys are sorted in YAML.
type tree = map[string]any

func (o Options) labels() tree { return tree{"app.kubernetes.io/name": o.Name} }

// metadata is that of an object of the operator; in no namespace if that is empty.
func (o Options) metadata(namespace string) tree {
	m := tree{"name": o.Name, "labels": o.labels()}
	if namespace != "" {
		m["namespace"] = namespace
	}
	return m
}

// accounts are the ServiceAccount, and the roles with their bindings.
func (p *printer) accounts(o Options, needs []permissions.Need) {
	p.object(tree{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": o.metadata(o.Namespace)})
	for _, role := range permissions.Roles(needs) {
		kind := "Role"
		name := o.metadata(role.Namespace)
		if role.Namespace == "" {
			kind = "ClusterRole"
			name["name"] = o.clusterName()
		}
		p.object(tree{"apiVersion": rbacv1.SchemeGroupVersion.String(), "kind": kind, "metadata": name})
		p.rules(role.Rules)
		p.object(tree{
			"apiVersion": rbacv1.SchemeGroupVersion.String(), "kind": kind + "Binding", "metadata": name,
			"roleRef":  tree{"apiGroup": rbacv1.GroupName, "kind": kind, "name": name["name"]},
			"subjects": []tree{{"kind": rbacv1.ServiceAccountKind, "name": o.Name, "namespace": o.Namespace}},
		})
	}
}

// clusterName tells operators of the same name in several namespaces apart.
func (o Options) clusterName() string {
	if o.Name == o.Namespace {
		return o.Name
	}
	return o.Namespace + "-" + o.Name
}

// rules are written by hand, for encoders know no comments.
func (p *printer) rules(rules []permissions.Rule) {
	p.out.WriteString("rules:\n")
	for _, r := range rules {
		for _, comment := range r.Comments {
			fmt.Fprintf(&p.out, "# %s\n", strings.ReplaceAll(comment, "\n", " "))
		}
		fmt.Fprintf(&p.out, "- apiGroups: %s\n  resources: %s\n", list(r.APIGroups), list(r.Resources))
		if len(r.ResourceNames) > 0 {
			fmt.Fprintf(&p.out, "  resourceNames: %s\n", list(r.ResourceNames))
		}
		fmt.Fprintf(&p.out, "  verbs: %s\n", list(r.Verbs))
	}
}

// list is one in one line: JSON is YAML.
func list(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		raw, _ := json.Marshal(text) // of a string, which cannot fail
		quoted[i] = string(raw)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
