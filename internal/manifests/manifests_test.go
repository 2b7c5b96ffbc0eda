package manifests

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/kopf-go/kopf/internal/permissions"
	"github.com/kopf-go/kopf/internal/schemas"
	"github.com/kopf-go/kopf/webhook"
)

// document finds the one of a kind, and reads it strictly.
func document[T any](t *testing.T, text []byte, kind string) (object T) {
	t.Helper()
	for part := range strings.SplitSeq(string(text), "---\n") {
		if strings.Contains(part, "\nkind: "+kind+"\n") {
			if err := yaml.UnmarshalStrict([]byte(part), &object); err != nil {
				t.Fatalf("%v in %s", err, part)
			}
			return object
		}
	}
	t.Fatalf("there is no %s in\n%s", kind, text)
	return object
}

func TestDefaults(t *testing.T) {
	o := Options{}.WithDefaults("My-Op", "")
	if o.Name != "my-op" || o.Namespace != "default" || o.Image != "my-op:latest" || o.Replicas != 1 || o.HealthPort != 8080 || len(o.Parts) != 4 {
		t.Errorf("got %+v", o)
	}
	if o = (Options{Namespace: "a"}).WithDefaults("", "b"); o.Name != "kopf" || o.Namespace != "a" {
		t.Errorf("got %+v", o)
	}
}

func TestDeployment(t *testing.T) {
	o := Options{Replicas: 2, Args: []string{"-n=a"}}.WithDefaults("op", "operators")
	text, err := Print(o, Operator{
		Elects: true, Grace: 20 * time.Second, WebhookPort: 9443, Endpoint: webhook.Service{Namespace: "other", Name: "hooks"},
	})
	if err != nil {
		t.Fatal(err)
	}
	d := document[appsv1.Deployment](t, text, "Deployment")
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	switch {
	case *d.Spec.Replicas != 2 || d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || d.Namespace != "operators":
		t.Errorf("got %+v", d.Spec)
	case *pod.TerminationGracePeriodSeconds != 35 || pod.ServiceAccountName != "op":
		t.Errorf("got %+v", pod)
	case strings.Join(c.Args, " ") != "--health-address=:8080 --leader-elect -n=a" || len(c.Ports) != 2 || c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz":
		t.Errorf("got %+v", c)
	// What the pod security standard "restricted" wants.
	case !*pod.SecurityContext.RunAsNonRoot || pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
		*c.SecurityContext.AllowPrivilegeEscalation || c.SecurityContext.Capabilities.Drop[0] != "ALL":
		t.Errorf("got %+v, %+v", pod.SecurityContext, c.SecurityContext)
	}
	s := document[corev1.Service](t, text, "Service")
	if s.Name != "hooks" || s.Namespace != "other" || s.Spec.Ports[0].Port != 443 || s.Spec.Ports[0].TargetPort.StrVal != "webhooks" || s.Spec.Selector["app.kubernetes.io/name"] != "op" {
		t.Errorf("got %+v", s)
	}
	o.HealthPort, o.Args, o.Replicas = -1, nil, 1
	text, err = Print(o, Operator{})
	if err != nil {
		t.Fatal(err)
	}
	d = document[appsv1.Deployment](t, text, "Deployment")
	if c := d.Spec.Template.Spec.Containers[0]; d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || len(c.Args)+len(c.Ports) > 0 || c.LivenessProbe != nil {
		t.Errorf("got %+v", d.Spec)
	}
}

func TestRoles(t *testing.T) {
	o := Options{Parts: []Part{RBAC}}.WithDefaults("op", "operators")
	needs := []permissions.Need{
		{Group: "", Resource: "pods", Verb: "list", Namespace: "a", For: []string{"x", "multi\nline"}},
		{Group: "g", Resource: "nodes", Verb: "get", Names: []string{"one"}, For: []string{"y"}},
	}
	text, err := Print(o, Operator{Needs: needs, Problems: []string{"not known"}, Notes: []string{"guessed"}, Webhooks: []byte("---\nwebhooks: {}\n")})
	if err != nil {
		t.Fatal(err)
	}
	role, binding := document[rbacv1.Role](t, text, "Role"), document[rbacv1.RoleBinding](t, text, "RoleBinding")
	if role.Namespace != "a" || role.Name != "op" || role.Rules[0].Resources[0] != "pods" || role.Rules[0].APIGroups[0] != "" {
		t.Errorf("got %+v", role)
	}
	if binding.Namespace != "a" || binding.RoleRef.Name != "op" || binding.RoleRef.Kind != "Role" || binding.Subjects[0] != (rbacv1.Subject{Kind: "ServiceAccount", Name: "op", Namespace: "operators"}) {
		t.Errorf("got %+v", binding)
	}
	if role := document[rbacv1.ClusterRole](t, text, "ClusterRole"); role.Name != "operators-op" || role.Rules[0].ResourceNames[0] != "one" {
		t.Errorf("got %+v", role)
	}
	for _, want := range []string{"# ERROR: not known\n# NOTE: guessed\n", "# x, multi line\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, other := range []string{"Deployment", "webhooks"} {
		if strings.Contains(string(text), other) {
			t.Errorf("%s was not asked for", other)
		}
	}
}

// The same in any order of the parts; and each alone.
func TestParts(t *testing.T) {
	op := Operator{Definitions: []schemas.Definition{{Kind: "CustomResourceDefinition"}}, Webhooks: []byte("---\nkind: Hooks\n")}
	for part, want := range map[Part]string{CRDs: "CustomResourceDefinition", RBAC: "ServiceAccount", Deployment: "Deployment", Webhooks: "Hooks"} {
		text, err := Print(Options{Parts: []Part{part}}.WithDefaults("op", ""), op)
		if err != nil || !strings.Contains(string(text), "kind: "+want) || strings.Count(string(text), "---\n") != 1 {
			t.Errorf("%s: %v\n%s", part, err, text)
		}
	}
}
