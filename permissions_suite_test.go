package kopf_test

import (
	"context"
	"reflect"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/internal/permissions"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/on"
)

var _ = Describe("permissions", func() {
	It("are known of Kubernetes' own resources without a cluster: their names, scope and status", func() {
		client, err := discovery.NewDiscoveryClientForConfig(k8s.Config)
		Expect(err).NotTo(HaveOccurred())
		_, lists, err := client.ServerGroupsAndResources()
		Expect(err).NotTo(HaveOccurred())
		offline, known := permissions.Offline{StatusOf: func(reflect.Type) bool { return true }}, 0
		for _, list := range lists {
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			Expect(err).NotTo(HaveOccurred())
			for _, served := range list.APIResources {
				registered := clientscheme.Scheme.IsGroupRegistered(gv.Group)
				if !registered && !strings.HasSuffix(gv.Group, ".k8s.io") || strings.Contains(served.Name, "/") || !slices.Contains(served.Verbs, "list") {
					continue
				}
				status := slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == served.Name+"/status" })
				want := permissions.Resource{
					Group: gv.Group, Version: gv.Version, Plural: served.Name, Kind: served.Kind, Namespaced: served.Namespaced, Status: status,
				}
				if !registered { // such as CRDs, of which client-go has no Go types
					want.Kind, want.Status = "", true
				}
				for by, name := range map[registry.By]string{
					registry.ByKind: served.Kind, registry.ByPlural: served.Name, registry.BySingular: served.SingularName, registry.ByName: served.Name,
				} {
					if by != registry.ByPlural && by != registry.ByName && !registered {
						continue
					}
					selector := registry.Selector{By: by, Name: name, Group: gv.Group, HasGroup: true, Version: gv.Version}
					found, note, err := offline.Resolve(&registry.Handler{Kind: registry.Event, ID: "any", Selector: selector})
					Expect(err).NotTo(HaveOccurred())
					Expect(note).To(BeEmpty())
					Expect(found).To(Equal(want), "by %s", selector)
				}
				known++
			}
		}
		Expect(known).To(BeNumerically(">", 40))
	})

	It("that are printed are enough for all kinds of handlers, and none of them is for nothing", func(ctx SpecContext) {
		w := newGrantedWorld(ctx)
		made, log := &asked{}, &journal{}
		w.exercise(ctx, w.start(w.as(ctx, made), log.into))
		Expect(made.forbidden()).To(BeEmpty())
		Expect(log.String()).NotTo(ContainSubstring("permission is missing"))
		var idle []string
		for _, granted := range rightsIn(w.printed) {
			if !slices.ContainsFunc(made.all(), granted.covers) && !idleOnPurpose(granted) {
				idle = append(idle, granted.String())
			}
		}
		Expect(idle).To(BeEmpty(), "granted, but not used")
	})

	It("are each missed, and named with the handlers that need it, when it is not there", func(ctx SpecContext) {
		w := newGrantedWorld(ctx)
		config := w.as(ctx, &asked{})
		for _, role := range w.printed {
			for i, rule := range rulesOf(role) {
				for _, verb := range rule.Verbs {
					log := &journal{}
					back := w.withhold(ctx, role, i, verb)
					running := w.start(config, log.into)
					for _, resource := range rule.Resources {
						target := resource
						if rule.APIGroups[0] != "" {
							plural, sub, has := strings.Cut(resource, "/")
							if target = plural + "." + rule.APIGroups[0]; has {
								target += "/" + sub
							}
						}
						Eventually(log.missing).Should(ContainElement(And(
							ContainSubstring("verb="+verb+" "), ContainSubstring("resource="+target+" "), MatchRegexp("for=[^ ]+"),
						)), "without %s on %s", verb, target)
					}
					running.stop()
					Expect(log.missing()).To(HaveLen(len(rule.Resources)), "without %s on %v", verb, rule.Resources)
					back()
				}
			}
		}
	})

	It("are needed in the whole cluster where namespaces come and go, or in each that is served", func(ctx SpecContext) {
		w := worldOf(ctx, "patterns", installed(ctx))
		w.handleAll(&calls{})
		printed := w.print(ctx, w.namespace[:len(w.namespace)-1]+"?")
		install(ctx, printed)
		made, log := &asked{}, &journal{}
		patterns := func(o *kopf.Options) {
			o.Config, o.Namespaces = actingAs(ctx, w.namespace, w.account(), made), []string{w.namespace[:len(w.namespace)-1] + "?"}
		}
		running := w.start(patterns, log.into)
		w.create(ctx, "a", 1)
		Eventually(w.observed(ctx, "a")).Should(BeEquivalentTo(1))
		w.remove(ctx, "a")
		Eventually(w.isGone(ctx, "a")).Should(BeTrue())
		running.stop()
		Expect(made.forbidden()).To(BeEmpty())
		Expect(log.missing()).To(BeEmpty())
		watched := right{resource: "namespaces", verb: "watch"}
		Expect(slices.ContainsFunc(made.all(), watched.covers)).To(BeTrue())
		Expect(slices.ContainsFunc(rightsIn(printed), watched.covers)).To(BeTrue())
	})

	It("are derived with a cluster from all selectors, exactly", func(ctx SpecContext) {
		w := newWorld(ctx, "exactly", false)
		event := func(context.Context, *kopf.Event[*metav1.PartialObjectMetadata]) error { return nil }
		on.Event(event, on.ShortName("deploy"), w.in, on.ID("short"))
		on.Event(event, on.Everything(), on.Group(w.group), w.in, on.ID("every"))
		on.Event(event, on.ResourceFunc(func(r on.APIResource) bool { return r.Plural == "nodes" }), w.in, on.ID("function"))
		op, err := kopf.New(kopf.Options{Registry: w.reg, Config: k8s.Config, Namespaces: []string{w.namespace}})
		Expect(err).NotTo(HaveOccurred())
		text, err := op.Manifests(ctx, kopf.ManifestOptions{Cluster: true, Parts: []kopf.ManifestPart{kopf.ManifestRBAC}})
		Expect(err).NotTo(HaveOccurred())
		var patched []string
		for _, r := range rightsIn(objectsIn(text)) {
			if r.verb == "patch" {
				patched = append(patched, strings.TrimSuffix(r.resource+"."+r.group+" "+r.namespace, " "))
			}
		}
		Expect(patched).To(ConsistOf("deployments.apps "+w.namespace, "deployments/status.apps "+w.namespace, "nodes.", "nodes/status.",
			cluster.Plural+"."+w.group+" "+w.namespace, "events. default", "events. "+w.namespace))
	})
})
