package typed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/patching"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/typed"
)

type (
	databaseSpec struct {
		Engine   string            `json:"engine,omitempty"`
		Replicas *int32            `json:"replicas,omitempty"`
		Flags    map[string]string `json:"flags,omitempty"`
	}
	databaseStatus struct {
		Phase string `json:"phase,omitempty"`
	}
	database = typed.Resource[databaseSpec, databaseStatus]
)

const manifest = `{"apiVersion":"example.com/v1","kind":"Database",
"metadata":{"name":"blue","namespace":"team","uid":"u-1","resourceVersion":"7","labels":{"tier":"gold"}},
"spec":{"engine":"pg","replicas":3,"flags":{"a":"1"},"unknown":9007199254740993},"status":{"phase":"Ready"}}`

const lastHandled = `{"spec":{"engine":"pg","replicas":1},"metadata":{"labels":{"tier":"silver"}}}`

var databases = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "databases"}

func newCall(t *testing.T, manifest string) (*registry.Call, *bytes.Buffer) {
	t.Helper()
	b, err := body.Parse([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	return &registry.Call{
		Body: b, Resource: databases, Reason: "update", Type: "MODIFIED", Old: []byte(lastHandled),
		Diff:  diff.Diff{{Op: diff.Change, Path: diff.Path{"spec", "replicas"}, Old: int64(1), New: int64(3)}},
		Retry: 2, Started: time.Unix(1_800_000_000, 0), Param: "blue", Patch: new(registry.Edits),
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}, &log
}

func TestNewChange_CHG7(t *testing.T) {
	call, log := newCall(t, manifest)
	c, err := typed.NewChange[*database](call)
	if err != nil {
		t.Fatal(err)
	}
	if c.Object.Name != "blue" || c.Object.Spec.Engine != "pg" || *c.Object.Spec.Replicas != 3 || c.Object.Status.Phase != "Ready" {
		t.Errorf("object is %+v", c.Object)
	}
	if c.New != c.Object {
		t.Error("New is another object")
	}
	if *c.Old.Spec.Replicas != 1 || c.Old.Labels["tier"] != "silver" || c.Old.Status.Phase != "" {
		t.Errorf("old is %+v", c.Old)
	}
	// The essence lacks who the object is.
	if c.Old.Name != "blue" || c.Old.Namespace != "team" || c.Old.UID != "u-1" ||
		c.Old.GroupVersionKind() != (schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Database"}) {
		t.Errorf("old is called %s/%s %s %s", c.Old.Namespace, c.Old.Name, c.Old.UID, c.Old.GroupVersionKind())
	}
	if c.Old.ResourceVersion != "" {
		t.Errorf("old has version %s", c.Old.ResourceVersion)
	}
	if c.Reason != typed.ReasonUpdate || c.Retry != 2 || !c.Started.Equal(call.Started) || c.Param != "blue" ||
		c.Resource != databases || c.Log != call.Log || !reflect.DeepEqual(c.Diff, call.Diff) {
		t.Errorf("got %+v", c)
	}
	if log.Len() > 0 {
		t.Error(log)
	}
}

// T081: Started comes from the record, so that Runtime counts downtime, too.
func TestRuntime_T081(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call, _ := newCall(t, manifest)
		call.Started = time.Now().Add(-time.Hour) // by an operator that ran before
		c, err := typed.NewChange[*database](call)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if c.Runtime() != time.Hour+time.Minute {
			t.Error(c.Runtime())
		}
	})
}

// CHG-8: on creation there is nothing old, be T what it may.
func TestOldIsNilOnCreation(t *testing.T) {
	call, _ := newCall(t, manifest)
	call.Old, call.Reason = nil, "create"
	if c, err := typed.NewChange[*database](call); err != nil || c.Old != nil || c.Reason != typed.ReasonCreate {
		t.Errorf("resource: %v, %v", c, err)
	}
	if c, err := typed.NewChange[*unstructured.Unstructured](call); err != nil || c.Old != nil {
		t.Errorf("unstructured: %v, %v", c, err)
	}
}

func TestUnstructured(t *testing.T) {
	call, _ := newCall(t, manifest)
	c, err := typed.NewChange[*unstructured.Unstructured](call)
	if err != nil {
		t.Fatal(err)
	}
	if n, _, _ := unstructured.NestedInt64(c.New.Object, "spec", "unknown"); n != 9007199254740993 { // B28
		t.Errorf("number is %d", n)
	}
	if n, _, _ := unstructured.NestedInt64(c.Old.Object, "spec", "replicas"); n != 1 {
		t.Errorf("old is %v", c.Old.Object)
	}
	if c.Old.GetName() != "blue" || c.Old.GetKind() != "Database" {
		t.Errorf("old is %v", c.Old.Object)
	}
}

func TestMetadataOnly(t *testing.T) {
	call, _ := newCall(t, manifest)
	c, err := typed.NewChange[*metav1.PartialObjectMetadata](call)
	if err != nil {
		t.Fatal(err)
	}
	if c.Object.Name != "blue" || c.Object.Labels["tier"] != "gold" || c.Old.Labels["tier"] != "silver" || c.Old.Name != "blue" {
		t.Errorf("%+v, %+v", c.Object, c.Old)
	}
}

func TestBuiltIn(t *testing.T) {
	call, _ := newCall(t, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":3}}`)
	c, err := typed.NewChange[*appsv1.Deployment](call)
	if err != nil || *c.New.Spec.Replicas != 3 || *c.Old.Spec.Replicas != 1 || c.Old.Kind != "Deployment" {
		t.Errorf("%v, %+v", err, c)
	}
}

// What a handler does to its objects stays with it.
func TestPrivateCopies(t *testing.T) {
	call, _ := newCall(t, manifest)
	for name, spoil := range map[string]func() error{
		"resource": func() error {
			c, err := typed.NewChange[*database](call)
			if err == nil {
				c.Object.Labels["tier"], c.Object.Spec.Flags["a"], *c.Object.Spec.Replicas = "x", "x", 99
				c.Old.Labels["tier"], *c.Old.Spec.Replicas = "x", 99
			}
			return err
		},
		"unstructured": func() error {
			c, err := typed.NewChange[*unstructured.Unstructured](call)
			if err == nil {
				for _, u := range []*unstructured.Unstructured{c.Object, c.Old} {
					u.SetLabels(map[string]string{"tier": "x"})
					_ = unstructured.SetNestedField(u.Object, int64(99), "spec", "replicas")
				}
			}
			return err
		},
		"field": func() error {
			call.NewValue, call.HasNew = map[string]any{"a": "1"}, true
			c, err := typed.NewFieldChange[*database, map[string]any](call)
			if err == nil {
				c.New["a"], c.Object.Spec.Flags["a"] = "x", "x"
			}
			if call.NewValue.(map[string]any)["a"] != "1" {
				t.Error("the value at the field is shared")
			}
			return err
		},
		"event": func() error {
			e, err := typed.NewEvent[*unstructured.Unstructured](call)
			if err == nil {
				e.Object.SetLabels(nil)
			}
			return err
		},
	} {
		if err := spoil(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c, err := typed.NewChange[*database](call)
		if err != nil {
			t.Fatal(err)
		}
		tree, _ := call.Body.Tree()
		if c.Object.Labels["tier"] != "gold" || c.Object.Spec.Flags["a"] != "1" || *c.Object.Spec.Replicas != 3 ||
			c.Old.Labels["tier"] != "silver" || *c.Old.Spec.Replicas != 1 ||
			tree["metadata"].(map[string]any)["labels"].(map[string]any)["tier"] != "gold" {
			t.Errorf("%s: a change leaked into %+v, %+v", name, c.Object, c.Old)
		}
	}
}

// The Go type has changed since the object was last handled: what still fits is kept.
func TestOldOfAnotherType(t *testing.T) {
	call, log := newCall(t, manifest)
	call.Old = []byte(`{"spec":{"replicas":"many","engine":"pg"},"metadata":{"labels":{"tier":"silver"}}}`)
	c, err := typed.NewChange[*database](call)
	if err != nil {
		t.Fatal(err)
	}
	if c.Old == nil || c.Old.Spec.Engine != "pg" || c.Old.Labels["tier"] != "silver" || c.Old.Spec.Replicas != nil && *c.Old.Spec.Replicas != 0 {
		t.Errorf("old is %+v", c.Old)
	}
	if c.Old.Name != "blue" {
		t.Error("old has no name")
	}
	if !strings.Contains(log.String(), "last-handled state does not fully decode") {
		t.Errorf("log: %s", log)
	}
}

func TestUndecodable(t *testing.T) {
	call, _ := newCall(t, `{"metadata":{"name":"x"},"spec":{"replicas":"many"}}`)
	call.NewValue, call.HasNew = "many", true
	_, changeErr := typed.NewChange[*database](call)
	_, eventErr := typed.NewEvent[*database](call)
	_, snapshotErr := typed.NewSnapshot[*database](call)
	_, fieldErr := typed.NewFieldChange[*database, int32](call)
	_, valueErr := typed.NewFieldChange[*metav1.PartialObjectMetadata, int32](call)
	for name, err := range map[string]error{
		"change": changeErr, "event": eventErr, "snapshot": snapshotErr, "field": fieldErr, "value": valueErr,
	} {
		var undecodable *registry.DecodeError
		if !errors.As(err, &undecodable) || !strings.Contains(err.Error(), "does not decode into") || errors.Unwrap(undecodable) == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := typed.NewChange[*unstructured.Unstructured](call); err != nil {
		t.Errorf("unstructured: %v", err)
	}
}

// Absent, null, zero and empty are four different things.
func TestFieldChangeValues(t *testing.T) {
	type value struct {
		tree any
		is   bool
	}
	absent, null := value{}, value{nil, true}
	newChange := func(t *testing.T, before, after value) *registry.Call {
		call, _ := newCall(t, manifest)
		call.OldValue, call.HadOld, call.NewValue, call.HasNew = before.tree, before.is, after.tree, after.is
		return call
	}
	for _, c := range []struct {
		name           string
		before, after  value
		wantOld        *int32
		wantNew        *int32
		hadOld, hasNew bool
	}{
		{"added", absent, value{int64(3), true}, nil, ptr[int32](3), false, true},
		{"removed", value{int64(3), true}, absent, ptr[int32](3), nil, true, false},
		{"from zero to null", value{int64(0), true}, null, ptr[int32](0), nil, true, true},
		{"from null to zero", null, value{int64(0), true}, nil, ptr[int32](0), true, true},
		{"from absent to null", absent, null, nil, nil, false, true},
		{"from null to absent", null, absent, nil, nil, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := typed.NewFieldChange[*database, *int32](newChange(t, c.before, c.after))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got.Old, c.wantOld) || !reflect.DeepEqual(got.New, c.wantNew) ||
				got.HadOld != c.hadOld || got.HasNew != c.hasNew {
				t.Errorf("got %+v", got)
			}
			// Without a pointer, null and absent are the zero value.
			flat, err := typed.NewFieldChange[*database, int32](newChange(t, c.before, c.after))
			if err != nil || flat.New != value0(c.wantNew) || flat.Old != value0(c.wantOld) || flat.HadOld != c.hadOld || flat.HasNew != c.hasNew {
				t.Errorf("got %+v, %v", flat, err)
			}
		})
	}
	empty, err := typed.NewFieldChange[*database, map[string]string](newChange(t, null, value{map[string]any{}, true}))
	if err != nil || empty.Old != nil || empty.New == nil || len(empty.New) != 0 {
		t.Errorf("empty map: %#v, %v", empty, err)
	}
	list, err := typed.NewFieldChange[*database, []string](newChange(t, absent, value{[]any{}, true}))
	if err != nil || list.Old != nil || list.New == nil {
		t.Errorf("empty list: %#v, %v", list, err)
	}
	text, err := typed.NewFieldChange[*database, *string](newChange(t, absent, value{"", true}))
	if err != nil || text.Old != nil || text.New == nil || *text.New != "" {
		t.Errorf("empty text: %#v, %v", text, err)
	}
	structs, err := typed.NewFieldChange[*database, databaseSpec](newChange(t, absent, value{map[string]any{"engine": "pg"}, true}))
	if err != nil || structs.New.Engine != "pg" {
		t.Errorf("struct: %#v, %v", structs, err)
	}
	anything, err := typed.NewFieldChange[*database, any](newChange(t, absent, value{int64(9007199254740993), true}))
	if err != nil || anything.New != int64(9007199254740993) {
		t.Errorf("B28: number became %#v, %v", anything.New, err)
	}
}

func ptr[T any](v T) *T { return &v }

func value0(p *int32) int32 {
	if p == nil {
		return 0
	}
	return *p
}

func TestFieldChangeOldOfAnotherType(t *testing.T) {
	call, log := newCall(t, manifest)
	call.OldValue, call.HadOld, call.NewValue, call.HasNew = "many", true, int64(3), true
	c, err := typed.NewFieldChange[*database, int32](call)
	if err != nil || c.Old != 0 || !c.HadOld || c.New != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	if !strings.Contains(log.String(), "last-handled value does not fully decode") {
		t.Errorf("log: %s", log)
	}
	if c.Reason != typed.ReasonUpdate || c.Retry != 2 || c.Param != "blue" || c.Resource != databases || c.Patch == nil {
		t.Errorf("%+v", c)
	}
}

func TestNewEvent(t *testing.T) {
	call, _ := newCall(t, manifest)
	call.Identity = true
	e, err := typed.NewEvent[*database](call)
	if err != nil || e.Type != typed.EventModified || e.Object.Name != "blue" || !e.IdentityOnly ||
		e.Param != "blue" || e.Log != call.Log || e.Resource != databases {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestNewSnapshot(t *testing.T) {
	call, _ := newCall(t, manifest)
	s, err := typed.NewSnapshot[*database](call)
	if err != nil || s.Object.Name != "blue" || s.Log != call.Log || s.Resource != databases {
		t.Errorf("%+v, %v", s, err)
	}
}

// RES-1, T080: the last result counts, and nil is none.
func TestSetResult(t *testing.T) {
	call, _ := newCall(t, manifest)
	c, err := typed.NewChange[*database](call)
	if err != nil {
		t.Fatal(err)
	}
	c.SetResult(1)
	c.SetResult(map[string]int{"replicas": 3})
	if !reflect.DeepEqual(call.Result, map[string]int{"replicas": 3}) {
		t.Errorf("result is %v", call.Result)
	}
	f, err := typed.NewFieldChange[*database, int32](call)
	if err != nil {
		t.Fatal(err)
	}
	f.SetResult(nil)
	if call.Result != nil {
		t.Errorf("result is %v", call.Result)
	}
}

// Edits are collected in order, and run on the object that they are given.
func TestApply(t *testing.T) {
	call, _ := newCall(t, manifest)
	c, err := typed.NewChange[*database](call)
	if err != nil {
		t.Fatal(err)
	}
	c.Patch.Apply(func(d *database) { d.Status.Phase = "One" })
	c.Patch.Apply(func(d *database) { d.Status.Phase += "Two" })
	if c.Object.Status.Phase != "Ready" {
		t.Error("an edit ran at once")
	}
	edits := call.Patch.List()
	if len(edits) != 2 || edits[0].Type != reflect.TypeFor[*database]() {
		t.Fatalf("%d edits of %v", len(edits), edits[0].Type)
	}
	var d database
	for _, edit := range edits {
		edit.Apply(&d)
	}
	if d.Status.Phase != "OneTwo" {
		t.Error(d.Status.Phase)
	}
}

func TestReasonsAreText_CHG1(t *testing.T) {
	raw, err := json.Marshal([]any{typed.ReasonCreate, typed.ReasonUpdate, typed.ReasonDelete, typed.ReasonResume, typed.ReasonIndex, typed.EventListed})
	if err != nil || string(raw) != `["create","update","delete","resume","index","LISTED"]` {
		t.Errorf("%s, %v", raw, err)
	}
}

// patchesOf calls a handler with an object and returns what would be sent.
func patchesOf[T typed.Object](handler func(context.Context, *typed.Change[T]) error, manifest string) (object, status string) {
	b, err := body.Parse([]byte(manifest))
	if err != nil {
		panic(err)
	}
	call := &registry.Call{Body: b, Patch: new(registry.Edits)}
	c, err := typed.NewChange[T](call)
	if err != nil {
		panic(err)
	}
	if err := handler(context.Background(), c); err != nil {
		panic(err)
	}
	plan, err := patching.Compose(b, patching.Change{Edits: call.Patch.List()}, true)
	if err != nil {
		panic(err)
	}
	return string(plan.Object), string(plan.Status)
}
