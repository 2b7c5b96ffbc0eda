package kopf_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/on"
)

// Shared is in a spec without a name of its own.
type Shared struct {
	Owner string `json:"owner,omitempty"`
}

// Tree comes to itself again.
type Tree struct {
	Name     string           `json:"name"`
	Branches []Tree           `json:"branches,omitempty"`
	ByName   map[string]*Tree `json:"byName,omitempty"`
}

// RichSpec has fields of all sorts.
type RichSpec struct {
	Shared    `json:",inline"`
	Flag      bool                        `json:"flag"`
	Small     int8                        `json:"small"`
	Big       int64                       `json:"big"`
	Natural   uint16                      `json:"natural"`
	Real      float64                     `json:"real"`
	Quoted    int64                       `json:"quoted,string"`
	Data      []byte                      `json:"data"`
	Fixed     [2]string                   `json:"fixed"`
	Lists     [][]int                     `json:"lists"`
	Labels    map[string]string           `json:"labels"`
	Numbered  map[int]string              `json:"numbered,omitempty"`
	Pointer   *int32                      `json:"pointer"`
	Optional  *string                     `json:"optional,omitempty"`
	Nothing   []*int                      `json:"nothing"`
	At        metav1.Time                 `json:"at"`
	Never     *metav1.Time                `json:"never"`
	Exactly   metav1.MicroTime            `json:"exactly"`
	Plain     time.Time                   `json:"plain"`
	For       metav1.Duration             `json:"for"`
	Nanos     time.Duration               `json:"nanos"`
	Size      resource.Quantity           `json:"size"`
	Port      intstr.IntOrString          `json:"port"`
	Raw       runtime.RawExtension        `json:"raw,omitempty"`
	JSON      json.RawMessage             `json:"json,omitempty"`
	Free      apiextensionsv1.JSON        `json:"free,omitzero"`
	Any       any                         `json:"any"`
	Anything  map[string]any              `json:"anything,omitempty"`
	Address   netip.Addr                  `json:"address"`
	Selector  *metav1.LabelSelector       `json:"selector,omitempty"`
	Template  corev1.PodTemplateSpec      `json:"template"`
	Tree      Tree                        `json:"tree"`
	Secret    corev1.SecretKeySelector    `json:"secret"`
	Objects   []corev1.ObjectReference    `json:"objects,omitempty"`
	Condition map[string]metav1.Condition `json:"condition,omitempty"`

	Mode  string `json:"mode,omitempty" doc:"how it is done" enum:"slow,fast" default:"\"slow\""`
	Times int32  `json:"times,omitempty" minimum:"1" maximum:"3" default:"2"`
	Word  string `json:"word,omitempty" pattern:"^[a-z]*$" minLength:"1" maxLength:"5"`
}

// RichStatus is such as users have.
type RichStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

type Rich = kopf.Resource[RichSpec, RichStatus]

var _ = Describe("the definition that is printed of a Go type", func() {
	It("is accepted as structural, keeps all that the type can hold, and refuses what its tags do", func(ctx SpecContext) {
		group := cluster.NewGroup("rich")
		reg := kopf.NewRegistry()
		on.Create(func(context.Context, *kopf.Change[*Rich]) error { return nil }, on.Resource(group+"/v1", cluster.Plural), on.In(reg), on.ID("any"))
		op, err := kopf.New(kopf.Options{Registry: reg})
		Expect(err).NotTo(HaveOccurred())
		text, err := op.Manifests(ctx, kopf.ManifestOptions{
			Parts: []kopf.ManifestPart{kopf.ManifestCRDs}, Kinds: map[string]string{cluster.Plural + "." + group: "Widget"},
		})
		Expect(err).NotTo(HaveOccurred())
		install(ctx, objectsIn(text))
		definition := &apiextensionsv1.CustomResourceDefinition{}
		Eventually(func() (map[apiextensionsv1.CustomResourceDefinitionConditionType]apiextensionsv1.ConditionStatus, error) {
			conditions := map[apiextensionsv1.CustomResourceDefinitionConditionType]apiextensionsv1.ConditionStatus{}
			err := k8s.Client.Get(ctx, client.ObjectKey{Name: cluster.Plural + "." + group}, definition)
			for _, c := range definition.Status.Conditions {
				conditions[c.Type] = c.Status
			}
			return conditions, err
		}).Should(And(
			HaveKeyWithValue(apiextensionsv1.Established, apiextensionsv1.ConditionTrue),
			Not(HaveKey(apiextensionsv1.NonStructuralSchema)),
		))
		post := func(object any) (*Rich, error) {
			raw, err := json.Marshal(object)
			Expect(err).NotTo(HaveOccurred())
			answer, err := k8s.Raw(ctx, "POST", group, metav1.NamespaceDefault, "", raw)
			if err != nil {
				return nil, fmt.Errorf("%w: %s", err, answer)
			}
			into := &Rich{}
			return into, json.Unmarshal([]byte(answer), into)
		}
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		empty := &Rich{TypeMeta: metav1.TypeMeta{APIVersion: group + "/v1", Kind: "Widget"}, ObjectMeta: metav1.ObjectMeta{Name: "empty"}}
		empty.Spec.Address = netip.MustParseAddr("::1")
		empty.Spec.At, empty.Spec.Exactly = metav1.NewTime(at), metav1.NewMicroTime(at)
		empty.Spec.Template.Spec.Containers = []corev1.Container{}
		Eventually(func() error { _, err := post(empty); return err }).Should(Succeed(), "once it is served")

		full := empty.DeepCopy()
		full.Name = "full"
		full.Spec = RichSpec{
			Shared: Shared{Owner: "me"}, Flag: true, Small: -5, Big: 1<<62 + 1, Natural: 7, Real: 0.25, Quoted: 1<<62 + 1, Data: []byte("data"),
			Fixed: [2]string{"a", "b"}, Lists: [][]int{{1}, nil, {}}, Labels: map[string]string{"a": "b"}, Numbered: map[int]string{1: "one"},
			Pointer: new(int32(3)), Optional: new("here"), Nothing: []*int{nil, new(1)},
			At: metav1.NewTime(at), Never: new(metav1.NewTime(at)), Exactly: metav1.NewMicroTime(at.Add(time.Microsecond)), Plain: at,
			For: metav1.Duration{Duration: time.Minute}, Nanos: time.Second, Size: resource.MustParse("3Gi"), Port: intstr.FromString("http"),
			Raw: runtime.RawExtension{Raw: []byte(`{"a":{"b":[1]}}`)}, JSON: json.RawMessage(`[1,{"a":null}]`), Free: apiextensionsv1.JSON{Raw: []byte(`"free"`)},
			Any: map[string]any{"deep": []any{"x", true}}, Anything: map[string]any{"text": "t", "list": []any{"y"}, "nil": nil},
			Address: netip.MustParseAddr("10.0.0.1"), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "c", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1")}},
					Ports:         []corev1.ContainerPort{{ContainerPort: 80}},
					LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}},
				}}},
			},
			Tree:    Tree{Name: "root", Branches: []Tree{{Name: "a", Branches: []Tree{{Name: "b"}}}}, ByName: map[string]*Tree{"c": {Name: "c"}}},
			Secret:  corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"},
			Objects: []corev1.ObjectReference{{Kind: "Pod"}}, Condition: map[string]metav1.Condition{"c": {Type: "Ready", Status: "True", Reason: "R", LastTransitionTime: metav1.NewTime(at)}},
			Mode: "fast", Times: 3, Word: "word",
		}
		stored, err := post(full)
		Expect(err).NotTo(HaveOccurred())
		want, err := json.Marshal(full.Spec)
		Expect(err).NotTo(HaveOccurred())
		Expect(json.Marshal(stored.Spec)).To(MatchJSON(want))

		By("giving defaults, and refusing what tags exclude")
		bare := full.DeepCopy()
		bare.Name, bare.Spec.Mode, bare.Spec.Times = "bare", "", 0
		stored, err = post(bare)
		Expect(err).NotTo(HaveOccurred())
		Expect(stored.Spec.Mode).To(Equal("slow"))
		Expect(stored.Spec.Times).To(BeEquivalentTo(2))
		for field, wrong := range map[string]func(*RichSpec){
			"spec.mode": func(s *RichSpec) { s.Mode = "other" }, "spec.times": func(s *RichSpec) { s.Times = 4 },
			"spec.word": func(s *RichSpec) { s.Word = "WORD" },
		} {
			object := full.DeepCopy()
			object.Name = "wrong"
			wrong(&object.Spec)
			_, err := post(object)
			Expect(err).To(MatchError(ContainSubstring(field)))
		}
	})
})
