package typed_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kopf-go/kopf/typed"
)

// common is embedded without being exported; its fields are part of the JSON.
type common struct {
	Notes map[string][]string `json:"notes,omitempty"`
	Owner *string             `json:"owner,omitempty"`
	deep
}

type deep struct {
	Inner []*int64 `json:"inner,omitempty"`
}

// Embedded is embedded and exported, and knows how to copy itself.
type Embedded struct {
	metav1.LabelSelector `json:",inline"`
	More                 map[string]string `json:"more,omitempty"`
}

type node struct {
	Name  string           `json:"name,omitempty"`
	Left  *node            `json:"left,omitempty"`
	Nodes map[string]*node `json:"nodes,omitempty"`
}

type everything struct {
	common
	Embedded `json:"embedded,omitempty"`

	Text     string                     `json:"text,omitempty"`
	Number   int64                      `json:"number,omitempty"`
	Ratio    float64                    `json:"ratio,omitempty"`
	Flag     *bool                      `json:"flag,omitempty"`
	Pointers **int32                    `json:"pointers,omitempty"`
	List     []string                   `json:"list,omitempty"`
	Lists    [][]map[string]int         `json:"lists,omitempty"`
	Array    [2]*int                    `json:"array,omitempty"`
	Bytes    []byte                     `json:"bytes,omitempty"`
	Any      any                        `json:"any,omitempty"`
	Anys     map[string]any             `json:"anys,omitempty"`
	Raw      json.RawMessage            `json:"raw,omitempty"`
	Ext      runtime.RawExtension       `json:"ext,omitempty"`
	JSON     *apiextensionsv1.JSON      `json:"json,omitempty"`
	Time     metav1.Time                `json:"time,omitempty"`
	When     *metav1.Time               `json:"when,omitempty"`
	Moment   time.Time                  `json:"moment,omitempty"`
	Size     resource.Quantity          `json:"size,omitempty"`
	Limits   corev1.ResourceList        `json:"limits,omitempty"`
	Port     intstr.IntOrString         `json:"port,omitempty"`
	Pod      *corev1.PodTemplateSpec    `json:"pod,omitempty"`
	Tree     node                       `json:"tree,omitempty"`
	Structs  map[string]node            `json:"structs,omitempty"`
	Items    []corev1.EnvVar            `json:"items,omitempty"`
	Loose    *unstructured.Unstructured `json:"loose,omitempty"`
	ByNumber map[int]*node              `json:"byNumber,omitempty"`
	//lint:ignore U1000 a copy must cope with fields that it cannot see
	private map[string]string
}

type full = typed.Resource[everything, everything]

// fill sets everything that can be set below v to something random.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	switch v.Interface().(type) {
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse("1500m")))
		return
	case metav1.Time:
		v.Set(reflect.ValueOf(metav1.Unix(1_800_000_000+r.Int64N(1e6), 0).Rfc3339Copy()))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1_800_000_000+r.Int64N(1e6), 0).UTC()))
		return
	case json.RawMessage:
		v.Set(reflect.ValueOf(json.RawMessage(`{"a":[1]}`)))
		return
	case *metav1.FieldsV1:
		v.Set(reflect.ValueOf(metav1.NewFieldsV1(`{"f:a":{}}`)))
		return
	case runtime.RawExtension:
		v.Set(reflect.ValueOf(runtime.RawExtension{Raw: []byte(`{"a":1}`)}))
		return
	case *unstructured.Unstructured:
		v.Set(reflect.ValueOf(&unstructured.Unstructured{Object: map[string]any{"kind": "K", "apiVersion": "v1", "a": map[string]any{"b": []any{"c"}}}}))
		return
	case *apiextensionsv1.JSON:
		v.Set(reflect.ValueOf(&apiextensionsv1.JSON{Raw: []byte(`{"a":1}`)}))
		return
	case intstr.IntOrString:
		v.Set(reflect.ValueOf(intstr.FromString("http")))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(string(rune('a' + r.IntN(26))))
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1 + r.Int64N(100))
	case reflect.Uint8:
		v.SetUint(uint64(r.IntN(100)))
	case reflect.Float64:
		v.SetFloat(r.Float64())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf(map[string]any{"a": []any{"b", map[string]any{"c": r.Float64()}}}))
		}
	case reflect.Pointer:
		if depth > 0 && r.IntN(8) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), depth-1)
		}
	case reflect.Slice:
		if depth > 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1+r.IntN(2), 4))
			for i := range v.Len() {
				fill(r, v.Index(i), depth-1)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(r, v.Index(i), depth)
		}
	case reflect.Map:
		if depth > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range 1 + r.IntN(2) {
				key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				fill(r, key, 0)
				fill(r, value, depth-1)
				v.SetMapIndex(key, value)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if field.IsExported() {
				fill(r, v.Field(i), depth)
			} else if field.Anonymous {
				for j := range field.Type.NumField() {
					if field.Type.Field(j).IsExported() {
						fill(r, v.Field(i).Field(j), depth)
					}
				}
			}
		}
	}
}

// spoil changes everything that can be reached from v in place.
func spoil(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "!")
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint8:
		v.SetUint(v.Uint() ^ 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Interface:
		switch tree := v.Interface().(type) {
		case map[string]any:
			for key := range tree {
				tree[key] = "spoilt"
			}
		case []any:
			for i := range tree {
				tree[i] = "spoilt"
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			spoil(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			spoil(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			value := v.MapIndex(key)
			if value.Kind() == reflect.Interface || value.Kind() == reflect.Pointer || value.Kind() == reflect.Map || value.Kind() == reflect.Slice {
				spoil(value)
			}
			v.SetMapIndex(key, reflect.Value{})
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() || field.Anonymous {
				spoilField(v.Field(i))
			}
		}
	}
}

func spoilField(v reflect.Value) {
	if v.CanSet() {
		spoil(v)
		return
	}
	if v.Kind() == reflect.Struct {
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() || field.Anonymous {
				spoilField(v.Field(i))
			}
		}
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// A copy is equal, and nothing that is done to it shows in the original.
func TestDeepCopyIsEqualAndIndependent(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var original full
		fill(r, reflect.ValueOf(&original).Elem(), 4)
		before := encode(t, &original)
		copied := original.DeepCopyObject().(*full)
		if !reflect.DeepEqual(copied, &original) || encode(t, copied) != before {
			t.Fatalf("seed %d: the copy differs\n got %s\nwant %s", seed, encode(t, copied), before)
		}
		spoil(reflect.ValueOf(copied).Elem())
		if after := encode(t, &original); after != before {
			t.Fatalf("seed %d: the copy shares memory\n got %s\nwant %s", seed, after, before)
		}
	}
}

func TestDeepCopyKeepsNilAndEmpty(t *testing.T) {
	original := &full{}
	original.Spec.List, original.Spec.Anys = []string{}, map[string]any{}
	copied := original.DeepCopy()
	if copied.Spec.List == nil || copied.Spec.Anys == nil || copied.Spec.Lists != nil || copied.Spec.Structs != nil ||
		copied.Spec.Flag != nil || copied.Spec.Any != nil {
		t.Errorf("%#v", copied.Spec)
	}
	var none *full
	if none.DeepCopy() != nil || none.DeepCopyObject() != nil {
		t.Error("nil was copied to something")
	}
}

// Specs and statuses need not be structs.
func TestDeepCopyOfMaps(t *testing.T) {
	type loose = typed.Resource[map[string]any, *map[string]int]
	original := &loose{Spec: map[string]any{"a": map[string]any{"b": "c"}}, Status: &map[string]int{"x": 1}}
	copied := original.DeepCopy()
	copied.Spec["a"].(map[string]any)["b"] = "spoilt"
	(*copied.Status)["x"] = 2
	if encode(t, original.Spec) != `{"a":{"b":"c"}}` || (*original.Status)["x"] != 1 {
		t.Error("the copy shares memory")
	}
}

func TestResourceRoundTrip(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		var original full
		fill(r, reflect.ValueOf(&original).Elem(), 3)
		original.Spec.Pointers, original.Status.Pointers = nil, nil // the inner null is not kept
		text := encode(t, &original)
		var again full
		if err := json.Unmarshal([]byte(text), &again); err != nil {
			t.Fatal(err)
		}
		if encode(t, &again) != text {
			got := encode(t, &again)
			at := 0
			for at < min(len(got), len(text)) && got[at] == text[at] {
				at++
			}
			at = max(0, at-80)
			t.Fatalf("seed %d:\n got … %.200s\nwant … %.200s", seed, got[at:], text[at:])
		}
	}
}

func TestResourceIsAnObject(t *testing.T) {
	d := &database{}
	d.SetName("blue")
	d.GetObjectKind().SetGroupVersionKind(databases.GroupVersion().WithKind("Database"))
	if got := encode(t, d); got != `{"kind":"Database","apiVersion":"example.com/v1","metadata":{"name":"blue"},"spec":{},"status":{}}` {
		t.Error(got)
	}
	var _ typed.Object = d
}

func BenchmarkDeepCopy(b *testing.B) {
	var original full
	fill(rand.New(rand.NewPCG(1, 1)), reflect.ValueOf(&original).Elem(), 4)
	b.ReportAllocs()
	for b.Loop() {
		original.DeepCopy()
	}
}
