package kopf_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/storage"
	"github.com/kopf-go/kopf/webhook"
)

// freePort is one that nobody listens on now.
func freePort() int {
	GinkgoHelper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// answering has the operator answer the API server's requests, with configurations that go
// with the spec.
func (w *world) answering(more ...func(*settings.Admission)) func(*kopf.Options) {
	GinkgoHelper()
	DeferCleanup(w.unconfigure)
	settings := settings.Admission{
		Endpoint: webhook.URL{Port: freePort()}, Managed: w.group, Host: "127.0.0.1", Namespace: metav1.NamespaceDefault,
	}
	for _, m := range more {
		m(&settings)
	}
	return func(o *kopf.Options) { o.Settings.Admission = settings }
}

func (w *world) unconfigure(ctx context.Context) {
	for _, o := range []client.Object{&admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfiguration{}} {
		o.SetName(w.group)
		Expect(client.IgnoreNotFound(k8s.Client.Delete(ctx, o))).To(Succeed())
	}
}

// counted is what a counter has come to for a handler and an outcome, over all resources.
func counted(name, handler, outcome string) (sum float64) {
	GinkgoHelper()
	families, err := ctrlmetrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if family.GetName() == name && labels["handler"] == handler && labels["outcome"] == outcome {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// noted are certificates that note what they are told.
type noted struct {
	*webhook.OwnCertificates
	applied atomic.Int32
}

func (n *noted) Applied(bundle []byte) {
	n.OwnCertificates.Applied(bundle)
	n.applied.Add(1)
}

// unruled takes away the policies of the world.
func (w *world) unruled(ctx context.Context) {
	var policies admissionregistrationv1.ValidatingAdmissionPolicyList
	var bindings admissionregistrationv1.ValidatingAdmissionPolicyBindingList
	Expect(k8s.Client.List(ctx, &policies)).To(Succeed())
	Expect(k8s.Client.List(ctx, &bindings)).To(Succeed())
	for i := range bindings.Items {
		if strings.HasSuffix(bindings.Items[i].Name, w.group) {
			Expect(client.IgnoreNotFound(k8s.Client.Delete(ctx, &bindings.Items[i]))).To(Succeed())
		}
	}
	for i := range policies.Items {
		if strings.HasSuffix(policies.Items[i].Name, w.group) {
			Expect(client.IgnoreNotFound(k8s.Client.Delete(ctx, &policies.Items[i]))).To(Succeed())
		}
	}
}

// tried is what comes of the creation of a widget, in a dry run.
func (w *world) tried(ctx context.Context, name string, value int64) error {
	return w.client.Create(ctx, w.widget(name, value), client.DryRunAll)
}

// warnings are what a client was warned of.
type warnings struct {
	mu   sync.Mutex
	text []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

func (w *warnings) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.text)
}

// warned is a client of the world that notes what it is warned of.
func (w *world) warned() (client.Client, *warnings) {
	GinkgoHelper()
	heard := &warnings{}
	config := rest.CopyConfig(k8s.Config)
	config.WarningHandler = heard
	c, err := client.New(config, client.Options{Scheme: w.client.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return c, heard
}

var _ = Describe("admission", func() {
	It("denies with code, text and fields, all complaints at once, and warns", func(ctx SpecContext) {
		w := newWorld(ctx, "denied", true)
		on.Validate(func(_ context.Context, a *kopf.Admission[*Widget]) error {
			a.Warn("value is %d", a.New.Spec.Value)
			if a.New.Spec.Value < 0 {
				return kopf.Reject(422, "value is not valid, dry-run=%v", a.DryRun).Field("spec.value", "must not be negative")
			}
			return nil
		}, w.widgets, w.in, on.ID("value"), on.Operations("CREATE", "UPDATE"))
		on.Validate(func(_ context.Context, a *kopf.Admission[*Widget]) error {
			if a.New.Spec.Text == "" && a.New.Spec.Value < 0 {
				return kopf.Reject(422, "text is missing").Field("spec.text", "is required")
			}
			return nil
		}, w.widgets, w.in, on.ID("text"), on.Operations("CREATE", "UPDATE"))
		w.start(w.answering())
		Eventually(func() error { return w.tried(ctx, "bad", -1) }).Should(MatchError(ContainSubstring("value is not valid, dry-run=true")))

		c, heard := w.warned()
		err := c.Create(ctx, w.widget("bad", -1))
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(And(ContainSubstring("dry-run=false"), ContainSubstring("text is missing"))))
		status := err.(apierrors.APIStatus).Status()
		fields := []string{}
		for _, cause := range status.Details.Causes {
			fields = append(fields, cause.Field+": "+cause.Message)
		}
		Expect(fields).To(ConsistOf("spec.value: must not be negative", "spec.text: is required"))
		Expect(c.Create(ctx, w.widget("good", 1))).To(Succeed())
		Expect(heard.all()).To(ContainElements("value is -1", "value is 1"))
		elsewhere := w.widget("bad", -1)
		elsewhere.Namespace = metav1.NamespaceDefault
		Expect(w.client.Create(ctx, elsewhere, client.DryRunAll)).To(Succeed(), "the operator is not for that namespace")
		Expect(counted("kopf_handler_attempts_total", "value", "denied")).To(BeNumerically(">=", 2))
		Expect(counted("kopf_handler_attempts_total", "value", "allowed")).To(BeNumerically(">=", 1))
		Expect(w.client.Patch(ctx, w.widget("good", 0), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"value":-5}}`)))).
			To(MatchError(ContainSubstring("value is not valid")))
	})

	It("mutates, one handler after the other, and lets fields survive that the type does not know", func(ctx SpecContext) {
		w := newWorld(ctx, "mutated", true)
		on.Mutate(func(_ context.Context, a *kopf.Admission[*Widget]) error {
			if a.Object.Spec.Text == "" {
				a.Object.Spec.Text = "one"
			}
			return nil
		}, w.widgets, w.in, on.ID("first"), on.Operations("CREATE"))
		on.Mutate(func(_ context.Context, a *kopf.Admission[*Widget]) error {
			a.Object.Spec.Text += "+two"
			a.Object.Spec.Value++
			return nil
		}, w.widgets, w.in, on.ID("second"), on.Operations("CREATE"))
		w.start(w.answering())
		Eventually(func() (string, error) {
			tried := w.widget("tried", 1)
			err := w.client.Create(ctx, tried, client.DryRunAll)
			return tried.Spec.Text, err
		}).Should(Equal("one+two"))
		made := w.widget("made", 1<<53+2)
		Expect(w.client.Create(ctx, made)).To(Succeed())
		Expect(made.Spec.Value).To(Equal(int64(1<<53 + 3)))
		Expect(made.Spec.Text).To(Equal("one+two"))
	})

	It("answers for deletions, the status and the scale, and mutates a deletion only if it is for nothing else", func(ctx SpecContext) {
		w := newWorld(ctx, "operations", true)
		var calls calls
		note := func(id string) func(context.Context, *kopf.Admission[*Widget]) error {
			return func(_ context.Context, a *kopf.Admission[*Widget]) error {
				calls.add("%s %s/%s new=%t old=%t", id, a.Operation, a.Subresource, a.New != nil, a.Old != nil)
				if a.Object.Spec.Value == 13 && a.Operation == "DELETE" {
					return kopf.Reject(403, "thirteen stays")
				}
				return nil
			}
		}
		on.Validate(note("main"), w.widgets, w.in, on.ID("main"))
		on.Validate(note("any"), w.widgets, w.in, on.ID("any"), on.Subresource("*"))
		on.Validate(note("status"), w.widgets, w.in, on.ID("status"), on.Subresource("status"))
		on.Mutate(note("deletes"), w.widgets, w.in, on.ID("deletes"), on.Operations("DELETE"))
		on.Mutate(note("mutates"), w.widgets, w.in, on.ID("mutates"))
		w.start(w.answering())
		Eventually(func() (int, error) {
			return calls.of("main CREATE/ new=true old=false")(), w.tried(ctx, "tried", 1)
		}).Should(BeNumerically(">", 0))
		Eventually(func() (int, error) {
			return calls.of("mutates CREATE/ new=true old=false")(), w.tried(ctx, "tried", 1)
		}).Should(BeNumerically(">", 0))
		w.create(ctx, "w1", 13)
		calls.forget()
		widget := w.widget("w1", 13)
		Expect(w.client.Status().Patch(ctx, widget, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"x"}}`)))).To(Succeed())
		Expect(calls.all()).To(Equal(map[string]int{"any UPDATE/status new=true old=true": 1, "status UPDATE/status new=true old=true": 1}))
		calls.forget()
		Expect(w.client.Delete(ctx, w.widget("w1", 0))).To(MatchError(ContainSubstring("thirteen stays")))
		Expect(calls.of("deletes DELETE/ new=false old=true")()).To(Equal(1))
		Expect(calls.of("mutates DELETE/ new=false old=true")()).To(BeZero())
		w.edit(ctx, "w1", 1)
		Expect(w.client.Delete(ctx, w.widget("w1", 0))).To(Succeed())
		Expect(calls.of("main DELETE/ new=false old=true")()).To(BeNumerically(">=", 1))
	})

	It("has the API server check rules in CEL itself, with no webhook and no certificate", func(ctx SpecContext) {
		w := newWorld(ctx, "rules", true)
		on.ValidateCEL[*Widget]("positive", "!has(object.spec.value) || object.spec.value >= 0",
			on.Resource(w.group+"/v1", cluster.Plural), on.In(w.reg), on.Message("value must not be negative"))
		operator := w.start(w.answering(func(s *settings.Admission) { s.Endpoint = nil }))
		DeferCleanup(w.unruled)
		Eventually(func() error { return w.tried(ctx, "bad", -1) }).Should(MatchError(ContainSubstring("value must not be negative")))
		Expect(w.tried(ctx, "good", 1)).To(Succeed())
		operator.stop()
		Expect(w.tried(ctx, "bad", -1)).To(MatchError(ContainSubstring("value must not be negative")), "rules need no operator")
	})

	It("answers for the scale of a resource, in its own type", func(ctx SpecContext) {
		w := newWorld(ctx, "scaled", true)
		on.Validate(func(_ context.Context, a *kopf.Admission[*autoscalingv1.Scale]) error {
			if a.New.Spec.Replicas > 3 {
				return kopf.Reject(403, "%s cannot have %d replicas", a.Object.Name, a.New.Spec.Replicas)
			}
			return nil
		}, on.Resource("apps/v1", "deployments"), w.in, on.ID("few"), on.Subresource("scale"))
		w.start(w.answering())
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "d"},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
				},
			},
		}
		Expect(k8s.Client.Create(ctx, deployment)).To(Succeed())
		scale := func(replicas int32) error {
			return k8s.Client.SubResource("scale").Update(ctx, deployment.DeepCopy(),
				client.WithSubResourceBody(&autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}))
		}
		Eventually(func() error { return scale(4) }).Should(MatchError(ContainSubstring("d cannot have 4 replicas")))
		Expect(scale(2)).To(Succeed())
	})

	It("never holds up a deletion, though the object is not valid any more (B39)", func(ctx SpecContext) {
		w := newWorld(ctx, "terminating", true)
		for _, name := range []string{"w1", "w2", "w3"} {
			widget := w.widget(name, 1)
			widget.Finalizers = []string{"example.com/held"}
			Expect(w.client.Create(ctx, widget)).To(Succeed())
		}
		on.Validate(func(context.Context, *kopf.Admission[*Widget]) error { return kopf.Reject(403, "never") },
			w.widgets, w.in, on.ID("never"), on.Operations("CREATE", "UPDATE"))
		operator := w.start(w.answering())
		Eventually(func() error { return w.tried(ctx, "new", 1) }).Should(MatchError(ContainSubstring("never")))
		w.remove(ctx, "w1")
		w.remove(ctx, "w2")
		w.patch(ctx, "w1", `{"metadata":{"finalizers":null}}`)
		Eventually(w.isGone(ctx, "w1")).Should(BeTrue())
		for _, name := range []string{"w2", "w3"} {
			err := w.client.Patch(ctx, w.widget(name, 0), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"value":2}}`)))
			Expect(err).To(MatchError(ContainSubstring("never")), name)
		}
		w.patch(ctx, "w2", `{"metadata":{"finalizers":null}}`)
		DeferCleanup(func(ctx context.Context) {
			operator.stop() // or it would put the configuration back
			Eventually(func() error {
				return w.client.Patch(ctx, w.widget("w3", 0), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
			}).Should(Succeed())
		})
	})

	It("takes its own bookkeeping for bookkeeping, whatever its prefix is, so that it cannot hold up a deletion (B39)", func(ctx SpecContext) {
		w := newWorld(ctx, "prefixed", true)
		var calls calls
		on.Delete(func(context.Context, *kopf.Change[*Widget]) error {
			calls.add("delete")
			if calls.total() < 3 {
				return kopf.Retry(100*time.Millisecond, nil) // whose record is an annotation
			}
			return nil
		}, w.widgets, w.in, on.ID("delete"))
		on.Validate(func(_ context.Context, a *kopf.Admission[*Widget]) error {
			if a.New.DeletionTimestamp != nil {
				return kopf.Reject(403, "never")
			}
			return nil
		}, w.widgets, w.in, on.ID("never"), on.Operations("CREATE", "UPDATE"))
		w.start(w.answering(), func(o *kopf.Options) {
			o.Settings.Persistence.ProgressStorage = storage.AnnotationsProgress("state.example.com", storage.AnnotationsOptions{})
			o.Settings.Persistence.DiffBaseStorage = storage.AnnotationsLastHandled("state.example.com", storage.LastHandledOptions{})
		})
		w.create(ctx, "w1", 1)
		Eventually(func() (map[string]string, error) { return w.annotations(ctx, "w1") }).Should(HaveKey("state.example.com/last-handled-configuration"))
		Eventually(func() ([]string, error) {
			found := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			err := k8s.Client.Get(ctx, client.ObjectKey{Name: w.group}, found)
			names := []string{}
			for _, hook := range found.Webhooks {
				names = append(names, hook.Name)
			}
			return names, client.IgnoreNotFound(err)
		}).ShouldNot(BeEmpty())
		w.remove(ctx, "w1")
		Eventually(w.isGone(ctx, "w1")).Should(BeTrue())
		Expect(calls.total()).To(Equal(3))
	})

	It("tells its certificates that others configure them if it does not", func(ctx SpecContext) {
		w := newWorld(ctx, "unmanaged", true)
		on.Validate(func(context.Context, *kopf.Admission[*Widget]) error { return nil }, w.widgets, w.in, on.ID("any"))
		certificates := &noted{OwnCertificates: &webhook.OwnCertificates{}}
		operator := w.start(w.answering(func(s *settings.Admission) {
			s.Managed, s.Namespace, s.Certificates = "", w.namespace, certificates
		}))
		Eventually(func() error { return operator.Ready(nil) }).Should(Succeed())
		Eventually(certificates.applied.Load).Should(BeNumerically(">", 0))
	})

	It("ends with an error when its port is taken (EXT-2, T168)", func(ctx SpecContext) {
		w := newWorld(ctx, "taken", true)
		DeferCleanup(w.unconfigure)
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		defer taken.Close()
		on.Validate(func(context.Context, *kopf.Admission[*Widget]) error { return nil }, w.widgets, w.in, on.ID("any"))
		options := kopf.Options{Registry: w.reg, Config: k8s.Config}
		options.Settings.Admission = settings.Admission{
			Endpoint: webhook.URL{Port: taken.Addr().(*net.TCPAddr).Port}, Host: "127.0.0.1", Namespace: w.namespace,
		}
		operator, err := kopf.New(options)
		Expect(err).NotTo(HaveOccurred())
		Expect(operator.Manifests(ctx, kopf.ManifestOptions{Cluster: true, Parts: []kopf.ManifestPart{kopf.ManifestWebhooks}})).To(ContainSubstring("kind: ValidatingWebhookConfiguration"))
		Expect(operator.Run(ctx)).To(MatchError(And(ContainSubstring("webhook server"), ContainSubstring("address already in use"))))
	})

	It("answers by the failure policy when a handler panics or is too slow", func(ctx SpecContext) {
		w := newWorld(ctx, "failing", true)
		on.Validate(func(ctx context.Context, a *kopf.Admission[*Widget]) error {
			switch a.New.Spec.Value {
			case 1:
				panic("boom")
			case 2:
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}, w.widgets, w.in, on.ID("fails"), on.Operations("CREATE"))
		w.start(w.answering(func(s *settings.Admission) { s.Timeout = time.Second }))
		Eventually(func() error { return w.tried(ctx, "tried", 1) }).Should(HaveOccurred())
		Expect(w.tried(ctx, "tried", 1)).To(MatchError(ContainSubstring("fails")))
		began := time.Now()
		Expect(w.tried(ctx, "tried", 2)).To(MatchError(ContainSubstring("fails")))
		Expect(time.Since(began)).To(BeNumerically("<", 2*time.Second))
		Expect(w.tried(ctx, "tried", 3)).To(Succeed())
	})

	It("repairs configurations, leaves only what is persistent, and writes nothing as long as nothing changes", func(ctx SpecContext) {
		w := newWorld(ctx, "configured", true)
		allow := func(context.Context, *kopf.Admission[*Widget]) error { return nil }
		on.Validate(allow, w.widgets, w.in, on.ID("goes"))
		on.Validate(allow, w.widgets, w.in, on.ID("stays"), on.Persistent(), on.IgnoreFailures())
		operator := w.start(w.answering())
		Eventually(func() error { return operator.Ready(nil) }).Should(Succeed())
		configuration := func() (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
			found := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			return found, client.IgnoreNotFound(k8s.Client.Get(ctx, client.ObjectKey{Name: w.group}, found))
		}
		names := func() (names []string, err error) {
			found, err := configuration()
			for _, hook := range found.Webhooks {
				names = append(names, hook.Name)
			}
			return names, err
		}
		both := ConsistOf("goes."+w.group, "stays."+w.group)
		Eventually(names).Should(both)
		found, err := configuration()
		Expect(err).NotTo(HaveOccurred())
		Consistently(func() (string, error) { now, err := configuration(); return now.ResourceVersion, err }, 2*time.Second).
			Should(Equal(found.ResourceVersion))
		Expect(k8s.Client.Patch(ctx, found, client.RawPatch(types.MergePatchType, []byte(`{"webhooks":[]}`)))).To(Succeed())
		Eventually(names).Should(both)
		Expect(k8s.Client.Delete(ctx, found)).To(Succeed())
		Eventually(names).Should(both)
		operator.stop()
		Expect(operator.Ready(nil)).To(MatchError("operator does not run"))
		Expect(names()).To(ConsistOf("stays." + w.group))
	})
})
