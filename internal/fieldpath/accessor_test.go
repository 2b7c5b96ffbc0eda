package fieldpath

import (
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
)

type Dep = appsv1.Deployment

func TestFromAccessor(t *testing.T) {
	for _, c := range []struct {
		fn   any
		want string
		typ  reflect.Type
	}{
		{func(d *Dep) *int32 { return d.Spec.Replicas }, "spec.replicas", reflect.TypeFor[*int32]()},
		{func(d *Dep) **int32 { return &d.Spec.Replicas }, "spec.replicas", reflect.TypeFor[*int32]()},
		{func(d *Dep) *string { return &d.Spec.Template.Spec.NodeName }, "spec.template.spec.nodeName", reflect.TypeFor[string]()},
		{func(d *Dep) *map[string]string { return &d.Labels }, "metadata.labels", reflect.TypeFor[map[string]string]()},
		{func(d *Dep) *map[string]string { return &d.Spec.Template.Labels }, "spec.template.metadata.labels", reflect.TypeFor[map[string]string]()},
		{func(d *Dep) *string { return &d.Name }, "metadata.name", reflect.TypeFor[string]()}, // the first of its struct
		{func(d *Dep) *metav1.ObjectMeta { return &d.ObjectMeta }, "metadata", reflect.TypeFor[metav1.ObjectMeta]()},
		{func(d *Dep) *string { return &d.Kind }, "kind", reflect.TypeFor[string]()},
		{func(d *Dep) *appsv1.DeploymentSpec { return &d.Spec }, "spec", reflect.TypeFor[appsv1.DeploymentSpec]()},
		{func(d *Dep) *metav1.Time { return &d.CreationTimestamp }, "metadata.creationTimestamp", reflect.TypeFor[metav1.Time]()},
		{func(d *Dep) *metav1.Time { return d.DeletionTimestamp }, "metadata.deletionTimestamp", reflect.TypeFor[*metav1.Time]()},
		{func(d *Dep) *[]corev1.Container { return &d.Spec.Template.Spec.Containers }, "spec.template.spec.containers", reflect.TypeFor[[]corev1.Container]()},
		{func(d *Dep) *intstr.IntOrString { return d.Spec.Strategy.RollingUpdate.MaxSurge }, "spec.strategy.rollingUpdate.maxSurge", reflect.TypeFor[*intstr.IntOrString]()},
		{func(p *corev1.Pod) *string { return &p.Spec.SecurityContext.SELinuxOptions.Level }, "spec.securityContext.seLinuxOptions.level", reflect.TypeFor[string]()},
		{func(p *corev1.Pod) *corev1.PodPhase { return &p.Status.Phase }, "status.phase", reflect.TypeFor[corev1.PodPhase]()},
		{func(d *database) *string { return &d.Spec.Engine }, "spec.engine", reflect.TypeFor[string]()},
		{func(d *database) *string { return &d.Spec.More.Deep }, "spec.deep", reflect.TypeFor[string]()},
		{func(d *database) *string { return &d.Spec.FromBase }, "spec.fromBase", reflect.TypeFor[string]()},
		{func(d *database) *string { return &d.Spec.Named.Engine }, "spec.named.engine", reflect.TypeFor[string]()},
		{func(d *database) *int64 { return d.Spec.Hidden }, "spec.hidden", reflect.TypeFor[*int64]()},
		{func(d *database) *string { return &d.Status.Phase }, "status.phase", reflect.TypeFor[string]()},
		{func(d *database) *bool { return &d.Spec.Untagged }, "spec.Untagged", reflect.TypeFor[bool]()},
		{func(d *database) *any { return &d.Spec.Anything }, "spec.anything", nil},
		{func(d *database) *resource.Quantity { return &d.Spec.Size }, "spec.size", reflect.TypeFor[resource.Quantity]()},
		{func(d *database) *string { return &d.Spec.Tree.Left.Right.Name }, "spec.tree.left.right.name", reflect.TypeFor[string]()},
		{func(d *database) *int { return &d.Spec.Anonymous.Inner }, "spec.anonymous.inner", reflect.TypeFor[int]()},
		{func(s *apiextensionsv1.JSONSchemaProps) *string { return &s.Not.Not.Title }, "not.not.title", reflect.TypeFor[string]()},
	} {
		path, typ, err := FromAccessor(c.fn)
		if err != nil || path.String() != c.want || typ != c.typ {
			t.Errorf("%T: got %s, %v, %v, want %s, %v", c.fn, path, typ, err, c.want, c.typ)
		}
	}
}

func TestFromAccessorErrors(t *testing.T) {
	var elsewhere int32
	for _, c := range []struct {
		name string
		fn   any
		want string
	}{
		{"nil", nil, "must be a function, not <nil>"},
		{"nil function", (func(*Dep) *int32)(nil), "must be a function"},
		{"no function", "spec.replicas", "must be a function, not string"},
		{"no pointer in", func(d Dep) *int32 { return d.Spec.Replicas }, "must be a func(T) *V"},
		{"no pointer out", func(d *Dep) int32 { return 0 }, "must be a func(T) *V"},
		{"no struct", func(d *int32) *int32 { return d }, "must be a func(T) *V"},
		{"two results", func(d *Dep) (*int32, error) { return nil, nil }, "must be a func(T) *V"},
		{"no size", func(d *database) *struct{} { return &d.Spec.Nothing }, "have no address of their own"},
		{"computed", func(d *Dep) *int32 { v := *d.Spec.Replicas + 1; return &v }, "not the address of a field of v1.Deployment"},
		{"copied", func(d *Dep) *string { c := *d; return &c.Name }, "not the address of a field"},
		{"from elsewhere", func(d *Dep) *int32 { return &elsewhere }, "not the address of a field"},
		{"entry of a map", func(d *Dep) *string { v := d.Labels["a"]; return &v }, "not the address of a field"},
		{"nil result", func(d *Dep) *int32 { return nil }, "returned nil"},
		{"element", func(d *Dep) *string { return &d.Spec.Template.Spec.Containers[0].Image }, "lists and maps have no address"},
		{"panic", func(d *Dep) *string { panic("mine") }, "panicked on an object with empty maps and lists (mine)"},
		{"the object", func(d *Dep) *Dep { return d }, "no path of its own"},
		{"inlined", func(d *Dep) *metav1.TypeMeta { return &d.TypeMeta }, "no path of its own"},
		{"inlined in spec", func(d *database) *Common { return &d.Spec.Common }, "no path of its own"},
		{"not in JSON", func(d *database) *string { return &d.Spec.Secret }, "Secret at spec has no name in JSON"},
		{"not exported", func(d *database) *string { return &d.Spec.private }, "private at spec has no name in JSON"},
		{"inside of a scalar", func(d *database) *int32 { return &d.Spec.Port.IntVal }, "inside of intstr.IntOrString"},
		{"inside of a time", func(d *Dep) *time.Time { return &d.CreationTimestamp.Time }, "Time is inside of v1.Time"},
		{"inside of raw bytes", func(d *database) *[]byte { return &d.Spec.Raw.Raw }, "Raw is inside of runtime.RawExtension"},
		{"hidden", func(d *database) *string { return &d.Spec.Common.Hidden }, "Hidden of fieldpath.Common at spec is hidden in JSON"},
		{"hidden by one of its type", func(s *shadow) *string { return &s.Common.Engine }, "is hidden in JSON"},
		{"ambiguous", func(d *database) *string { return &d.Spec.More.Twice }, `Twice of fieldpath.More at spec is hidden in JSON by another field of the name "twice"`},
		{"too deep", func(d *database) *string { return &d.Spec.Tree.Left.Left.Left.Left.Name }, "panicked"},
		{"untyped", func(u *unstructured.Unstructured) *map[string]any { return &u.Object }, "has no typed fields"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, typ, err := FromAccessor(c.fn)
			if err == nil || path != nil || typ != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %s, %v, %v, want %s", path, typ, err, c.want)
			}
		})
	}
}

type (
	web  struct{ A, B, C, D, E, F *knot }
	knot struct{ A, B, C, D, E, F *loop }
	loop struct {
		A, B, C, D, E, F *web
		Name             string `json:"name"`
	}
)

// shadow has a field that hides one of the same type.
type shadow struct {
	Common
	Engine string `json:"engine"`
}

// Types that contain each other in many ways must not eat the memory.
func TestFromAccessorOnTangledTypes(t *testing.T) {
	path, _, err := FromAccessor(func(w *web) *string { return &w.A.A.Name })
	if err != nil || path.String() != "A.A.name" {
		t.Errorf("got %s, %v", path, err)
	}
}

func BenchmarkFromAccessor(b *testing.B) {
	for b.Loop() {
		if _, _, err := FromAccessor(func(d *Dep) *int32 { return d.Spec.Replicas }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	t, path := reflect.TypeFor[*Dep](), []string{"spec", "template", "spec", "nodeName"}
	for b.Loop() {
		if _, err := Check(t, path); err != nil {
			b.Fatal(err)
		}
	}
}
