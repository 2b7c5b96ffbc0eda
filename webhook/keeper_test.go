package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const (
	ofValidating = "validatingwebhookconfigurations"
	ofMutating   = "mutatingwebhookconfigurations"
	ofPolicies   = "validatingadmissionpolicies"
	ofBindings   = "validatingadmissionpolicybindings"
)

var rule = Hook{ID: "few", Kind: Policy, Resources: []Resource{widgets}, Rule: Rule{Expression: "object.spec.replicas <= 5"}}

// keeping is a keeper, and the API server that it writes to.
type keeping struct {
	*Keeper
	server *fake.Clientset
	log    lines

	mu      sync.Mutex
	bundles []string // that were applied
}

func keep(objects ...runtime.Object) *keeping {
	k := &keeping{server: fake.NewClientset(objects...)}
	k.Keeper = NewKeeper(k.server.AdmissionregistrationV1(), Options{Name: "example.com"}, slog.New(slog.NewTextHandler(&k.log, nil)), func(bundle []byte) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.bundles = append(k.bundles, string(bundle))
	})
	return k
}

func (k *keeping) apply(t *testing.T, bundle string, hooks ...Hook) {
	t.Helper()
	if err := k.Apply(t.Context(), hooks, service{}, []byte(bundle)); err != nil {
		t.Fatal(err)
	}
}

// run lets the keeper run until the function ends it.
func (k *keeping) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := k.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return func() { cancel(); running.Wait() }
}

// writes are the verbs and resources of what has changed anything so far.
func (k *keeping) writes() []string {
	var writes []string
	for _, action := range k.server.Actions() {
		if verb := action.GetVerb(); verb != "get" && verb != "list" && verb != "watch" {
			writes = append(writes, verb+" "+action.GetResource().Resource)
		}
	}
	return writes
}

// webhooks are the names of the webhooks that are there, validating and mutating ones.
func (k *keeping) webhooks(t *testing.T) string {
	t.Helper()
	var names []string
	v, err := k.validating.client.Get(t.Context(), "example.com", metav1.GetOptions{})
	if err == nil {
		for _, w := range v.Webhooks {
			names = append(names, w.Name)
		}
	} else if !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	m, err := k.mutating.client.Get(t.Context(), "example.com", metav1.GetOptions{})
	if err == nil {
		for _, w := range m.Webhooks {
			names = append(names, w.Name)
		}
	} else if !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return strings.ReplaceAll(strings.Join(names, " "), ".example.com", "")
}

// fails makes requests fail as long as fail says so.
func (k *keeping) fails(verb, resource string, fail func() error) {
	k.server.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		err := fail()
		return err != nil, nil, err
	})
}

// times gives the error so many times.
func times(n int, err error) func() error {
	return func() error {
		if n--; n >= 0 {
			return err
		}
		return nil
	}
}

func status(reason metav1.StatusReason, code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: reason, Code: code, Message: string(reason)}}
}

var (
	conflict  = status(metav1.StatusReasonConflict, 409)
	exists    = status(metav1.StatusReasonAlreadyExists, 409)
	notFound  = status(metav1.StatusReasonNotFound, 404)
	forbidden = status(metav1.StatusReasonForbidden, 403)
	errBroken = errors.New("connection refused")
)

func TestCreatesAndKeeps_ADM14(t *testing.T) {
	k := keep()
	hooks := []Hook{validating("a", widgets), mutating("b", widgets), rule}
	k.apply(t, "1", hooks...)
	if got, want := k.writes(), []string{"create " + ofValidating, "create " + ofMutating, "create " + ofPolicies, "create " + ofBindings}; !slices.Equal(got, want) {
		t.Errorf("writes %v, want %v", got, want)
	}
	k.server.ClearActions()
	k.apply(t, "1", hooks...)
	if got := k.writes(); len(got) > 0 {
		t.Errorf("writes although nothing has changed: %v", got)
	}
	k.apply(t, "2", hooks...)
	if got, want := k.writes(), []string{"update " + ofValidating, "update " + ofMutating}; !slices.Equal(got, want) {
		t.Errorf("writes for another bundle %v, want %v", got, want)
	}
	v, err := k.validating.client.Get(t.Context(), "example.com", metav1.GetOptions{})
	if err != nil || string(v.Webhooks[0].ClientConfig.CABundle) != "2" {
		t.Errorf("%+v, %v", v, err)
	}
	if !slices.Equal(k.bundles, []string{"1", "1", "2"}) {
		t.Errorf("applied %v", k.bundles)
	}
}

// A kind without hooks has no configuration; one that is there is emptied, and keeps what
// is not ours.
func TestNothingIsCreatedForNothing_ADM14(t *testing.T) {
	k := keep(&admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "example.com", Labels: map[string]string{"a": "b"}},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "foreign.example.com"}},
	})
	k.apply(t, "1")
	if got, want := k.writes(), []string{"update " + ofMutating}; !slices.Equal(got, want) {
		t.Errorf("writes %v, want %v", got, want)
	}
	if m, err := k.mutating.client.Get(t.Context(), "example.com", metav1.GetOptions{}); err != nil || len(m.Webhooks) > 0 || m.Labels["a"] != "b" {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestOthersAreFaster_ADM14(t *testing.T) {
	for name, c := range map[string]struct {
		verb string
		err  error
	}{
		"created": {"create", exists}, "changed": {"update", conflict}, "deleted": {"update", notFound},
	} {
		k := keep()
		if c.verb == "update" {
			k.apply(t, "1", validating("a", widgets))
		}
		k.fails(c.verb, ofValidating, times(3, c.err))
		k.apply(t, "2", validating("b", widgets))
		if got := k.webhooks(t); got != "b" {
			t.Errorf("%s: %s", name, got)
		}
	}
	k := keep()
	k.fails("create", ofValidating, func() error { return exists })
	if err := k.Apply(t.Context(), []Hook{validating("a", widgets)}, service{}, nil); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a server that contradicts itself: %v", err)
	}
}

func TestSaysWhichPermissionIsMissing_ADM14(t *testing.T) {
	for _, c := range []struct{ verb, resource string }{
		{"get", ofValidating}, {"create", ofMutating}, {"create", ofPolicies}, {"list", ofBindings}, {"list", ofPolicies}, {"create", ofBindings},
	} {
		k := keep()
		k.fails(c.verb, c.resource, func() error { return forbidden })
		err := k.Apply(t.Context(), []Hook{validating("a", widgets), mutating("b", widgets), rule}, service{}, nil)
		if want := fmt.Sprintf("may not %s %s.admissionregistration.k8s.io", c.verb, c.resource); err == nil || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", c, err)
		}
		if len(k.bundles) > 0 {
			t.Errorf("%v: applied nevertheless", c)
		}
	}
	k := keep()
	k.fails("list", ofBindings, func() error { return forbidden })
	k.apply(t, "1", validating("a", widgets)) // no rules, so nothing that is needed
	k = keep()
	k.fails("create", ofPolicies, func() error { return notFound })
	if err := k.Apply(t.Context(), []Hook{rule}, service{}, nil); err == nil || !strings.Contains(err.Error(), "not served") {
		t.Errorf("an API server without policies: %v", err)
	}
}

func TestOnlyPersistentOnesStay_ADM15(t *testing.T) {
	k := keep()
	if err := k.Leave(t.Context()); err != nil || len(k.server.Actions()) > 0 {
		t.Errorf("without anything before: %v, %v", err, k.server.Actions())
	}
	stays := validating("b", widgets)
	stays.Persistent = true
	k.apply(t, "1", validating("a", widgets), stays, mutating("c", widgets), rule)
	if got := k.webhooks(t); got != "a b c" {
		t.Fatalf("before: %s", got)
	}
	k.server.ClearActions()
	if err := k.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := k.webhooks(t); got != "b" {
		t.Errorf("left: %s", got)
	}
	// The objects themselves stay, and so do rules, which need no operator.
	if got, want := k.writes(), []string{"update " + ofValidating, "update " + ofMutating}; !slices.Equal(got, want) {
		t.Errorf("writes %v, want %v", got, want)
	}
	if len(k.bundles) != 1 {
		t.Errorf("applied %v", k.bundles)
	}
}

// elsewhere is another endpoint.
type elsewhere struct{ service }

func (elsewhere) ClientConfig(path string, _ []byte) admissionregistrationv1.WebhookClientConfig {
	return atURL(path)
}

func TestAnotherEndpointIsConfigured_ADM18(t *testing.T) {
	k := keep()
	hooks := []Hook{validating("a", widgets), rule}
	k.apply(t, "1", hooks...)
	k.server.ClearActions()
	if err := k.Apply(t.Context(), hooks, elsewhere{}, []byte("1")); err != nil {
		t.Fatal(err)
	}
	v, err := k.validating.client.Get(t.Context(), "example.com", metav1.GetOptions{})
	if err != nil || *v.Webhooks[0].ClientConfig.URL != "https://host:1234/path/validate/a" || v.Webhooks[0].ClientConfig.Service != nil {
		t.Errorf("%+v, %v", v, err)
	}
	if got := k.writes(); !slices.Equal(got, []string{"update " + ofValidating}) {
		t.Errorf("writes %v", got)
	}
}

func TestPoliciesOfRulesThatAreGoneAreDeleted(t *testing.T) {
	foreign := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}
	k := keep(foreign)
	other := rule
	other.ID = "other"
	k.apply(t, "1", rule, other)
	k.server.ClearActions()
	k.apply(t, "1", other)
	if got, want := k.writes(), []string{"delete " + ofBindings, "delete " + ofPolicies}; !slices.Equal(got, want) {
		t.Errorf("writes %v, want %v", got, want)
	}
	policies, err := k.server.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(policies.Items) != 2 {
		t.Errorf("%v, %v", policies, err)
	}
}

func TestPolicyActions(t *testing.T) {
	for want, r := range map[string]Rule{"[Deny]": {}, "[Warn]": {Warn: true}, "[Audit Deny]": {Audit: true}, "[Audit Warn]": {Audit: true, Warn: true}} {
		if got := fmt.Sprint(r.actions()); got != want {
			t.Errorf("%+v: %s, want %s", r, got, want)
		}
	}
}

// lines is a log that may be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
