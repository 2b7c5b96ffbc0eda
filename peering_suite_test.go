package kopf_test

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
)

// meetingPoint is the peering object of a spec's namespace.
type meetingPoint struct{ object *unstructured.Unstructured }

// meet installs the kinds of peering objects as users do, and makes one for the world.
func (w *world) meet(ctx context.Context) meetingPoint {
	GinkgoHelper()
	crds, err := envtest.InstallCRDs(k8s.Config, envtest.CRDInstallOptions{Paths: []string{"docs/peering-crds.yaml"}, MaxTime: time.Minute})
	Expect(err).NotTo(HaveOccurred())
	Expect(crds).To(HaveLen(2))
	DeferCleanup(func(ctx context.Context) {
		for _, crd := range crds {
			Expect(k8s.Client.Delete(ctx, crd)).To(Succeed())
		}
		Eventually(func(g Gomega) { // the next spec would find them
			for _, crd := range crds {
				g.Expect(client.IgnoreNotFound(k8s.Client.Get(ctx, client.ObjectKeyFromObject(crd), &apiextensionsv1.CustomResourceDefinition{}))).To(Succeed())
			}
		}).Should(Succeed())
	})
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "kopf.dev", Version: "v1", Kind: "KopfPeering"})
	object.SetNamespace(w.namespace)
	object.SetName("default")
	Eventually(func() error { return k8s.Client.Create(ctx, object) }).Should(Succeed())
	return meetingPoint{object}
}

// python writes the record of an operator as Kopf does, or with nil removes it.
func (m meetingPoint) python(ctx context.Context, priority *int) {
	GinkgoHelper()
	var record any
	if priority != nil {
		record = map[string]any{"priority": *priority, "lifetime": 60, "lastseen": time.Now().UTC().Format("2006-01-02T15:04:05.000000+00:00")}
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"me@laptop/20261130011137/a1b": record}})
	Expect(err).NotTo(HaveOccurred())
	Expect(k8s.Client.Patch(ctx, m.object.DeepCopy(), client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
}

// records are those of the operators but Python's, by identity.
func (m meetingPoint) records(ctx context.Context) func() (map[string]any, error) {
	return func() (map[string]any, error) {
		object := m.object.DeepCopy()
		err := k8s.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
		records, _, _ := unstructured.NestedMap(object.Object, "status")
		delete(records, "me@laptop/20261130011137/a1b")
		return records, err
	}
}

// withPriority has an operator take part, and handle nothing otherwise.
func withPriority(priority int) func(*kopf.Options) {
	return func(o *kopf.Options) {
		o.Settings.Peering = settings.Peering{Mandatory: true, Priority: priority}
	}
}

var _ = Describe("an operator that meets others", func() {
	It("takes over from Python and hands over to it, in the middle of the work (PEER-6, PEER-9, X05, X06)", func(ctx SpecContext) {
		w := newWorld(ctx, "peering", true)
		c := &calls{}
		is := func(label string) on.AnyOption { return on.Label("case", label) }
		busy := make(chan struct{}, 1)
		on.Create(func(context.Context, *kopf.Change[*unstructured.Unstructured]) error {
			return errors.New("must not be called")
		}, w.widgets, w.in, is("retrying"), on.ID("create_done"))
		on.Create(func(ctx context.Context, change *kopf.Change[*unstructured.Unstructured]) error {
			c.add("retrying: retry %d", change.Retry)
			return nil
		}, w.widgets, w.in, is("retrying"), on.ID("create_retrying"))
		on.Update(func(ctx context.Context, change *kopf.Change[*unstructured.Unstructured]) error {
			c.add("updating: %s, retry %d", change.Diff, change.Retry)
			if c.of("pause")() == 0 {
				busy <- struct{}{}
				<-ctx.Done()
				if errors.Is(context.Cause(ctx), kopf.ErrPaused) {
					c.add("pause")
				}
				return context.Cause(ctx)
			}
			return nil
		}, w.widgets, w.in, is("updating"), on.ID("scaled"), on.Field("spec.replicas"))
		on.Daemon(func(ctx context.Context, d *kopf.Daemon[*unstructured.Unstructured]) error {
			<-ctx.Done()
			c.add("daemon ends: %v", errors.Is(context.Cause(ctx), kopf.ErrPaused))
			return nil
		}, w.widgets, w.in, is("retrying"), on.ID("daemon"))

		m := w.meet(ctx)
		higher, lower := 200, 50
		m.python(ctx, &higher)
		w.restore(ctx, "retrying", time.Now())
		w.restore(ctx, "updating", time.Now())
		before, err := k8s.Requests(ctx, w.group)
		Expect(err).NotTo(HaveOccurred())
		op := w.start(withPriority(100))

		By("pausing while Python works")
		var own map[string]any
		Eventually(func(g Gomega) {
			records, err := m.records(ctx)()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(records).To(HaveLen(1))
			for identity, record := range records {
				g.Expect(identity).To(MatchRegexp(`^[^@]+@[^/]+/\d{14}/[a-z0-9]{3}$`))
				own = record.(map[string]any)
			}
		}).Should(Succeed())
		Expect(own).To(And(HaveLen(3), HaveKeyWithValue("priority", int64(100)), HaveKeyWithValue("lifetime", int64(60)),
			HaveKeyWithValue("lastseen", MatchRegexp(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$`))))
		Consistently(c.total, time.Second).Should(BeZero())
		after, err := k8s.Requests(ctx, w.group)
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.Writes(after)).To(Equal(cluster.Writes(before)), "nothing is written")
		Expect(after["LIST"]+after["WATCH"]).To(Equal(before["LIST"]+before["WATCH"]), "nothing is read")

		By("continuing its work when it leaves")
		m.python(ctx, nil)
		Eventually(busy).Should(Receive())
		Eventually(c.of("retrying: retry 1")).Should(Equal(1))
		Eventually(w.progress(ctx, "wire-retrying")).Should(BeEmpty())

		By("pausing when it comes back, in the middle of a handler")
		m.python(ctx, &higher)
		Eventually(c.of("pause")).Should(Equal(1))
		Eventually(c.of("daemon ends: true")).Should(Equal(1))
		edited := &unstructured.Unstructured{}
		Expect(edited.UnmarshalJSON([]byte(w.raw(ctx, "wire-retrying")))).To(Succeed())
		Expect(w.client.Patch(ctx, edited, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"seen":"by-nobody"}}}`)))).To(Succeed())
		w.quiet(ctx, time.Second)

		By("going on when Python has the lower priority")
		m.python(ctx, &lower)
		Eventually(w.progress(ctx, "wire-updating")).Should(BeEmpty())
		Expect(c.all()).To(Equal(map[string]int{
			"retrying: retry 1": 1, "pause": 1, "daemon ends: true": 1,
			"updating: change .: 1 -> 5, retry 1": 2, // the interrupted attempt does not count
		}))

		By("leaving")
		op.stop()
		Expect(m.records(ctx)()).To(BeEmpty(), "Python can go on at once")
	})

	It("pauses for a developer's run, and goes on after that (PEER-6, PEER-9)", func(ctx SpecContext) {
		inCluster := newWorld(ctx, "developed", true)
		m := inCluster.meet(ctx)
		local := *inCluster
		local.reg = kopf.NewRegistry()
		local.in = on.In(local.reg)
		c := &calls{}
		for who, w := range map[string]*world{"cluster": inCluster, "laptop": &local} {
			note := func(ctx context.Context, change *kopf.Change[*Widget]) error {
				c.add("%s %d", who, change.New.Spec.Value)
				change.Patch.Apply(func(o *Widget) { o.Status.Observed = change.New.Spec.Value })
				return nil
			}
			on.Create(note, w.widgets, w.in, on.ID("note"))
			on.Update(note, w.widgets, w.in, on.ID("noted"))
		}
		op := inCluster.start(withPriority(0))
		inCluster.create(ctx, "a", 1)
		Eventually(inCluster.observed(ctx, "a")).Should(Equal(int64(1)))
		for round := range int64(2) {
			dev := local.start(withPriority(666))
			Eventually(m.records(ctx)).Should(HaveLen(2))
			inCluster.edit(ctx, "a", 10*round+2)
			Eventually(inCluster.observed(ctx, "a")).Should(Equal(10*round + 2))
			dev.cancel()
			Eventually(m.records(ctx)).Should(HaveLen(1))
			inCluster.edit(ctx, "a", 10*round+3)
			Eventually(inCluster.observed(ctx, "a")).Should(Equal(10*round + 3))
		}
		op.stop() // before the others are looked at, for it has begun things while they were there
		Expect(c.all()).To(Equal(map[string]int{
			"cluster 1": 1, "laptop 2": 1, "cluster 3": 1, "laptop 12": 1, "cluster 13": 1,
		}))
	})
})

// progress are the annotations of an object that are records of handlers.
func (w *world) progress(ctx context.Context, name string) func() ([]string, error) {
	return func() (found []string, err error) {
		object := &unstructured.Unstructured{} // for objects of Python's are no Widgets
		err = object.UnmarshalJSON([]byte(w.raw(ctx, name)))
		for key := range object.GetAnnotations() {
			switch key {
			case "kopf.zalando.org/last-handled-configuration", "kopf.zalando.org/last-handled-uid":
			default:
				found = append(found, key)
			}
		}
		return found, err
	}
}
