package patching

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "sigs.k8s.io/json"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
)

func parse(t *testing.T, raw string) *body.Body {
	t.Helper()
	b, err := body.Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func editOf[T any](fn func(T)) registry.Edit {
	return registry.Edit{Type: reflect.TypeFor[T](), Apply: func(object any) { fn(object.(T)) }}
}

func text(s string) *string { return &s }

func tree(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(raw, &out); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return out
}

// applyMerge is RFC 7386, as it is written there.
func applyMerge(target, patch any) any {
	patchObject, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	targetObject, _ := target.(map[string]any)
	out := map[string]any{}
	for name, value := range targetObject {
		out[name] = value
	}
	for name, value := range patchObject {
		if value == nil {
			delete(out, name)
		} else {
			out[name] = applyMerge(out[name], value)
		}
	}
	return out
}

// same compares JSON texts.
func same(t *testing.T, got []byte, want string) bool {
	t.Helper()
	if len(got) == 0 || want == "" {
		return len(got) == 0 && want == ""
	}
	return reflect.DeepEqual(tree(t, got), tree(t, []byte(want)))
}

const object = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","uid":"u","resourceVersion":"7",
"labels":{"a":"1","b":"2"},"annotations":{"x/y":"z"},"finalizers":["other/one","mine","other/two"]},
"spec":{"replicas":3},"status":{"replicas":1}}`

// PAT-1, PAT-3, PAT-6: one request per endpoint, none if it changes nothing, and the
// UID with each.
func TestCompose_PAT1(t *testing.T) {
	nothing := func(*appsv1.Deployment) {}
	for _, c := range []struct {
		name   string
		object string
		change Change
		apart  bool
		want   string // of the object's request
		status string // of the status's
		locked bool
	}{
		{name: "T101 nothing", object: object, apart: true},
		{name: "T101 an edit of nothing", object: object, change: Change{Edits: []registry.Edit{editOf(nothing)}}},
		{name: "annotations", object: object,
			change: Change{Annotations: map[string]*string{"n": text("1"), "x/y": nil}},
			want:   `{"metadata":{"uid":"u","annotations":{"n":"1","x/y":null}}}`},
		{name: "PAT-6 same annotation", object: object, change: Change{Annotations: map[string]*string{"x/y": text("z")}}},
		{name: "PAT-6 some are the same", object: object,
			change: Change{Annotations: map[string]*string{"x/y": text("z"), "n": text("")}},
			want:   `{"metadata":{"uid":"u","annotations":{"n":""}}}`},
		{name: "T064 removal of what is not there", object: object, change: Change{Annotations: map[string]*string{"n": nil}}},
		{name: "T064 removal without annotations", object: `{"metadata":{"name":"d","uid":"u"}}`, change: Change{Annotations: map[string]*string{"n": nil}}},
		{name: "T064 removal without metadata", object: `{"spec":{}}`, change: Change{Annotations: map[string]*string{"n": nil}}},
		{name: "first annotation", object: `{"metadata":{"name":"d","uid":"u"}}`,
			change: Change{Annotations: map[string]*string{"n": text("1")}},
			want:   `{"metadata":{"uid":"u","annotations":{"n":"1"}}}`},

		{name: "FIN add", object: object, change: Change{AddFinalizer: "new"}, locked: true,
			want: `{"metadata":{"uid":"u","resourceVersion":"7","finalizers":["other/one","mine","other/two","new"]}}`},
		{name: "FIN add the first", object: `{"metadata":{"uid":"u","resourceVersion":"7"}}`, change: Change{AddFinalizer: "new"}, locked: true,
			want: `{"metadata":{"uid":"u","resourceVersion":"7","finalizers":["new"]}}`},
		{name: "FIN add again", object: object, change: Change{AddFinalizer: "mine"}},
		{name: "FIN-8 remove", object: object, change: Change{RemoveFinalizer: "mine"}, locked: true,
			want: `{"metadata":{"uid":"u","resourceVersion":"7","finalizers":["other/one","other/two"]}}`},
		{name: "FIN-8 remove the last", object: `{"metadata":{"uid":"u","resourceVersion":"7","finalizers":["mine"]}}`,
			change: Change{RemoveFinalizer: "mine"}, locked: true,
			want: `{"metadata":{"uid":"u","resourceVersion":"7","finalizers":null}}`},
		{name: "FIN-8 remove all occurrences", object: `{"metadata":{"uid":"u","resourceVersion":"7","finalizers":["mine","a","mine"]}}`,
			change: Change{RemoveFinalizer: "mine"}, locked: true,
			want: `{"metadata":{"uid":"u","resourceVersion":"7","finalizers":["a"]}}`},
		{name: "FIN remove what is not there", object: object, change: Change{RemoveFinalizer: "none"}},
		{name: "FIN remove without finalizers", object: `{"metadata":{"uid":"u"}}`, change: Change{RemoveFinalizer: "none"}},
		{name: "FIN with an edit of the list", object: object, locked: true,
			change: Change{RemoveFinalizer: "mine", Edits: []registry.Edit{editOf(func(d *appsv1.Deployment) {
				d.Finalizers = append(d.Finalizers, "edited")
			})}},
			want: `{"metadata":{"uid":"u","resourceVersion":"7","finalizers":["other/one","other/two","edited"]}}`},
		{name: "FIN add after an edit that clears the list", object: object, locked: true,
			change: Change{AddFinalizer: "new", Edits: []registry.Edit{editOf(func(d *appsv1.Deployment) { d.Finalizers = nil })}},
			want:   `{"metadata":{"uid":"u","resourceVersion":"7","finalizers":["new"]}}`},

		{name: "T080 results", object: object, apart: true,
			change: Change{Results: map[string]any{"h": map[string]int32{"n": 1}, "h/spec.x": "text"}},
			status: `{"metadata":{"uid":"u"},"status":{"h":{"n":1},"h/spec.x":"text"}}`},
		{name: "T102 results without a status endpoint", object: object,
			change: Change{Results: map[string]any{"h": 1}},
			want:   `{"metadata":{"uid":"u"},"status":{"h":1}}`},
		{name: "PAT-6 same result", object: `{"metadata":{"uid":"u"},"status":{"h":{"n":1}}}`, apart: true,
			change: Change{Results: map[string]any{"h": map[string]any{"n": 1}}}},
		{name: "T080 results are merged", object: `{"metadata":{"uid":"u"},"status":{"h":{"m":2}}}`, apart: true,
			change: Change{Results: map[string]any{"h": map[string]any{"n": 1}}},
			status: `{"metadata":{"uid":"u"},"status":{"h":{"n":1}}}`},
		{name: "a result with a list", object: `{"metadata":{"uid":"u","resourceVersion":"7"}}`, apart: true, locked: true,
			change: Change{Results: map[string]any{"h": []int{1}}},
			status: `{"metadata":{"uid":"u","resourceVersion":"7"},"status":{"h":[1]}}`},
		{name: "B28 a large result", object: `{"metadata":{"uid":"u"}}`, apart: true,
			change: Change{Results: map[string]any{"h": int64(9007199254740993)}},
			status: `{"metadata":{"uid":"u"},"status":{"h":9007199254740993}}`},

		{name: "B27, T102 both endpoints", object: object, apart: true,
			change: Change{
				Annotations: map[string]*string{"n": text("1")},
				Results:     map[string]any{"h": 1},
				Edits: []registry.Edit{editOf(func(d *appsv1.Deployment) {
					d.Spec.Paused, d.Status.Replicas = true, 2
				})},
			},
			want:   `{"metadata":{"uid":"u","annotations":{"n":"1"}},"spec":{"paused":true}}`,
			status: `{"metadata":{"uid":"u"},"status":{"h":1,"replicas":2}}`},
		{name: "T102 one endpoint", object: object,
			change: Change{Edits: []registry.Edit{editOf(func(d *appsv1.Deployment) {
				d.Spec.Paused, d.Status.Replicas = true, 2
			})}},
			want: `{"metadata":{"uid":"u"},"spec":{"paused":true},"status":{"replicas":2}}`},
		{name: "status only", object: object, apart: true,
			change: Change{Edits: []registry.Edit{editOf(func(d *appsv1.Deployment) { d.Status.Replicas = 2 })}},
			status: `{"metadata":{"uid":"u"},"status":{"replicas":2}}`},
		{name: "only the status has a list", object: object, apart: true, locked: true,
			change: Change{
				Annotations: map[string]*string{"n": text("1")},
				Edits: []registry.Edit{editOf(func(d *appsv1.Deployment) {
					d.Status.Conditions = []appsv1.DeploymentCondition{{Type: "A", Status: "True"}}
				})},
			},
			want: `{"metadata":{"uid":"u","annotations":{"n":"1"}}}`,
			status: `{"metadata":{"uid":"u","resourceVersion":"7"},"status":{"conditions":[
				{"type":"A","status":"True","lastUpdateTime":null,"lastTransitionTime":null}]}}`},
		{name: "bookkeeping beside a list is locked with it", object: object, locked: true,
			change: Change{Annotations: map[string]*string{"n": text("1")}, AddFinalizer: "new"},
			want: `{"metadata":{"uid":"u","resourceVersion":"7","annotations":{"n":"1"},
				"finalizers":["other/one","mine","other/two","new"]}}`},

		{name: "an edit cannot change who it is", object: object, locked: false,
			change: Change{Edits: []registry.Edit{editOf(func(d *appsv1.Deployment) { d.UID, d.Spec.Paused = "v", true })}},
			want:   `{"metadata":{"uid":"u"},"spec":{"paused":true}}`},
		{name: "bookkeeping prevails over edits", object: object,
			change: Change{
				Annotations: map[string]*string{"x/y": text("ours")},
				Edits: []registry.Edit{editOf(func(d *appsv1.Deployment) {
					d.Annotations["x/y"], d.Annotations["e"] = "theirs", "1"
				})},
			},
			want: `{"metadata":{"uid":"u","annotations":{"x/y":"ours","e":"1"}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan, err := Compose(parse(t, c.object), c.change, c.apart)
			if err != nil {
				t.Fatal(err)
			}
			if !same(t, plan.Object, c.want) || !same(t, plan.Status, c.status) || plan.Locked != c.locked {
				t.Errorf("\nobject %s\n  want %s\nstatus %s\n  want %s\nlocked %t", plan.Object, c.want, plan.Status, c.status, plan.Locked)
			}
		})
	}
}

type (
	itemSpec struct {
		Name  string `json:"name,omitempty"`
		Value int    `json:"value,omitempty"`
	}
	spec struct {
		Text   string              `json:"text,omitempty"`
		Plain  string              `json:"plain"`
		Number int64               `json:"number,omitempty"`
		Flag   *bool               `json:"flag,omitempty"`
		Map    map[string]string   `json:"map,omitempty"`
		Kept   map[string]string   `json:"kept"`
		Struct *itemSpec           `json:"struct,omitempty"`
		Deep   map[string]itemSpec `json:"deep,omitempty"`
		Items  []itemSpec          `json:"items,omitempty"`
		Lists  [][]itemSpec        `json:"lists,omitempty"`
		Any    any                 `json:"any,omitempty"`
	}
	status struct {
		Phase string `json:"phase,omitempty"`
		Count int64  `json:"count,omitempty"`
	}
	thing = custom[spec]

	custom[Spec any] struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata,omitempty"`

		Spec   Spec   `json:"spec,omitempty"`
		Status status `json:"status,omitempty"`
	}
)

func thingWith(spec string) string {
	return `{"apiVersion":"e/v1","kind":"Thing","metadata":{"name":"t","uid":"u","resourceVersion":"7"},"spec":` + spec + `}`
}

// What an edit changes, and nothing else, is sent: fields that the Go type does not
// know stay, in lists as well.
func TestEdits_PAT2(t *testing.T) {
	for _, c := range []struct {
		name   string
		spec   string
		edit   func(s *spec)
		want   string // the spec afterwards
		patch  string // of the spec; not checked if empty
		locked bool
	}{
		{name: "scalar", spec: `{"text":"a","unknown":1}`, edit: func(s *spec) { s.Text = "b" },
			want: `{"text":"b","unknown":1}`, patch: `{"text":"b"}`},
		{name: "zero removes what is left out when empty", spec: `{"text":"a","unknown":1}`, edit: func(s *spec) { s.Text = "" },
			want: `{"unknown":1}`, patch: `{"text":null}`},
		{name: "zero of what is always there", spec: `{"plain":"a"}`, edit: func(s *spec) { s.Plain = "" },
			want: `{"plain":""}`, patch: `{"plain":""}`},
		{name: "zero values are not invented", spec: `{"unknown":1}`, edit: func(s *spec) { s.Text = "b" },
			want: `{"unknown":1,"text":"b"}`, patch: `{"text":"b"}`},
		{name: "pointer to false", spec: `{}`, edit: func(s *spec) { s.Flag = new(bool) },
			want: `{"flag":false}`, patch: `{"flag":false}`},
		{name: "B28 unknown large numbers stay", spec: `{"text":"a","big":9007199254740993}`, edit: func(s *spec) { s.Text = "b" },
			want: `{"text":"b","big":9007199254740993}`, patch: `{"text":"b"}`},
		{name: "B28 known large numbers", spec: `{"number":9007199254740993}`, edit: func(s *spec) { s.Number++ },
			want: `{"number":9007199254740994}`, patch: `{"number":9007199254740994}`},
		{name: "B28 large numbers in lists", spec: `{"items":[{"name":"a","big":9007199254740993}]}`, locked: true,
			edit: func(s *spec) { s.Items[0].Value = 1 },
			want: `{"items":[{"name":"a","big":9007199254740993,"value":1}]}`},

		{name: "key of a map", spec: `{"map":{"a":"1","b":"2"}}`, edit: func(s *spec) { delete(s.Map, "a"); s.Map["c"] = "3" },
			want: `{"map":{"b":"2","c":"3"}}`, patch: `{"map":{"a":null,"c":"3"}}`},
		{name: "new map", spec: `{}`, edit: func(s *spec) { s.Map = map[string]string{"a": "1"} },
			want: `{"map":{"a":"1"}}`},
		{name: "the last key", spec: `{"kept":{"a":"1"}}`, edit: func(s *spec) { delete(s.Kept, "a") },
			want: `{"kept":{}}`, patch: `{"kept":{"a":null}}`},
		{name: "no map any more", spec: `{"map":{"a":"1"},"x":1}`, edit: func(s *spec) { s.Map = nil },
			want: `{"x":1}`, patch: `{"map":null}`},
		{name: "empty map", spec: `{}`, edit: func(s *spec) { s.Kept = map[string]string{} },
			want: `{"kept":{}}`, patch: `{"kept":{}}`},
		{name: "another map", spec: `{"kept":{"a":"1","b":"2"}}`, edit: func(s *spec) { s.Kept = map[string]string{"b": "3"} },
			want: `{"kept":{"b":"3"}}`, patch: `{"kept":{"a":null,"b":"3"}}`},
		{name: "nested map", spec: `{"deep":{"a":{"value":1,"unknown":1},"b":{"value":2}}}`,
			edit: func(s *spec) { s.Deep["a"] = itemSpec{Value: 3}; delete(s.Deep, "b"); s.Deep["c"] = itemSpec{} },
			want: `{"deep":{"a":{"value":3,"unknown":1},"c":{}}}`},

		{name: "field of a struct", spec: `{"struct":{"name":"a","unknown":1}}`, edit: func(s *spec) { s.Struct.Value = 2 },
			want: `{"struct":{"name":"a","unknown":1,"value":2}}`, patch: `{"struct":{"value":2}}`},
		{name: "another struct", spec: `{"struct":{"name":"a","unknown":1}}`, edit: func(s *spec) { s.Struct = &itemSpec{Value: 2} },
			want: `{"struct":{"unknown":1,"value":2}}`},
		{name: "no struct any more", spec: `{"struct":{"name":"a","unknown":1}}`, edit: func(s *spec) { s.Struct = nil },
			want: `{}`},
		{name: "empty struct", spec: `{}`, edit: func(s *spec) { s.Struct = &itemSpec{} },
			want: `{"struct":{}}`},

		{name: "item by name", spec: `{"items":[{"name":"a","u":1},{"name":"b","u":2}]}`, locked: true,
			edit: func(s *spec) { s.Items[1].Value = 3 },
			want: `{"items":[{"name":"a","u":1},{"name":"b","u":2,"value":3}]}`},
		{name: "named items in another order", spec: `{"items":[{"name":"a","u":1},{"name":"b","u":2}]}`, locked: true,
			edit: func(s *spec) {
				s.Items[0], s.Items[1] = s.Items[1], s.Items[0]
				s.Items[0].Value, s.Items[1].Value = 3, 4
			},
			want: `{"items":[{"name":"b","u":2,"value":3},{"name":"a","u":1,"value":4}]}`},
		{name: "equal items in another order", spec: `{"items":[{"value":1,"u":1},{"value":2,"u":2}]}`, locked: true,
			edit: func(s *spec) { s.Items[0], s.Items[1] = s.Items[1], s.Items[0] },
			want: `{"items":[{"value":2,"u":2},{"value":1,"u":1}]}`},
		{name: "item by place", spec: `{"items":[{"value":1,"u":1},{"value":2,"u":2}]}`, locked: true,
			edit: func(s *spec) { s.Items[1].Value = 3 },
			want: `{"items":[{"value":1,"u":1},{"value":3,"u":2}]}`},
		{name: "item removed", spec: `{"items":[{"value":1,"u":1},{"value":2,"u":2},{"value":3,"u":3}]}`, locked: true,
			edit: func(s *spec) { s.Items = append(s.Items[:0], s.Items[1:]...) },
			want: `{"items":[{"value":2,"u":2},{"value":3,"u":3}]}`},
		{name: "item put before", spec: `{"items":[{"value":1,"u":1},{"value":2,"u":2}]}`, locked: true,
			edit: func(s *spec) { s.Items = append([]itemSpec{{Value: 9}}, s.Items...) },
			want: `{"items":[{"value":9},{"value":1,"u":1},{"value":2,"u":2}]}`},
		{name: "items that look alike", spec: `{"items":[{"value":1,"u":1},{"value":1,"u":2}]}`, locked: true,
			edit: func(s *spec) { s.Items = append(s.Items, itemSpec{Value: 1}) },
			want: `{"items":[{"value":1,"u":1},{"value":1,"u":2},{"value":1}]}`},
		{name: "item renamed", spec: `{"items":[{"name":"a","u":1}]}`, locked: true,
			edit: func(s *spec) { s.Items[0].Name = "b" },
			want: `{"items":[{"name":"b"}]}`},
		{name: "item and another of its name", spec: `{"items":[{"name":"a","value":1,"u":1}]}`, locked: true,
			edit: func(s *spec) { s.Items = append(s.Items, itemSpec{Name: "a", Value: 2}) },
			want: `{"items":[{"name":"a","value":1,"u":1},{"name":"a","value":2}]}`},
		{name: "no items any more", spec: `{"items":[{"name":"a"}]}`, locked: true,
			edit: func(s *spec) { s.Items = nil }, want: `{}`},
		{name: "first item", spec: `{}`, locked: true, edit: func(s *spec) { s.Items = []itemSpec{{Value: 1}} },
			want: `{"items":[{"value":1}]}`},
		{name: "lists in lists", spec: `{"lists":[[{"name":"a","u":1}],[{"name":"b","u":2}]]}`, locked: true,
			edit: func(s *spec) { s.Lists[1][0].Value = 3 },
			want: `{"lists":[[{"name":"a","u":1}],[{"name":"b","u":2,"value":3}]]}`},

		{name: "an object becomes a text", spec: `{"any":{"a":1}}`, edit: func(s *spec) { s.Any = "x" },
			want: `{"any":"x"}`},
		{name: "a text becomes an object", spec: `{"any":"x"}`, edit: func(s *spec) { s.Any = map[string]any{"a": map[string]any{"b": 1}} },
			want: `{"any":{"a":{"b":1}}}`},
		{name: "a list becomes a text", spec: `{"any":[1]}`, locked: true, edit: func(s *spec) { s.Any = "x" },
			want: `{"any":"x"}`},
		{name: "PAT-6 set to what it is", spec: `{"text":"a","items":[{"name":"a"}],"map":{"a":"1"}}`,
			edit: func(s *spec) {
				s.Text, s.Items, s.Map = "a", []itemSpec{{Name: "a"}}, map[string]string{"a": "1"}
			},
			want: `{"text":"a","items":[{"name":"a"}],"map":{"a":"1"}}`, patch: "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := parse(t, thingWith(c.spec))
			plan, err := Compose(b, Change{Edits: []registry.Edit{editOf(func(o *thing) { c.edit(&o.Spec) })}}, true)
			if err != nil {
				t.Fatal(err)
			}
			if c.patch == "none" {
				if plan.Object != nil {
					t.Errorf("a no-op is sent: %s", plan.Object)
				}
				return
			}
			patch := tree(t, plan.Object)
			if c.patch != "" && !reflect.DeepEqual(patch["spec"], any(tree(t, []byte(c.patch)))) {
				t.Errorf("patch is %s", plan.Object)
			}
			got := applyMerge(tree(t, b.Raw()), patch).(map[string]any)["spec"]
			if want := any(tree(t, []byte(c.want))); !reflect.DeepEqual(got, want) {
				t.Errorf("\n got %v\nwant %v\npatch %s", got, want, plan.Object)
			}
			if plan.Locked != c.locked || (patch["metadata"].(map[string]any)["resourceVersion"] != nil) != c.locked {
				t.Errorf("locked is %t: %s", plan.Locked, plan.Object)
			}
			// The body is shared, and stays as it was.
			if now, _ := b.Tree(); !reflect.DeepEqual(now, tree(t, []byte(thingWith(c.spec)))) {
				t.Errorf("the body has become %v", now)
			}
		})
	}
}

func TestEditsOfMetadata(t *testing.T) {
	plan, err := Compose(parse(t, object), Change{Edits: []registry.Edit{editOf(func(d *appsv1.Deployment) {
		delete(d.Labels, "a")
		d.Labels["c"] = "3"
		d.Annotations = nil
	})}}, true)
	if err != nil || !same(t, plan.Object, `{"metadata":{"uid":"u","labels":{"a":null,"c":"3"},"annotations":null}}`) || plan.Locked {
		t.Errorf("%s, %v", plan.Object, err)
	}
}

// The typed object has zero values that the real one has not, such as the status of
// a pod template; they are not sent.
func TestEditsOfBuiltIns(t *testing.T) {
	b := parse(t, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"uid":"u","resourceVersion":"7"},"spec":{
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[
			{"name":"app","image":"one","futureField":{"x":1}},{"name":"side","image":"two"}]}}}}`)
	plan, err := Compose(b, Change{Edits: []registry.Edit{editOf(func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Image = "three"
	})}}, true)
	want := `{"metadata":{"uid":"u","resourceVersion":"7"},"spec":{"template":{"spec":{"containers":[
		{"name":"app","image":"three","futureField":{"x":1}},{"name":"side","image":"two"}]}}}}`
	if err != nil || !same(t, plan.Object, want) || !plan.Locked {
		t.Errorf("%s, %v", plan.Object, err)
	}
	plan, err = Compose(b, Change{Edits: []registry.Edit{editOf(func(d *appsv1.Deployment) {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{}
		d.Spec.Template.Spec.SecurityContext = &corev1.PodSecurityContext{}
	})}}, true)
	want = `{"metadata":{"uid":"u"},"spec":{"strategy":{"rollingUpdate":{}},"template":{"spec":{"securityContext":{}}}}}`
	if err != nil || !same(t, plan.Object, want) || plan.Locked {
		t.Errorf("%s, %v", plan.Object, err)
	}
}

// Handlers of one object may know it by different Go types.
func TestEditsOfSeveralTypes(t *testing.T) {
	b := parse(t, thingWith(`{"text":"a","map":{"a":"1"},"items":[{"name":"a","u":1}],"unknown":1}`))
	plan, err := Compose(b, Change{Edits: []registry.Edit{
		editOf(func(o *thing) { o.Spec.Text, o.Spec.Map = "b", nil; o.Spec.Items[0].Value = 1 }),
		editOf(func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, int64(2), "spec", "unknown")
			text, _, _ := unstructured.NestedString(u.Object, "spec", "text")
			_ = unstructured.SetNestedField(u.Object, text+"c", "spec", "text")
		}),
		editOf(func(m *metav1.PartialObjectMetadata) { m.SetLabels(map[string]string{"l": "1"}) }),
		editOf(func(o *thing) { o.Spec.Text += o.Labels["l"]; o.Spec.Map = map[string]string{"b": "2"} }),
	}}, true)
	if err != nil {
		t.Fatal(err)
	}
	got := applyMerge(tree(t, b.Raw()), any(tree(t, plan.Object))).(map[string]any)
	want := tree(t, []byte(`{"text":"bc1","map":{"b":"2"},"items":[{"name":"a","u":1,"value":1}],"unknown":2}`))
	if !reflect.DeepEqual(got["spec"], any(want)) {
		t.Errorf("spec is %v after %s", got["spec"], plan.Object)
	}
	if labels := got["metadata"].(map[string]any)["labels"]; !reflect.DeepEqual(labels, any(map[string]any{"l": "1"})) {
		t.Errorf("labels are %v", labels)
	}
	// What one puts and another one takes away is no change.
	plan, err = Compose(b, Change{Edits: []registry.Edit{
		editOf(func(o *thing) { o.Spec.Text = "b"; o.Spec.Map["x"] = "1" }),
		editOf(func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, "a", "spec", "text")
			unstructured.RemoveNestedField(u.Object, "spec", "map", "x")
		}),
	}}, true)
	if err != nil || plan.Object != nil {
		t.Errorf("%s, %v", plan.Object, err)
	}
}

// Edits of one type see what those before have done.
func TestEditsInOrder(t *testing.T) {
	plan, err := Compose(parse(t, thingWith(`{"text":"a"}`)), Change{Edits: []registry.Edit{
		editOf(func(o *thing) { o.Spec.Text += "b" }),
		editOf(func(o *thing) { o.Spec.Text += "c"; o.Status.Count = 9007199254740993 }),
	}}, true)
	if err != nil || !same(t, plan.Object, `{"metadata":{"uid":"u"},"spec":{"text":"abc"}}`) ||
		!same(t, plan.Status, `{"metadata":{"uid":"u"},"status":{"count":9007199254740993}}`) {
		t.Errorf("%s, %s, %v", plan.Object, plan.Status, err)
	}
}

func TestUnstructuredEdits(t *testing.T) {
	b := parse(t, thingWith(`{"text":"a","list":[1,2],"big":9007199254740993}`))
	plan, err := Compose(b, Change{Edits: []registry.Edit{editOf(func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, "b", "spec", "text")
		_ = unstructured.SetNestedField(u.Object, "Ready", "status", "phase")
		unstructured.RemoveNestedField(u.Object, "spec", "list")
	})}}, true)
	if err != nil || !same(t, plan.Object, `{"metadata":{"uid":"u","resourceVersion":"7"},"spec":{"text":"b","list":null}}`) ||
		!same(t, plan.Status, `{"metadata":{"uid":"u","resourceVersion":"7"},"status":{"phase":"Ready"}}`) || !plan.Locked {
		t.Errorf("%s, %s, %v", plan.Object, plan.Status, err)
	}
}

func TestComposeErrors(t *testing.T) {
	b := parse(t, thingWith(`{"text":"a"}`))
	for name, c := range map[string]struct {
		change Change
		want   string
	}{
		"panic": {Change{Edits: []registry.Edit{editOf(func(o *thing) { o.Spec.Map["x"] = "1" })}},
			"patch function panicked: assignment to entry in nil map"},
		"panic of another edit": {Change{Edits: []registry.Edit{editOf(func(*thing) {}), editOf(func(*unstructured.Unstructured) { panic(errors.New("oops")) })}},
			"patch function panicked: oops"},
		"undecodable": {Change{Edits: []registry.Edit{editOf(func(*custom[struct {
			Text int `json:"text"`
		}]) {
		})}}, "object does not decode into *patching.custom"},
		"result":                       {Change{Results: map[string]any{"h": func() {}}}, "result does not encode: json: unsupported type: func()"},
		"edit to what does not encode": {Change{Edits: []registry.Edit{editOf(func(o *thing) { o.Spec.Any = func() {} })}}, "unsupported type"},
	} {
		plan, err := Compose(b, c.change, true)
		if err == nil || !strings.Contains(err.Error(), c.want) || plan.Object != nil || plan.Status != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// For whatever an edit does: applying the patch to the object makes what the edit
// made, in the eyes of the Go type, and keeps what the type does not know.
func TestPatchMakesWhatTheEditMade(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 7))
		before, after := randomSpec(r), randomSpec(r)
		if r.IntN(2) == 0 { // a small change
			after = mutated(r, before)
		}
		raw, err := json.Marshal(&thing{ObjectMeta: metav1.ObjectMeta{Name: "t", UID: "u", ResourceVersion: "7"}, Spec: before})
		if err != nil {
			t.Fatal(err)
		}
		foreign := tree(t, raw)
		foreign["spec"].(map[string]any)["unknown"] = map[string]any{"big": int64(9007199254740993)}
		raw, _ = json.Marshal(foreign)
		b := parse(t, string(raw))
		plan, err := Compose(b, Change{Edits: []registry.Edit{editOf(func(o *thing) { o.Spec = after })}}, true)
		if err != nil {
			t.Fatal(err)
		}
		result := tree(t, b.Raw())
		if plan.Object != nil {
			result = applyMerge(result, any(tree(t, plan.Object))).(map[string]any)
		}
		text, _ := json.Marshal(result)
		var got thing
		if err := utiljson.UnmarshalCaseSensitivePreserveInts(text, &got); err != nil {
			t.Fatal(err)
		}
		gotText, _ := json.Marshal(got.Spec)
		wantText, _ := json.Marshal(after)
		if string(gotText) != string(wantText) {
			t.Fatalf("seed %d:\nbefore %s\n   got %s\n  want %s\n patch %s", seed, raw, gotText, wantText, plan.Object)
		}
		if unknown := result["spec"].(map[string]any)["unknown"]; !reflect.DeepEqual(unknown, foreign["spec"].(map[string]any)["unknown"]) {
			t.Fatalf("seed %d: unknown fields became %v", seed, unknown)
		}
		if string(wantText) == specText(before) && plan.Object != nil {
			t.Fatalf("seed %d: a no-op is sent: %s", seed, plan.Object)
		}
	}
}

func specText(s spec) string {
	raw, _ := json.Marshal(s)
	return string(raw)
}

func randomSpec(r *rand.Rand) spec {
	maybe := func() bool { return r.IntN(2) == 0 }
	letter := func() string { return string(rune('a' + r.IntN(3))) }
	s := spec{Plain: letter(), Number: r.Int64N(3), Kept: map[string]string{}}
	item := func() itemSpec { return itemSpec{Name: strings.Repeat(letter(), r.IntN(2)), Value: r.IntN(3)} }
	if maybe() {
		s.Text = letter()
	}
	if maybe() {
		flag := maybe()
		s.Flag = &flag
	}
	for range r.IntN(3) {
		s.Kept[letter()] = letter()
	}
	if maybe() {
		s.Map = map[string]string{letter(): letter()}
	}
	if maybe() {
		i := item()
		s.Struct = &i
	}
	if maybe() {
		s.Deep = map[string]itemSpec{letter(): item(), letter(): item()}
	}
	for range r.IntN(4) {
		s.Items = append(s.Items, item())
	}
	for range r.IntN(3) {
		s.Lists = append(s.Lists, []itemSpec{item(), item()})
	}
	switch r.IntN(5) {
	case 0:
		s.Any = letter()
	case 1:
		s.Any = map[string]any{letter(): letter(), letter(): map[string]any{letter(): int64(1)}}
	case 2:
		s.Any = []any{letter(), map[string]any{}}
	case 3:
		s.Any = map[string]any{}
	}
	return s
}

// mutated returns a copy with one field changed.
func mutated(r *rand.Rand, s spec) spec {
	other := randomSpec(r)
	v, o := reflect.ValueOf(&s).Elem(), reflect.ValueOf(other)
	i := r.IntN(v.NumField())
	v.Field(i).Set(o.Field(i))
	return s
}
