package webhook

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownerLabel is on policies and their bindings, with the name of the configurations that
// they belong to, so that those of rules that are gone can be found.
const ownerLabel = "kopf.zalando.org/webhooks"

// Policies are the rules that the API server checks itself, each with what puts it into
// force. They need no operator that runs.
func Policies(o Options, hooks []Hook) ([]*admissionregistrationv1.ValidatingAdmissionPolicy, []*admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	var policies []*admissionregistrationv1.ValidatingAdmissionPolicy
	var bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
	names := newNames(o.Name)
	for i := range hooks {
		hook := &hooks[i]
		if hook.Kind != Policy || len(hook.Resources) == 0 {
			continue
		}
		name, _ := names.of(hook.ID)
		meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{ownerLabel: o.owner()}}
		policies = append(policies, &admissionregistrationv1.ValidatingAdmissionPolicy{
			TypeMeta: typeMeta("ValidatingAdmissionPolicy"), ObjectMeta: meta, Spec: o.policy(hook),
		})
		bindings = append(bindings, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			TypeMeta: typeMeta("ValidatingAdmissionPolicyBinding"), ObjectMeta: *meta.DeepCopy(),
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: hook.Rule.actions()},
		})
	}
	return policies, bindings
}

// owner is a label value.
func (o *Options) owner() string { return legalName(o.Name, maxLabel) }

func (o *Options) policy(h *Hook) admissionregistrationv1.ValidatingAdmissionPolicySpec {
	failure, equivalent := admissionregistrationv1.Fail, admissionregistrationv1.Equivalent
	if h.IgnoreFailures {
		failure = admissionregistrationv1.Ignore
	}
	// A rule without a message is told as it is by the API server.
	validation := admissionregistrationv1.Validation{
		Expression: h.Rule.Expression, Message: h.Rule.Message, MessageExpression: h.Rule.MessageExpression,
	}
	operations := (&Entry{Hooks: []Hook{*h}}).operations()
	if h.Subresource == "" && operations[0] == admissionregistrationv1.OperationAll {
		// Rules are about objects, so that a deletion is only checked if that is asked for.
		operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	}
	var named []admissionregistrationv1.NamedRuleWithOperations
	for _, rule := range rules(h, operations) {
		named = append(named, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: rule})
	}
	return admissionregistrationv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: &failure,
		MatchConstraints: &admissionregistrationv1.MatchResources{
			MatchPolicy: &equivalent, ResourceRules: named,
			NamespaceSelector: o.namespaceSelector(h.Resources), ObjectSelector: orEmpty(h.Selector),
		},
		MatchConditions: o.conditions(h, operations),
		Validations:     []admissionregistrationv1.Validation{validation},
	}
}

// actions are what follows from a broken rule, sorted.
func (r *Rule) actions() []admissionregistrationv1.ValidationAction {
	var actions []admissionregistrationv1.ValidationAction
	if r.Audit {
		actions = append(actions, admissionregistrationv1.Audit)
	}
	if r.Warn {
		return append(actions, admissionregistrationv1.Warn)
	}
	return append(actions, admissionregistrationv1.Deny)
}
