package kopf_test

import (
	"bytes"
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/webhook"
)

var _ = Describe("uninstalling", func() {
	It("takes away finalizers, state and webhooks, and says what is left", func(ctx SpecContext) {
		w, c := newWorld(ctx, "uninstalled", true), &calls{}
		w.note(c, kopf.ReasonCreate)
		on.Delete(func(context.Context, *kopf.Change[*Widget]) error { return kopf.Retry(time.Hour, nil) }, w.widgets, w.in, on.ID("never"))
		on.Validate(func(context.Context, *kopf.Admission[*Widget]) error { return nil }, w.widgets, w.in, on.ID("valid"), on.Persistent())
		options := w.answering(func(s *settings.Admission) {
			s.Namespace, s.Certificates = w.namespace, &webhook.OwnCertificates{}
		})
		elects := func(o *kopf.Options) {
			options(o)
			o.Settings.LeaderElection = settings.LeaderElection{Namespace: w.namespace, Lease: "uninstalled"}
		}
		operator := w.start(elects)
		for _, name := range []string{"one", "two", "going"} {
			w.create(ctx, name, 1)
			Eventually(w.handled(ctx, name)).Should(Equal(int64(1)))
		}
		w.remove(ctx, "going")
		Eventually(w.finalizers(ctx, "going")).ShouldNot(BeEmpty())
		operator.stop()

		Expect(k8s.Client.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "uninstalled"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new("a replica"), LeaseDurationSeconds: new(int32(600)), RenewTime: &metav1.MicroTime{Time: time.Now()},
			},
		})).To(Succeed())
		uninstall := func(u kopf.UninstallOptions) (*kopf.UninstallReport, error) {
			GinkgoHelper()
			o := kopf.Options{Config: k8s.Config, Registry: w.reg, Namespaces: []string{w.namespace}}
			elects(&o)
			o.Settings.LeaderElection.Enabled = true
			op, err := kopf.New(o)
			Expect(err).NotTo(HaveOccurred())
			return op.Uninstall(ctx, u)
		}
		_, err := uninstall(kopf.UninstallOptions{})
		Expect(err).To(MatchError(ContainSubstring("a replica holds the lease uninstalled")))

		before := w.writes(ctx)
		planned, err := uninstall(kopf.UninstallOptions{DryRun: true, Force: true})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.writes(ctx)).To(Equal(before))
		report, err := uninstall(kopf.UninstallOptions{Force: true})
		Expect(err).NotTo(HaveOccurred())
		Expect([]int{report.Seen, report.Released, report.Cleaned}).To(Equal([]int{3, 2, 2}))
		Expect(planned.Released).To(Equal(report.Released))
		Expect(report.Removed).To(And(Equal(planned.Removed), HaveLen(2), ContainElement(HavePrefix("secrets/"))))
		Expect(report.Left).To(HaveExactElements(ContainSubstring("going in " + w.namespace + ": it is being deleted")))
		for _, name := range []string{"one", "two"} {
			Expect(string(w.raw(ctx, name))).NotTo(ContainSubstring("kopf.zalando.org"))
		}
		var text bytes.Buffer
		Expect(report.Print(&text)).To(Succeed())
		Expect(text.String()).To(And(HavePrefix("3 objects looked at: the finalizer has been taken off 2, state off 2\n"), ContainSubstring("\nleft: widgets.")))
		w.remove(ctx, "one") // nobody has to be there for that, nor is anybody asked
		Expect(w.isGone(ctx, "one")()).To(BeTrue())

		report, err = uninstall(kopf.UninstallOptions{Force: true, Abandon: true})
		Expect(err).NotTo(HaveOccurred())
		Expect([]int{report.Seen, report.Released}).To(Equal([]int{2, 1}))
		Expect(report.Left).To(BeEmpty())
		Expect(w.isGone(ctx, "going")()).To(BeTrue())
	})
})
