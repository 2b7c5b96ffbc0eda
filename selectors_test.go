package kopf_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/on"
)

// gadget is a custom resource with names of its own, so that specs that look for
// resources in all groups do not find those of others.
type gadget struct {
	group, kind, plural, singular, short, category string
	versions                                       []string
}

func newGadget(category string, versions ...string) *gadget {
	id := rand.String(6)
	return &gadget{
		group: cluster.NewGroup("gadget"), kind: "Gadget" + id, plural: "gadgets" + id, singular: "gadget" + id,
		short: "gg" + id, category: category, versions: versions,
	}
}

func (g *gadget) install(ctx context.Context) {
	GinkgoHelper()
	keep := true
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: g.plural + "." + g.group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: g.group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: g.plural, Singular: g.singular, Kind: g.kind, ListKind: g.kind + "List",
				ShortNames: []string{g.short}, Categories: []string{g.category},
			},
		},
	}
	for i, version := range g.versions {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version, Served: true, Storage: i == 0,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", XPreserveUnknownFields: &keep,
			}},
		})
	}
	_, err := envtest.InstallCRDs(k8s.Config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(g.uninstall)
}

func (g *gadget) uninstall(ctx context.Context) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(k8s.Client.Delete(ctx, g.definition()))).To(Succeed())
}

func (g *gadget) definition() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: g.plural + "." + g.group}}
}

func (g *gadget) isGone(ctx context.Context) func() bool {
	return func() bool {
		crd := g.definition()
		return apierrors.IsNotFound(k8s.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd))
	}
}

func (g *gadget) create(ctx context.Context, namespace, name string) *unstructured.Unstructured {
	GinkgoHelper()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"secret": "only in the spec"}}}
	o.SetAPIVersion(g.group + "/" + g.versions[0])
	o.SetKind(g.kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	Expect(k8s.Client.Create(ctx, o)).To(Succeed())
	return o
}

// watching registers an event handler that counts "id kind name" once per object.
func (w *world) watching(c *calls, id string, opts ...on.EventOption) {
	on.Event(func(_ context.Context, e *kopf.Event[*unstructured.Unstructured]) error {
		c.add("%s %s %s %s", id, e.Object.GetKind(), e.Object.GetName(), e.Type)
		return nil
	}, append(opts, on.ID(id), w.in)...)
}

var _ = Describe("selectors", func() {
	It("SEL-6 T029 find custom resources by category, short name, kind, plural, singular and function, SEL-10 and only those", func(ctx SpecContext) {
		w := newWorld(ctx, "names", true)
		one, two := newGadget("cat"+rand.String(6), "v1"), newGadget("", "v1")
		two.category = one.category
		one.install(ctx)
		two.install(ctx)
		c := &calls{}
		w.watching(c, "category", on.Category(one.category))
		w.watching(c, "short", on.ShortName(one.short))
		w.watching(c, "kind", on.Kind(one.kind))
		w.watching(c, "plural", on.Plural(two.plural), on.Group(two.group))
		w.watching(c, "singular", on.Singular(two.singular), on.Version("v1"))
		w.watching(c, "exact", on.Resource(two.group+"/v1", two.short))
		w.watching(c, "func", on.ResourceFunc(func(r on.APIResource) bool {
			return r.Group == one.group && r.Kind == one.kind && r.Namespaced && r.Preferred && r.Singular == one.singular
		}))
		w.start()
		one.create(ctx, w.namespace, "a")
		two.create(ctx, w.namespace, "b")
		seen := func() []string {
			var all []string
			for text := range c.all() {
				text, _, _ = strings.Cut(text, " Gadget")
				all = append(all, text)
			}
			return all
		}
		Eventually(seen).Should(ConsistOf("category", "category", "short", "kind", "plural", "singular", "exact", "func"))
		for _, text := range c.inOrder() {
			for _, id := range []string{"short", "kind", "func"} {
				if strings.HasPrefix(text, id) {
					Expect(text).To(ContainSubstring(one.kind + " a "))
				}
			}
		}
	})

	It("SEL-6 T030 take the preferred version, unless another is asked for", func(ctx SpecContext) {
		w := newWorld(ctx, "versions", true)
		g := newGadget("", "v1alpha1", "v1") // the server prefers v1
		g.category = "versions" + rand.String(6)
		g.install(ctx)
		c := &calls{}
		see := func(id string, opts ...on.EventOption) {
			on.Event(func(_ context.Context, e *kopf.Event[*unstructured.Unstructured]) error {
				c.add("%s %s", id, strings.TrimPrefix(e.Object.GetAPIVersion(), g.group+"/"))
				return nil
			}, append(opts, on.ID(id), w.in)...)
		}
		see("kind", on.Kind(g.kind))
		see("asked for", on.Kind(g.kind), on.Version("v1alpha1"))
		see("function", on.ResourceFunc(func(r on.APIResource) bool { return r.Group == g.group }))
		w.start()
		g.create(ctx, w.namespace, "a")
		Eventually(c.all).Should(Equal(map[string]int{"kind v1": 1, "asked for v1alpha1": 1, "function v1": 1, "function v1alpha1": 1}))
	})

	It("SEL-7 T031 take everything but events", func(ctx SpecContext) {
		w := newWorld(ctx, "everything", true)
		c := &calls{}
		on.Event(func(_ context.Context, e *kopf.Event[*metav1.PartialObjectMetadata]) error {
			c.add("%s %s", e.Object.Kind, e.Object.Name)
			return nil
		}, on.Everything(), on.ID("all"), w.in)
		w.watching(c, "named", on.Plural("events"))
		w.start()
		w.create(ctx, "w1", 1)
		meta := metav1.ObjectMeta{Namespace: w.namespace, Name: "x"}
		Expect(k8s.Client.Create(ctx, &corev1.ConfigMap{ObjectMeta: meta})).To(Succeed())
		Expect(k8s.Client.Create(ctx, &corev1.Event{
			ObjectMeta: meta, InvolvedObject: corev1.ObjectReference{Namespace: w.namespace}, Reason: "Test",
		})).To(Succeed())
		Eventually(c.all).Should(And(HaveKey("Widget w1"), HaveKey("ConfigMap x"), HaveKey("named Event x ADDED")))
		w.quiet(ctx, time.Second)
		Expect(c.all()).NotTo(HaveKey("Event x"))
	})

	It("OBS-4 T035 disable what is ambiguous, and nothing else", func(ctx SpecContext) {
		w := newWorld(ctx, "ambiguous", true)
		one := newGadget("both"+rand.String(6), "v1")
		two := *one
		two.group = cluster.NewGroup("gadget")
		one.install(ctx)
		two.install(ctx)
		c := &calls{}
		w.watching(c, "kind", on.Kind(one.kind))
		w.watching(c, "category", on.Category(one.category))
		w.watching(c, "exact", on.Resource(two.group+"/v1", two.plural))
		w.start()
		one.create(ctx, w.namespace, "a")
		two.create(ctx, w.namespace, "b")
		Eventually(c.all).Should(HaveLen(3))
		for text := range c.all() {
			Expect(text).NotTo(HavePrefix("kind"))
		}
	})

	It("X18 OBS-6 follow a resource whose CRD is deleted and created anew, without a restart", func(ctx SpecContext) {
		w := newWorld(ctx, "anew", true)
		g := newGadget("anew"+rand.String(6), "v1")
		c := &calls{}
		w.watching(c, "exact", on.Resource(g.group+"/v1", g.plural))
		w.watching(c, "category", on.Category(g.category))
		on.Create(func(_ context.Context, change *kopf.Change[*unstructured.Unstructured]) error {
			c.add("create %s", change.Object.GetName())
			return nil
		}, on.Kind(g.kind), on.ID("create"), w.in)
		on.Delete(func(_ context.Context, change *kopf.Change[*unstructured.Unstructured]) error {
			c.add("delete %s", change.Object.GetName())
			return nil
		}, on.Kind(g.kind), on.ID("delete"), w.in)
		w.start()
		for i := 1; i <= 2; i++ {
			g.install(ctx)
			o := g.create(ctx, w.namespace, "a")
			Eventually(c.of("create a")).Should(Equal(i))
			// The API server deletes the objects with the CRD, but it takes its time if there
			// are many CRDs to delete, so the second time it is for the spec to do.
			if i == 1 {
				g.uninstall(ctx)
				Eventually(g.isGone(ctx)).WithTimeout(4 * time.Minute).Should(BeTrue()) // the operator's finalizer held it
			} else {
				Expect(k8s.Client.Delete(ctx, o)).To(Succeed())
			}
			Eventually(c.of("delete a")).Should(Equal(i))
			for _, id := range []string{"exact", "category"} {
				Eventually(c.of(fmt.Sprintf("%s %s a DELETED", id, g.kind))).Should(Equal(i))
			}
		}
	})

	It("get metadata only, if no handler wants more", func(ctx SpecContext) {
		w := newWorld(ctx, "metadata", true)
		g := newGadget("metadata"+rand.String(6), "v1")
		g.install(ctx)
		old := g.create(ctx, w.namespace, "old")
		c := &calls{}
		on.Update(func(_ context.Context, change *kopf.Change[*metav1.PartialObjectMetadata]) error {
			c.add("update %s %s %s", change.Object.Kind, change.Object.Name, change.New.Labels["x"])
			return nil
		}, on.Kind(g.kind), on.Group(g.group), on.ID("update"), w.in)
		traffic := &recorder{about: "/" + g.plural}
		w.start(func(o *kopf.Options) {
			o.Config = rest.CopyConfig(o.Config)
			o.Config.Wrap(func(next http.RoundTripper) http.RoundTripper { traffic.next = next; return traffic })
		})
		g.create(ctx, w.namespace, "new")
		read := func(name string) func() (map[string]string, error) {
			return func() (map[string]string, error) {
				o := old.DeepCopy()
				err := k8s.Client.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, o)
				return o.GetAnnotations(), err
			}
		}
		for _, name := range []string{"old", "new"} {
			Eventually(read(name)).Should(HaveKey("kopf.zalando.org/last-handled-configuration"))
			o := old.DeepCopy()
			o.SetName(name)
			Expect(k8s.Client.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"x":"y"}}}`)))).To(Succeed())
			Eventually(c.of("update " + g.kind + " " + name + " y")).Should(Equal(1))
		}
		Eventually(func() string { return traffic.text() }).Should(And(ContainSubstring(`"name":"old"`), ContainSubstring(`"name":"new"`)))
		Expect(traffic.text()).NotTo(ContainSubstring("only in the spec"))
		Expect(traffic.whole()).To(BeEmpty())
	})
})

// recorder keeps what comes back from requests about something.
type recorder struct {
	next  http.RoundTripper
	about string

	mu    sync.Mutex
	bytes bytes.Buffer
	other []string // requests that did not ask for metadata only
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err != nil || !strings.Contains(request.URL.Path, r.about) {
		return response, err
	}
	if !strings.Contains(request.Header.Get("Accept"), "as=PartialObjectMetadata") {
		r.mu.Lock()
		r.other = append(r.other, request.Method+" "+request.URL.String())
		r.mu.Unlock()
	}
	response.Body = &recorded{ReadCloser: response.Body, by: r}
	return response, nil
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes.String()
}

func (r *recorder) whole() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.other
}

type recorded struct {
	io.ReadCloser
	by *recorder
}

func (r *recorded) Read(into []byte) (int, error) {
	n, err := r.ReadCloser.Read(into)
	r.by.mu.Lock()
	defer r.by.mu.Unlock()
	r.by.bytes.Write(into[:n])
	return n, err
}
