package typed_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/patching"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/typed"
)

// planned returns what is sent for what a patch of the manifest collects.
func planned(t *testing.T, ask func(*typed.Patch[*database])) (patching.Plan, error) {
	t.Helper()
	call, _ := newCall(t, manifest)
	call.Patch = new(registry.Edits).For("h")
	c, err := typed.NewChange[*database](call)
	if err != nil {
		t.Fatal(err)
	}
	ask(c.Patch)
	b, err := body.Parse([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	return patching.Compose(b, patching.Change{Edits: call.Patch.List()}, true)
}

// PAT-1: whatever encodes to an object is a merge patch.
func TestMerge_PAT1(t *testing.T) {
	type spec struct {
		Engine  *string `json:"engine"`
		Unknown int64   `json:"unknown"`
	}
	want := `{"metadata":{"uid":"u-1"},"spec":{"engine":null,"unknown":9007199254740994}}`
	for name, patch := range map[string]any{
		"map": map[string]any{"spec": map[string]any{"engine": nil, "unknown": int64(9007199254740994)}},
		"struct": struct {
			Spec spec `json:"spec"`
		}{spec{Unknown: 9007199254740994}},
		"raw":   json.RawMessage(`{"spec":{"engine":null,"unknown":9007199254740994}}`),
		"bytes": []byte(`{"spec":{"engine":null,"unknown":9007199254740994}}`),
		"text":  ` {"spec":{"engine":null,"unknown":9007199254740994}} `,
	} {
		plan, err := planned(t, func(p *typed.Patch[*database]) { p.Merge(patch) })
		if err != nil || string(plan.Object) != want || plan.Status != nil {
			t.Errorf("%s: %s, %s, %v", name, plan.Object, plan.Status, err)
		}
	}
	// It is encoded at once.
	plan, err := planned(t, func(p *typed.Patch[*database]) {
		patch := map[string]any{"status": map[string]any{"phase": "One"}}
		p.Merge(patch)
		patch["status"] = "changed"
	})
	if err != nil || string(plan.Status) != `{"metadata":{"uid":"u-1"},"status":{"phase":"One"}}` || plan.Object != nil {
		t.Errorf("%s, %s, %v", plan.Object, plan.Status, err)
	}
}

// What is no patch is a failure of the handler that asked for it, whether or not it
// looks at anything.
func TestWhatIsNoPatchIsTheHandlersFailure(t *testing.T) {
	for _, c := range []struct {
		name string
		ask  func(*typed.Patch[*database])
		want string
	}{
		{"nil", func(p *typed.Patch[*database]) { p.Merge(nil) }, "merge patch does not encode: it is no JSON object"},
		{"a list", func(p *typed.Patch[*database]) { p.Merge([]int{1}) }, "merge patch does not encode: it is no JSON object"},
		{"a function", func(p *typed.Patch[*database]) { p.Merge(func() {}) }, "unsupported type: func()"},
		{"broken text", func(p *typed.Patch[*database]) { p.Merge(`{"a":`) }, "merge patch does not encode: "},
		{"empty text", func(p *typed.Patch[*database]) { p.Merge("") }, "merge patch does not encode: "},
		{"an unknown operation", func(p *typed.Patch[*database]) { p.JSON(typed.PatchOperation{Op: "set", Path: "/spec"}) },
			`operation "set" is none of add, remove, replace, move, copy and test`},
		{"a value that does not encode", func(p *typed.Patch[*database]) {
			p.JSON(typed.PatchOperation{Op: "add", Path: "/spec/x", Value: func() {}})
		}, "JSON patch does not encode: "},
		{"a failing test", func(p *typed.Patch[*database]) {
			p.JSON(typed.PatchOperation{Op: "test", Path: "/spec/engine", Value: "my"})
		}, "test failed"},
		{"no path", func(p *typed.Patch[*database]) { p.JSON(typed.PatchOperation{Op: "remove"}) }, "JSON patch does not apply: "},
	} {
		plan, err := planned(t, c.ask)
		var bad *patching.EditError
		if !errors.As(err, &bad) || bad.Handler != "h" || !strings.Contains(err.Error(), c.want) || plan.Object != nil {
			t.Errorf("%s: %v, %s", c.name, err, plan.Object)
		}
	}
}

func TestJSON(t *testing.T) {
	plan, err := planned(t, func(p *typed.Patch[*database]) {
		p.JSON() // nothing
		p.JSON(
			typed.PatchOperation{Op: "test", Path: "/spec/unknown", Value: int64(9007199254740993)},
			typed.PatchOperation{Op: "remove", Path: "/spec/flags/a"},
			typed.PatchOperation{Op: "replace", Path: "/spec/replicas", Value: nil},
			typed.PatchOperation{Op: "move", From: "/spec/engine", Path: "/status/phase"},
		)
	})
	if err != nil || string(plan.Object) != `{"metadata":{"resourceVersion":"7","uid":"u-1"},"spec":{"engine":null,"flags":{"a":null},"replicas":null}}` ||
		string(plan.Status) != `{"metadata":{"resourceVersion":"7","uid":"u-1"},"status":{"phase":"pg"}}` {
		t.Errorf("%s, %s, %v", plan.Object, plan.Status, err)
	}
	if plan, err := planned(t, func(p *typed.Patch[*database]) { p.JSON() }); err != nil || plan.Object != nil {
		t.Errorf("%s, %v", plan.Object, err)
	}
}

// A handler sees what those before it have asked for, and what it has asked for
// itself; not more.
func TestPreview(t *testing.T) {
	cycle := new(registry.Edits)
	ask := func(id string) (*typed.Change[*database], *registry.Edits) {
		call, _ := newCall(t, manifest)
		call.Patch = cycle.For(id)
		c, err := typed.NewChange[*database](call)
		if err != nil {
			t.Fatal(err)
		}
		return c, call.Patch
	}
	first, edits := ask("first")
	if !first.Patch.Empty() {
		t.Error("PAT-2: it is not empty")
	}
	first.Patch.Apply(func(d *database) { d.Status.Phase = "One" })
	first.Patch.Merge(`{"spec":{"engine":"my","unknown":5}}`)
	if first.Patch.Empty() {
		t.Error("PAT-2: it is empty")
	}
	cycle.Add(edits.List()...)

	second, edits := ask("second")
	if !second.Patch.Empty() {
		t.Error("PAT-2: what others asked for is its own")
	}
	second.Patch.Apply(func(d *database) { d.Status.Phase += "Two" })
	for range 2 {
		d, err := second.Patch.Preview()
		if err != nil || d.Status.Phase != "OneTwo" || d.Spec.Engine != "my" || d.Name != "blue" || *d.Spec.Replicas != 3 {
			t.Errorf("%+v, %v", d, err)
		}
		d.Spec.Engine = "the caller's own"
	}
	if second.Object.Status.Phase != "Ready" || len(edits.List()) != 1 || edits.List()[0].Handler != "second" {
		t.Errorf("%+v, %+v", second.Object, edits.List())
	}
	if d, err := first.Patch.Preview(); err != nil || d.Status.Phase != "One" {
		t.Errorf("%+v, %v", d, err)
	}
	second.Patch.JSON(typed.PatchOperation{Op: "test", Path: "/spec/unknown", Value: 4})
	if d, err := second.Patch.Preview(); err == nil || d != nil || !strings.HasPrefix(err.Error(), "handler second: ") {
		t.Errorf("%+v, %v", d, err)
	}
}

// Handlers can be called by their unit tests, with arguments made by hand.
func TestPatchMadeByHand(t *testing.T) {
	var zero typed.Patch[*appsv1.Deployment]
	zero.Apply(func(d *appsv1.Deployment) { d.Spec.Paused = true })
	if d, err := zero.Preview(); err != nil || !d.Spec.Paused || zero.Empty() {
		t.Errorf("%+v, %v", d, err)
	}

	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Labels: map[string]string{"a": "1"}}}
	patch := typed.NewPatch(d)
	if same, err := patch.Preview(); err != nil || same.Name != "d" || same == d {
		t.Errorf("%+v, %v", same, err)
	}
	patch.Merge(`{"metadata":{"labels":{"b":"2"}}}`)
	if got, err := patch.Preview(); err != nil || got.Labels["a"] != "1" || got.Labels["b"] != "2" || d.Labels["b"] != "" {
		t.Errorf("%+v, %v", got, err)
	}

	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"n": int64(9007199254740993)}}}
	untyped := typed.NewPatch(u)
	untyped.JSON(typed.PatchOperation{Op: "copy", From: "/spec/n", Path: "/spec/m"})
	got, err := untyped.Preview()
	if err != nil {
		t.Fatal(err)
	}
	if m, _, _ := unstructured.NestedInt64(got.Object, "spec", "m"); m != 9007199254740993 {
		t.Errorf("%v", got.Object)
	}

	c := &typed.Change[*appsv1.Deployment]{Object: d} // and no patch at all
	c.Patch.Apply(func(*appsv1.Deployment) {})
	c.Patch.Merge("{}")
	c.Patch.JSON(typed.PatchOperation{Op: "remove", Path: "/spec"})
	if got, err := c.Patch.Preview(); err != nil || got == nil || !c.Patch.Empty() {
		t.Errorf("%+v, %v", got, err)
	}
	if c.Result() != nil {
		t.Errorf("result is %v", c.Result())
	}
	c.SetResult(5)
	if c.Result() != 5 {
		t.Errorf("result is %v", c.Result())
	}
	unencodable := typed.NewPatch(&typed.Resource[func(), int]{})
	if _, err := unencodable.Preview(); err == nil || !strings.Contains(err.Error(), "object does not encode") {
		t.Errorf("%v", err)
	}
}

func TestPatchIsSafeForConcurrentUse(t *testing.T) {
	patch := typed.NewPatch(&database{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				patch.Apply(func(d *database) { d.Status.Phase += "x" })
				patch.Merge(`{"spec":{"engine":"pg"}}`)
				_ = patch.Empty()
			}
		})
	}
	all.Wait()
	d, err := patch.Preview()
	if err != nil || len(d.Status.Phase) != 400 || d.Spec.Engine != "pg" {
		t.Errorf("%+v, %v", d, err)
	}
}
