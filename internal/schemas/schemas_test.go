package schemas

import (
	"encoding/json"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

type named string

type inner struct {
	A string `json:"a"`
}

type recursive struct {
	Next *recursive `json:"next,omitempty"`
}

type embedding struct {
	inner
	Named inner `json:"named,omitzero"`
	A     bool  `json:"a,omitempty"` // hides that of inner
}

type textual struct{ A int }

func (textual) MarshalText() ([]byte, error) { return nil, nil }

type own struct{ A int }

func (*own) UnmarshalJSON([]byte) error { return nil }

func TestOf(t *testing.T) {
	const anything = `{"nullable":true,"x-kubernetes-preserve-unknown-fields":true}`
	const intOrString = `{"anyOf":[{"type":"integer"},{"type":"string"}],"x-kubernetes-int-or-string":true}`
	for _, tc := range []struct {
		value any // a pointer to the type
		want  string
	}{
		{new(bool), `{"type":"boolean"}`},
		{new(int), `{"type":"integer","format":"int64"}`},
		{new(int8), `{"type":"integer","format":"int32"}`},
		{new(uint32), `{"type":"integer","format":"int64","minimum":0}`},
		{new(float32), `{"type":"number","format":"float"}`},
		{new(float64), `{"type":"number","format":"double"}`},
		{new(named), `{"type":"string"}`},
		{new(*named), `{"type":"string"}`},
		{new([]byte), `{"type":"string","format":"byte"}`},
		{new([2]byte), `{"type":"array","items":{"type":"integer","format":"int64","minimum":0},"minItems":2,"maxItems":2}`},
		{new([]string), `{"type":"array","items":{"type":"string"}}`},
		{new([]*string), `{"type":"array","items":{"type":"string","nullable":true}}`},
		{new(map[named][]int32), `{"type":"object","additionalProperties":{"type":"array","nullable":true,"items":{"type":"integer","format":"int32"}}}`},
		{new(map[int]bool), `{"type":"object","additionalProperties":{"type":"boolean"}}`},
		{new(map[netip.Addr]any), `{"type":"object","additionalProperties":` + anything + `}`},
		{new(any), anything},
		{new(json.RawMessage), anything},
		{new(own), anything},
		{new(textual), `{"type":"string"}`},
		{new(netip.Addr), `{"type":"string"}`},
		{new(time.Time), `{"type":"string","format":"date-time"}`},
		{new(metav1.Time), `{"type":"string","format":"date-time"}`},
		{new(metav1.MicroTime), `{"type":"string","format":"date-time"}`},
		{new(time.Duration), `{"type":"integer","format":"int64"}`},
		{new(metav1.Duration), `{"type":"string"}`},
		{new(resource.Quantity), intOrString},
		{new(intstr.IntOrString), intOrString},
		{new(runtime.RawExtension), `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`},
		{new(metav1.ObjectMeta), `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`},
		{new(unstructured.Unstructured), `{"type":"object","x-kubernetes-preserve-unknown-fields":true,"x-kubernetes-embedded-resource":true}`},
		{new(struct{}), `{"type":"object"}`},
		{new(recursive), `{"type":"object","properties":{"next":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`},
		{new(embedding), `{"type":"object","properties":{"named":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},"a":{"type":"boolean"}}}`},
		{new(struct {
			Must    *int   `json:"must"`
			May     *int   `json:"may,omitempty"`
			Zero    int    `json:"zero,omitzero"`
			Free    any    `json:"free,omitempty"`
			Quoted  int    `json:",string"`
			Lists   []bool `json:"lists"`
			Ignored int    `json:"-"`
			private int
		}), `{"type":"object","properties":{"must":{"type":"integer","format":"int64","nullable":true},"may":{"type":"integer","format":"int64"},` +
			`"zero":{"type":"integer","format":"int64"},"free":` + anything + `,"Quoted":{"type":"string"},"lists":{"type":"array","nullable":true,"items":{"type":"boolean"}}},"required":["Quoted","lists","must"]}`},
		{new(struct {
			Mode  string  `json:"mode" doc:"how" enum:"slow, fast" default:"\"slow\"" pattern:"^[a-z]+$" minLength:"1" maxLength:"9" format:"hostname"`
			Level *int    `json:"level" minimum:"1" maximum:"3.5" enum:"1,3"`
			List  []int64 `json:"list,omitempty" minItems:"1" maxItems:"2" default:"[1]"`
		}), `{"type":"object","properties":{"mode":{"type":"string","description":"how","format":"hostname","pattern":"^[a-z]+$","enum":["slow","fast"],"default":"slow","minLength":1,"maxLength":9},` +
			`"level":{"type":"integer","format":"int64","enum":[1,3,null],"minimum":1,"maximum":3.5,"nullable":true},` +
			`"list":{"type":"array","default":[1],"minItems":1,"maxItems":2,"items":{"type":"integer","format":"int64"}}},"required":["level","mode"]}`},
	} {
		t.Run(reflect.TypeOf(tc.value).Elem().String(), func(t *testing.T) {
			s, err := Of(reflect.TypeOf(tc.value).Elem())
			if err != nil {
				t.Fatal(err)
			}
			checkJSON(t, s, tc.want)
		})
	}
}

// checkJSON compares values, not texts.
func checkJSON(t *testing.T, got any, want string) {
	t.Helper()
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(err)
	}
	if _ = json.Unmarshal(raw, &a); !reflect.DeepEqual(a, b) {
		t.Errorf("got  %s\nwant %s", raw, want)
	}
}

func TestMistakesInTypes(t *testing.T) {
	_, err := Of(reflect.TypeFor[struct {
		Spec struct {
			Wait  chan int              `json:"wait"`
			Calls []func()              `json:"calls"`
			Odd   map[inner]int         `json:"odd"`
			Text  string                `json:"text" minimum:"1"`
			Num   int                   `json:"num" maxLength:"1" minimum:"x"`
			Mode  string                `json:"mode" enum:"a,b" default:"\"c\""`
			Deft  int                   `json:"deft" default:"\"one\""`
			Raw   int                   `json:"raw" default:"{"`
			Frac  int                   `json:"frac" enum:"1.5"`
			Pat   string                `json:"pat" pattern:"("`
			Neg   []string              `json:"neg" minItems:"-1"`
			Link  map[string]url.Values `json:"link" enum:"a"`
		} `json:"spec"`
	}]())
	for _, want := range []string{
		"spec.wait: chan int has no form", "spec.calls[]: func() has no form", "spec.odd: a map by schemas.inner", "spec.text: the tag minimum does not fit a field of type string",
		"spec.num: the tag maxLength does not fit", "spec.num: the tag minimum: ", `spec.mode: the tag default: "c" is not one of enum`, `spec.deft: the tag default: "one" is no integer`,
		"spec.raw: the tag default: { is not in JSON", "spec.frac: the tag enum: 1.5 is no integer", "spec.pat: the tag pattern: ", "spec.neg: the tag minItems: ",
		"spec.link: the tag enum does not fit",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nothing of %q in\n%v", want, err)
		}
	}
	if got := strings.Count(err.Error(), "\n") + 1; got != 13 {
		t.Errorf("%d mistakes:\n%v", got, err)
	}
}

type CaskSpec struct{ Size int }

type cask struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              CaskSpec `json:"spec"`
	Status            struct{} `json:"status"`
}

type other struct {
	Spec   struct{ A chan int } `json:"spec"`
	Status struct{ B int }      `json:"status"`
}

func TestDefine(t *testing.T) {
	definitions, notes, err := Define([]Resource{
		{Group: "b.example", Version: "v1beta1", Plural: "casks", Type: reflect.TypeFor[*cask]()},
		{Group: "b.example", Version: "v1", Plural: "casks", Type: reflect.TypeFor[*cask](), ClusterScoped: true},
		{Group: "b.example", Version: "v1", Plural: "casks", Type: reflect.TypeFor[*cask]()},
		{Group: "b.example", Version: "v1", Plural: "casks", Type: reflect.TypeFor[*inner]()},
		{Group: "a.example", Version: "v1", Plural: "policies", Type: reflect.TypeFor[*inner]()},
		{Group: "c.example", Version: "v1", Plural: "others", Type: reflect.TypeFor[*other]()},
		{Group: "d.example", Version: "v1", Plural: "texts", Type: reflect.TypeFor[string]()},
	})
	if err == nil || !strings.Contains(err.Error(), "no definition of others.c.example: spec.A: chan int") || !strings.Contains(err.Error(), "no definition of texts.d.example: string is no struct") {
		t.Errorf("error %v", err)
	}
	if want := []string{
		"casks.b.example has several Go types; its definition is that of *schemas.cask",
		"the kind of policies.a.example is guessed to be Policy: objects that are there may have another one",
	}; !slices.Equal(notes, want) {
		t.Errorf("notes %q", notes)
	}
	if len(definitions) != 2 || definitions[1].Metadata.Name != "policies.a.example" {
		t.Fatalf("got %+v", definitions)
	}
	checkJSON(t, definitions[0], `{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "casks.b.example"},
		"spec": {
			"group": "b.example", "scope": "Cluster", "names": {"kind": "Cask", "listKind": "CaskList", "plural": "casks", "singular": "cask"},
			"versions": [
				{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": `+caskSchema+`}},
				{"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": `+caskSchema+`}}
			]
		}
	}`)
	if HasStatus(reflect.TypeFor[*cask]()) || !HasStatus(reflect.TypeFor[*struct {
		Status struct{ Phase string } `json:"status"`
	}]()) {
		t.Error("a status is there if something can be in it")
	}
}

const caskSchema = `{"type": "object", "required": ["spec"], "properties": {
	"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
	"spec": {"type": "object", "required": ["Size"], "properties": {"Size": {"type": "integer", "format": "int64"}}}}}`

func TestKinds(t *testing.T) {
	for plural, want := range map[string]string{
		"databases": "Database", "policies": "Policy", "classes": "Class", "boxes": "Box", "switches": "Switch", "meshes": "Mesh", "sheep": "Sheep", "s": "S",
	} {
		if kind, sure := kindOf(Resource{Plural: plural, Type: reflect.TypeFor[inner]()}); kind != want || sure {
			t.Errorf("%s: %s, sure %v", plural, kind, sure)
		}
	}
	for kind, want := range map[string]string{"Database": "databases", "Policy": "policies", "Gateway": "gateways", "Class": "classes", "Box": "boxes", "Y": "ys"} {
		if got := Plural(kind); got != want {
			t.Errorf("%s: %s", kind, got)
		}
	}
	if kind, sure := kindOf(Resource{Plural: "casks", Kind: "Barrel", Type: reflect.TypeFor[cask]()}); kind != "Barrel" || !sure {
		t.Errorf("got %s", kind)
	}
}
