package patching

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kopf-go/kopf/internal/registry"
)

func mergeOf(patch string) registry.Edit { return registry.Edit{Merge: []byte(patch)} }
func jsonOf(patch string) registry.Edit  { return registry.Edit{Operations: []byte(patch)} }

// after applies the requests of a plan, the status's to the status only.
func after(t testing.TB, object []byte, plan Plan, apart bool) map[string]any {
	t.Helper()
	out, err := decodeTree(object)
	if err != nil {
		t.Fatal(err)
	}
	for i, request := range [][]byte{plan.Status, plan.Object} {
		if request == nil {
			continue
		}
		patch, err := decodeTree(request)
		if err != nil {
			t.Fatal(err)
		}
		metadata := patch["metadata"].(map[string]any)
		delete(metadata, "uid")
		delete(metadata, "resourceVersion")
		if len(metadata) == 0 {
			delete(patch, "metadata")
		}
		if _, has := patch["status"]; apart && has != (i == 0) || i == 0 && len(patch) > 1 {
			t.Fatalf("PAT-3: the status is sent to the wrong endpoint: %s, %s", plan.Object, plan.Status)
		}
		out = applyMerge(out, patch).(map[string]any)
	}
	return out
}

// T106: the vectors of Kopf's conversion of a merge patch, as far as they make sense
// where nothing is converted: what is sent, and what it makes.
func TestMergeVectors_T106_PAT1(t *testing.T) {
	for _, c := range []struct{ name, spec, patch, want, sent string }{
		{"adds a key", `{"a":1}`, `{"b":2}`, `{"a":1,"b":2}`, `{"b":2}`},
		{"replaces a key", `{"a":1}`, `{"a":2}`, `{"a":2}`, `{"a":2}`},
		{"null removes", `{"a":1,"b":2}`, `{"a":null}`, `{"b":2}`, `{"a":null}`},
		{"null of what is not there is no-op", `{"a":1}`, `{"b":null}`, `{"a":1}`, ``},
		{"null below what is not there is no-op", `{"a":1}`, `{"b":{"c":{"d":null}}}`, `{"a":1}`, ``},
		{"null below a null is no-op", `{"b":null}`, `{"b":{"c":null}}`, `{"b":null}`, ``},
		{"null below a text makes an object", `{"b":"x"}`, `{"b":{"c":null}}`, `{"b":{}}`, `{"b":{}}`},
		{"null beside a value below what is not there", `{}`, `{"b":{"c":null,"d":1}}`, `{"b":{"d":1}}`, `{"b":{"d":1}}`},
		{"same value is no-op", `{"a":1}`, `{"a":1}`, `{"a":1}`, ``},
		{"same number in another form is no-op", `{"a":1}`, `{"a":1.0}`, `{"a":1}`, ``},
		{"same object is no-op", `{"a":{"b":1}}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`, ``},
		{"same list is no-op", `{"a":[1,{"b":2}]}`, `{"a":[1,{"b":2}]}`, `{"a":[1,{"b":2}]}`, ``},
		{"nested creation", `{}`, `{"a":{"b":{"c":1}}}`, `{"a":{"b":{"c":1}}}`, `{"a":{"b":{"c":1}}}`},
		{"nested addition", `{"a":{"b":{"x":1}}}`, `{"a":{"b":{"c":1}}}`, `{"a":{"b":{"x":1,"c":1}}}`, `{"a":{"b":{"c":1}}}`},
		{"nested removal", `{"a":{"b":1,"c":2}}`, `{"a":{"b":null}}`, `{"a":{"c":2}}`, `{"a":{"b":null}}`},
		{"removal of the last key", `{"a":{"b":1}}`, `{"a":{"b":null}}`, `{"a":{}}`, `{"a":{"b":null}}`},
		{"removal of a whole object", `{"a":{"b":1},"c":1}`, `{"a":null}`, `{"c":1}`, `{"a":null}`},
		{"an empty object is one", `{}`, `{"a":{}}`, `{"a":{}}`, `{"a":{}}`},
		{"an empty object into one is no-op", `{"a":{"b":1}}`, `{"a":{}}`, `{"a":{"b":1}}`, ``},
		{"lists are replaced", `{"a":[1,2]}`, `{"a":[3]}`, `{"a":[3]}`, `{"a":[3]}`},
		{"nulls in lists stay", `{"a":[1]}`, `{"a":[null,{"b":null}]}`, `{"a":[null,{"b":null}]}`, `{"a":[null,{"b":null}]}`},
		{"object to text", `{"a":{"b":1}}`, `{"a":"x"}`, `{"a":"x"}`, `{"a":"x"}`},
		{"text to object", `{"a":"x"}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		{"slash and tilde in names", `{"a/b":1,"c~d":2}`, `{"a/b":3,"c~d":null}`, `{"a/b":3}`, `{"a/b":3,"c~d":null}`},
		{"B28 large numbers", `{"a":9007199254740993}`, `{"a":9007199254740994,"b":9223372036854775807}`,
			`{"a":9007199254740994,"b":9223372036854775807}`, `{"a":9007199254740994,"b":9223372036854775807}`},
		{"B28 large numbers that differ in the last place", `{"a":9007199254740993}`, `{"a":9007199254740992}`,
			`{"a":9007199254740992}`, `{"a":9007199254740992}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := parse(t, thingWith(c.spec))
			plan, err := Compose(b, Change{Edits: []registry.Edit{mergeOf(`{"spec":` + c.patch + `}`)}}, true)
			if err != nil {
				t.Fatal(err)
			}
			var sent any
			if plan.Object != nil {
				sent = tree(t, plan.Object)["spec"]
			}
			if c.sent == "" && sent != nil || c.sent != "" && !reflect.DeepEqual(sent, any(tree(t, []byte(c.sent)))) {
				t.Errorf("sent is %s", plan.Object)
			}
			if got := after(t, b.Raw(), plan, true)["spec"]; !reflect.DeepEqual(got, any(tree(t, []byte(c.want)))) {
				t.Errorf("spec becomes %v, want %s", got, c.want)
			}
			if plan.Locked != strings.Contains(c.sent, "[") {
				t.Errorf("locked is %t", plan.Locked)
			}
			if string(b.Raw()) != thingWith(c.spec) {
				t.Error("the original is changed")
			}
		})
	}
}

// T102, B27: the parts of one merge patch go where they belong.
func TestMergeIsSplit_T102_B27(t *testing.T) {
	merge := mergeOf(`{"metadata":{"labels":{"l":"1"}},"spec":{"text":"b"},"status":{"phase":"Ready"}}`)
	b := parse(t, thingWith(`{"text":"a"}`))
	plan, err := Compose(b, Change{Edits: []registry.Edit{merge}}, true)
	if err != nil || !same(t, plan.Object, `{"metadata":{"uid":"u","labels":{"l":"1"}},"spec":{"text":"b"}}`) ||
		!same(t, plan.Status, `{"metadata":{"uid":"u"},"status":{"phase":"Ready"}}`) || plan.Locked {
		t.Errorf("%s, %s, %v", plan.Object, plan.Status, err)
	}
	plan, err = Compose(b, Change{Edits: []registry.Edit{merge}}, false)
	if err != nil || plan.Status != nil ||
		!same(t, plan.Object, `{"metadata":{"uid":"u","labels":{"l":"1"}},"spec":{"text":"b"},"status":{"phase":"Ready"}}`) {
		t.Errorf("%s, %s, %v", plan.Object, plan.Status, err)
	}
}

// A JSON patch is about one version of the object, and so is what came of it.
func TestJSONPatch(t *testing.T) {
	for _, c := range []struct{ name, spec, patch, object, status string }{
		{"add and test", `{"text":"a"}`, `[{"op":"test","path":"/spec/text","value":"a"},{"op":"add","path":"/spec/unknown","value":{"b":1}}]`,
			`{"metadata":{"uid":"u","resourceVersion":"7"},"spec":{"unknown":{"b":1}}}`, ``},
		{"remove", `{"text":"a","x":1}`, `[{"op":"remove","path":"/spec/x","value":null}]`,
			`{"metadata":{"uid":"u","resourceVersion":"7"},"spec":{"x":null}}`, ``},
		{"replace by null removes", `{"x":1}`, `[{"op":"replace","path":"/spec/x","value":null}]`,
			`{"metadata":{"uid":"u","resourceVersion":"7"},"spec":{"x":null}}`, ``},
		{"move and copy", `{"a":{"b":1},"c":2}`, `[{"op":"move","from":"/spec/a/b","path":"/spec/d"},{"op":"copy","from":"/spec/c","path":"/spec/e"}]`,
			`{"metadata":{"uid":"u","resourceVersion":"7"},"spec":{"a":{"b":null},"d":1,"e":2}}`, ``},
		{"item of a list", `{"list":[1,9007199254740993]}`, `[{"op":"add","path":"/spec/list/-","value":3}]`,
			`{"metadata":{"uid":"u","resourceVersion":"7"},"spec":{"list":[1,9007199254740993,3]}}`, ``},
		{"escaped names", `{"a/b":1,"c~d":2}`, `[{"op":"replace","path":"/spec/a~1b","value":3},{"op":"remove","path":"/spec/c~0d"}]`,
			`{"metadata":{"uid":"u","resourceVersion":"7"},"spec":{"a/b":3,"c~d":null}}`, ``},
		{"status", `{"a":1}`, `[{"op":"test","path":"/spec/a","value":1},{"op":"add","path":"/status","value":{"phase":"Ready"}}]`,
			``, `{"metadata":{"uid":"u","resourceVersion":"7"},"status":{"phase":"Ready"}}`},
		{"both", `{"a":1}`, `[{"op":"replace","path":"/spec/a","value":2},{"op":"add","path":"/status","value":{"phase":"Ready"}}]`,
			`{"metadata":{"uid":"u","resourceVersion":"7"},"spec":{"a":2}}`,
			`{"metadata":{"uid":"u","resourceVersion":"7"},"status":{"phase":"Ready"}}`},
		{"T101 nothing", `{"a":1}`, `[{"op":"test","path":"/spec/a","value":1},{"op":"replace","path":"/spec/a","value":1}]`, ``, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan, err := Compose(parse(t, thingWith(c.spec)), Change{Edits: []registry.Edit{jsonOf(c.patch)}}, true)
			if err != nil || !same(t, plan.Object, c.object) || !same(t, plan.Status, c.status) || plan.Locked != (c.object+c.status != "") {
				t.Errorf("%s, %s, %t, %v", plan.Object, plan.Status, plan.Locked, err)
			}
		})
	}
	// Plain bookkeeping beside it takes no lock.
	plan, err := Compose(parse(t, thingWith(`{}`)), Change{
		Annotations: map[string]*string{"n": text("1")},
		Edits:       []registry.Edit{jsonOf(`[{"op":"add","path":"/status","value":{"phase":"Ready"}}]`)},
	}, true)
	if err != nil || !same(t, plan.Object, `{"metadata":{"uid":"u","annotations":{"n":"1"}}}`) ||
		!same(t, plan.Status, `{"metadata":{"uid":"u","resourceVersion":"7"},"status":{"phase":"Ready"}}`) {
		t.Errorf("%s, %s, %v", plan.Object, plan.Status, err)
	}
}

// All kinds of edits mix, and each sees what those before it did.
func TestEditsOfAllKindsMix_PAT2(t *testing.T) {
	b := parse(t, thingWith(`{"text":"a","map":{"a":"1"},"items":[{"name":"a","u":1}],"unknown":1}`))
	plan, err := Compose(b, Change{Edits: []registry.Edit{
		mergeOf(`{"spec":{"text":"ab","map":null}}`),
		editOf(func(o *thing) { o.Spec.Text += "c"; o.Spec.Map = map[string]string{"n": o.Spec.Text} }),
		jsonOf(`[{"op":"test","path":"/spec/text","value":"abc"},{"op":"add","path":"/spec/items/-","value":{"name":"b"}}]`),
		mergeOf(`{"spec":{"map":{"m":"2"}},"status":{"count":9007199254740993}}`),
		editOf(func(u *unstructured.Unstructured) {
			n, _, _ := unstructured.NestedInt64(u.Object, "status", "count")
			_ = unstructured.SetNestedField(u.Object, n+1, "status", "count")
		}),
		editOf(func(o *thing) { o.Spec.Items[0].Value = len(o.Spec.Items) }),
	}}, true)
	if err != nil {
		t.Fatal(err)
	}
	got := after(t, b.Raw(), plan, true)
	want := tree(t, []byte(`{"text":"abc","map":{"n":"abc","m":"2"},"items":[{"name":"a","u":1,"value":2},{"name":"b"}],"unknown":1}`))
	if !reflect.DeepEqual(got["spec"], any(want)) || !reflect.DeepEqual(got["status"], any(map[string]any{"count": int64(9007199254740994)})) {
		t.Errorf("%v, %v", got["spec"], got["status"])
	}
}

// What removes a whole object, and what then puts something into it, is neither lost.
func TestRemovalAndAdditionBothCount(t *testing.T) {
	b := parse(t, object)
	plan, err := Compose(b, Change{
		Annotations: map[string]*string{"n": text("1")},
		Edits:       []registry.Edit{mergeOf(`{"metadata":{"annotations":null}}`)},
	}, true)
	if err != nil || !same(t, plan.Object, `{"metadata":{"uid":"u","annotations":{"x/y":null,"n":"1"}}}`) {
		t.Errorf("%s, %v", plan.Object, err)
	}
}

// The first edit that cannot be applied is named, with its handler; the others can
// be written without it.
func TestBadEditIsNamed(t *testing.T) {
	noted := errors.New("noted")
	for _, c := range []struct {
		name string
		bad  registry.Edit
		want string
		is   error
	}{
		{"panic", editOf(func(o *thing) { o.Spec.Map["x"] = "1" }), "handler bad: patch function panicked: assignment to entry in nil map", nil},
		{"panic with an error", editOf(func(o *thing) { o.Spec.Text = "half"; panic(noted) }), "handler bad: patch function panicked: noted", noted},
		{"panic in another type", editOf(func(*unstructured.Unstructured) { panic("oops") }), "handler bad: patch function panicked: oops", nil},
		{"does not encode", editOf(func(o *thing) { o.Spec.Any = func() {} }), "handler bad: object does not encode: json: unsupported type: func()", nil},
		{"no content", editOf(func(u *unstructured.Unstructured) { u.Object = nil }), "handler bad: object does not encode: nothing is left of it", nil},
		{"test failed", jsonOf(`[{"op":"add","path":"/spec/half","value":1},{"op":"test","path":"/spec/text","value":"z"}]`), "handler bad: JSON patch does not apply: ", jsonpatch.ErrTestFailed},
		{"path is missing", jsonOf(`[{"op":"replace","path":"/spec/nothing","value":1}]`), "handler bad: JSON patch does not apply: ", jsonpatch.ErrMissing},
		{"parent is missing", jsonOf(`[{"op":"add","path":"/spec/x/y","value":1}]`), "handler bad: JSON patch does not apply: ", nil},
		{"whole object", jsonOf(`[{"op":"remove","path":""}]`), "handler bad: JSON patch does not apply: ", nil},
		{"no operations", jsonOf(`{}`), "handler bad: JSON patch is not readable: ", nil},
		{"no object", mergeOf(`[]`), "handler bad: merge patch is not a JSON object: ", nil},
		{"noted before", registry.Edit{Err: noted}, "handler bad: noted", noted},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.bad.Handler = "bad"
			edits := []registry.Edit{
				editOf(func(o *thing) { o.Spec.Text += "b" }), c.bad,
				editOf(func(o *thing) { o.Spec.Text += "c" }),
			}
			edits[0].Handler, edits[2].Handler = "good", "good"
			b := parse(t, thingWith(`{"text":"a"}`))
			plan, err := Compose(b, Change{Edits: edits}, true)
			var bad *EditError
			if !errors.As(err, &bad) || bad.Handler != "bad" || bad.Index != 1 || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "goroutine") || plan.Object != nil || plan.Status != nil {
				t.Fatalf("%v, %+v", err, plan)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v is not %v", err, c.is)
			}
			if panicked := new(PanicError); errors.As(err, &panicked) && !strings.Contains(string(panicked.Stack), "kinds_test.go") {
				t.Errorf("the stack is %s", panicked.Stack)
			}
			plan, err = Compose(b, Change{Edits: append(edits[:1:1], edits[2])}, true)
			if err != nil || !same(t, plan.Object, `{"metadata":{"uid":"u"},"spec":{"text":"abc"}}`) {
				t.Errorf("%s, %v", plan.Object, err)
			}
		})
	}
}

// RES-1: mappings are merged into what is there, everything else replaces it.
func TestResults_RES1(t *testing.T) {
	type result struct {
		N    int     `json:"n"`
		Gone *string `json:"gone"`
	}
	var none *result
	for _, c := range []struct {
		name   string
		status string
		result any
		want   string
	}{
		{"mapping into a mapping", `{"h":{"m":1}}`, map[string]any{"n": 2}, `{"h":{"m":1,"n":2}}`},
		{"mapping over a text", `{"h":"x"}`, map[string]any{"n": 2}, `{"h":{"n":2}}`},
		{"text over a mapping", `{"h":{"m":1}}`, "x", `{"h":"x"}`},
		{"list over a list", `{"h":[1,2]}`, []string{"a"}, `{"h":["a"]}`},
		{"struct, whose null removes", `{"h":{"m":1,"gone":"x"}}`, result{N: 2}, `{"h":{"m":1,"n":2}}`},
		{"first one", `{}`, result{N: 2}, `{"h":{"n":2}}`},
		{"false", `{}`, false, `{"h":false}`},
		{"nil stores nothing", `{"h":1}`, nil, `{"h":1}`},
		{"a nil pointer stores nothing", `{"h":1}`, none, `{"h":1}`},
		{"raw JSON", `{}`, json.RawMessage(`{"big":9007199254740993}`), `{"h":{"big":9007199254740993}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := parse(t, `{"metadata":{"uid":"u","resourceVersion":"7"},"status":`+c.status+`}`)
			plan, err := Compose(b, Change{Results: map[string]any{"h": c.result}}, true)
			if err != nil || plan.Object != nil {
				t.Fatalf("%v, %s", err, plan.Object)
			}
			if got := after(t, b.Raw(), plan, true)["status"]; !reflect.DeepEqual(got, any(tree(t, []byte(c.want)))) {
				t.Errorf("status becomes %v, want %s", got, c.want)
			}
		})
	}
	_, err := Compose(parse(t, object), Change{Results: map[string]any{"h/spec.x": func() {}}}, true)
	if bad := new(EditError); !errors.As(err, &bad) || bad.Handler != "h/spec.x" || bad.Index != -1 {
		t.Errorf("%v", err)
	}
}

func TestPreview(t *testing.T) {
	raw := []byte(thingWith(`{"text":"a","unknown":1}`))
	edits := []registry.Edit{
		mergeOf(`{"spec":{"plain":"p"},"metadata":{"uid":"other"}}`),
		editOf(func(o *thing) { o.Spec.Text += o.Spec.Plain }),
		jsonOf(`[{"op":"copy","from":"/spec/unknown","path":"/spec/number"}]`),
	}
	var o thing
	if err := Preview(raw, edits, &o); err != nil || o.Spec.Text != "ap" || o.Spec.Number != 1 || o.UID != "u" {
		t.Errorf("%+v, %v", o, err)
	}
	var u unstructured.Unstructured
	if err := Preview(raw, edits, &u); err != nil || !reflect.DeepEqual(u.Object["spec"],
		any(tree(t, []byte(`{"text":"ap","plain":"p","unknown":1,"number":1}`)))) {
		t.Errorf("%v, %v", u.Object, err)
	}
	if err := Preview(raw, []registry.Edit{{Handler: "h", Err: errors.New("noted")}}, &o); err == nil || err.Error() != "handler h: noted" {
		t.Errorf("%v", err)
	}
	wrong := new(registry.DecodeError)
	if err := Preview(raw, nil, new(custom[string])); !errors.As(err, &wrong) {
		t.Errorf("%v", err)
	}
}
