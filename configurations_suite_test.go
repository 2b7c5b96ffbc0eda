package kopf_test

import (
	"context"
	"log/slog"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/webhook"
)

// unreachable is the endpoint of webhooks that are never asked.
type unreachable struct{}

func (unreachable) ClientConfig(path string, _ []byte) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "none", Name: "none", Path: &path}}
}

func (unreachable) Names() []string { return nil }

var _ = Describe("configurations of webhooks", func() {
	It("T164, ADM-14, ADM-17: are taken by the API server, stay as they are, and are repaired", func(ctx SpecContext) {
		clients, err := kubernetes.NewForConfig(k8s.Config)
		Expect(err).NotTo(HaveOccurred())
		client := clients.AdmissionregistrationV1()
		const name = "configurations.kopf.test"
		DeferCleanup(func(ctx context.Context) {
			Expect(client.ValidatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
			Expect(client.MutatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
		})

		none := []webhook.Resource{{Group: "none.kopf.test", Version: "v1", Plural: "nothings", Namespaced: true}}
		odd := webhook.Hook{ID: "Ünïcode/Fn_1", Kind: webhook.Validating, Resources: none}
		odd.Restrict(
			[]webhook.Criterion{{Key: "a", Match: filters.Any("x", "y")}, {Key: "b", Match: filters.Absent}, {Key: "c", Match: filters.Equal("not legal!")}},
			[]webhook.Criterion{{Key: "kopf.dev/note", Match: filters.Not(`"quoted" \ ü`)}}, []string{"spec", "in", "a b"}, filters.Any(3, true, filters.Absent))
		all := webhook.Hook{ID: "all", Kind: webhook.Mutating, Resources: none, Subresource: "*", SideEffects: true, IgnoreFailures: true}
		rule := webhook.Hook{
			ID: "color", Kind: webhook.Policy, Operations: []string{"CREATE"},
			Resources: []webhook.Resource{{Version: "v1", Plural: "configmaps", Namespaced: true}},
			Rule:      webhook.Rule{Expression: `object.data.color != "red"`, MessageExpression: `"no " + object.data.color`},
		}
		rule.Restrict([]webhook.Criterion{{Key: "kopf.test/configurations", Match: filters.Present}}, nil, nil, nil)
		hooks := []webhook.Hook{odd, all, rule}
		o := webhook.Options{Name: name, Namespace: "own", User: "system:serviceaccount:own:op"}
		keeper := webhook.NewKeeper(client, o, slog.New(slog.DiscardHandler), nil)
		DeferCleanup(func(ctx context.Context) { Expect(keeper.Apply(ctx, nil, unreachable{}, nil)).To(Succeed()) })
		Expect(keeper.Apply(ctx, hooks, unreachable{}, nil)).To(Succeed())

		versions := func() (versions []string) {
			v, err := client.ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			m, err := client.MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			p, err := client.ValidatingAdmissionPolicies().Get(ctx, "color."+name, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			b, err := client.ValidatingAdmissionPolicyBindings().Get(ctx, "color."+name, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			return append(versions, v.ResourceVersion, m.ResourceVersion, p.ResourceVersion, b.ResourceVersion)
		}
		By("the API server's rule, which denies")
		red := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "red-", Namespace: "default", Labels: map[string]string{"kopf.test/configurations": ""}},
			Data:       map[string]string{"color": "red"},
		}
		Eventually(func() error {
			_, err := clients.CoreV1().ConfigMaps("default").Create(ctx, red, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}).Should(MatchError(ContainSubstring("no red")))

		By("the same again, which writes nothing")
		before := versions()
		again := webhook.NewKeeper(client, o, slog.New(slog.DiscardHandler), nil)
		Expect(again.Apply(ctx, hooks, unreachable{}, nil)).To(Succeed())
		Expect(versions()).To(Equal(before))

		By("an edit and a deletion by hand")
		running, stop := context.WithCancel(ctx)
		var done sync.WaitGroup
		done.Go(func() { defer GinkgoRecover(); Expect(keeper.Run(running)).To(Succeed()) })
		DeferCleanup(func() { stop(); done.Wait() })
		v, err := client.ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		edited := v.DeepCopy()
		edited.Webhooks = nil
		_, err = client.ValidatingWebhookConfigurations().Update(ctx, edited, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(client.MutatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
		Eventually(func(g Gomega) {
			repaired, err := client.ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(repaired.Webhooks).To(Equal(v.Webhooks))
			_, err = client.MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
		}).Should(Succeed())
	})

	It("B47: are kept by the replica that leads, and taken away when that stops, not when another does", func(ctx SpecContext) {
		w := newWorld(ctx, "leading", true)
		on.Validate(func(context.Context, *kopf.Admission[*Widget]) error { return nil }, w.widgets, w.in, on.ID("valid"))
		replica := func() *operator {
			GinkgoHelper()
			return w.start(w.answering(), func(o *kopf.Options) {
				o.Settings.LeaderElection = settings.LeaderElection{
					Enabled: true, Namespace: w.namespace, LeaseDuration: 2 * time.Second, RenewDeadline: 1500 * time.Millisecond, RetryPeriod: 200 * time.Millisecond,
				}
			})
		}
		configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		names := func() (names []string, err error) {
			err = k8s.Client.Get(ctx, client.ObjectKey{Name: w.group}, configuration)
			for _, hook := range configuration.Webhooks {
				names = append(names, hook.Name)
			}
			return names, client.IgnoreNotFound(err)
		}
		leader := replica()
		Eventually(names).Should(HaveExactElements("valid." + w.group))
		version := configuration.ResourceVersion
		standby := replica()
		Eventually(func() error { return standby.Ready(nil) }).Should(Succeed())
		standby.stop()
		Expect(names()).To(HaveExactElements("valid." + w.group))
		Expect(configuration.ResourceVersion).To(Equal(version), "the other one has written")
		leader.stop()
		Expect(names()).To(BeEmpty())
	})
})
