package kopf_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// tokens makes a service account that may do what an operator for widgets needs. issue makes a
// token for it, which is good as long as there is a Secret.
func (w *world) tokens(ctx context.Context) (issue func(secret string) (token string)) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Namespace: w.namespace, Name: "operator"}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	Expect(k8s.Client.Create(ctx, account)).To(Succeed())
	Expect(k8s.Client.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{w.group}, Resources: []string{"widgets", "widgets/status"}, Verbs: []string{"get", "list", "watch", "patch"},
	}}})).To(Succeed())
	Expect(k8s.Client.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: meta.Name}},
	})).To(Succeed())
	return func(name string) string {
		GinkgoHelper()
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
		Expect(k8s.Client.Create(ctx, secret)).To(Succeed())
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: name, UID: secret.UID},
		}}
		Expect(k8s.Client.SubResource("token").Create(ctx, account, request)).To(Succeed())
		return request.Status.Token
	}
}

var _ = Describe("an operator with activities", func() {
	It("ACT-4, ACT-5, ACT-6, AUTH-5, T153, T154: starts, logs in anew when its token is revoked, tells how it is, and cleans up", func(ctx SpecContext) {
		w, c := newWorld(ctx, "activities", true), &calls{}
		issue := w.tokens(ctx)
		var logins, observed atomic.Int64
		in := on.In(w.reg)
		on.Startup(func(_ context.Context, a *kopf.Activity) error {
			a.Settings.Execution.DefaultBackoff = 10 * time.Millisecond
			return nil
		}, in)
		on.Login(func(_ context.Context, l *kopf.Login) (*kopf.Credentials, error) {
			defer GinkgoRecover()
			config := rest.AnonymousClientConfig(k8s.Config)
			config.BearerToken = issue(fmt.Sprint("token-", logins.Add(1)))
			return &kopf.Credentials{Config: config}, nil
		}, in)
		show := func(_ context.Context, change *kopf.Change[*Widget]) error {
			if change.Reason == kopf.ReasonCreate && change.Retry == 0 {
				return errors.New("again, but not in a minute")
			}
			c.add("%d", change.New.Spec.Value)
			observed.Store(change.New.Spec.Value)
			change.Patch.Apply(func(o *Widget) { o.Status.Observed = change.New.Spec.Value })
			return nil
		}
		on.Create(show, w.widgets, w.in, on.ID("show"))
		on.Update(show, w.widgets, w.in, on.ID("show"))
		on.Daemon(func(ctx context.Context, d *kopf.Daemon[*Widget]) error {
			<-ctx.Done()
			c.add("daemon leaves")
			return nil
		}, w.widgets, w.in, on.ID("daemon"))
		on.Probe(func(context.Context, *kopf.Probe) (int64, error) { return observed.Load(), nil }, in, on.ID("observed"))
		on.Cleanup(func(context.Context, *kopf.Activity) error { c.add("cleanup"); return nil }, in)

		operator := w.start(func(o *kopf.Options) { o.Config = nil })
		w.create(ctx, "one", 1)
		Eventually(w.observed(ctx, "one"), 10*time.Second).Should(Equal(int64(1)), "the backoff of the startup handler")
		server := httptest.NewServer(operator.Liveness())
		response, err := http.Get(server.URL)
		Expect(err).NotTo(HaveOccurred())
		Expect(io.ReadAll(response.Body)).To(BeEquivalentTo(`{"observed":1}`))
		Expect(response.Body.Close()).To(Succeed())
		server.Close()

		By("revoking the token, which the API server notices within seconds")
		Expect(k8s.Client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "token-1"}})).To(Succeed())
		value := int64(1)
		Eventually(func() int64 {
			value++
			w.edit(ctx, "one", value)
			return logins.Load()
		}, 60*time.Second, 200*time.Millisecond).Should(Equal(int64(2)))
		Eventually(w.observed(ctx, "one")).Should(Equal(value), "the last edit is not lost")
		Consistently(logins.Load, time.Second).Should(Equal(int64(2)))
		for text, n := range c.all() {
			Expect(n).To(Equal(1), "%s is handled once", text)
		}
		operator.stop()
		order := c.inOrder()
		Expect(order[len(order)-2:]).To(Equal([]string{"daemon leaves", "cleanup"}))
	})
})
