package kopf_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/webhook"
)

// grantedWorld has handlers of all kinds, and what is printed for them.
type grantedWorld struct {
	*world
	calls    *calls
	admitted func(*kopf.Options)
	printed  []*unstructured.Unstructured
}

// Numbers are config maps of numbers. Others cannot be decoded, which is complained of.
type Numbers struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Data              map[string]int `json:"data,omitempty"`
}

func (n *Numbers) DeepCopyObject() runtime.Object {
	return &Numbers{TypeMeta: n.TypeMeta, ObjectMeta: *n.ObjectMeta.DeepCopy(), Data: n.Data}
}

// installed is a group for a resource that is defined by what is printed.
func installed(ctx context.Context) string {
	GinkgoHelper()
	group := cluster.NewGroup("granted")
	reg := kopf.NewRegistry()
	on.Event(func(context.Context, *kopf.Event[*Widget]) error { return nil }, on.Resource(group+"/v1", cluster.Plural), on.In(reg), on.ID("any"))
	op, err := kopf.New(kopf.Options{Registry: reg})
	Expect(err).NotTo(HaveOccurred())
	text, err := op.Manifests(ctx, kopf.ManifestOptions{Parts: []kopf.ManifestPart{kopf.ManifestCRDs}})
	Expect(err).NotTo(HaveOccurred())
	install(ctx, objectsIn(text))
	Eventually(func() error {
		_, err := k8s.Raw(ctx, "GET", group, metav1.NamespaceDefault, "", nil)
		return err
	}).Should(Succeed())
	return group
}

// account is the operator's service account.
func (w *world) account() string {
	return "operator-" + w.namespace[strings.LastIndex(w.namespace, "-")+1:]
}

// print returns the roles for the world's handlers, and the account.
func (w *world) print(ctx context.Context, namespace string, options ...func(*kopf.Options)) []*unstructured.Unstructured {
	GinkgoHelper()
	o := kopf.Options{Registry: w.reg, Namespaces: []string{namespace}}
	for _, option := range options {
		option(&o)
	}
	op, err := kopf.New(o)
	Expect(err).NotTo(HaveOccurred())
	text, err := op.Manifests(ctx, kopf.ManifestOptions{Name: w.account(), Namespace: w.namespace, Parts: []kopf.ManifestPart{kopf.ManifestRBAC}})
	Expect(err).NotTo(HaveOccurred())
	return objectsIn(text)
}

func newGrantedWorld(ctx context.Context) *grantedWorld {
	GinkgoHelper()
	w := &grantedWorld{world: worldOf(ctx, "granted", installed(ctx)), calls: &calls{}}
	w.register()
	DeferCleanup(w.unruled)
	w.admitted = w.answering(func(s *settings.Admission) {
		s.Namespace, s.Certificates = w.namespace, &webhook.OwnCertificates{}
	})
	w.printed = w.print(ctx, w.namespace, w.admitted)
	install(ctx, w.printed)
	return w
}

// register has handlers of all kinds. Those that change a list, which is only ever done to the
// newest object, lose a race against somebody else's edit, so that the object has to be read.
func (w *grantedWorld) register() {
	w.handleAll(w.calls)
	on.FieldChange("spec.value", func(ctx context.Context, c *kopf.FieldChange[*Widget, int64]) error {
		w.calls.add("field %d", c.New)
		return errors.Join(kopf.Info(ctx, c.Object, "Again", "again"), kopf.Info(ctx, c.Object, "Again", "again"))
	}, w.widgets, w.in, on.ID("field"))
	on.Create(func(ctx context.Context, c *kopf.Change[*Widget]) error {
		c.Patch.Apply(func(o *Widget) { o.Spec.Items = []Item{{Name: "one"}} })
		return w.client.Patch(ctx, w.widget(c.Object.Name, 0), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"raced":"yes"}}}`)))
	}, w.widgets, w.in, on.ID("raced"))
	on.Event(func(ctx context.Context, e *kopf.Event[*corev1.Pod]) error {
		e.Patch.Apply(func(p *corev1.Pod) {
			p.Labels, p.Status.Message = map[string]string{"seen": "yes"}, "seen"
			if len(p.Spec.Tolerations) < 3 {
				p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "seen", Operator: corev1.TolerationOpExists})
			}
		})
		if e.Object.Annotations["raced"] != "" {
			return nil
		}
		return k8s.Client.Patch(ctx, e.Object.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"raced":"yes"}}}`)))
	}, w.in, on.ID("event"))
	on.Index(func(_ context.Context, s *kopf.Snapshot[*Numbers]) (map[string]int, error) { return s.Object.Data, nil },
		on.Resource("v1", "configmaps"), w.in, on.ID("index"))
	on.Daemon(func(ctx context.Context, d *kopf.Daemon[*Widget]) error {
		w.calls.add("daemon")
		<-ctx.Done()
		return context.Cause(ctx)
	}, w.widgets, w.in, on.ID("daemon"), on.Finalize())
	on.Timer(func(context.Context, *kopf.Tick[*Widget]) error { w.calls.add("timer"); return nil },
		w.widgets, w.in, on.ID("timer"), on.Interval(time.Hour))
	on.Validate(func(context.Context, *kopf.Admission[*Widget]) error { w.calls.add("validate"); return nil },
		w.widgets, w.in, on.ID("validate"), on.Operations("CREATE"))
	on.Mutate(func(context.Context, *kopf.Admission[*Widget]) error { w.calls.add("mutate"); return nil },
		w.widgets, w.in, on.ID("mutate"), on.Operations("CREATE"))
	on.ValidateCEL[*Widget]("rule", "true", on.Resource(w.group+"/v1", cluster.Plural), on.In(w.reg))
}

// as runs the operator as the account that is printed.
func (w *grantedWorld) as(ctx context.Context, made *asked) func(*kopf.Options) {
	GinkgoHelper()
	config := actingAs(ctx, w.namespace, w.account(), made)
	return func(o *kopf.Options) {
		w.admitted(o)
		o.Config = config
	}
}

// exercise lets the operator do all that it may have to.
func (w *grantedWorld) exercise(ctx context.Context, running *operator) {
	GinkgoHelper()
	By("configuring webhooks, and repairing them and the Secret")
	Eventually(func() (int, error) { return w.calls.of("validate")(), w.tried(ctx, "tried", 1) }).Should(BeNumerically(">", 0))
	Eventually(w.calls.of("mutate")).Should(BeNumerically(">", 0))
	w.spoil(ctx)

	By("handling objects")
	w.schedule(ctx, "pod", "node")
	w.create(ctx, "a", 1)
	Eventually(w.observed(ctx, "a")).Should(BeEquivalentTo(1))
	w.edit(ctx, "a", 2)
	Eventually(w.observed(ctx, "a")).Should(BeEquivalentTo(2))
	Eventually(w.calls.of("field 2")).Should(Equal(1))
	Eventually(w.calls.of("daemon")).Should(Equal(1))
	Eventually(w.calls.of("timer")).Should(Equal(1))
	w.remove(ctx, "a")
	Eventually(w.isGone(ctx, "a")).Should(BeTrue())
	Eventually(func() (map[string]string, error) {
		pod := &corev1.Pod{}
		err := k8s.Client.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: "pod"}, pod)
		return pod.Labels, err
	}).Should(HaveKeyWithValue("seen", "yes"))

	By("complaining")
	Expect(k8s.Client.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "letters"}, Data: map[string]string{"a": "b"},
	})).To(Succeed())
	Eventually(func() ([]int, error) {
		events := &corev1.EventList{}
		err := k8s.Client.List(ctx, events, client.InNamespace(w.namespace))
		most := int32(0)
		for _, event := range events.Items {
			most = max(most, event.Count)
		}
		return []int{len(events.Items), int(most)}, err
	}).Should(HaveEach(BeNumerically(">", 1)), "several, and one of them again")
	running.stop()
}

// spoil changes by hand what the operator keeps, and waits until it is as it was.
func (w *grantedWorld) spoil(ctx context.Context) {
	GinkgoHelper()
	hooks := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: w.group}}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: w.group}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.group + "-webhook"}}
	policies := &admissionregistrationv1.ValidatingAdmissionPolicyList{}
	bindings := &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}
	Eventually(func(g Gomega) {
		g.Expect(k8s.Client.List(ctx, policies)).To(Succeed())
		g.Expect(k8s.Client.List(ctx, bindings)).To(Succeed())
		g.Expect(ours(policies.Items, w.group)).To(HaveLen(1))
		g.Expect(ours(bindings.Items, w.group)).To(HaveLen(1))
	}).Should(Succeed())
	policy, binding := ours(policies.Items, w.group)[0], ours(bindings.Items, w.group)[0]

	// What is of a rule that is gone is deleted with the next repair.
	stale, bound := policy.DeepCopy(), binding.DeepCopy()
	stale.ObjectMeta = metav1.ObjectMeta{Name: "stale." + w.group, Labels: policy.Labels}
	bound.ObjectMeta = metav1.ObjectMeta{Name: "stale." + w.group, Labels: policy.Labels}
	Expect(k8s.Client.Create(ctx, stale)).To(Succeed())
	Expect(k8s.Client.Create(ctx, bound)).To(Succeed())
	for o, patch := range map[client.Object]string{
		hooks: `{"webhooks":[]}`, mutating: `{"webhooks":[]}`, secret: `{"data":{"tls.crt":"eA=="}}`,
		&policy: `{"spec":{"failurePolicy":"Ignore"}}`, &binding: `{"spec":{"validationActions":["Warn"]}}`,
	} {
		Expect(k8s.Client.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
	}
	Eventually(func(g Gomega) {
		for _, o := range []client.Object{hooks, mutating, secret, &policy, &binding} {
			g.Expect(k8s.Client.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		}
		g.Expect(hooks.Webhooks).To(HaveLen(1))
		g.Expect(mutating.Webhooks).To(HaveLen(1))
		g.Expect(secret.Data["tls.crt"]).NotTo(HaveLen(1))
		g.Expect(*policy.Spec.FailurePolicy).To(Equal(admissionregistrationv1.Fail))
		g.Expect(binding.Spec.ValidationActions).To(ConsistOf(admissionregistrationv1.Deny))
		g.Expect(client.IgnoreNotFound(k8s.Client.Get(ctx, client.ObjectKeyFromObject(stale), stale))).To(Succeed())
		g.Expect(k8s.Client.Get(ctx, client.ObjectKeyFromObject(stale), stale)).NotTo(Succeed())
	}).WithTimeout(time.Minute).Should(Succeed())
}

// ours are those whose names end with that of the group.
func ours[T any, P interface {
	*T
	client.Object
}](items []T, group string) (found []T) {
	for i := range items {
		if strings.HasSuffix(P(&items[i]).GetName(), group) {
			found = append(found, items[i])
		}
	}
	return found
}

// withhold takes a verb out of a rule of a role, until what it returns is called.
func (w *grantedWorld) withhold(ctx context.Context, role *unstructured.Unstructured, rule int, verb string) (back func()) {
	GinkgoHelper()
	set := func(rules []rbacv1.PolicyRule, granted bool) {
		GinkgoHelper()
		changed := role.DeepCopy()
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&rbacv1.Role{Rules: rules})
		Expect(err).NotTo(HaveOccurred())
		changed.Object["rules"] = raw["rules"]
		Expect(k8s.Client.Update(ctx, changed)).To(Succeed())
		Eventually(func() (bool, error) { return w.mayDo(ctx, role.GetNamespace(), rulesOf(role)[rule], verb) }).Should(Equal(granted))
	}
	rules := rulesOf(role)
	rules[rule].Verbs = slices.DeleteFunc(rules[rule].Verbs, func(v string) bool { return v == verb })
	if len(rules[rule].Verbs) == 0 {
		rules = slices.Delete(rules, rule, rule+1)
	}
	set(rules, false)
	return func() { set(rulesOf(role), true) }
}

// mayDo asks whether the operator's account is granted a verb of a rule by now.
func (w *grantedWorld) mayDo(ctx context.Context, namespace string, rule rbacv1.PolicyRule, verb string) (bool, error) {
	resource, sub, _ := strings.Cut(rule.Resources[0], "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + w.namespace + ":" + w.account(),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: rule.APIGroups[0], Resource: resource, Subresource: sub, Name: strings.Join(rule.ResourceNames, ""),
		},
	}}
	err := k8s.Client.Create(ctx, review)
	return review.Status.Allowed, err
}

// missing are the lines that say of permissions that they are missing, and of which.
func (j *journal) missing() (lines []string) {
	for line := range strings.Lines(j.String()) {
		if strings.Contains(line, "permission is missing: the command") {
			lines = append(lines, line)
		}
	}
	return lines
}

// idleOnPurpose tells of rights that a healthy API server leaves unused.
func idleOnPurpose(r right) bool {
	return r.verb == "list" // lists come over watches, where the API server can do that
}
