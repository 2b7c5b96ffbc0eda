package kopf_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/daemons"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/on"
)

// relabel gives the world's namespace a label, or takes it off.
func (w *world) relabel(ctx context.Context, key, value string) {
	GinkgoHelper()
	namespace := newNamespaceObject(w.namespace)
	merge := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, value)
	Expect(k8s.Client.Patch(ctx, namespace, client.RawPatch("application/merge-patch+json", []byte(merge)))).To(Succeed())
}

var _ = Describe("scope", func() {
	It("B50 B33 is namespaces with a label: as they get it, lose it, have it again, are deleted and created anew", func(ctx SpecContext) {
		w, proxy, c := reported(ctx, "labelled"), newProxy(), &calls{}
		name := w.namespace + "-one"
		watching := widgetWatches
		watching.Namespace = name
		w.namespace = name
		newNamespace(ctx, name)
		on.Create(func(_ context.Context, change *kopf.Change[*Widget]) error { return nil }, w.widgets, w.in, on.ID("note-create"))
		first := w.start(func(o *kopf.Options) { o.Namespaces = []string{name} })
		w.create(ctx, "w2", 1)
		Eventually(w.handled(ctx, "w2")).Should(BeEquivalentTo(1)) // handled earlier
		first.stop()
		w.create(ctx, "w1", 1)

		w.reg = kopf.NewRegistry()
		w.in = on.In(w.reg)
		w.note(c, kopf.ReasonCreate, kopf.ReasonUpdate, kopf.ReasonResume, kopf.ReasonDelete)
		index := on.Index(func(_ context.Context, s *kopf.Snapshot[*Widget]) (map[string]int64, error) {
			return map[string]int64{s.Object.Name: s.Object.Spec.Value}, nil
		}, w.widgets, w.in, on.ID("index"))
		on.Daemon(func(ctx context.Context, d *kopf.Daemon[*Widget]) error {
			c.add("daemon %s begins", d.Object().Name)
			<-ctx.Done()
			if context.Cause(ctx) == daemons.ErrMismatch {
				c.add("daemon %s leaves", d.Object().Name)
			}
			return nil
		}, w.widgets, w.in, on.ID("daemon"), on.Finalize())
		w.start(through(proxy), noErrors, func(o *kopf.Options) {
			o.Namespaces, o.NamespaceSelector = nil, "scope.test/of="+name
		})
		label := func(value string) { w.relabel(ctx, "scope.test/of", value) }
		happens := func(do func(), want map[string]int) {
			GinkgoHelper()
			c.forget()
			do()
			Eventually(c.all).Should(Equal(want))
			w.quiet(ctx, 500*time.Millisecond)
			Expect(c.all()).To(Equal(want))
		}
		happens(func() { w.edit(ctx, "w1", 2) }, map[string]int{})
		happens(func() { label(fmt.Sprintf("%q", name)) },
			map[string]int{"create w1": 1, "resume w2": 1, "daemon w1 begins": 1, "daemon w2 begins": 1})
		happens(func() { w.edit(ctx, "w1", 3) }, map[string]int{"update w1 2 -> 3": 1})
		Expect(index.Len()).To(Equal(2))

		By("taking the label off")
		happens(func() { label("null") }, map[string]int{"daemon w1 leaves": 1, "daemon w2 leaves": 1})
		Eventually(func() int { return proxy.Watching(watching) }).Should(BeZero())
		for _, widget := range []string{"w1", "w2"} {
			Expect(w.finalizers(ctx, widget)()).To(BeEmpty())
		}
		Expect(w.handled(ctx, "w1")()).To(BeEquivalentTo(3), "stays")
		Expect(index.Len()).To(BeZero())
		happens(func() { w.edit(ctx, "w1", 4); w.edit(ctx, "w1", 5) }, map[string]int{})

		By("labelling it again")
		happens(func() { label(fmt.Sprintf("%q", name)) },
			map[string]int{"update w1 3 -> 5": 1, "resume w1": 1, "resume w2": 1, "daemon w1 begins": 1, "daemon w2 begins": 1})

		By("deleting it")
		happens(func() {
			Expect(k8s.Client.Delete(ctx, newNamespaceObject(name))).To(Succeed())
			w.remove(ctx, "w1") // as the namespace controller does
			w.remove(ctx, "w2")
			Eventually(w.isGone(ctx, "w1")).Should(BeTrue())
			Eventually(w.isGone(ctx, "w2")).Should(BeTrue())
		}, map[string]int{"delete w1": 1, "delete w2": 1})
		Expect(k8s.Client.SubResource("finalize").Update(ctx, newNamespaceObject(name))).To(Succeed())
		Eventually(func() int { return proxy.Watching(watching) }).Should(BeZero())

		By("creating another one of that name")
		happens(func() {
			newNamespace(ctx, name)
			label(fmt.Sprintf("%q", name))
			w.create(ctx, "w1", 1)
		}, map[string]int{"create w1": 1, "daemon w1 begins": 1})
		w.remove(ctx, "w1")
		Eventually(w.isGone(ctx, "w1")).Should(BeTrue())
	})

	It("NS-7 has resources without namespaces, whatever namespaces there are", func(ctx SpecContext) {
		w, c := reported(ctx, "unbound"), &calls{}
		on.Create(func(_ context.Context, change *kopf.Change[*rbacv1.ClusterRole]) error {
			c.add("create %s", change.Object.Name)
			return nil
		}, on.Label("scope.test/of", w.namespace), on.ID("create"), w.in)
		w.note(c, kopf.ReasonCreate)
		for i, option := range []func(*kopf.Options){
			func(o *kopf.Options) { o.Namespaces = []string{w.namespace + "-*"} },
			func(o *kopf.Options) { o.Namespaces, o.NamespaceSelector = nil, "scope.test/of="+w.namespace },
		} {
			c.forget()
			running := w.start(noErrors, option)
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint(w.namespace, i), Labels: map[string]string{"scope.test/of": w.namespace},
			}}
			Expect(k8s.Client.Create(ctx, role)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { Expect(k8s.Client.Delete(ctx, role)).To(Succeed()) })
			w.create(ctx, fmt.Sprint("w", i), 1)
			Eventually(c.all).Should(Equal(map[string]int{"create " + role.Name: 1}))
			running.stop()
		}
	})

	It("NS-6 OBS-7 is exact names for who may neither look at namespaces nor at CRDs", func(ctx SpecContext) {
		w, c, log := reported(ctx, "confined"), &calls{}, &journal{}
		config, grant := w.restricted(ctx)
		grant("widgets", rbacv1.PolicyRule{APIGroups: []string{w.group}, Resources: []string{cluster.Plural, cluster.Plural + "/status"}, Verbs: []string{"list", "watch", "get", "patch"}})
		w.note(c, kopf.ReasonCreate)
		w.create(ctx, "w1", 1)
		as := func(o *kopf.Options) { o.Config, o.Settings.Scanning.Interval = config, 200*time.Millisecond }
		said := func(level, what string) int {
			n := 0
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, " "+level+" ") && strings.Contains(line, what) {
					n++
				}
			}
			return n
		}
		running := w.start(log.into, as, func(o *kopf.Options) { o.Namespaces = []string{w.namespace, w.namespace + "-*"} })
		Eventually(c.all).Should(Equal(map[string]int{"create w1": 1}))
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(1))
		Eventually(func() int { return said("ERROR", "patterns of namespaces match nothing") }).Should(Equal(1))
		Eventually(func() int { return said("WARN", "custom resource definitions cannot be watched") }).Should(Equal(1))
		running.stop()

		By("selecting with labels")
		w.create(ctx, "w2", 1)
		w.relabel(ctx, "scope.test/of", fmt.Sprintf("%q", w.namespace))
		w.start(log.into, as, func(o *kopf.Options) { o.Namespaces, o.NamespaceSelector = nil, "scope.test/of="+w.namespace })
		Eventually(func() int { return said("ERROR", "the selector of namespaces matches nothing") }).Should(Equal(1))
		Expect(c.of("create w2")()).To(BeZero())
		role := &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list", "watch"}}},
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: w.namespace},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: config.Impersonate.UserName}},
		}
		for _, object := range []client.Object{role, binding} {
			Expect(k8s.Client.Create(ctx, object)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { Expect(k8s.Client.Delete(ctx, object)).To(Succeed()) })
		}
		Eventually(c.of("create w2")).WithTimeout(time.Minute).Should(Equal(1))
		for _, what := range []string{"patterns of namespaces match nothing", "the selector of namespaces matches nothing"} {
			Expect(said("ERROR", what)).To(Equal(1))
		}
	})

	It("OBS-6 goes over to another version when the one that is followed is not served any more", func(ctx SpecContext) {
		w, c, log := newWorld(ctx, "versions", true), &calls{}, &journal{}
		var version atomic.Value // of the last call
		g := newGadget("", "v1")
		g.category = "versions" + g.short
		g.install(ctx)
		handle := func(_ context.Context, change *kopf.Change[*unstructured.Unstructured]) error {
			c.add("%s %s", change.Reason, change.Object.GetName())
			version.Store(change.Resource.Version)
			return nil
		}
		on.Create(handle, on.Kind(g.kind), on.ID("create"), w.in)
		on.Update(handle, on.Kind(g.kind), on.ID("update"), w.in)
		on.Delete(handle, on.Kind(g.kind), on.ID("delete"), w.in)
		w.start(log.into)
		o := g.create(ctx, w.namespace, "a")
		Eventually(c.all).Should(Equal(map[string]int{"create a": 1}))
		change := func(do func(crd *apiextensionsv1.CustomResourceDefinition)) {
			GinkgoHelper()
			Eventually(func() error {
				crd := g.definition()
				if err := k8s.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
					return err
				}
				do(crd)
				return k8s.Client.Update(ctx, crd)
			}).Should(Succeed())
		}
		edit := func(version string, size int) {
			GinkgoHelper()
			o.SetAPIVersion(g.group + "/" + version)
			merge := fmt.Appendf(nil, `{"spec":{"size":%d}}`, size)
			Eventually(func() error { return k8s.Client.Patch(ctx, o, client.RawPatch("application/merge-patch+json", merge)) }).Should(Succeed())
		}
		By("adding a version, and storing that")
		change(func(crd *apiextensionsv1.CustomResourceDefinition) {
			second := crd.Spec.Versions[0].DeepCopy()
			second.Name = "v2"
			crd.Spec.Versions[0].Storage = false
			crd.Spec.Versions = append(crd.Spec.Versions, *second)
		})
		edit("v2", 2)
		Eventually(c.all).Should(Equal(map[string]int{"create a": 1, "update a": 1}))
		Expect(version.Load()).To(Equal("v1"))

		By("serving the first one no more")
		change(func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[0].Served = false })
		Eventually(log.String).WithTimeout(time.Minute).Should(ContainSubstring("resource is not served any more"))
		edit("v2", 3)
		Eventually(c.of("update a")).Should(Equal(2))
		Expect(version.Load()).To(Equal("v2"))
		Expect(k8s.Client.Delete(ctx, o)).To(Succeed())
		Eventually(func() bool {
			return apierrors.IsNotFound(k8s.Client.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopy()))
		}).Should(BeTrue())
		Eventually(c.all).Should(Equal(map[string]int{
			"create a": 1, "update a": 2, "delete a": 1,
		}))
	})
})

// newNamespaceObject names a namespace.
func newNamespaceObject(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
