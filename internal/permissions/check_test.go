package permissions

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// authority is an API server that permits what it is told to, and counts.
type authority struct {
	rules     map[string][]authorizationv1.ResourceRule // by namespace, as it says when asked for them
	permits   func(authorizationv1.ResourceAttributes) bool
	forbidden string // kind of review that may not be asked for

	mu    sync.Mutex
	asked []string
	now   int
	most  int
}

func (a *authority) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.now++
	a.most = max(a.most, a.now)
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.now--
	}()
	kind := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	w.Header().Set("Content-Type", "application/json")
	if kind == a.forbidden {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Code: 403, Reason: metav1.StatusReasonForbidden, Message: "no"})
		return
	}
	var reply any
	note := ""
	if kind == "selfsubjectrulesreviews" {
		review := &authorizationv1.SelfSubjectRulesReview{}
		_ = json.NewDecoder(r.Body).Decode(review)
		review.Status.ResourceRules = a.rules[review.Spec.Namespace]
		reply, note = review, "rules "+review.Spec.Namespace
	} else {
		review := &authorizationv1.SelfSubjectAccessReview{}
		_ = json.NewDecoder(r.Body).Decode(review)
		about := *review.Spec.ResourceAttributes
		review.Status.Allowed = a.permits(about)
		reply, note = review, strings.Join([]string{about.Namespace, about.Verb, about.Resource, about.Subresource, about.Name}, " ")
	}
	a.mu.Lock()
	a.asked = append(a.asked, note)
	a.mu.Unlock()
	_ = json.NewEncoder(w).Encode(reply)
}

func (a *authority) client(t *testing.T) authorizationclient.AuthorizationV1Interface {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	client, err := authorizationclient.NewForConfig(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func needs(namespace string, verbs ...string) (all []Need) {
	for _, verb := range verbs {
		all = append(all, Need{Resource: "pods", Verb: verb, Namespace: namespace, For: []string{"x"}})
	}
	return all
}

func TestMissing(t *testing.T) {
	a := &authority{
		rules: map[string][]authorizationv1.ResourceRule{"a": {{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}}}},
		permits: func(about authorizationv1.ResourceAttributes) bool {
			return about.Verb == "get" && about.Name != "other" || about.Namespace == "a"
		},
	}
	wanted := slices.Concat(
		needs("", "get", "patch"), needs("a", "list", "watch", "patch"), needs("b", "list"),
		[]Need{{Resource: "leases", Verb: "get", Namespace: "c", Names: []string{"mine", "other"}}},
	)
	missing, err := Missing(t.Context(), a.client(t), wanted)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := short(missing), []string{"patch pods", "b: list pods", "c: get leases [mine other]"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	slices.Sort(a.asked)
	if want := []string{" get pods  ", " patch pods  ", "a patch pods  ", "b list pods  ", "c get leases  mine", "c get leases  other", "rules a"}; !slices.Equal(a.asked, want) {
		t.Errorf("asked %q", a.asked)
	}
}

// Where reviews are not to be had, nothing is taken for missing.
func TestMissingIsNotKnownWithoutReviews(t *testing.T) {
	for _, tc := range []struct {
		forbidden string
		missing   int
		fails     bool
	}{{"selfsubjectrulesreviews", 2, false}, {"selfsubjectaccessreviews", 0, true}} {
		a := &authority{permits: func(authorizationv1.ResourceAttributes) bool { return false }, forbidden: tc.forbidden}
		missing, err := Missing(t.Context(), a.client(t), needs("a", "list", "watch"))
		if len(missing) != tc.missing || (err != nil) != tc.fails {
			t.Errorf("without %s: %v, %v", tc.forbidden, missing, err)
		}
		if err != nil && strings.Count(err.Error(), "cannot be found out") != 1 {
			t.Errorf("said more than once: %v", err)
		}
	}
}

func TestMissingAsksFewAtATime(t *testing.T) {
	a := &authority{permits: func(authorizationv1.ResourceAttributes) bool { return true }}
	var many []Need
	for i := range 100 {
		many = append(many, Need{Resource: "pods", Verb: "get", Names: []string{string(rune('a' + i))}})
	}
	if missing, err := Missing(t.Context(), a.client(t), many); err != nil || len(missing) > 0 {
		t.Errorf("%v, %v", missing, err)
	}
	if len(a.asked) != 100 || a.most > atATime {
		t.Errorf("%d requests, %d at a time", len(a.asked), a.most)
	}
}

func TestRulesGrant(t *testing.T) {
	rule := func(groups, resources, names, verbs string) authorizationv1.ResourceRule {
		fields := func(s string) []string { return strings.Fields(s) }
		r := authorizationv1.ResourceRule{APIGroups: fields(groups), Resources: fields(resources), ResourceNames: fields(names), Verbs: fields(verbs)}
		if groups == "core" {
			r.APIGroups = []string{""}
		}
		return r
	}
	status := Need{Group: "apps", Resource: "deployments", Subresource: "status", Verb: "patch"}
	named := Need{Resource: "secrets", Verb: "get", Names: []string{"a", "b"}}
	for _, tc := range []struct {
		need Need
		rule authorizationv1.ResourceRule
		want bool
	}{
		{status, rule("apps", "deployments/status", "", "patch"), true},
		{status, rule("*", "*", "", "*"), true},
		{status, rule("apps", "*/status", "", "patch"), true},
		{status, rule("apps", "deployments", "", "patch"), false},
		{status, rule("core", "deployments/status", "", "patch"), false},
		{status, rule("apps", "deployments/status", "", "get"), false},
		{status, rule("apps", "deployments/status", "web", "patch"), false},
		{named, rule("core", "secrets", "a b c", "get"), true},
		{named, rule("core", "secrets", "", "get"), true},
		{named, rule("core", "secrets", "a", "get"), false},
	} {
		if got := tc.need.grantedBy(tc.rule); got != tc.want {
			t.Errorf("%s by %+v: %v", tc.need, tc.rule, got)
		}
	}
}

func TestIn(t *testing.T) {
	served := Need{Resource: "pods", Verb: "list", Namespaced: true}
	cluster := Need{Resource: "nodes", Verb: "list"}
	own := Need{Resource: "secrets", Verb: "get", Namespace: "op", Namespaced: true}
	if got := short(In([]string{"a", "b"}, []Need{served, cluster, own})); !slices.Equal(got, []string{"a: list pods", "b: list pods", "list nodes", "op: get secrets"}) {
		t.Errorf("got %q", got)
	}
}
