package kopf_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/webhook"
)

// balance leads connections to one port of the loopback address to others, in turn, as a
// Service does. Those that nobody takes are led to the next one.
func balance(ports ...int) (port int) {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	var running sync.WaitGroup
	open := sync.Map{}
	DeferCleanup(func() {
		_ = listener.Close()
		open.Range(func(c, _ any) bool { _ = c.(net.Conn).Close(); return true })
		running.Wait()
	})
	var turn atomic.Int64
	running.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			open.Store(from, nil)
			running.Go(func() {
				defer open.Delete(from)
				defer from.Close()
				for range ports {
					at := ports[int(turn.Add(1))%len(ports)]
					to, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(at)))
					if err != nil {
						continue
					}
					open.Store(to, nil)
					defer open.Delete(to)
					defer to.Close()
					back := make(chan struct{})
					go func() {
						defer close(back)
						_, _ = io.Copy(from, to)
						_ = from.Close()
					}()
					_, _ = io.Copy(to, from)
					_ = to.Close()
					<-back
					return
				}
			})
		}
	})
	return listener.Addr().(*net.TCPAddr).Port
}

var _ = Describe("certificates of webhooks", func() {
	It("are renewed three times on two replicas, and restored from a deleted and a spoilt Secret, while no request fails", func(ctx SpecContext) {
		w := newWorld(ctx, "renewed", true)
		DeferCleanup(w.unconfigure)
		secret := types.NamespacedName{Namespace: w.namespace, Name: "webhooks"}
		ports := []int{freePort(), freePort()}
		front := balance(ports...)
		replica := func(port int) func(*kopf.Options) {
			return w.answering(func(s *settings.Admission) {
				s.Endpoint, s.Port = webhook.URL{Port: front}, port
				s.Certificates = &webhook.OwnCertificates{
					Secret: secret, Lifetime: time.Minute, RenewBefore: 50 * time.Second, Settle: time.Second,
				}
			})
		}
		var asked [2]atomic.Int64
		var replicas []*operator
		for i, port := range ports {
			other := *w
			other.reg = kopf.NewRegistry()
			other.in = on.In(other.reg)
			on.Validate(func(_ context.Context, a *kopf.Admission[*Widget]) error {
				asked[i].Add(1)
				return nil
			}, w.widgets, other.in, on.ID("seen"), on.Operations("CREATE"))
			replicas = append(replicas, other.start(replica(port)))
		}
		DeferCleanup(func() { // both, before either is waited for
			for _, r := range replicas {
				r.cancel()
			}
		})
		Eventually(func() (int64, error) { return asked[0].Load() + asked[1].Load(), w.tried(ctx, "tried", 1) }).Should(BeNumerically(">", 0))

		stop := make(chan struct{})
		var client sync.WaitGroup
		var mu sync.Mutex
		var failures []error
		var created atomic.Int64
		client.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
				if err := w.client.Create(ctx, w.widget(fmt.Sprint("w", i), 1)); err != nil {
					mu.Lock()
					failures = append(failures, err)
					mu.Unlock()
				}
				created.Add(1)
			}
		})
		failed := func() error { mu.Lock(); defer mu.Unlock(); return errors.Join(failures...) }
		certificate := func() ([]byte, error) {
			found := &corev1.Secret{}
			err := k8s.Client.Get(ctx, secret, found)
			return found.Data[corev1.TLSCertKey], err
		}
		renewed := func(what string) {
			GinkgoHelper()
			before, _ := certificate()
			Eventually(func() (bool, error) {
				now, err := certificate()
				return len(now) > 0 && !bytes.Equal(now, before), err
			}, time.Minute, 100*time.Millisecond).Should(BeTrue(), what)
			Expect(failed()).NotTo(HaveOccurred(), what)
		}
		for i := range 3 {
			renewed(fmt.Sprint("renewal ", i+1))
		}
		Expect(k8s.Client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name}})).To(Succeed())
		Eventually(certificate).ShouldNot(BeEmpty())
		spoilt := &corev1.Secret{}
		Expect(k8s.Client.Get(ctx, secret, spoilt)).To(Succeed())
		spoilt.Data[corev1.TLSPrivateKeyKey] = []byte("garbage")
		Expect(k8s.Client.Update(ctx, spoilt)).To(Succeed())
		Eventually(func() ([]byte, error) {
			found := &corev1.Secret{}
			err := k8s.Client.Get(ctx, secret, found)
			return found.Data[corev1.TLSPrivateKeyKey], err
		}).ShouldNot(Equal([]byte("garbage")))
		renewed("renewal after the faults")
		close(stop)
		client.Wait()
		Expect(failed()).NotTo(HaveOccurred())
		Expect(created.Load()).To(BeNumerically(">", 100))
		for i := range asked {
			Expect(asked[i].Load()).To(BeNumerically(">", 0), "replica %d", i)
		}
	})
})
