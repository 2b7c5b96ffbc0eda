package webhook

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultTimeout is how long the API server waits for an answer unless [Options] say
// otherwise. It is the API server's own default: a client waits all that time for its
// write, so Kopf's 30 seconds, the most there can be, are a long outage for an operator
// that is down.
const DefaultTimeout = 10 * time.Second

// maxConditions is how many match conditions an entry may have.
const maxConditions = 64

// Options say what configurations are like. The zero value but for the name is usable.
type Options struct {
	// Name is the name of both configurations, and what the names of their entries end
	// with. It has to be a DNS name.
	Name string
	// Namespace is where the operator runs; empty: in none. Webhooks do not ask about what
	// of Kubernetes' own resources is there (pods, secrets, leases), so that the operator
	// can always be started again, nor about what is deleted with the namespace.
	Namespace string
	// Namespaces are the only ones whose objects are asked about; none: all. Objects that are in
	// no namespace are asked about in any case.
	Namespaces []string
	// NamespaceSelector is for the namespaces whose objects are asked about, by their labels; nil:
	// all. Namespaces themselves are asked about if they match it.
	NamespaceSelector *metav1.LabelSelector
	// User is who the operator is for the API server; empty: its webhooks ask about its own
	// writes too. [OwnUser] finds it out.
	User string
	// Timeout is how long the API server waits for an answer, in whole seconds from 1 to 30;
	// zero: DefaultTimeout.
	Timeout time.Duration
	// Finalizers is set if updates are asked about too that only take finalizers off an
	// object that is being deleted. By default nobody can block a deletion that way.
	Finalizers bool
}

// Entry is one webhook: what is asked about with one request.
type Entry struct {
	Name  string // of the webhook
	Path  string // below the endpoint's
	Kind  Kind
	Hooks []Hook // in order of registration; the first has given it its name
}

// Entries are the webhooks of the hooks, validating and mutating ones, each kind in order
// of registration. Hooks that the API server has to ask about in the same way are in the
// same entry, so that one request runs all of them; those without resources are in none.
//
// The path of an entry is that of its kind and the id of its first hook, as far as that is
// a DNS name. A Service can have no other path, so other ids have the path of what they
// became in the name of the webhook.
func Entries(name string, hooks []Hook) []Entry {
	var entries []Entry
	for _, kind := range []Kind{Validating, Mutating} {
		byKey := make(map[string]int)
		names := newNames(name)
		for _, hook := range hooks {
			if hook.Kind != kind || len(hook.Resources) == 0 {
				continue
			}
			key := hook.key()
			at, known := byKey[key]
			if !known {
				at = len(entries)
				byKey[key] = at
				name, own := names.of(hook.ID)
				entries = append(entries, Entry{Name: name, Path: "/" + string(kind) + "/" + own, Kind: kind})
			}
			entries[at].Hooks = append(entries[at].Hooks, hook)
		}
	}
	return entries
}

// key is the same for hooks that go into one entry.
func (h *Hook) key() string {
	conditions := slices.Clone(h.Conditions)
	for i := range conditions {
		conditions[i].Name = "" // only the expressions matter
	}
	text, err := json.Marshal([]any{
		sortedResources(h.Resources), h.Subresource, h.Selector, conditions,
		h.Persistent, h.SideEffects, h.IgnoreFailures,
	})
	if err != nil {
		panic(err) // there is nothing in it that has no JSON form
	}
	return string(text)
}

func sortedResources(resources []Resource) []Resource {
	return slices.SortedFunc(slices.Values(resources), func(a, b Resource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Plural, b.Plural), cmp.Compare(a.Version, b.Version))
	})
}

// Configurations say to the API server what it has to ask about (ADM-14, B.7). The client
// configuration of an entry is what client says of its path. A configuration without
// entries is nil.
func Configurations(o Options, hooks []Hook, client func(path string) admissionregistrationv1.WebhookClientConfig) (*admissionregistrationv1.ValidatingWebhookConfiguration, *admissionregistrationv1.MutatingWebhookConfiguration) {
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   typeMeta("ValidatingWebhookConfiguration"),
		ObjectMeta: metav1.ObjectMeta{Name: o.Name},
	}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   typeMeta("MutatingWebhookConfiguration"),
		ObjectMeta: metav1.ObjectMeta{Name: o.Name},
	}
	for _, entry := range Entries(o.Name, hooks) {
		webhook := entry.webhook(o, client(entry.Path))
		if entry.Kind == Validating {
			validating.Webhooks = append(validating.Webhooks, webhook)
			continue
		}
		// Mutating handlers are not called again for what others have changed: they see each
		// other's changes anyway, and few are written to be called twice.
		never := admissionregistrationv1.NeverReinvocationPolicy
		mutating.Webhooks = append(mutating.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: webhook.Name, ClientConfig: webhook.ClientConfig, Rules: webhook.Rules,
			FailurePolicy: webhook.FailurePolicy, MatchPolicy: webhook.MatchPolicy,
			NamespaceSelector: webhook.NamespaceSelector, ObjectSelector: webhook.ObjectSelector,
			SideEffects: webhook.SideEffects, TimeoutSeconds: webhook.TimeoutSeconds,
			AdmissionReviewVersions: webhook.AdmissionReviewVersions, MatchConditions: webhook.MatchConditions,
			ReinvocationPolicy: &never,
		})
	}
	if len(validating.Webhooks) == 0 {
		validating = nil
	}
	if len(mutating.Webhooks) == 0 {
		mutating = nil
	}
	return validating, mutating
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
}

// webhook says everything that has a default too, so that what is read back from the API
// server can be compared.
func (e *Entry) webhook(o Options, client admissionregistrationv1.WebhookClientConfig) admissionregistrationv1.ValidatingWebhook {
	first := &e.Hooks[0]
	if client.Service != nil && client.Service.Port == nil {
		service, port := *client.Service, int32(443)
		service.Port = &port
		client.Service = &service
	}
	failure, sideEffects := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone
	if first.IgnoreFailures {
		failure = admissionregistrationv1.Ignore
	}
	if first.SideEffects {
		sideEffects = admissionregistrationv1.SideEffectClassNoneOnDryRun
	}
	equivalent, seconds := admissionregistrationv1.Equivalent, o.seconds()
	operations := e.operations()
	return admissionregistrationv1.ValidatingWebhook{
		Name: e.Name, ClientConfig: client, Rules: rules(first, operations),
		FailurePolicy: &failure, MatchPolicy: &equivalent, SideEffects: &sideEffects, TimeoutSeconds: &seconds,
		NamespaceSelector: o.namespaceSelector(first.Resources), ObjectSelector: orEmpty(first.Selector),
		MatchConditions:         o.conditions(first, operations),
		AdmissionReviewVersions: []string{"v1"},
	}
}

func (o *Options) seconds() int32 {
	timeout := cmp.Or(o.Timeout, DefaultTimeout)
	return int32(min(30, max(1, math.Ceil(timeout.Seconds()))))
}

func orEmpty(selector *metav1.LabelSelector) *metav1.LabelSelector {
	if selector == nil {
		return &metav1.LabelSelector{}
	}
	return selector
}

// operations are those of all hooks of the entry, sorted; * stands for all.
func (e *Entry) operations() []admissionregistrationv1.OperationType {
	var all []admissionregistrationv1.OperationType
	for i := range e.Hooks {
		all = append(all, e.Hooks[i].operations()...)
	}
	if slices.Contains(all, admissionregistrationv1.OperationAll) {
		return []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// operations leaves deletions to those mutating handlers that are for nothing else, as
// others are not called for them (ADM-7).
func (h *Hook) operations() []admissionregistrationv1.OperationType {
	var operations []admissionregistrationv1.OperationType
	for _, operation := range h.Operations {
		operations = append(operations, admissionregistrationv1.OperationType(strings.ToUpper(operation)))
	}
	all := len(operations) == 0 || slices.Contains(operations, admissionregistrationv1.OperationAll)
	switch {
	case all && h.Kind == Mutating && h.Subresource == "":
		return []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	case all && h.Kind == Mutating:
		return []admissionregistrationv1.OperationType{admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Update}
	case all:
		return []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}
	case h.Kind == Mutating && len(operations) > 1:
		return slices.DeleteFunc(operations, func(o admissionregistrationv1.OperationType) bool { return o == admissionregistrationv1.Delete })
	}
	return operations
}

// rules has one for each resource.
func rules(h *Hook, operations []admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
	var rules []admissionregistrationv1.RuleWithOperations
	for _, resource := range sortedResources(h.Resources) {
		scope, name := admissionregistrationv1.ClusterScope, resource.Plural
		if resource.Namespaced {
			scope = admissionregistrationv1.NamespacedScope
		}
		if h.Subresource != "" {
			name += "/" + h.Subresource
		}
		rules = append(rules, admissionregistrationv1.RuleWithOperations{
			Operations: operations,
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{resource.Group}, APIVersions: []string{resource.Version},
				Resources: []string{name}, Scope: &scope,
			},
		})
	}
	return rules
}

// namespaceSelector is for the namespaces that are handled. It leaves the operator's own one
// out where it is about what the operator itself is made of. Custom resources are none of
// that, and who keeps them next to the operator wants them checked.
func (o *Options) namespaceSelector(resources []Resource) *metav1.LabelSelector {
	selector := &metav1.LabelSelector{}
	if o.NamespaceSelector != nil {
		selector = o.NamespaceSelector.DeepCopy()
	}
	require := func(operator metav1.LabelSelectorOperator, names ...string) {
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: "kubernetes.io/metadata.name", Operator: operator, Values: names,
		})
	}
	if len(o.Namespaces) > 0 {
		require(metav1.LabelSelectorOpIn, slices.Sorted(slices.Values(o.Namespaces))...)
	}
	if o.Namespace != "" && slices.ContainsFunc(resources, Resource.builtIn) {
		require(metav1.LabelSelectorOpNotIn, o.Namespace)
	}
	return selector
}

// builtIn tells whether the resource is Kubernetes' own, or may be.
func (r Resource) builtIn() bool {
	return !strings.Contains(r.Group, ".") || strings.HasSuffix(r.Group, ".k8s.io")
}

// conditions are those of the hook, and the safety net: without it, an operator that is
// down, or a handler with a mistake, could be in the way of its own repair.
func (o *Options) conditions(h *Hook, operations []admissionregistrationv1.OperationType) []admissionregistrationv1.MatchCondition {
	var conditions []admissionregistrationv1.MatchCondition
	covers := func(operation admissionregistrationv1.OperationType) bool {
		return operations[0] == admissionregistrationv1.OperationAll || slices.Contains(operations, operation)
	}
	if o.User != "" {
		conditions = append(conditions, admissionregistrationv1.MatchCondition{
			Name: "not-by-the-operator", Expression: "!has(request.userInfo.username) || request.userInfo.username != " + literal(o.User),
		})
	}
	if covers(admissionregistrationv1.Update) && !o.Finalizers {
		conditions = append(conditions, admissionregistrationv1.MatchCondition{
			Name: "not-only-finalizers-of-a-deleted-object", Expression: beyondFinalizers,
		})
	}
	if covers(admissionregistrationv1.Delete) && o.Namespace != "" {
		conditions = append(conditions, admissionregistrationv1.MatchCondition{
			Name: "not-deleted-with-the-namespace", Expression: `request.operation != "DELETE"` +
				` || !has(request.namespace) || request.namespace != ` + literal(o.Namespace) +
				` || !has(request.userInfo.username) || request.userInfo.username != "system:serviceaccount:kube-system:namespace-controller"`,
		})
	}
	// Conditions only save requests. What they do not say is checked on receipt.
	for i, condition := range h.Conditions[:min(len(h.Conditions), maxConditions-len(conditions))] {
		condition.Name = fmt.Sprintf("filter-%d", i+1)
		conditions = append(conditions, condition)
	}
	return conditions
}
