package fieldpath

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kopf-go/kopf/diff"
)

// Res is a CRD struct as users declare it.
type Res[S, St any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              S  `json:"spec,omitempty"`
	Status            St `json:"status,omitempty"`
}

type Common struct {
	Engine string `json:"engine"`
	Hidden string `json:"hidden"`
	Twice  string `json:"twice"`
}

type More struct {
	Deep  string `json:"deep"`
	Twice string `json:"twice"`
}

type base struct {
	FromBase string `json:"fromBase"`
}

type percent struct{ _ int }

func (p percent) MarshalJSON() ([]byte, error) { return json.Marshal("0%") }

type either struct{ One, Two *int }

func (e either) MarshalJSON() ([]byte, error) { return []byte(`{"one":1}`), nil }

type touchy struct{ p *int }

func (t touchy) MarshalJSON() ([]byte, error) { return json.Marshal(*t.p) }

type dbSpec struct {
	Common
	*More
	base
	Named      Common `json:"named"`
	Hidden     *int64 `json:"hidden"`
	Untagged   bool
	OnlyOption bool   `json:",omitempty"`
	Secret     string `json:"-"`
	//lint:ignore SA5008 a field whose name is a dash is what is tested
	Dash       string `json:"-,"`
	private    string
	Schemas    []string                     `json:"schemas,omitempty"`
	Tables     map[string]Common            `json:"tables,omitempty"`
	Deep       map[string]map[string]Common `json:"maps,omitempty"`
	Tree       *node                        `json:"tree,omitempty"`
	Anything   any                          `json:"anything,omitempty"`
	Raw        runtime.RawExtension         `json:"raw,omitempty"`
	RawPointer *runtime.RawExtension        `json:"rawPointer,omitempty"`
	Message    json.RawMessage              `json:"message,omitempty"`
	JSON       apiextensionsv1.JSON         `json:"json,omitempty"`
	Bytes      []byte                       `json:"bytes,omitempty"`
	Size       resource.Quantity            `json:"size,omitempty"`
	Port       *intstr.IntOrString          `json:"port,omitempty"`
	Since      metav1.Time                  `json:"since,omitempty"`
	Plain      time.Time                    `json:"plain"`
	Every      metav1.Duration              `json:"every"`
	Address    netip.Addr                   `json:"address"`
	Percent    percent                      `json:"percent"`
	Either     either                       `json:"either"`
	Touchy     touchy                       `json:"touchy"`
	Nothing    struct{}                     `json:"nothing"`
	Anonymous  struct {
		Inner int `json:"inner"`
	} `json:"anonymous"`
}

type node struct {
	Name  string `json:"name"`
	Left  *node  `json:"left"`
	Right *node  `json:"right"`
}

type dbStatus struct {
	Phase string `json:"phase,omitempty"`
}

type database = Res[dbSpec, dbStatus]

func TestParse_FLT3(t *testing.T) {
	for _, c := range []struct {
		dotted string
		want   diff.Path
		err    string
	}{
		{"spec", diff.Path{"spec"}, ""},
		{"spec.replicas", diff.Path{"spec", "replicas"}, ""},
		{"metadata.annotations.example/size", diff.Path{"metadata", "annotations", "example/size"}, ""},
		{"", nil, "is empty"},
		{".", nil, "at the beginning"},
		{".spec", nil, "at the beginning"},
		{"spec.", nil, "at the end"},
		{"spec..replicas", nil, "in the middle"},
		{`metadata.annotations["a.b"]`, nil, "on.Path"},
		{"spec.containers[0].image", nil, "lists are compared as a whole"},
	} {
		got, err := Parse(c.dotted)
		if c.err == "" && (err != nil || !slices.Equal(got, c.want)) {
			t.Errorf("FLT-3 %q: got %q, %v", c.dotted, got, err)
		}
		if c.err != "" && (err == nil || got != nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("FLT-3 %q: got %q, %v, want %s", c.dotted, got, err, c.err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"spec.replicas", "", ".", "a..b", "a[0]", "ä.\x00", "a b.c\"", "metadata.annotations.example/size"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, dotted string) {
		path, err := Parse(dotted)
		if err != nil {
			if path != nil {
				t.Fatal("a path beside an error")
			}
			return
		}
		if len(path) == 0 || slices.Contains(path, "") || strings.Join(path, ".") != dotted {
			t.Fatalf("%q became %q", dotted, path)
		}
		// What it is printed as is the same path again, or has brackets, which are refused.
		printed := path.String()
		if again, err := Parse(printed); err == nil && !slices.Equal(again, path) || err != nil && !strings.Contains(printed, "[") {
			t.Fatalf("%q is printed %s, which is %q, %v", path, printed, again, err)
		}
		for _, typ := range []reflect.Type{reflect.TypeFor[*appsv1.Deployment](), reflect.TypeFor[*database]()} {
			if typ, err := Check(typ, path); err != nil && typ != nil {
				t.Fatal("a type beside an error")
			}
		}
	})
}

func TestCheck(t *testing.T) {
	deployment, pod, db := reflect.TypeFor[*appsv1.Deployment](), reflect.TypeFor[*corev1.Pod](), reflect.TypeFor[*database]()
	for _, c := range []struct {
		t    reflect.Type
		path string
		want reflect.Type // nil: cannot be checked
	}{
		{deployment, "spec", reflect.TypeFor[appsv1.DeploymentSpec]()},
		{deployment, "spec.replicas", reflect.TypeFor[*int32]()},
		{deployment.Elem(), "spec.replicas", reflect.TypeFor[*int32]()},
		{deployment, "spec.template.spec.nodeName", reflect.TypeFor[string]()},
		{deployment, "spec.template.spec.containers", reflect.TypeFor[[]corev1.Container]()},
		{deployment, "spec.strategy.rollingUpdate.maxSurge", reflect.TypeFor[*intstr.IntOrString]()},
		{deployment, "metadata.labels", reflect.TypeFor[map[string]string]()},
		{deployment, "metadata.labels.tier", reflect.TypeFor[string]()},
		{deployment, "metadata.creationTimestamp", reflect.TypeFor[metav1.Time]()},
		{deployment, "metadata.deletionGracePeriodSeconds", reflect.TypeFor[*int64]()},
		{deployment, "kind", reflect.TypeFor[string]()},
		{deployment, "apiVersion", reflect.TypeFor[string]()},
		{deployment, "status.observedGeneration", reflect.TypeFor[int64]()},
		{pod, "spec.nodeName", reflect.TypeFor[string]()},
		{pod, "status.phase", reflect.TypeFor[corev1.PodPhase]()},
		{pod, "spec.overhead.cpu", reflect.TypeFor[resource.Quantity]()},
		{pod, "spec.securityContext.seLinuxOptions.level", reflect.TypeFor[string]()},
		{db, "metadata.name", reflect.TypeFor[string]()},
		{db, "status.phase", reflect.TypeFor[string]()},
		{db, "spec.engine", reflect.TypeFor[string]()},
		{db, "spec.fromBase", reflect.TypeFor[string]()},
		{db, "spec.deep", reflect.TypeFor[string]()},
		{db, "spec.named.engine", reflect.TypeFor[string]()},
		{db, "spec.hidden", reflect.TypeFor[*int64]()}, // not the embedded struct's
		{db, "spec.Untagged", reflect.TypeFor[bool]()},
		{db, "spec.OnlyOption", reflect.TypeFor[bool]()},
		{db, "spec.-", reflect.TypeFor[string]()},
		{db, "spec.tables.any.engine", reflect.TypeFor[string]()},
		{db, "spec.maps.a.b", reflect.TypeFor[Common]()},
		{db, "spec.tree.left.left.left.left.name", reflect.TypeFor[string]()},
		{db, "spec.bytes", reflect.TypeFor[[]byte]()},
		{db, "spec.anonymous.inner", reflect.TypeFor[int]()},
		{db, "spec.percent", reflect.TypeFor[percent]()},
		{db, "spec.either", reflect.TypeFor[either]()},
		{db, "spec.anything", nil},
		{db, "spec.anything.a.b", nil},
		{db, "spec.raw", nil},
		{db, "spec.raw.a", nil},
		{db, "spec.rawPointer.a", nil},
		{db, "spec.message.a", nil},
		{db, "spec.json.a", nil},
		{db, "spec.either.one", nil},
		{db, "spec.touchy.one", nil},
		{reflect.TypeFor[*unstructured.Unstructured](), "spec.replicas", nil},
		{reflect.TypeFor[any](), "spec.replicas", nil},
		{reflect.TypeFor[map[string]any](), "spec.replicas", nil},
		{reflect.TypeFor[*metav1.PartialObjectMetadata](), "metadata.labels.x", reflect.TypeFor[string]()},
		{reflect.TypeFor[*apiextensionsv1.JSONSchemaProps](), "not.not.not.not.title", reflect.TypeFor[string]()},
		{reflect.TypeFor[*apiextensionsv1.JSONSchemaProps](), "items.title", nil},
	} {
		got, err := Check(c.t, strings.Split(c.path, "."))
		if err != nil || got != c.want {
			t.Errorf("%s in %s: got %v, %v, want %v", c.path, c.t, got, err, c.want)
		}
	}
	if got, err := Check(deployment, nil); err != nil || got != deployment {
		t.Errorf("the root is %v, %v", got, err)
	}
}

func TestCheckErrors(t *testing.T) {
	deployment, db := reflect.TypeFor[*appsv1.Deployment](), reflect.TypeFor[*database]()
	for _, c := range []struct {
		t          reflect.Type
		path, want string
	}{
		{deployment, "spec.replica", `no field "replica" in v1.DeploymentSpec at spec (did you mean "replicas"?)`},
		{deployment, "sepc.replicas", `no field "sepc" in v1.Deployment (did you mean "spec"?)`},
		{deployment, "Spec.Replicas", `no field "Spec" in v1.Deployment (did you mean "spec"?)`},
		{deployment, "ObjectMeta.Labels", `no field "ObjectMeta" in v1.Deployment (did you mean "metadata"?)`},
		{deployment, "metadata.label", `no field "label" in v1.ObjectMeta at metadata (did you mean "labels"?)`},
		{deployment, "labels", `no field "labels" in v1.Deployment`},
		{deployment, "x", `no field "x" in v1.Deployment`},
		{deployment, "spec.replicas.x", `no field "x" at spec.replicas: int32 is a scalar, not an object`},
		{deployment, "metadata.labels.a.b", `no field "b" at metadata.labels.a: string is a scalar, not an object`},
		{deployment, "metadata.finalizers.0", `no element "0" at metadata.finalizers: lists such as this []string are compared as a whole, name the list itself`},
		{deployment, "spec.template.spec.containers.main", `no element "main" at spec.template.spec.containers: lists such as this []v1.Container are compared as a whole, name the list itself`},
		{deployment, "metadata.creationTimestamp.seconds", `no field "seconds" at metadata.creationTimestamp: v1.Time is written as a text, not an object`},
		{db, "spec.sepc", `no field "sepc" in fieldpath.dbSpec at spec`},
		{db, "spce", `no field "spce" in fieldpath.Res (did you mean "spec"?)`},
		{db, "spec.Secret", `no field "Secret" in fieldpath.dbSpec at spec`},
		{db, "spec.private", `no field "private" in fieldpath.dbSpec at spec`},
		{db, "spec.Common", `no field "Common" in fieldpath.dbSpec at spec`},
		{db, "spec.twice", `no field "twice" in fieldpath.dbSpec at spec`}, // ambiguous: json drops both
		{db, "spec.anonymous.x", `no field "x" in a struct at spec.anonymous`},
		{db, "spec.size.format", `no field "format" at spec.size: resource.Quantity is written as a text, not an object`},
		{db, "spec.port.intVal", `no field "intVal" at spec.port: intstr.IntOrString is written as a text, not an object`},
		{db, "spec.every.seconds", `no field "seconds" at spec.every: v1.Duration is written as a text, not an object`},
		{db, "spec.plain.x", `no field "x" at spec.plain: time.Time is written as a text, not an object`},
		{db, "spec.address.x", `no field "x" at spec.address: netip.Addr is written as a text, not an object`},
		{db, "spec.percent.value", `no field "value" at spec.percent: fieldpath.percent is written as a text, not an object`},
		{db, `spec.tables.a.engin`, `no field "engin" in fieldpath.Common at spec.tables.a (did you mean "engine"?)`},
	} {
		got, err := Check(c.t, strings.Split(c.path, "."))
		if got != nil || err == nil || err.Error() != c.want {
			t.Errorf("%s in %s: got %v, %v\nwant %s", c.path, c.t, got, err, c.want)
		}
	}
	_, err := Check(deployment, diff.Path{"metadata", "annotations", "a.b/c", "d"})
	if err == nil || !strings.Contains(err.Error(), `at metadata.annotations["a.b/c"]`) {
		t.Errorf("got %v", err)
	}
}

// What is a field here is what encoding/json writes.
func TestFieldsAreThoseOfJSON(t *testing.T) {
	db := database{}
	db.Spec.More = &More{}
	type left struct{ Common }
	type right struct{ Common }
	for _, v := range []any{Common{}, node{}, struct { // each field of Common is there twice, so not at all
		*left
		*right
	}{&left{}, &right{}}, shadow{}, corev1.PodSpec{Containers: []corev1.Container{}}, db.Spec.Anonymous, struct {
		Common
		*More
		base
		Named  Common `json:"named"`
		Hidden *int64 `json:"hidden"`
		Plain  bool
		//lint:ignore SA5008 a field whose name is a dash is what is tested
		Dash   string `json:"-,"`
		Secret string `json:"-"`
		dbStatus
	}{More: &More{}}} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		written := map[string]any{}
		if err := json.Unmarshal(text, &written); err != nil {
			t.Fatal(err)
		}
		fields := fieldsOf(reflect.TypeOf(v))
		for name := range written {
			if _, ok := fields.named(name); !ok {
				t.Errorf("%T: %s is written, but not found", v, name)
			}
		}
		if len(written) == 0 && len(fields) > 0 {
			t.Errorf("%T: nothing is written, but %v found", v, fields)
		}
		names := map[string]bool{}
		for _, f := range fields {
			if names[f.Name] {
				t.Errorf("%T: %s is there twice", v, f.Name)
			}
			names[f.Name] = true
		}
	}
}

func TestLevenshtein(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"replica", "replicas", 1}, {"sepc", "spec", 2}, {"kitten", "sitting", 3}} {
		if got := levenshtein(c.a, c.b); got != c.want {
			t.Errorf("%s, %s: %d", c.a, c.b, got)
		}
	}
}
