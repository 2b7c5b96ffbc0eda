package webhook

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// conflicts is how often a write is tried again that somebody else was faster than.
const conflicts = 10

// object is a pointer to one of the four types that are kept.
type object interface {
	metav1.Object
	runtime.Object
}

// api is what client-go has for each type.
type api[T object] interface {
	Get(context.Context, string, metav1.GetOptions) (T, error)
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// stored are objects of one type, as they are on the API server.
type stored[T object] struct {
	resource string
	client   api[T]
	// put makes an object what it should be, as far as it is ours.
	put func(into, from T)
}

// keep makes the object on the server what it should be. It writes only if there is
// something else; what is not there is created only if that is asked for.
func (s *stored[T]) keep(ctx context.Context, want T, create bool) (changed bool, err error) {
	for range conflicts {
		changed, err = s.try(ctx, want, create)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			break
		}
	}
	return changed, err
}

func (s *stored[T]) try(ctx context.Context, want T, create bool) (bool, error) {
	have, err := s.client.Get(ctx, want.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !create:
		return false, nil
	case apierrors.IsNotFound(err):
		// The answer may be that of another replica, which is as good.
		if _, err = s.client.Create(ctx, want, metav1.CreateOptions{}); apierrors.IsNotFound(err) {
			return false, fmt.Errorf("%s.%s are not served here: %w", s.resource, admissionregistrationv1.GroupName, unserved{err})
		}
		return err == nil, s.failed("create", want.GetName(), err)
	case err != nil:
		return false, s.failed("get", want.GetName(), err)
	case s.same(have, want):
		return false, nil
	}
	next := have.DeepCopyObject().(T)
	s.put(next, want)
	_, err = s.client.Update(ctx, next, metav1.UpdateOptions{})
	return err == nil, s.failed("update", want.GetName(), err)
}

// unserved hides that an error says "not found", which would be tried again.
type unserved struct{ error }

// same tells whether what is there would not be changed.
func (s *stored[T]) same(have, want T) bool {
	next := have.DeepCopyObject().(T)
	s.put(next, want)
	return equality.Semantic.DeepEqual(have, next)
}

// drop deletes an object.
func (s *stored[T]) drop(ctx context.Context, name string) error {
	if err := s.client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return s.failed("delete", name, err)
	}
	return nil
}

// failed says what permission is missing, if that is it.
func (s *stored[T]) failed(verb, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the operator may not %s %s.%s %q, which it needs for its webhooks: %w", verb, s.resource, admissionregistrationv1.GroupName, name, err)
	}
	return fmt.Errorf("%s %s %q: %w", verb, s.resource, name, err)
}

// What of an object is ours: of configurations the list, of the other two all but the
// metadata, of which only the mark is. Labels and annotations of others stay.

func putValidating(into, from *admissionregistrationv1.ValidatingWebhookConfiguration) {
	into.Webhooks = slices.Clone(from.Webhooks)
}

func putMutating(into, from *admissionregistrationv1.MutatingWebhookConfiguration) {
	into.Webhooks = slices.Clone(from.Webhooks)
}

func putPolicy(into, from *admissionregistrationv1.ValidatingAdmissionPolicy) {
	into.Spec = *from.Spec.DeepCopy()
	mark(into, from)
}

func putBinding(into, from *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	into.Spec = *from.Spec.DeepCopy()
	mark(into, from)
}

func mark(into, from metav1.Object) {
	labels := into.GetLabels()
	if labels == nil {
		labels = make(map[string]string)
	}
	labels[ownerLabel] = from.GetLabels()[ownerLabel]
	into.SetLabels(labels)
}
