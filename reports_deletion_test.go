package kopf_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

var _ = Describe("reports on finalizers and deletion", func() {
	It("B29 removes the finalizer when all delete handlers are through, and not before", func(ctx SpecContext) {
		w, proxy, c := reported(ctx, "several"), newProxy(), &calls{}
		for _, id := range []string{"d1", "d2", "d3"} {
			on.Delete(func(_ context.Context, change *kopf.Change[*Widget]) error {
				c.add("%s, attempt %d", id, change.Retry)
				if id == "d2" && change.Retry == 0 {
					return kopf.Retry(500*time.Millisecond, errors.New("not ready"))
				}
				return nil
			}, w.widgets, w.in, on.ID(id))
		}
		w.start(through(proxy), noErrors)
		w.create(ctx, "w1", 1)
		Eventually(w.finalizers(ctx, "w1")).Should(ConsistOf(ourFinalizer))
		proxy.Before(widgetPatches, func(r request) *fault {
			if bytes.Contains(r.Body, []byte(`"finalizers"`)) {
				c.add("finalizers are written")
			}
			return nil
		})
		w.remove(ctx, "w1")
		Eventually(w.isGone(ctx, "w1")).Should(BeTrue())
		w.quiet(ctx, time.Second)
		Expect(c.inOrder()).To(Equal([]string{
			"d1, attempt 0", "d2, attempt 0", "d3, attempt 0", "d2, attempt 1", "finalizers are written",
		}))
	})

	// somebodyQuicker has an object patched right before the operator's first write of
	// finalizers, after those so far.
	somebodyQuicker := func(ctx context.Context, w *world, proxy interface {
		Before(requests, func(request) *fault) func()
	}, name, patch string) {
		var once sync.Once
		proxy.Before(requests{Verb: "patch", Resource: "widgets", Namespace: w.namespace, Name: name}, func(r request) *fault {
			if bytes.Contains(r.Body, []byte(`"finalizers"`)) {
				once.Do(func() {
					defer GinkgoRecover()
					Expect(w.client.Patch(ctx, w.widget(name, 0), client.RawPatch(types.JSONPatchType, []byte(patch)))).To(Succeed())
				})
			}
			return nil
		})
	}

	It("B30 takes off its own finalizer, and restores none that somebody else takes off", func(ctx SpecContext) {
		w, proxy, c := reported(ctx, "foreign"), newProxy(), &calls{}
		w.note(c, kopf.ReasonDelete)
		w.start(through(proxy), noErrors)
		w.create(ctx, "w1", 1)
		Eventually(w.finalizers(ctx, "w1")).Should(ConsistOf(ourFinalizer))
		w.patch(ctx, "w1", `{"metadata":{"finalizers":["x.test/a","x.test/b","`+ourFinalizer+`"]}}`)
		somebodyQuicker(ctx, w, proxy, "w1", `[{"op":"test","path":"/metadata/finalizers/0","value":"x.test/a"},{"op":"remove","path":"/metadata/finalizers/0"}]`)
		w.remove(ctx, "w1")
		Eventually(w.finalizers(ctx, "w1")).Should(Equal([]string{"x.test/b"}))
		w.quiet(ctx, time.Second)
		Expect(w.finalizers(ctx, "w1")()).To(Equal([]string{"x.test/b"}))
		Expect(c.all()).To(Equal(map[string]int{"delete w1": 1}))
		w.patch(ctx, "w1", `{"metadata":{"finalizers":[]}}`)

		// The same with the finalizer of the garbage collector, which the test plays.
		w.create(ctx, "orphaning", 1)
		Eventually(w.finalizers(ctx, "orphaning")).Should(ConsistOf(ourFinalizer))
		somebodyQuicker(ctx, w, proxy, "orphaning", `[{"op":"test","path":"/metadata/finalizers","value":["`+ourFinalizer+`","orphan"]},{"op":"remove","path":"/metadata/finalizers/1"}]`)
		Expect(w.client.Delete(ctx, w.widget("orphaning", 0), client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		Eventually(w.isGone(ctx, "orphaning")).Should(BeTrue())
		Expect(c.of("delete orphaning")()).To(Equal(1))
	})

	It("B30 keeps a finalizer that somebody puts on while it puts on its own", func(ctx SpecContext) {
		w, proxy, c := reported(ctx, "added"), newProxy(), &calls{}
		w.note(c, kopf.ReasonCreate, kopf.ReasonDelete)
		somebodyQuicker(ctx, w, proxy, "w1", `[{"op":"add","path":"/metadata/finalizers/-","value":"x.test/c"}]`)
		w.start(through(proxy), noErrors)
		w1 := w.widget("w1", 1)
		w1.Finalizers = []string{"x.test/a"}
		Expect(w.client.Create(ctx, w1)).To(Succeed())
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(1))
		w.quiet(ctx, time.Second)
		Expect(w.finalizers(ctx, "w1")()).To(Equal([]string{"x.test/a", "x.test/c", ourFinalizer}))
		Expect(c.all()).To(Equal(map[string]int{"create w1": 1}))
		w.patch(ctx, "w1", `{"metadata":{"finalizers":[]}}`)
	})

	It("B33 serves a namespace that is being deleted until it is gone", func(ctx SpecContext) {
		w, proxy, c := reported(ctx, "ending"), newProxy(), &calls{}
		on.Delete(func(ctx context.Context, change *kopf.Change[*Widget]) error {
			select { // work
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
			c.add("delete %s", change.Object.Name)
			return nil
		}, w.widgets, w.in, on.ID("delete"))
		name := w.namespace + "-one"
		watching := widgetWatches
		watching.Namespace = name
		namespace := newNamespace(ctx, name)
		w.start(through(proxy), noErrors, func(o *kopf.Options) { o.Namespaces = []string{w.namespace + "-*"} })
		w.namespace = name
		want := map[string]int{}
		for i := range 3 {
			widget := fmt.Sprintf("w%d", i)
			w.create(ctx, widget, 1)
			Eventually(w.finalizers(ctx, widget)).Should(ConsistOf(ourFinalizer))
			want["delete "+widget] = 1
		}
		Expect(k8s.Client.Delete(ctx, namespace)).To(Succeed())
		Eventually(func() (corev1.NamespacePhase, error) {
			err := k8s.Client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
			return namespace.Status.Phase, err
		}).Should(Equal(corev1.NamespaceTerminating))
		for i := range 3 { // as the namespace controller does
			w.remove(ctx, fmt.Sprintf("w%d", i))
		}
		for i := range 3 {
			Eventually(w.isGone(ctx, fmt.Sprintf("w%d", i))).Should(BeTrue())
		}
		Expect(c.all()).To(Equal(want))
		Expect(proxy.Watching(watching)).To(Equal(1), "as long as there is the namespace")
		Expect(k8s.Client.SubResource("finalize").Update(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
		Eventually(func() int { return proxy.Watching(watching) }).Should(BeZero())
		w.quiet(ctx, time.Second)
		Expect(c.all()).To(Equal(want))
		Expect(proxy.Requests(requests{Verb: "create", Namespace: name})).To(BeEmpty(), "nothing can be created there")
	})

	It("B34 finishes at its start what was being deleted before", func(ctx SpecContext) {
		w, c := reported(ctx, "downtime"), &calls{}
		w.note(c, kopf.ReasonCreate, kopf.ReasonDelete, kopf.ReasonResume)
		before := w.start(noErrors)
		for _, name := range []string{"w1", "w3"} {
			w.create(ctx, name, 1)
			Eventually(w.handled(ctx, name)).Should(BeEquivalentTo(1))
		}
		before.stop()
		w2 := w.widget("w2", 1)
		w2.Finalizers = []string{"x.test/a"}
		Expect(w.client.Create(ctx, w2)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { w.patch(ctx, "w2", `{"metadata":{"finalizers":[]}}`) })
		w.remove(ctx, "w1")
		w.remove(ctx, "w2")
		w.start(noErrors)
		Eventually(w.isGone(ctx, "w1")).Should(BeTrue())
		Eventually(c.of("resume w3")).Should(Equal(1))
		w.quiet(ctx, 2*time.Second)
		Expect(w.finalizers(ctx, "w2")()).To(Equal([]string{"x.test/a"}))
		Expect(c.all()).To(Equal(map[string]int{"create w1": 1, "create w3": 1, "delete w1": 1, "resume w3": 1}))
	})

	// The other half, that a handler is called at once when a field changes which it
	// waits for, needs an option that says so.
	It("B37 shows a status while an object is being deleted, and calls again when it is time", func(ctx SpecContext) {
		const pause = time.Second
		w, m := reported(ctx, "detaching"), &moments{}
		on.Delete(func(_ context.Context, change *kopf.Change[*Widget]) error {
			m.add()
			if change.Object.Status.Phase == "Detached" {
				return nil
			}
			change.Patch.Apply(func(o *Widget) { o.Status.Observed = 7 })
			return kopf.Retry(pause, errors.New("still attached"))
		}, w.widgets, w.in, on.ID("delete"))
		w.start(noErrors)
		w.create(ctx, "w1", 1)
		Eventually(w.finalizers(ctx, "w1")).Should(ConsistOf(ourFinalizer))
		w.remove(ctx, "w1")
		Eventually(w.observed(ctx, "w1")).Should(BeEquivalentTo(7))
		Expect(w.client.Status().Patch(ctx, w.widget("w1", 0), client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Detached"}}`)))).To(Succeed())
		Eventually(w.isGone(ctx, "w1")).Should(BeTrue())
		w.quiet(ctx, time.Second)
		Expect(m.gaps()).To(ConsistOf(And(BeNumerically(">=", pause), BeNumerically("<", 10*pause))), "two calls")
	})

	It("B38 recognises a deletion whatever the generation is", func(ctx SpecContext) {
		w, proxy, c := reported(ctx, "generation"), newProxy(), &calls{}
		w.note(c, kopf.ReasonUpdate, kopf.ReasonDelete)
		on.Update(func(_ context.Context, change *kopf.Change[*corev1.ConfigMap]) error {
			c.add("update %s", change.Object.Name)
			return nil
		}, w.in, on.ID("cm-update"))
		on.Delete(func(_ context.Context, change *kopf.Change[*corev1.ConfigMap]) error {
			c.add("delete %s, generation %d", change.Object.Name, change.Object.Generation)
			return nil
		}, w.in, on.ID("cm-delete"))
		w.start(through(proxy), noErrors)
		w.create(ctx, "w1", 1)
		c1 := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "c1"}}
		Expect(k8s.Client.Create(ctx, c1)).To(Succeed())
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(1))
		Eventually(func() (map[string]string, error) {
			err := k8s.Client.Get(ctx, client.ObjectKeyFromObject(c1), c1)
			return c1.Annotations, err
		}).Should(HaveKey(lastHandled))
		Expect(c1.Finalizers).To(ConsistOf(ourFinalizer))
		Expect(w.client.Status().Patch(ctx, w.widget("w1", 0), client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Other"}}`)))).To(Succeed())
		w.remove(ctx, "w1")
		Expect(k8s.Client.Delete(ctx, c1)).To(Succeed())
		Eventually(w.isGone(ctx, "w1")).Should(BeTrue())
		Eventually(func() error { return k8s.Client.Get(ctx, client.ObjectKeyFromObject(c1), c1) }).ShouldNot(Succeed())
		w.quiet(ctx, time.Second)
		Expect(c.all()).To(Equal(map[string]int{"delete w1": 1, "delete c1, generation 0": 1}))
		for _, r := range proxy.Writes() {
			Expect(r.Code).To(BeNumerically("<", http.StatusBadRequest), "%s", r.Body)
		}
	})
})
