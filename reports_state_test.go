package kopf_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/faulty"
	"github.com/kopf-go/kopf/on"
)

var _ = Describe("reports on state, patches and filters", func() {
	It("B17 does not take a status for a change, unless a handler asks for it by its path", func(ctx SpecContext) {
		w, c := reported(ctx, "status"), &calls{}
		status := func(name, merge string) {
			GinkgoHelper()
			Expect(w.client.Status().Patch(ctx, w.widget(name, 0), client.RawPatch(types.MergePatchType, []byte(`{"status":`+merge+`}`)))).To(Succeed())
		}
		on.Update(func(_ context.Context, change *kopf.Change[*Widget]) error {
			c.add("update %s", change.Object.Name)
			change.Patch.Apply(func(o *Widget) { o.Status.Observed = time.Now().UnixNano() })
			return nil
		}, w.widgets, w.in, on.ID("update"))
		op := w.start(noErrors)
		w.create(ctx, "w1", 1)
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(1))
		w.edit(ctx, "w1", 2)
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(2))
		for i := range 20 {
			status("w1", fmt.Sprintf(`{"conditions":[{"type":"Other","lastTransitionTime":"%d"}],"phase":"p%d"}`, i, i))
		}
		w.quiet(ctx, 2*time.Second)
		Expect(c.all()).To(Equal(map[string]int{"update w1": 1}))
		op.stop()

		on.FieldChange("status.phase", func(_ context.Context, change *kopf.FieldChange[*Widget, string]) error {
			c.add("phase of %s: %q -> %q", change.Object.Name, change.Old, change.New)
			return nil
		}, w.widgets, w.in, on.ID("phase"))
		w.start(noErrors)
		w.create(ctx, "w2", 1)
		Eventually(w.handled(ctx, "w2")).Should(BeEquivalentTo(1))
		status("w2", `{"phase":"one"}`)
		Eventually(c.of(`phase of w2: "" -> "one"`)).Should(Equal(1))
		for i := range 5 {
			status("w2", fmt.Sprintf(`{"other":%d}`, i))
		}
		status("w2", `{"phase":"two"}`)
		Eventually(c.of(`phase of w2: "one" -> "two"`)).Should(Equal(1))
		w.quiet(ctx, time.Second)
		phases := 0
		for text, n := range c.all() {
			if strings.HasPrefix(text, "phase of w2") {
				phases += n
			}
		}
		Expect(phases).To(Equal(2), "%v", c.all())
	})

	// incompressible is a text of a size that nothing makes smaller.
	incompressible := func(bytes int) string {
		random := rand.New(rand.NewPCG(1, 2))
		raw := make([]byte, bytes*3/4)
		for i := range raw {
			raw[i] = byte(random.Uint32())
		}
		return base64.StdEncoding.EncodeToString(raw)
	}

	It("B24 handles objects that are too large to be remembered on themselves", func(ctx SpecContext) {
		const kib, limit = 1024, 262144
		w, proxy, c := reported(ctx, "large"), newProxy(), &calls{}
		w.note(c, kopf.ReasonCreate, kopf.ReasonResume)
		on.Update(func(_ context.Context, change *kopf.Change[*Widget]) error {
			c.add("update to %d, known %t", change.New.Spec.Value, change.OldKnown())
			return nil
		}, w.widgets, w.in, on.ID("update"))
		on.Create(func(_ context.Context, change *kopf.Change[*corev1.ConfigMap]) error {
			c.add("create %s", change.Object.Name)
			return nil
		}, w.in, on.ID("cm-create"))
		on.Update(func(_ context.Context, change *kopf.Change[*corev1.ConfigMap]) error {
			c.add("update %s", change.Object.Name)
			return nil
		}, w.in, on.ID("cm-update"))
		first := w.start(through(proxy), noErrors)
		foreign := incompressible(100 * kib)
		large := w.widget("w-big", 1)
		large.Spec.Text = incompressible(200 * kib)
		large.Annotations = map[string]string{"other.test/record": foreign}
		Expect(w.client.Create(ctx, large)).To(Succeed())
		config := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "c-big"},
			Data:       map[string]string{"data": incompressible(900 * kib)},
		}
		Expect(k8s.Client.Create(ctx, config)).To(Succeed())
		Eventually(c.all).Should(Equal(map[string]int{"create w-big": 1, "create c-big": 1}))
		w.quiet(ctx, time.Second)
		first.stop()
		w.start(through(proxy), noErrors)
		Eventually(c.of("resume w-big")).Should(Equal(1))
		w.edit(ctx, "w-big", 2)
		edit := client.RawPatch(types.MergePatchType, []byte(`{"data":{"more":"1"}}`))
		Expect(k8s.Client.Patch(ctx, config, edit)).To(Succeed())
		Eventually(c.of("update to 2, known false")).Should(Equal(1))
		Eventually(c.of("update c-big")).Should(Equal(1))
		w.quiet(ctx, 2*time.Second)
		Expect(c.all()).To(Equal(map[string]int{
			"create w-big": 1, "create c-big": 1, "resume w-big": 1, "update to 2, known false": 1, "update c-big": 1,
		}))
		widget, err := w.get(ctx, "w-big")
		Expect(err).NotTo(HaveOccurred())
		Expect(widget.Annotations).To(HaveKeyWithValue("other.test/record", foreign))
		Expect(k8s.Client.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
		for _, annotations := range []map[string]string{widget.Annotations, config.Annotations} {
			size := 0
			for name, value := range annotations {
				size += len(name) + len(value)
			}
			Expect(size).To(BeNumerically("<=", limit))
		}
		for _, r := range proxy.Writes() {
			Expect(r.Code).To(BeNumerically("<", http.StatusBadRequest), "%s %s", r.Verb, r.Resource)
		}
	})

	It("B25 shows no value of a secret anywhere", func(ctx SpecContext) {
		const canary = "CANARY-7f3a"
		w, proxy, c, j := reported(ctx, "secret"), newProxy(), &calls{}, &journal{}
		count := func(_ context.Context, change *kopf.Change[*corev1.Secret]) error {
			c.add("%s", change.Reason)
			if change.Reason == kopf.ReasonUpdate {
				c.add("diff %s", change.Diff)
			}
			return nil
		}
		on.Create(count, w.in, on.ID("create"))
		on.Update(count, w.in, on.ID("update"))
		on.Delete(count, w.in, on.ID("delete"))
		on.Event(func(_ context.Context, e *kopf.Event[*corev1.Secret]) error {
			return fmt.Errorf("patch %v was not taken", e.Patch)
		}, w.in, on.ID("event"))
		w.start(through(proxy), j.into)
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "s1"},
			Data:       map[string][]byte{"password": []byte(canary)},
		}
		Expect(k8s.Client.Create(ctx, secret)).To(Succeed())
		Eventually(c.of("create")).Should(Equal(1))
		shown := &strings.Builder{}
		look := func() {
			Eventually(func() (map[string]string, error) {
				err := k8s.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret)
				return secret.Annotations, err
			}).Should(HaveKey(lastHandled))
			fmt.Fprintln(shown, secret.Annotations)
		}
		look()
		secret.Data["password"] = []byte(canary + "-changed")
		Expect(k8s.Client.Update(ctx, secret)).To(Succeed())
		Eventually(c.of("update")).Should(Equal(1))
		look()
		Expect(k8s.Client.Delete(ctx, secret)).To(Succeed())
		Eventually(c.of("delete")).Should(Equal(1))
		events := &corev1.EventList{}
		Expect(k8s.Client.List(ctx, events, client.InNamespace(w.namespace))).To(Succeed())
		families, err := metrics.Registry.Gather()
		Expect(err).NotTo(HaveOccurred())
		fmt.Fprintln(shown, events, c.all(), j, families)
		for _, r := range proxy.Writes() {
			fmt.Fprintf(shown, "%s\n", r.Body)
		}
		Expect(shown.String()).To(ContainSubstring("data.password"), "the diff has the path")
		for _, value := range []string{canary, canary + "-changed"} {
			Expect(shown.String()).NotTo(Or(ContainSubstring(value), ContainSubstring(base64.StdEncoding.EncodeToString([]byte(value)))))
		}
	})

	for _, status := range []bool{true, false} {
		It(fmt.Sprintf("B27 sends a status where it is kept (status endpoint: %t)", status), func(ctx SpecContext) {
			var w *world
			if status {
				w = reported(ctx, "split")
			} else {
				w = newWorld(ctx, "joined", false)
			}
			proxy, c := newProxy(), &calls{}
			on.Create(func(_ context.Context, change *kopf.Change[*Widget]) error {
				c.add("create")
				change.Patch.Apply(func(o *Widget) {
					o.Status.Phase = "Ready"
					o.SetAnnotations(map[string]string{"example.com/note": "set"})
				})
				return nil
			}, w.widgets, w.in, on.ID("create"))
			w.start(through(proxy), noErrors)
			w.create(ctx, "w1", 1)
			Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(1))
			w.quiet(ctx, time.Second)
			widget, err := w.get(ctx, "w1")
			Expect(err).NotTo(HaveOccurred())
			Expect(widget.Status.Phase).To(Equal("Ready"))
			Expect(widget.Annotations).To(HaveKeyWithValue("example.com/note", "set"))
			Expect(c.of("create")()).To(Equal(1))
			toStatus := requests{Verb: "patch", Resource: "widgets/status"}
			toObject := proxy.Requests(widgetPatches)
			Expect(toObject).To(HaveLen(1+1), "the annotation counts as an update, though nobody is for it (DB-2)")
			Expect(string(toObject[0].Body)).To(ContainSubstring(`"example.com/note":"set"`))
			Expect(string(toObject[1].Body)).NotTo(ContainSubstring(`"example.com/note":"set"`))
			Expect(string(toObject[1].Body)).NotTo(ContainSubstring(`"status"`))
			if !status {
				Expect(string(toObject[0].Body)).To(ContainSubstring(`"status":{"phase":"Ready"}`))
				Expect(proxy.Writes()).To(HaveLen(2))
				return
			}
			Expect(string(toObject[0].Body)).NotTo(ContainSubstring(`"status"`))
			Expect(proxy.Count(toStatus)).To(Equal(1))
			Expect(string(proxy.Requests(toStatus)[0].Body)).NotTo(ContainSubstring("example.com/note"))
			Expect(proxy.Writes()).To(HaveLen(3))
		})
	}

	It("B28 keeps 64-bit integers as they are, in diffs, patches and what is stored", func(ctx SpecContext) {
		const id, other, largest = int64(9007199254740993), int64(9007199254740992), "9223372036854775807"
		w, c := reported(ctx, "integers"), &calls{}
		on.Update(func(_ context.Context, change *kopf.Change[*Widget]) error {
			c.add("update %d -> %d, %d changes", change.Old.Spec.Value, change.New.Spec.Value, len(change.Diff))
			change.Patch.Apply(func(o *Widget) { o.Spec.Text = "patched" })
			return nil
		}, w.widgets, w.in, on.ID("update"))
		on.FieldChange("spec.value", func(_ context.Context, change *kopf.FieldChange[*Widget, int64]) error {
			c.add("field %d -> %d", change.Old, change.New)
			return nil
		}, w.widgets, w.in, on.ID("field"))
		on.FieldChange("spec.big", func(_ context.Context, change *kopf.FieldChange[*unstructured.Unstructured, int64]) error {
			c.add("big %d -> %d", change.Old, change.New)
			return nil
		}, w.widgets, w.in, on.ID("big"))
		w.start(noErrors)
		w.post(ctx, w.apiObject("w1", fmt.Sprintf(`"spec":{"value":%d,"big":%s,"text":"patched"}`, id, largest)))
		Eventually(w.handled(ctx, "w1")).Should(Equal(id))
		w.patch(ctx, "w1", `{"metadata":{"labels":{"unrelated":"1"}}}`)
		Eventually(c.of(fmt.Sprintf("update %d -> %d, 1 changes", id, id))).Should(Equal(1))
		w.edit(ctx, "w1", other)
		Eventually(w.handled(ctx, "w1")).Should(Equal(other))
		w.patch(ctx, "w1", `{"spec":{"text":"changed"}}`) // now the handler's patch changes something
		Eventually(func() (string, error) {
			widget, err := w.get(ctx, "w1")
			return widget.Spec.Text, err
		}).Should(Equal("patched"))
		w.quiet(ctx, time.Second)
		Expect(w.raw(ctx, "w1")).To(MatchRegexp(`"spec":\{[^}]*"big":%s[,}]`, largest))
		Expect(w.raw(ctx, "w1")).To(MatchRegexp(`"spec":\{[^}]*"value":%d[,}]`, other))
		Expect(c.of(fmt.Sprintf("update %d -> %d, 1 changes", id, other))()).To(Equal(1))
		counts := c.all()
		for text := range counts {
			if !regexp.MustCompile(`^(field|big) `).MatchString(text) {
				delete(counts, text)
			}
		}
		Expect(counts).To(Equal(map[string]int{
			fmt.Sprintf("field 0 -> %d", id): 1, fmt.Sprintf("big 0 -> %s", largest): 1, fmt.Sprintf("field %d -> %d", id, other): 1,
		}))
	})

	It("B35 writes nothing to what no handler is for, and cleans up what leaves", func(ctx SpecContext) {
		const others = 200
		w, proxy, c := reported(ctx, "outside"), newProxy(), &calls{}
		team := on.Label("team", "a")
		count := func(_ context.Context, change *kopf.Change[*Widget]) error {
			c.add("%s %s", change.Reason, change.Object.Name)
			return nil
		}
		on.Create(count, w.widgets, w.in, team, on.ID("create"))
		on.Create(func(_ context.Context, change *kopf.Change[*Widget]) error {
			c.add("never ready")
			return kopf.Retry(time.Hour, errors.New("not ready")) // so that there is progress on the object
		}, w.widgets, w.in, team, on.ID("waiting"))
		on.Delete(count, w.widgets, w.in, team, on.ID("delete"))
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() {
				defer GinkgoRecover()
				for n := i; n < others; n += 4 {
					w.create(ctx, fmt.Sprintf("other%d", n), 1)
				}
			})
		}
		group.Wait()
		mine := w.widget("mine", 1)
		mine.Labels = map[string]string{"team": "a"}
		Expect(w.client.Create(ctx, mine)).To(Succeed())
		first := w.start(through(proxy), noErrors)
		state := func() (state []string, err error) {
			widget, err := w.get(ctx, "mine")
			for name := range widget.Annotations {
				state = append(state, name)
			}
			return append(state, widget.Finalizers...), err
		}
		Eventually(state).Should(ContainElements(ourFinalizer, "kopf.zalando.org/create", "kopf.zalando.org/waiting"))
		creation := len(proxy.Writes())
		w.patch(ctx, "mine", `{"metadata":{"labels":{"team":null}}}`)
		Eventually(state).Should(BeEmpty())
		w.quiet(ctx, time.Second)
		Expect(proxy.Writes()).To(HaveLen(creation+1), "all in one")
		w.remove(ctx, "mine")
		Expect(w.isGone(ctx, "mine")()).To(BeTrue(), "at once")
		first.stop()
		w.start(through(proxy), noErrors)
		Eventually(func() int { return proxy.Watching(widgetWatches) }).Should(Equal(1))
		w.quiet(ctx, time.Second)
		Expect(c.all()).To(Equal(map[string]int{"create mine": 1, "never ready": 1}))
		Expect(proxy.Writes()).To(HaveEach(WithTransform(func(r faulty.Request) string { return r.Name }, Equal("mine"))))
		Expect(bytes.Count([]byte(w.raw(ctx, "other0")), []byte("kopf.zalando.org"))).To(BeZero())
	})
})
