package kopf_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

var _ = Describe("reports on identity and endless loops", func() {
	It("B09 does not confuse an object with one that has its name again, or elsewhere", func(ctx SpecContext) {
		w, c := reported(ctx, "same"), &calls{}
		on.Create(func(_ context.Context, change *kopf.Change[*Widget]) error {
			c.add("%s, attempt %d", change.Object.UID, change.Retry)
			if change.Object.Spec.Text == "later" && change.Retry == 0 {
				return kopf.Retry(time.Second, errors.New("not ready"))
			}
			return nil
		}, w.widgets, w.in, on.ID("create"))
		other := *w
		other.namespace = w.namespace + "-other"
		newNamespace(ctx, other.namespace)
		w.start(noErrors, func(o *kopf.Options) { o.Namespaces = []string{w.namespace, other.namespace} })

		// One that waits is created anew: nothing holds it.
		waiting := w.widget("w1", 1)
		waiting.Spec.Text = "later"
		Expect(w.client.Create(ctx, waiting)).To(Succeed())
		Eventually(c.of(string(waiting.UID) + ", attempt 0")).Should(Equal(1))
		w.remove(ctx, "w1")
		anew := w.create(ctx, "w1", 1)
		Expect(anew.UID).NotTo(Equal(waiting.UID))
		Expect(anew.Generation).To(Equal(waiting.Generation))
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(1))
		// So is one that was handled, with the same spec.
		w.remove(ctx, "w1")
		again := w.create(ctx, "w1", 1)
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(1))
		want := map[string]int{
			string(waiting.UID) + ", attempt 0": 1, string(anew.UID) + ", attempt 0": 1, string(again.UID) + ", attempt 0": 1,
		}
		// Two of one name wait at the same time.
		for _, in := range []*world{w, &other} {
			same := in.widget("same", 1)
			same.Spec.Text = "later"
			Expect(w.client.Create(ctx, same)).To(Succeed())
			want[string(same.UID)+", attempt 0"], want[string(same.UID)+", attempt 1"] = 1, 1
		}
		Eventually(w.handled(ctx, "same")).Should(BeEquivalentTo(1))
		Eventually(other.handled(ctx, "same")).Should(BeEquivalentTo(1))
		w.quiet(ctx, time.Second)
		Expect(c.all()).To(Equal(want))
	})

	It("B16 leaves two operators of different names in peace with each other", func(ctx SpecContext) {
		w, c := reported(ctx, "two"), &calls{}
		var operators []*operator
		for _, name := range []string{"op-a", "op-b"} {
			in := kopf.NewRegistry()
			count := func(_ context.Context, change *kopf.Change[*Widget]) error {
				c.add("%s %s", name, change.Reason)
				return nil
			}
			on.Create(count, w.widgets, on.In(in), on.ID("create"))
			on.Update(count, w.widgets, on.In(in), on.ID("update"))
			operators = append(operators, w.start(noErrors, func(o *kopf.Options) { o.Registry, o.Name = in, name }))
		}
		DeferCleanup(func() { // all, before the first one looks for goroutines that are left
			for _, op := range operators {
				op.cancel()
			}
		})
		before := w.writes(ctx)
		w.create(ctx, "w1", 1)
		handled := func(value string) {
			for _, name := range []string{"op-a", "op-b"} {
				Eventually(func() (string, error) {
					widget, err := w.get(ctx, "w1")
					return widget.Annotations[name+"."+lastHandled], err
				}).Should(ContainSubstring(`"value":` + value))
			}
		}
		handled("1")
		w.edit(ctx, "w1", 2)
		handled("2")
		w.quiet(ctx, 2*time.Second)
		Expect(c.all()).To(Equal(map[string]int{"op-a create": 1, "op-a update": 1, "op-b create": 1, "op-b update": 1}))
		Expect(w.writes(ctx) - before - 2 /* the test's */).To(Equal(4))
	})

	It("B21 keeps progress of handlers with whatever ids under names that the API server takes", func(ctx SpecContext) {
		w, proxy, c := reported(ctx, "ids"), newProxy(), &calls{}
		ids := []string{
			"some_resource_of_interest_created.status.childname", strings.Repeat("long-", 60), strings.Repeat("x", 63), strings.Repeat("x", 64),
			strings.Repeat("y", 62) + "-", strings.Repeat("z", 62) + ".z", "a/b", "a<b>", "a b", "-a-", ".a.", "ends-in-", "ü", "処理", "a", "A", "🦀", "<locals>",
		}
		var ready atomic.Bool
		for _, id := range ids {
			on.Create(func(_ context.Context, change *kopf.Change[*Widget]) error {
				if change.Retry == 0 || !ready.Load() {
					return kopf.Retry(300*time.Millisecond, errors.New("not ready"))
				}
				c.add("%s", id)
				return nil
			}, w.widgets, w.in, on.ID(id))
		}
		name := strings.Repeat("n", 46) // with which the prefix has 63 characters
		Expect(name + "." + "kopf.zalando.org").To(HaveLen(63))
		w.start(through(proxy), noErrors, func(o *kopf.Options) { o.Name = name })
		w.create(ctx, "w1", 1)
		annotations := func() (map[string]string, error) {
			widget, err := w.get(ctx, "w1")
			return widget.Annotations, err
		}
		Eventually(func() (n int, err error) {
			found, err := annotations()
			for _, value := range found {
				if strings.Contains(value, `"retries":`) {
					n++
				}
			}
			return n, err
		}).Should(BeNumerically(">=", len(ids)), "each has a record of its own")
		ready.Store(true)
		Eventually(annotations).Should(HaveKey(name + "." + lastHandled))
		w.quiet(ctx, time.Second)
		for _, id := range ids {
			Expect(c.of(id)()).To(Equal(1), id)
		}
		for key, value := range must(annotations()) {
			Expect(value).NotTo(ContainSubstring("retries"), "%s is left", key)
		}
		for _, r := range proxy.Writes() {
			Expect(r.Code).To(BeNumerically("<", http.StatusBadRequest), "%s", r.Body)
		}
	})

	It("B23 does not take an object made from an exported manifest for the one that was handled", func(ctx SpecContext) {
		w, c := reported(ctx, "exported"), &calls{}
		on.Create(func(_ context.Context, change *kopf.Change[*Widget]) error {
			c.add("create %s, attempt %d", change.Object.UID, change.Retry)
			return nil
		}, w.widgets, w.in, on.ID("create"))
		on.Update(func(_ context.Context, change *kopf.Change[*Widget]) error {
			c.add("update %s", change.Object.UID)
			return nil
		}, w.widgets, w.in, on.ID("update"))
		on.Delete(func(_ context.Context, change *kopf.Change[*Widget]) error {
			c.add("delete %s", change.Object.UID)
			return nil
		}, w.widgets, w.in, on.ID("delete"))
		w.start(noErrors)
		first := w.create(ctx, "w1", 1)
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(1))
		exported := &unstructured.Unstructured{}
		Expect(exported.UnmarshalJSON([]byte(w.raw(ctx, "w1")))).To(Succeed())
		Expect(exported.GetAnnotations()).To(HaveKey(lastHandled))
		w.remove(ctx, "w1")
		Eventually(w.isGone(ctx, "w1")).Should(BeTrue())

		exported.SetUID("")
		exported.SetResourceVersion("")
		annotations := exported.GetAnnotations()
		annotations["kopf.zalando.org/create"] = `{"started":"2024-01-01T00:00:00.000000","stopped":"2024-01-01T00:00:00.000000",` +
			`"purpose":"create","retries":3,"success":true,"failure":false}`
		exported.SetAnnotations(annotations)
		want := map[string]int{fmt.Sprintf("create %s, attempt 0", first.UID): 1, fmt.Sprintf("delete %s", first.UID): 1}
		for _, name := range []string{"w1", "w2"} {
			exported.SetName(name)
			text, err := json.Marshal(exported)
			Expect(err).NotTo(HaveOccurred())
			w.post(ctx, string(text))
			anew, err := w.get(ctx, name)
			Expect(err).NotTo(HaveOccurred())
			want[fmt.Sprintf("create %s, attempt 0", anew.UID)] = 1
		}
		Eventually(c.all).Should(Equal(want))
		for _, name := range []string{"w1", "w2"} {
			Eventually(func() (map[string]string, error) {
				widget, err := w.get(ctx, name)
				return widget.Annotations, err
			}).Should(And(HaveKey(lastHandled), HaveLen(2), Not(HaveKey("kopf.zalando.org/create"))), "and the UID that it belongs to")
		}
		w.quiet(ctx, time.Second)
		Expect(c.all()).To(Equal(want))
	})
})

func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}
