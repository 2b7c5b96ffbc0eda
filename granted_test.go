package kopf_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// What a spec needs that runs an operator with the printed roles, and nothing else.

// right is a verb on a resource, in a namespace or none, on one object or all.
type right struct{ namespace, group, resource, name, verb string }

func (r right) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s.%s %s %s", r.verb, r.resource, r.group, r.name, r.namespace))
}

// rightsIn are those of printed roles.
func rightsIn(objects []*unstructured.Unstructured) (all []right) {
	GinkgoHelper()
	for _, o := range objects {
		for _, rule := range rulesOf(o) {
			names := rule.ResourceNames
			if len(names) == 0 {
				names = []string{""}
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range names {
						for _, verb := range rule.Verbs {
							all = append(all, right{o.GetNamespace(), group, resource, name, verb})
						}
					}
				}
			}
		}
	}
	return all
}

// rulesOf are those of a role; others have none.
func rulesOf(o *unstructured.Unstructured) []rbacv1.PolicyRule {
	GinkgoHelper()
	if o.GetKind() != "Role" && o.GetKind() != "ClusterRole" {
		return nil
	}
	role := rbacv1.Role{}
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role)).To(Succeed())
	return role.Rules
}

// objectsIn reads manifests.
func objectsIn(text []byte) (objects []*unstructured.Unstructured) {
	GinkgoHelper()
	for document := range strings.SplitSeq(string(text), "---\n") {
		o := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(document), &o.Object)).To(Succeed())
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
	return objects
}

// install applies manifests until the spec ends.
func install(ctx context.Context, objects []*unstructured.Unstructured) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(k8s.Client.Create(ctx, o.DeepCopy())).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(k8s.Client.Delete(ctx, o))).To(Succeed()) })
	}
}

// actingAs is the connection of a service account, which notes its requests.
func actingAs(ctx context.Context, namespace, name string, into *asked) *rest.Config {
	GinkgoHelper()
	token := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	Expect(k8s.Client.SubResource("token").Create(ctx, account, token)).To(Succeed())
	config := rest.AnonymousClientConfig(k8s.Config)
	config.BearerToken = token.Status.Token
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return noting{next, into} })
	return config
}

// asked is what an operator has asked for, and been refused.
type asked struct {
	mu      sync.Mutex
	made    map[right]int
	refused map[right]int
}

func (r *asked) all() []right {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.made))
}

func (r *asked) forbidden() []right {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.refused))
}

type noting struct {
	http.RoundTripper
	into *asked
}

func (n noting) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := n.RoundTripper.RoundTrip(request)
	wanted, about := rightFor(request)
	if err != nil || !about {
		return response, err
	}
	n.into.mu.Lock()
	defer n.into.mu.Unlock()
	if n.into.made == nil {
		n.into.made, n.into.refused = map[right]int{}, map[right]int{}
	}
	n.into.made[wanted]++
	if response.StatusCode == http.StatusForbidden {
		n.into.refused[wanted]++
	}
	return response, err
}

// rightFor is what a request needs, if it is about objects. What everybody may do is not
// counted: to read what is served, and to ask who he is and what he may do.
func rightFor(request *http.Request) (r right, about bool) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		r.group, parts = parts[1], parts[3:]
	default:
		return r, false
	}
	if r.group == "authorization.k8s.io" || r.group == "authentication.k8s.io" {
		return r, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		r.namespace, parts = parts[1], parts[2:]
	}
	r.resource = parts[0]
	if len(parts) > 1 {
		r.name = parts[1]
	}
	if len(parts) > 2 {
		r.resource += "/" + parts[2]
	}
	query := request.URL.Query()
	if name, exact := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name="); exact {
		r.name = name
	}
	r.verb = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodGet: "get"}[request.Method]
	switch {
	case r.verb == "get" && query.Get("watch") != "":
		r.verb = "watch"
	case r.verb == "get" && len(parts) == 1:
		r.verb = "list"
	}
	return r, true
}

// covers tells whether a request is one of those that a right is for.
func (r right) covers(made right) bool {
	return (r.namespace == "" || r.namespace == made.namespace) && r.group == made.group && r.resource == made.resource &&
		(r.name == "" || r.name == made.name) && r.verb == made.verb
}
