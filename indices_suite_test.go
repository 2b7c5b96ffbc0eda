package kopf_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/on"
)

var _ = Describe("an index", func() {
	It("IDX-6 is complete before other handlers run, which run again for what they have read, and for nothing else", func(ctx SpecContext) {
		const pods, nodes, databases = 2000, 100, 200
		const perNode, readers = pods / nodes, databases / nodes // of a node: pods on it, databases that read it
		w := newWorld(ctx, "databases", true)
		node := func(i int) string { return fmt.Sprintf("node-%d", i%nodes) }
		began := time.Now()
		each(pods, func(i int) { w.schedule(ctx, fmt.Sprintf("pod-%d", i), node(i)) })
		AddReportEntry("pods are created after", time.Since(began))
		each(databases, func(i int) {
			database := w.widget(fmt.Sprintf("db-%d", i), 0)
			database.Spec.Text = node(i)
			Expect(w.client.Create(ctx, database)).To(Succeed())
		})

		var indexed, there atomic.Int64 // pods
		there.Store(pods)
		c := &calls{}
		podsByNode := on.Index(func(_ context.Context, s *kopf.Snapshot[*corev1.Pod]) (map[string]string, error) {
			indexed.Add(1)
			return map[string]string{s.Object.Spec.NodeName: s.Object.Name}, nil
		}, w.in, on.ID("pods-by-node"))
		on.Create(func(ctx context.Context, change *kopf.Change[*Widget]) error {
			if n := indexed.Load(); n < there.Load() {
				return kopf.Permanent(fmt.Errorf("called when %d pods were indexed", n))
			}
			n := int64(0)
			for range podsByNode.Tracked(ctx).Get(change.New.Spec.Text) {
				n++
			}
			c.add("%s finds %d because of %s", change.New.Spec.Text, n, change.Reason)
			change.Patch.Apply(func(o *Widget) { o.Status.Observed = n })
			return nil
		}, w.widgets, w.in, on.ID("place"), on.Uses(podsByNode))
		// after returns the calls, by what they have found, and the requests, that
		// something leads to.
		after := func(do func()) (map[string]int, map[string]int) {
			c.forget()
			requests := w.requests(ctx, do)
			return c.all(), requests
		}

		want := map[string]int{}
		for i := range nodes {
			want[fmt.Sprintf("%s finds %d because of create", node(i), perNode)] = readers
		}
		began = time.Now()
		var running *operator
		found, requests := after(func() {
			running = w.start(noErrors)
			Eventually(c.total, time.Minute).Should(Equal(databases))
			AddReportEntry("all databases are handled after", time.Since(began))
		})
		Expect(found).To(Equal(want))
		Expect(requests).To(Equal(map[string]int{"PATCH": databases, "PATCH/status": databases}))
		Expect(podsByNode.Len()).To(Equal(nodes))

		By("changing pods in what the index does not hold")
		before := indexed.Load()
		found, requests = after(func() {
			each(100, func(i int) { w.label(ctx, fmt.Sprintf("pod-%d", i)) })
			Eventually(indexed.Load).Should(Equal(before + 100))
		})
		Expect(found).To(BeEmpty())
		Expect(requests).To(BeEmpty())

		By("deleting a pod of each of ten nodes")
		want = map[string]int{}
		for i := range 10 {
			want[fmt.Sprintf("%s finds %d because of index", node(i), perNode-1)] = readers
		}
		found, requests = after(func() {
			each(10, func(i int) { w.unschedule(ctx, fmt.Sprintf("pod-%d", i)) })
			Eventually(c.total).Should(Equal(10 * readers))
		})
		Expect(found).To(Equal(want))
		Expect(requests).To(Equal(map[string]int{"PATCH/status": 10 * readers}))

		By("putting pods on a node that is read, and on one that is not")
		found, requests = after(func() {
			w.schedule(ctx, "late", node(0))
			w.schedule(ctx, "elsewhere", "another-node")
			Eventually(c.total).Should(Equal(readers))
			Eventually(podsByNode.Len).Should(Equal(nodes + 1))
		})
		Expect(found).To(Equal(map[string]int{fmt.Sprintf("%s finds %d because of index", node(0), perNode): readers}))
		Expect(requests).To(Equal(map[string]int{"PATCH/status": readers}))

		By("deleting several pods of a node at once")
		last := fmt.Sprintf("%s finds %d because of index", node(50), perNode-5)
		found, _ = after(func() {
			each(5, func(i int) { w.unschedule(ctx, fmt.Sprintf("pod-%d", 50+i*nodes)) })
			Eventually(c.of(last)).Should(Equal(readers))
		})
		Expect(c.total()).To(BeNumerically("<=", 5*readers))
		Expect(found).To(HaveKeyWithValue(last, readers), "once each with what is there in the end")

		By("starting again")
		running.stop()
		Expect(podsByNode.Len()).To(BeZero(), "nobody fills it any more")
		there.Store(pods - 10 + 2 - 5)
		indexed.Store(0)
		found, requests = after(func() {
			w.start(noErrors)
			Eventually(c.total, time.Minute).Should(Equal(databases))
		})
		Expect(found).To(HaveLen(nodes))
		for text, n := range found {
			Expect(n).To(Equal(readers), text)
			Expect(text).To(HaveSuffix("because of index"), "nobody knows what it has read before")
		}
		Expect(requests).To(BeEmpty(), "it is all as it was")
	})

	It("IDX-6 is said to be incomplete when its objects may not be read or are not served, and keeps nobody waiting", func(ctx SpecContext) {
		w, c, log := newWorld(ctx, "restricted", true), &calls{}, &journal{}
		config, grant := w.restricted(ctx)
		grant("widgets", rbacv1.PolicyRule{APIGroups: []string{w.group}, Resources: []string{cluster.Plural, cluster.Plural + "/status"}, Verbs: []string{"list", "watch", "get", "patch"}})
		late := cluster.NewGroup("late")
		names := func(_ context.Context, s *kopf.Snapshot[*Widget]) (map[string]string, error) {
			return map[string]string{s.Object.Name: s.Object.Name}, nil
		}
		forbidden := on.Index(func(_ context.Context, s *kopf.Snapshot[*corev1.Pod]) (map[string]string, error) {
			return map[string]string{s.Object.Name: s.Object.Name}, nil
		}, w.in, on.ID("forbidden-index"))
		unserved := on.Index(names, on.Resource(late+"/v1", cluster.Plural), w.in, on.ID("unserved-index"))
		complete := on.Index(names, w.widgets, w.in, on.ID("complete-index"))
		on.Create(func(ctx context.Context, change *kopf.Change[*Widget]) error {
			c.add("%d pods, %d late widgets, %d widgets", forbidden.Tracked(ctx).Len(), unserved.Tracked(ctx).Len(), complete.Len())
			return nil
		}, w.widgets, w.in, on.ID("create"), on.Uses(forbidden), on.Uses(unserved))
		w.schedule(ctx, "pod", "node")
		w.create(ctx, "w1", 1)
		w.start(log.into, func(o *kopf.Options) {
			o.Config, o.Settings.Scanning.Interval = config, 200*time.Millisecond
		})
		Eventually(c.inOrder).Should(Equal([]string{"0 pods, 0 late widgets, 1 widgets"}))
		said := func(index string) func() string {
			return func() string {
				var about []string
				for line := range strings.Lines(log.String()) {
					if strings.Contains(line, index) && (strings.Contains(line, " ERROR ") || strings.Contains(line, " WARN ")) {
						about = append(about, line)
					}
				}
				return strings.Join(about, "")
			}
		}
		Expect(said("forbidden-index")()).To(And(ContainSubstring("verb=list"), ContainSubstring("resource=pods"), ContainSubstring("index is not complete")))
		Expect(said("unserved-index")()).To(And(ContainSubstring("not served"), ContainSubstring(late)))
		Expect(said("complete-index")()).To(BeEmpty())

		By("serving what was not served")
		Expect(k8s.InstallIn(ctx, late, true)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(k8s.Uninstall(ctx, late)).To(Succeed()) })
		grant("late", rbacv1.PolicyRule{APIGroups: []string{late}, Resources: []string{cluster.Plural}, Verbs: []string{"list", "watch"}})
		Expect(k8s.Raw(ctx, "POST", late, w.namespace, "", fmt.Appendf(nil,
			`{"apiVersion":"%s/v1","kind":%q,"metadata":{"name":"b"}}`, late, cluster.Kind))).Error().NotTo(HaveOccurred())
		Eventually(c.inOrder).WithTimeout(time.Minute).Should(HaveExactElements("0 pods, 0 late widgets, 1 widgets", "0 pods, 1 late widgets, 1 widgets"))

		By("permitting what was forbidden")
		grant("pods", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}})
		Eventually(c.inOrder).WithTimeout(time.Minute).Should(ContainElement("1 pods, 1 late widgets, 1 widgets"))
		Expect(c.total()).To(Equal(3))
	})
})

// each calls do for the numbers below n, several at a time.
func each(n int, do func(int)) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(n, 16) {
		group.Go(func() {
			defer GinkgoRecover()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	group.Wait()
}

// schedule creates a pod on a node. There is no kubelet: it stays pending.
func (w *world) schedule(ctx context.Context, name, node string) {
	GinkgoHelper()
	Expect(k8s.Client.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	})).To(Succeed())
}

func (w *world) unschedule(ctx context.Context, name string) {
	GinkgoHelper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	Expect(k8s.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
}

// label changes a pod in what is of no interest to anybody.
func (w *world) label(ctx context.Context, name string) {
	GinkgoHelper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	Expect(k8s.Client.Patch(ctx, pod, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"some":"label"}}}`)))).To(Succeed())
}

// restricted is the connection of somebody who may do in the world's namespace what is
// granted, and nothing else.
func (w *world) restricted(ctx context.Context) (config *rest.Config, grant func(name string, rule rbacv1.PolicyRule)) {
	config = rest.CopyConfig(k8s.Config)
	config.Impersonate.UserName = "operator-of-" + w.namespace
	return config, func(name string, rule rbacv1.PolicyRule) {
		GinkgoHelper()
		meta := metav1.ObjectMeta{Namespace: w.namespace, Name: name}
		Expect(k8s.Client.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}})).To(Succeed())
		Expect(k8s.Client.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: config.Impersonate.UserName}},
		})).To(Succeed())
	}
}
