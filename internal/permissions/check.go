package permissions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// atATime is how many reviews are asked for at the same time.
const atATime = 8

// Missing asks the API server what of the needs it does not permit. Everybody may ask that
// of himself. Where there are several needs in a namespace it asks for the rules that hold
// there first, in one request, and then only about what they do not show; a need is asked
// about once at most. An error says what could not be found out; what is returned beside it
// is missing nevertheless.
func Missing(ctx context.Context, client authorizationclient.AuthorizationV1Interface, needs []Need) ([]Need, error) {
	granted, errs := make([]bool, len(needs)), make([]error, len(needs))
	each(namespacesOf(needs), func(_ int, namespace string) {
		if namespace == "" {
			return // rules tell of one namespace only
		}
		within := slices.DeleteFunc(slices.Clone(needs), func(n Need) bool { return n.Namespace != namespace })
		if len(within) < 2 {
			return
		}
		review, err := client.SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
		}, metav1.CreateOptions{})
		if err != nil {
			return // each need is asked about then
		}
		for i, n := range needs {
			if n.Namespace == namespace {
				granted[i] = slices.ContainsFunc(review.Status.ResourceRules, n.grantedBy)
			}
		}
	})
	each(needs, func(i int, n Need) {
		if granted[i] {
			return
		}
		granted[i], errs[i] = permitted(ctx, client, n)
		if errs[i] != nil {
			granted[i] = true // nobody knows, and who cannot do without will find out
		}
	})
	var missing []Need
	for i, n := range needs {
		if !granted[i] {
			missing = append(missing, n)
		}
	}
	return missing, distinct(errs)
}

// permitted asks about one need; with names, about each of them.
func permitted(ctx context.Context, client authorizationclient.AuthorizationV1Interface, n Need) (bool, error) {
	names := n.Names
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		review, err := client.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: n.Namespace, Verb: n.Verb, Group: n.Group, Version: all,
				Resource: n.Resource, Subresource: n.Subresource, Name: name,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("it cannot be found out what is permitted: %w", err)
		}
		if !review.Status.Allowed {
			return false, nil
		}
	}
	return true, nil
}

// grantedBy tells whether a rule grants it, on the whole.
func (n Need) grantedBy(r authorizationv1.ResourceRule) bool {
	has := func(list []string, values ...string) bool {
		return slices.ContainsFunc(values, func(value string) bool { return slices.Contains(list, value) })
	}
	resources := []string{all, n.qualified()}
	if n.Subresource != "" {
		resources = append(resources, all+"/"+n.Subresource)
	}
	if !has(r.Verbs, all, n.Verb) || !has(r.APIGroups, all, n.Group) || !has(r.Resources, resources...) {
		return false
	}
	if len(r.ResourceNames) == 0 {
		return true
	}
	return len(n.Names) > 0 && !slices.ContainsFunc(n.Names, func(name string) bool { return !slices.Contains(r.ResourceNames, name) })
}

// each does something for all, several at a time.
func each[T any](all []T, do func(int, T)) {
	slots := make(chan struct{}, atATime)
	var group sync.WaitGroup
	for i, one := range all {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			do(i, one)
		})
	}
	group.Wait()
}

// distinct joins errors, each text once.
func distinct(errs []error) error {
	var kept []error
	var texts []string
	for _, err := range errs {
		if err != nil && !slices.Contains(texts, err.Error()) {
			kept, texts = append(kept, err), append(texts, err.Error())
		}
	}
	return errors.Join(kept...)
}

// In has needs in the whole cluster become ones in these namespaces, as far as they can be
// granted there: for those who are permitted what they need in the namespaces that they
// serve, though not everywhere.
func In(namespaces []string, needs []Need) []Need {
	var in []Need
	for _, n := range needs {
		if n.Namespace != "" || !n.Namespaced {
			in = append(in, n)
			continue
		}
		for _, n.Namespace = range namespaces {
			in = append(in, n)
		}
	}
	return in
}
