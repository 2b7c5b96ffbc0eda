package webhook

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionregistrationclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
)

// Keeper keeps configurations and policies on the API server what they should be
// (ADM-14). It writes only what is different there, so nothing at all as long as nothing
// changes; and it repairs what others have changed or deleted. What others have added to
// the objects, such as labels and annotations, stays, but for webhooks in our lists.
//
// It needs the verbs get, create, update and watch for validatingwebhookconfigurations and
// mutatingwebhookconfigurations; with policies also list and delete, and all of them for
// validatingadmissionpolicies and validatingadmissionpolicybindings. Several keepers that
// want the same do no harm; those that do not would undo each other's work, more and more
// slowly. All methods are safe for concurrent use.
type Keeper struct {
	client  admissionregistrationclient.AdmissionregistrationV1Interface
	options Options
	log     *slog.Logger
	applied func(bundle []byte)

	validating stored[*admissionregistrationv1.ValidatingWebhookConfiguration]
	mutating   stored[*admissionregistrationv1.MutatingWebhookConfiguration]
	policies   stored[*admissionregistrationv1.ValidatingAdmissionPolicy]
	bindings   stored[*admissionregistrationv1.ValidatingAdmissionPolicyBinding]

	writing sync.Mutex // held while the server is brought to what is wanted
	done    *wanting   // what it was brought to last, or nil after an error; under writing

	mu    sync.Mutex
	want  *wanting      // nil: nothing is said yet
	news  chan struct{} // has an entry if something else is wanted
	drift chan struct{} // has an entry if something else may be there
}

// wanting is what should be there. It is never changed.
type wanting struct {
	hooks    []Hook
	endpoint Endpoint
	bundle   []byte
	leaving  bool // nothing is created

	validating *admissionregistrationv1.ValidatingWebhookConfiguration
	mutating   *admissionregistrationv1.MutatingWebhookConfiguration
	policies   []*admissionregistrationv1.ValidatingAdmissionPolicy
	bindings   []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
}

// NewKeeper keeps what is named in the options. It calls applied, which may be nil, each
// time that all webhooks have a bundle; API servers know of it a moment later.
func NewKeeper(client admissionregistrationclient.AdmissionregistrationV1Interface, o Options, log *slog.Logger, applied func(bundle []byte)) *Keeper {
	return &Keeper{
		client: client, options: o, log: log, applied: applied,
		news: make(chan struct{}, 1), drift: make(chan struct{}, 1),
		validating: stored[*admissionregistrationv1.ValidatingWebhookConfiguration]{"validatingwebhookconfigurations", client.ValidatingWebhookConfigurations(), putValidating},
		mutating:   stored[*admissionregistrationv1.MutatingWebhookConfiguration]{"mutatingwebhookconfigurations", client.MutatingWebhookConfigurations(), putMutating},
		policies:   stored[*admissionregistrationv1.ValidatingAdmissionPolicy]{"validatingadmissionpolicies", client.ValidatingAdmissionPolicies(), putPolicy},
		bindings:   stored[*admissionregistrationv1.ValidatingAdmissionPolicyBinding]{"validatingadmissionpolicybindings", client.ValidatingAdmissionPolicyBindings(), putBinding},
	}
}

// Apply says what has to be there from now on, and makes it so. It is called again with
// other hooks, resources, endpoint, or bundle. After an error [Keeper.Run] goes on trying.
// A missing permission is named in the error, for which apierrors.IsForbidden holds.
func (k *Keeper) Apply(ctx context.Context, hooks []Hook, endpoint Endpoint, bundle []byte) error {
	k.set(k.options.wanting(hooks, endpoint, bundle, false))
	_, err := k.sync(ctx)
	return err
}

// Leave takes away the webhooks that nobody answers any more, when the operator ends:
// all but the persistent ones (ADM-15). The configurations stay, and so do policies, which
// the API server checks itself. Without Apply before it does nothing. It is not for
// replicas that leave while others go on.
func (k *Keeper) Leave(ctx context.Context) error {
	want := k.wanted()
	if want == nil {
		return nil
	}
	hooks := slices.DeleteFunc(slices.Clone(want.hooks), func(h Hook) bool { return h.Kind != Policy && !h.Persistent })
	k.set(k.options.wanting(hooks, want.endpoint, want.bundle, true))
	_, err := k.sync(ctx)
	return err
}

func (o *Options) wanting(hooks []Hook, endpoint Endpoint, bundle []byte, leaving bool) *wanting {
	w := &wanting{hooks: slices.Clone(hooks), endpoint: endpoint, bundle: slices.Clone(bundle), leaving: leaving}
	w.validating, w.mutating = Configurations(*o, hooks, func(path string) admissionregistrationv1.WebhookClientConfig {
		return endpoint.ClientConfig(path, w.bundle)
	})
	// A configuration that has nothing in it any more is emptied. It is not deleted, as
	// somebody else may have made it.
	if w.validating == nil {
		w.validating = &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: o.Name}}
	}
	if w.mutating == nil {
		w.mutating = &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: o.Name}}
	}
	w.policies, w.bindings = Policies(*o, hooks)
	return w
}

func (k *Keeper) set(want *wanting) {
	k.mu.Lock()
	k.want = want
	k.mu.Unlock()
	signal(k.news)
}

func (k *Keeper) wanted() *wanting {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.want
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // there is one already
	}
}

// sync brings the server to what is wanted by now.
func (k *Keeper) sync(ctx context.Context) (changed bool, err error) {
	k.writing.Lock()
	defer k.writing.Unlock()
	want := k.wanted()
	if want == nil {
		return false, nil
	}
	validating, err1 := k.validating.keep(ctx, want.validating, len(want.validating.Webhooks) > 0 && !want.leaving)
	mutating, err2 := k.mutating.keep(ctx, want.mutating, len(want.mutating.Webhooks) > 0 && !want.leaving)
	policies, err3 := k.keepPolicies(ctx, want)
	if changed = validating || mutating || policies; changed {
		k.log.InfoContext(ctx, "Webhooks are configured", "name", k.options.Name)
	}
	if err := errors.Join(err1, err2, err3); err != nil {
		k.done = nil
		return changed, err
	}
	if k.done != want && k.applied != nil && !want.leaving {
		k.applied(want.bundle)
	}
	k.done = want
	return changed, nil
}

// isDone tells whether the server was brought to what is wanted already.
func (k *Keeper) isDone() bool {
	k.writing.Lock()
	defer k.writing.Unlock()
	return k.done == k.wanted()
}

// keepPolicies also deletes those of rules that are gone. Bindings come last and go
// first, so that none is without its policy.
func (k *Keeper) keepPolicies(ctx context.Context, want *wanting) (changed bool, err error) {
	var errs []error
	if !want.leaving {
		errs = append(errs, k.dropPolicies(ctx, want))
	}
	for i := range want.policies {
		policy, err := k.policies.keep(ctx, want.policies[i], true)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		binding, err := k.bindings.keep(ctx, want.bindings[i], true)
		changed, errs = changed || policy || binding, append(errs, err)
	}
	return changed, errors.Join(errs...)
}

func (k *Keeper) dropPolicies(ctx context.Context, want *wanting) error {
	wanted := make(map[string]bool)
	for _, policy := range want.policies {
		wanted[policy.Name] = true
	}
	ours := metav1.ListOptions{LabelSelector: ownerLabel + "=" + k.options.owner()}
	bindings, err := k.client.ValidatingAdmissionPolicyBindings().List(ctx, ours)
	if err != nil {
		return k.unlisted(want, k.bindings.failed("list", "", err))
	}
	policies, err := k.client.ValidatingAdmissionPolicies().List(ctx, ours)
	if err != nil {
		return k.unlisted(want, k.policies.failed("list", "", err))
	}
	var errs []error
	for i := range bindings.Items {
		if name := bindings.Items[i].Name; !wanted[name] {
			errs = append(errs, k.bindings.drop(ctx, name))
		}
	}
	for i := range policies.Items {
		if name := policies.Items[i].Name; !wanted[name] {
			errs = append(errs, k.policies.drop(ctx, name))
		}
	}
	return errors.Join(errs...)
}

// unlisted forgives that policies are unknown to the server, or forbidden, where there
// are none: an operator without rules needs no permissions for them.
func (k *Keeper) unlisted(want *wanting, err error) error {
	if len(want.policies) == 0 && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)) {
		return nil
	}
	return err
}
