package kopf_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/on"
)

// handleAll registers the usual handlers: they count, and show in the status what
// they have seen.
func (w *world) handleAll(c *calls) {
	show := func(ctx context.Context, change *kopf.Change[*Widget]) error {
		c.add("%s %s %d", change.Reason, change.Object.Name, change.New.Spec.Value)
		change.Patch.Apply(func(o *Widget) { o.Status.Observed = change.New.Spec.Value })
		return nil
	}
	on.Create(show, w.widgets, w.in, on.ID("create"))
	on.Update(show, w.widgets, w.in, on.ID("update"))
	on.Delete(show, w.widgets, w.in, on.ID("delete"))
}

var _ = Describe("an operator", func() {
	It("handles creation, change and deletion of a custom resource, once each", func(ctx SpecContext) {
		w := newWorld(ctx, "life", true)
		c := &calls{}
		w.handleAll(c)
		var events sync.Map
		on.Event(func(ctx context.Context, e *kopf.Event[*Widget]) error {
			events.Store(string(e.Type), e.Object.Name)
			return nil
		}, w.widgets, w.in, on.ID("event"))
		w.start()
		w.create(ctx, "a", 1)
		Eventually(w.observed(ctx, "a")).Should(BeEquivalentTo(1))
		w.edit(ctx, "a", 2)
		Eventually(w.observed(ctx, "a")).Should(BeEquivalentTo(2))
		w.remove(ctx, "a")
		Eventually(w.isGone(ctx, "a")).Should(BeTrue())
		Expect(c.inOrder()).To(Equal([]string{"create a 1", "update a 2", "delete a 2"}))
		for _, t := range []string{"ADDED", "MODIFIED", "DELETED"} { // EVT-1
			Eventually(func() bool { _, ok := events.Load(t); return ok }).Should(BeTrue(), t)
		}
		// Design §5: finalizer and last-handled; last-handled; the finalizer's removal.
		// Each with a status, for the handlers write one.
		counts, err := k8s.Requests(ctx, w.group)
		Expect(err).NotTo(HaveOccurred())
		Expect(counts["PATCH"] - 1 /* the test's */).To(Equal(2 + 1 + 1))
		Expect(counts["PATCH/status"]).To(Equal(1 + 1 + 0 /* deletion finds nothing to change */))
	})

	It("handles a Deployment as it handles a custom resource", func(ctx SpecContext) {
		w := newWorld(ctx, "deploy", true)
		c := &calls{}
		on.Update[*appsv1.Deployment](func(ctx context.Context, change *kopf.Change[*appsv1.Deployment]) error {
			c.add("%d -> %d", *change.Old.Spec.Replicas, *change.New.Spec.Replicas)
			return nil
		}, on.Field("spec.replicas"), on.New(3), w.in, on.ID("scaled"))
		on.FieldChange("spec.replicas", func(ctx context.Context, change *kopf.FieldChange[*appsv1.Deployment, int32]) error {
			c.add("field %d(%t) -> %d(%t)", change.Old, change.HadOld, change.New, change.HasNew)
			return nil
		}, w.in, on.ID("field"))
		w.start()
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"},
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(1)),
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
				},
			},
		}
		Expect(k8s.Client.Create(ctx, deployment)).To(Succeed())
		Eventually(c.of("field 0(false) -> 1(true)")).Should(Equal(1))
		for _, replicas := range []int32{2, 3, 4} {
			Eventually(func() error { // not before the former change is handled, or they arrive as one
				return k8s.Client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)
			}).Should(Succeed())
			scale := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
			Expect(k8s.Client.Patch(ctx, deployment, scale)).To(Succeed())
			Eventually(c.of(fmt.Sprintf("field %d(true) -> %d(true)", replicas-1, replicas))).Should(Equal(1))
		}
		Expect(c.of("2 -> 3")()).To(Equal(1))
		Expect(c.all()).To(HaveLen(5), "%v", c.all())
	})

	It("handles 500 objects created at once, each exactly once, and then is quiet", func(ctx SpecContext) {
		const objects, writers = 500, 8
		w := newWorld(ctx, "many", true)
		c := &calls{}
		w.handleAll(c)
		w.start()
		var group sync.WaitGroup
		for i := range writers {
			group.Go(func() {
				defer GinkgoRecover()
				for n := i; n < objects; n += writers {
					w.create(ctx, fmt.Sprintf("o%d", n), int64(n+1))
				}
			})
		}
		group.Wait()
		Eventually(func() int { return len(c.all()) }, time.Minute).Should(Equal(objects))
		Eventually(func() (n int, err error) {
			list := &WidgetList{}
			err = w.client.List(ctx, list, client.InNamespace(w.namespace))
			for _, item := range list.Items {
				if item.Status.Observed == item.Spec.Value && item.Annotations["kopf.zalando.org/last-handled-configuration"] != "" {
					n++
				}
			}
			return n, err
		}, time.Minute, 200*time.Millisecond).Should(Equal(objects))
		w.quiet(ctx, 10*time.Second)
		for text, n := range c.all() {
			Expect(n).To(Equal(1), text)
		}
		counts, err := k8s.Requests(ctx, w.group)
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("requests", counts)
		Expect(counts["PATCH"]).To(Equal(2 * objects))
		Expect(counts["PATCH/status"]).To(Equal(objects))
		Expect(counts["GET"]).To(BeZero(), "no conflicts, no reads")
	})

	It("gets edits made while it was down as one, and writes nothing for what was handled", func(ctx SpecContext) {
		w := newWorld(ctx, "down", true)
		c := &calls{}
		w.handleAll(c)
		on.FieldChange("spec.value", func(ctx context.Context, change *kopf.FieldChange[*Widget, int64]) error {
			c.add("field %s %d -> %d", change.Object.Name, change.Old, change.New)
			return nil
		}, w.widgets, w.in, on.ID("field"))
		on.Resume(func(ctx context.Context, change *kopf.Change[*Widget]) error {
			c.add("resume %s", change.Object.Name)
			return nil
		}, w.widgets, w.in, on.ID("resume"))
		first := w.start()
		w.create(ctx, "edited", 1)
		w.create(ctx, "idle", 1)
		w.create(ctx, "removed", 1)
		for _, name := range []string{"edited", "idle", "removed"} {
			Eventually(w.observed(ctx, name)).Should(BeEquivalentTo(1))
		}
		w.quiet(ctx, time.Second)
		first.stop()
		w.edit(ctx, "edited", 2)
		w.edit(ctx, "edited", 3)
		w.remove(ctx, "removed")
		before, err := k8s.Requests(ctx, w.group)
		Expect(err).NotTo(HaveOccurred())
		w.start()
		Eventually(w.observed(ctx, "edited")).Should(BeEquivalentTo(3))
		Eventually(w.isGone(ctx, "removed")).Should(BeTrue())
		Eventually(c.of("resume idle")).Should(Equal(1))
		w.quiet(ctx, 2*time.Second)
		Expect(c.of("update edited 3")()).To(Equal(1))
		Expect(c.of("field edited 1 -> 3")()).To(Equal(1))
		Expect(c.of("resume edited")()).To(Equal(1), "mixes with the update (CHG-5)")
		Expect(c.of("delete removed 1")()).To(Equal(1))
		Expect(c.of("resume removed")()).To(BeZero())
		after, err := k8s.Requests(ctx, w.group)
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.Writes(after)-cluster.Writes(before)).To(Equal(2+1), "one update with its status, one finalizer")
	})

	It("loses and doubles nothing when the API server restarts and its history is gone", Serial, func(ctx SpecContext) {
		w := newWorld(ctx, "restart", true)
		c := &calls{}
		w.handleAll(c)
		w.start()
		for i := range 20 {
			w.create(ctx, fmt.Sprintf("o%d", i), 1)
		}
		for i := range 20 {
			Eventually(w.observed(ctx, fmt.Sprintf("o%d", i))).Should(BeEquivalentTo(1))
		}
		Expect(k8s.Disturb(ctx, "restart")).To(Succeed())
		Expect(k8s.Disturb(ctx, "compact")).To(Succeed())
		for i := range 10 {
			w.edit(ctx, fmt.Sprintf("o%d", i), 2)
		}
		w.remove(ctx, "o10")
		w.create(ctx, "late", 1)
		for i := range 10 {
			Eventually(w.observed(ctx, fmt.Sprintf("o%d", i)), time.Minute).Should(BeEquivalentTo(2))
		}
		Eventually(w.observed(ctx, "late"), time.Minute).Should(BeEquivalentTo(1))
		Eventually(w.isGone(ctx, "o10"), time.Minute).Should(BeTrue())

		// Edits that happen while nobody can watch, on a server without memory of them.
		Expect(k8s.Disturb(ctx, "pause")).To(Succeed())
		Expect(k8s.Disturb(ctx, "resume")).To(Succeed())
		Expect(k8s.Disturb(ctx, "restart")).To(Succeed())
		for i := range 10 {
			w.edit(ctx, fmt.Sprintf("o%d", i), 3)
		}
		for i := range 10 {
			Eventually(w.observed(ctx, fmt.Sprintf("o%d", i)), time.Minute).Should(BeEquivalentTo(3))
		}
		w.quiet(ctx, 5*time.Second)
		for text, n := range c.all() {
			Expect(n).To(Equal(1), text)
		}
		Expect(c.all()).To(HaveLen(20 + 1 + 10 + 10 + 1))
	})

	It("keeps progress on the object and goes on with it after a restart", func(ctx SpecContext) {
		w := newWorld(ctx, "retry", true)
		c := &calls{}
		ready := make(chan struct{})
		on.Create(func(ctx context.Context, change *kopf.Change[*Widget]) error {
			c.add("quick")
			change.SetResult(map[string]any{"n": 1})
			return nil
		}, w.widgets, w.in, on.ID("quick"))
		on.Create(func(ctx context.Context, change *kopf.Change[*Widget]) error {
			c.add("slow %d", change.Retry)
			select {
			case <-ready:
				return nil
			default:
				return kopf.Retry(time.Second, errors.New("not ready"))
			}
		}, w.widgets, w.in, on.ID("slow"))
		first := w.start()
		w.create(ctx, "a", 1)
		Eventually(func() string {
			widget, err := w.get(ctx, "a")
			Expect(err).NotTo(HaveOccurred())
			return widget.Annotations["kopf.zalando.org/slow"]
		}).Should(And(ContainSubstring(`"retries":1`), ContainSubstring(`"message":"not ready"`), ContainSubstring(`"purpose":"create"`)))
		first.stop()
		close(ready)
		w.start()
		Eventually(func() map[string]string {
			widget, err := w.get(ctx, "a")
			Expect(err).NotTo(HaveOccurred())
			return widget.Annotations
		}).Should(And(HaveKey("kopf.zalando.org/last-handled-configuration"), Not(HaveKey("kopf.zalando.org/slow")), Not(HaveKey("kopf.zalando.org/quick"))))
		Expect(c.of("quick")()).To(Equal(1), "it was recorded as done")
		Expect(c.of("slow 0")()).To(Equal(1))
		Expect(c.of("slow 1")()).To(Equal(1), "the attempts go on being counted (PRG-10)")
	})

	It("splits patches by endpoint and leaves unknown fields and large numbers alone (B27, B28)", func(ctx SpecContext) {
		for _, status := range []bool{true, false} {
			w := newWorld(ctx, "patch", status)
			on.Create(func(ctx context.Context, change *kopf.Change[*Widget]) error {
				change.Patch.Apply(func(o *Widget) {
					o.Status.Phase = "Ready"
					o.Spec.Items[0].Size = 7
					o.SetAnnotations(map[string]string{"example.com/note": "set"})
				})
				return nil
			}, w.widgets, w.in, on.ID("create"))
			op := w.start()
			w.patchOrCreate(ctx, `{"spec":{"value":9007199254740993,"unknown":{"a":1},"items":[{"name":"x","other":true}]}}`)
			Eventually(func() string {
				widget, err := w.get(ctx, "raw")
				Expect(err).NotTo(HaveOccurred())
				return widget.Status.Phase
			}).Should(Equal("Ready"))
			Eventually(func() string { return w.raw(ctx, "raw") }).Should(And(
				ContainSubstring(`"value":9007199254740993`), ContainSubstring(`"unknown":{"a":1}`),
				ContainSubstring(`"other":true`), ContainSubstring(`"size":7`), ContainSubstring(`"example.com/note":"set"`),
			))
			w.quiet(ctx, time.Second)
			op.stop()
		}
	})

	It("does not touch what no handler is for, and lets go of what leaves (B35)", func(ctx SpecContext) {
		w := newWorld(ctx, "scope", true)
		c := &calls{}
		gold := on.Label("tier", "gold")
		on.Create(func(ctx context.Context, change *kopf.Change[*Widget]) error {
			c.add("create %s", change.Object.Name)
			return nil
		}, w.widgets, w.in, gold, on.ID("create"))
		on.Delete(func(ctx context.Context, change *kopf.Change[*Widget]) error {
			c.add("delete %s", change.Object.Name)
			return nil
		}, w.widgets, w.in, gold, on.ID("delete"))
		w.start()
		w.create(ctx, "other", 1)
		w.create(ctx, "mine", 1)
		w.patch(ctx, "mine", `{"metadata":{"labels":{"tier":"gold"}}}`)
		Eventually(c.of("create mine")).Should(Equal(1))
		Eventually(func() ([]string, error) {
			widget, err := w.get(ctx, "mine")
			return widget.Finalizers, err
		}).Should(ConsistOf("kopf.zalando.org/KopfFinalizerMarker"))
		w.patch(ctx, "mine", `{"metadata":{"labels":{"tier":"silver"}}}`)
		Eventually(func() ([]string, error) {
			widget, err := w.get(ctx, "mine")
			return widget.Finalizers, err
		}).Should(BeEmpty())
		w.remove(ctx, "mine")
		Eventually(w.isGone(ctx, "mine")).Should(BeTrue())
		other, err := w.get(ctx, "other")
		Expect(err).NotTo(HaveOccurred())
		Expect(other.Annotations).To(BeEmpty())
		Expect(other.Finalizers).To(BeEmpty())
		Expect(c.all()).To(Equal(map[string]int{"create mine": 1}))
	})

	It("serves namespaces that match, as they come", func(ctx SpecContext) {
		w := newWorld(ctx, "spaces", true)
		c := &calls{}
		w.handleAll(c)
		w.start(func(o *kopf.Options) { o.Namespaces = []string{w.namespace + "-*,!" + w.namespace + "-secret"} })
		inNamespace := func(suffix string) {
			namespace := w.namespace + suffix
			Expect(client.IgnoreAlreadyExists(k8s.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))).To(Succeed())
			widget := w.widget("in"+suffix, 1)
			widget.Namespace = namespace
			Expect(w.client.Create(ctx, widget)).To(Succeed())
		}
		inNamespace("")
		inNamespace("-secret")
		inNamespace("-one")
		Eventually(c.of("create in-one 1")).Should(Equal(1))
		inNamespace("-two")
		Eventually(c.of("create in-two 1")).Should(Equal(1))
		w.quiet(ctx, time.Second)
		Expect(c.all()).To(HaveLen(2))
	})

	It("waits for a resource that is not served yet, and serves the others meanwhile", func(ctx SpecContext) {
		w := newWorld(ctx, "later", true)
		c := &calls{}
		w.handleAll(c)
		group := cluster.NewGroup("late")
		on.Create(func(ctx context.Context, change *kopf.Change[*Widget]) error {
			c.add("late %s", change.Object.Name)
			return nil
		}, on.Resource(group+"/v1", cluster.Plural), w.in, on.ID("late"))
		w.start(func(o *kopf.Options) { o.Settings.Scanning.Interval = 100 * time.Millisecond })
		w.create(ctx, "a", 1)
		Eventually(c.of("create a 1")).Should(Equal(1))

		Expect(k8s.InstallIn(ctx, group, true)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(k8s.Uninstall(ctx, group)).To(Succeed()) })
		Expect(k8s.Raw(ctx, "POST", group, w.namespace, "", fmt.Appendf(nil,
			`{"apiVersion":"%s/v1","kind":%q,"metadata":{"name":"b"}}`, group, cluster.Kind))).Error().NotTo(HaveOccurred())
		Eventually(c.of("late b")).Should(Equal(1))
	})
})

// patchOrCreate creates the object raw with fields that its Go type does not know.
func (w *world) patchOrCreate(ctx context.Context, merge string) {
	GinkgoHelper()
	raw := fmt.Appendf(nil, `{"apiVersion":"%s/v1","kind":%q,"metadata":{"name":"raw","namespace":%q},%s`,
		w.group, cluster.Kind, w.namespace, merge[1:])
	Expect(k8s.Raw(ctx, "POST", w.group, w.namespace, "", raw)).Error().NotTo(HaveOccurred())
}

func (w *world) raw(ctx context.Context, name string) string {
	GinkgoHelper()
	text, err := k8s.Raw(ctx, "GET", w.group, w.namespace, name, nil)
	Expect(err).NotTo(HaveOccurred())
	return text
}
