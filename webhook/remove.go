package webhook

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionregistrationclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
)

// Remove deletes what a Keeper of these options has made, persistent or not, for nobody will
// be there any more to answer: configurations, even if somebody else has made them under
// this name, and policies with their bindings. It returns what was there, as RESOURCE/NAME;
// with dryRun it deletes nothing. It is safe to be called again. It needs the verb get for
// configurations, list for policies and their bindings, and delete for all of them.
func Remove(ctx context.Context, client admissionregistrationclient.AdmissionregistrationV1Interface, o Options, dryRun bool) (there []string, err error) {
	k := NewKeeper(client, o, nil, nil)
	all := []error{
		remove(ctx, &k.validating, o.Name, dryRun, &there),
		remove(ctx, &k.mutating, o.Name, dryRun, &there),
	}
	ours := metav1.ListOptions{LabelSelector: ownerLabel + "=" + o.owner()}
	if bindings, err := client.ValidatingAdmissionPolicyBindings().List(ctx, ours); err != nil {
		all = append(all, k.unlisted(&wanting{}, k.bindings.failed("list", "", err)))
	} else {
		for i := range bindings.Items {
			all = append(all, remove(ctx, &k.bindings, bindings.Items[i].Name, dryRun, &there))
		}
	}
	if policies, err := client.ValidatingAdmissionPolicies().List(ctx, ours); err != nil {
		all = append(all, k.unlisted(&wanting{}, k.policies.failed("list", "", err)))
	} else {
		for i := range policies.Items {
			all = append(all, remove(ctx, &k.policies, policies.Items[i].Name, dryRun, &there))
		}
	}
	return there, errors.Join(all...)
}

func remove[T object](ctx context.Context, s *stored[T], name string, dryRun bool, there *[]string) error {
	switch _, err := s.client.Get(ctx, name, metav1.GetOptions{}); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return s.failed("get", name, err)
	}
	*there = append(*there, s.resource+"/"+name)
	if dryRun {
		return nil
	}
	return s.drop(ctx, name)
}
