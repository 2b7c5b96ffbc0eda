package kopf_test

import (
	"reflect"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/kopf-go/kopf/internal/permissions"
	"github.com/kopf-go/kopf/internal/registry"
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
})
