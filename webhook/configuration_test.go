package webhook

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kopf-go/kopf/filters"
)

var (
	widgets   = Resource{Group: "kopf.dev", Version: "v1", Plural: "widgets", Namespaced: true}
	databases = Resource{Group: "kopf.dev", Version: "v1alpha1", Plural: "databases"}
	pods      = Resource{Version: "v1", Plural: "pods", Namespaced: true}
)

// service is an endpoint in the cluster.
type service struct{}

func (service) ClientConfig(path string, bundle []byte) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{
		Service:  &admissionregistrationv1.ServiceReference{Namespace: "ns", Name: "op", Path: &path},
		CABundle: bundle,
	}
}

func (service) Names() []string { return nil }

func validating(id string, resources ...Resource) Hook {
	return Hook{ID: id, Kind: Validating, Resources: resources}
}

func mutating(id string, resources ...Resource) Hook {
	return Hook{ID: id, Kind: Mutating, Resources: resources}
}

func atURL(path string) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://host:1234/path" + path)}
}

// one is the only validating webhook of hooks.
func one(t *testing.T, o Options, hooks ...Hook) admissionregistrationv1.ValidatingWebhook {
	t.Helper()
	o.Name = "example.com"
	configuration, other := Configurations(o, hooks, atURL)
	if configuration == nil || len(configuration.Webhooks) != 1 || other != nil {
		t.Fatalf("want one webhook, got %v and %v", configuration, other)
	}
	return configuration.Webhooks[0]
}

func TestFlagsBecomePolicies_T164(t *testing.T) {
	hook := validating("validate1", widgets)
	got := one(t, Options{}, hook)
	if got.Name != "validate1.example.com" || *got.SideEffects != "None" || *got.FailurePolicy != "Fail" || *got.MatchPolicy != "Equivalent" ||
		*got.TimeoutSeconds != 10 || !slices.Equal(got.AdmissionReviewVersions, []string{"v1"}) || len(got.ObjectSelector.MatchExpressions) > 0 {
		t.Errorf("by default: %+v", got)
	}
	hook.SideEffects, hook.IgnoreFailures = true, true
	if got := one(t, Options{}, hook); *got.SideEffects != "NoneOnDryRun" || *got.FailurePolicy != "Ignore" {
		t.Errorf("with flags: %+v", got)
	}
	for timeout, want := range map[time.Duration]int32{time.Minute: 30, 1500 * time.Millisecond: 2, time.Millisecond: 1} {
		if got := one(t, Options{Timeout: timeout}, hook); *got.TimeoutSeconds != want {
			t.Errorf("timeout %v: %d", timeout, *got.TimeoutSeconds)
		}
	}
	if _, m := Configurations(Options{Name: "example.com"}, []Hook{mutating("m", widgets)}, atURL); *m.Webhooks[0].ReinvocationPolicy != "Never" {
		t.Errorf("mutating: %+v", m)
	}
}

func TestRules_T164(t *testing.T) {
	for _, c := range []struct {
		hook Hook
		want string
	}{
		{validating("a", widgets), "kopf.dev/v1/widgets Namespaced [*]"},
		{validating("a", databases), "kopf.dev/v1alpha1/databases Cluster [*]"},
		{validating("a", widgets, pods, databases), "/v1/pods Namespaced [*], kopf.dev/v1alpha1/databases Cluster [*], kopf.dev/v1/widgets Namespaced [*]"},
		{Hook{Subresource: "status"}, "kopf.dev/v1/widgets/status Namespaced [*]"},
		{Hook{Subresource: "*"}, "kopf.dev/v1/widgets/* Namespaced [*]"},
		{Hook{Operations: []string{"UPDATE", "create"}}, "kopf.dev/v1/widgets Namespaced [CREATE UPDATE]"},
		{Hook{Operations: []string{"UPDATE", "*"}}, "kopf.dev/v1/widgets Namespaced [*]"},
	} {
		c.hook.ID, c.hook.Kind = "a", Validating
		if c.hook.Resources == nil {
			c.hook.Resources = []Resource{widgets}
		}
		if got := ruleText(one(t, Options{}, c.hook).Rules); got != c.want {
			t.Errorf("%+v: %s, want %s", c.hook, got, c.want)
		}
	}
}

// Mutating handlers are not called for deletions but for those that are for nothing else,
// so the API server does not ask.
func TestMutatingRulesLeaveDeletionsOut_T164(t *testing.T) {
	for want, hook := range map[string]Hook{
		"[CREATE UPDATE]":         {},
		"[CREATE]":                {Operations: []string{"CREATE", "DELETE"}},
		"[DELETE]":                {Operations: []string{"DELETE"}},
		"[CONNECT CREATE UPDATE]": {Subresource: "*"},
	} {
		hook.ID, hook.Kind, hook.Resources = "a", Mutating, []Resource{widgets}
		_, got := Configurations(Options{Name: "example.com"}, []Hook{hook}, atURL)
		if text := ruleText(got.Webhooks[0].Rules); !strings.HasSuffix(text, want) {
			t.Errorf("%+v: %s, want %s", hook, text, want)
		}
	}
}

func ruleText(rules []admissionregistrationv1.RuleWithOperations) string {
	var texts []string
	for _, r := range rules {
		texts = append(texts, fmt.Sprintf("%s/%s/%s %s %v", r.APIGroups[0], r.APIVersions[0], r.Resources[0], *r.Scope, r.Operations))
	}
	return strings.Join(texts, ", ")
}

func TestHandlersOfNothingAreNotThere_T164(t *testing.T) {
	if v, m := Configurations(Options{Name: "example.com"}, []Hook{validating("a"), mutating("b"), {Kind: Policy, ID: "c"}}, atURL); v != nil || m != nil {
		t.Errorf("webhooks without resources: %v, %v", v, m)
	}
	if got := one(t, Options{}, validating("a"), validating("b", widgets)); got.Name != "b.example.com" {
		t.Errorf("the other one is %s", got.Name)
	}
}

func TestLabelSelectors_T164(t *testing.T) {
	must := func(v any) filters.Criterion {
		c, err := filters.Of(v)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	hook := validating("a", widgets)
	hook.Restrict([]Criterion{
		{"a", must("x")}, {"b", filters.Present}, {"c", filters.Absent}, {"d", must(func(string) bool { return true })},
		{"e", filters.Any("y", "x")}, {"f", filters.Not("x")}, {"g", filters.None("x", "y")}, {"h", must("not legal!")}, {"not/a/key", filters.Present},
	}, nil, nil, nil)
	want := "a in (x),b,!c,e in (x,y),f notin (x),g notin (x,y)"
	if got := metav1.FormatLabelSelector(one(t, Options{}, hook).ObjectSelector); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// What has no labels at all can be connected to, and is selected by nothing.
	hook = validating("a", pods)
	hook.Subresource = "*"
	hook.Restrict([]Criterion{{"a", filters.Absent}, {"b", filters.Not("x")}}, nil, nil, nil)
	if hook.Selector != nil {
		t.Errorf("for a subresource: %v", hook.Selector)
	}
}

func TestPaths_ADM16(t *testing.T) {
	v, m := Configurations(Options{Name: "example.com"}, []Hook{
		validating("fn/sub", widgets), mutating("fn/sub", widgets), validating("Fn_sub", pods),
	}, atURL)
	for want, got := range map[string]*string{
		"https://host:1234/path/validate/fn.sub": v.Webhooks[0].ClientConfig.URL,
		"https://host:1234/path/mutate/fn.sub":   m.Webhooks[0].ClientConfig.URL,
		"https://host:1234/path/validate/fn-sub": v.Webhooks[1].ClientConfig.URL,
	} {
		if *got != want {
			t.Errorf("%s, want %s", *got, want)
		}
	}
	v, _ = Configurations(Options{Name: "example.com"}, []Hook{validating("check", widgets)}, func(path string) admissionregistrationv1.WebhookClientConfig {
		return service{}.ClientConfig(path, []byte("pem"))
	})
	if c := v.Webhooks[0].ClientConfig; *c.Service.Path != "/validate/check" || *c.Service.Port != 443 || string(c.CABundle) != "pem" {
		t.Errorf("service: %+v", c)
	}
}

// Handlers that are asked about in the same way are asked with one request.
func TestEntriesGroupHandlers(t *testing.T) {
	with := func(id string, edit func(*Hook)) Hook {
		h := validating(id, widgets, pods)
		edit(&h)
		return h
	}
	hooks := []Hook{
		with("a", func(h *Hook) { h.Operations = []string{"CREATE"} }),
		mutating("a", widgets, pods),
		with("b", func(h *Hook) { h.Resources = []Resource{pods, widgets}; h.Operations = []string{"UPDATE"} }),
		with("c", func(h *Hook) { h.Persistent = true }),
		with("d", func(h *Hook) { h.SideEffects = true }),
		with("e", func(h *Hook) { h.IgnoreFailures = true }),
		with("f", func(h *Hook) { h.Subresource = "status" }),
		with("g", func(h *Hook) { h.Restrict([]Criterion{{"x", filters.Present}}, nil, nil, nil) }),
		with("h", func(h *Hook) { h.Restrict(nil, nil, []string{"spec", "x"}, nil) }),
		with("i", func(h *Hook) { h.Restrict(nil, nil, []string{"spec", "x"}, filters.Present) }),
		with("j", func(*Hook) {}),
		mutating("k", pods, widgets),
	}
	var got []string
	for _, entry := range Entries("example.com", hooks) {
		ids := ""
		for _, h := range entry.Hooks {
			ids += h.ID
		}
		got = append(got, entry.Path+" "+ids)
	}
	want := []string{
		"/validate/a abj", "/validate/c c", "/validate/d d", "/validate/e e", "/validate/f f", "/validate/g g", "/validate/h hi", "/mutate/a ak",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if v, _ := Configurations(Options{Name: "example.com"}, hooks[:3], atURL); ruleText(v.Webhooks[0].Rules) != "/v1/pods Namespaced [CREATE UPDATE], kopf.dev/v1/widgets Namespaced [CREATE UPDATE]" {
		t.Errorf("united rules: %s", ruleText(v.Webhooks[0].Rules))
	}
}

// The operator's own pods can always be started; custom resources next to it are checked.
func TestTheOwnNamespaceIsNotLockedOut(t *testing.T) {
	for _, c := range []struct {
		resources []Resource
		want      string
	}{
		{[]Resource{pods}, "kubernetes.io/metadata.name notin (own)"},
		{[]Resource{widgets, {Group: "coordination.k8s.io", Version: "v1", Plural: "leases", Namespaced: true}}, "kubernetes.io/metadata.name notin (own)"},
		{[]Resource{{Group: "*", Version: "*", Plural: "*"}}, "kubernetes.io/metadata.name notin (own)"},
		{[]Resource{widgets}, "<none>"},
	} {
		got := one(t, Options{Namespace: "own"}, validating("a", c.resources...))
		if text := metav1.FormatLabelSelector(got.NamespaceSelector); text != c.want {
			t.Errorf("%v: %s, want %s", c.resources, text, c.want)
		}
		got = one(t, Options{Namespaces: []string{"two", "one"}}, validating("a", c.resources...))
		if text := metav1.FormatLabelSelector(got.NamespaceSelector); text != "kubernetes.io/metadata.name in (one,two)" {
			t.Errorf("%v in two namespaces: %s", c.resources, text)
		}
		labelled := &metav1.LabelSelector{MatchLabels: map[string]string{"on": "yes"}}
		got = one(t, Options{Namespaces: []string{"one"}, NamespaceSelector: labelled}, validating("a", c.resources...))
		if text := metav1.FormatLabelSelector(got.NamespaceSelector); text != "kubernetes.io/metadata.name in (one),on=yes" {
			t.Errorf("%v in a namespace with a label: %s", c.resources, text)
		}
		if len(labelled.MatchExpressions) > 0 {
			t.Errorf("the given selector is changed: %v", labelled)
		}
		if got := one(t, Options{}, validating("a", c.resources...)); len(got.NamespaceSelector.MatchExpressions) > 0 {
			t.Errorf("in no namespace: %v", got.NamespaceSelector)
		}
	}
}

func TestConditionsAreNoMoreThanAllowed(t *testing.T) {
	hook := validating("a", widgets)
	for i := range 100 {
		hook.Restrict(nil, []Criterion{{fmt.Sprint("a", i), filters.Present}}, nil, nil)
	}
	conditions := one(t, Options{User: "u", Namespace: "own"}, hook).MatchConditions
	names := make(map[string]bool)
	for _, c := range conditions {
		names[c.Name] = true
	}
	if len(conditions) != 64 || len(names) != 64 {
		t.Errorf("%d conditions with %d names", len(conditions), len(names))
	}
	created := validating("a", widgets)
	created.Operations = []string{"CREATE"}
	if conditions := one(t, Options{Namespace: "own"}, created).MatchConditions; len(conditions) > 0 {
		t.Errorf("of creations: %v", conditions)
	}
}
