package body

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"w\u00fc","namespace":"ns",
"uid":"u-1","resourceVersion":"7","generation":3,"creationTimestamp":"2026-11-30T01:48:26Z",
"deletionTimestamp":"2026-11-30T01:48:42Z","labels":{"a":"b"},"annotations":{"x/y":"{\"k\":1}"},
"finalizers":["f/one","f/two"],"ownerReferences":[{"apiVersion":"v1","kind":"Owner","name":"o","uid":"u-0"}],
"managedFields":[{"manager":"m"}]},"spec":{"replicas":3,"big":9007199254740993,"ratio":1.5}}`

func TestParseReadsTheMetadataThatTheEngineNeeds(t *testing.T) {
	b, err := Parse([]byte(deployment))
	if err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(b.ObjectMeta)
	var full metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(deployment), &full); err != nil {
		t.Fatal(err)
	}
	full.ManagedFields = nil
	want, _ := json.Marshal(full.ObjectMeta)
	if string(got) != string(want) {
		t.Errorf("metadata\n got %s\nwant %s", got, want)
	}
	if b.Kind != "Deployment" || b.APIVersion != "apps/v1" {
		t.Errorf("kind is %s %s", b.APIVersion, b.Kind)
	}
	if !b.Deleting() || !b.HasFinalizer("f/two") || b.HasFinalizer("f/three") {
		t.Error("deletion mark or finalizers are misread")
	}
}

// X25, B28: 64-bit integers survive.
func TestTreeKeepsIntegers(t *testing.T) {
	b, err := Parse([]byte(deployment))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := b.Tree()
	if err != nil {
		t.Fatal(err)
	}
	spec := tree["spec"].(map[string]any)
	if spec["big"] != int64(9007199254740993) || spec["ratio"] != 1.5 {
		t.Errorf("numbers became %v", spec)
	}
}

func TestDecode(t *testing.T) {
	b, err := Parse([]byte(deployment))
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := b.Decode(&d); err != nil || *d.Spec.Replicas != 3 || d.Name != "wü" {
		t.Errorf("typed: %v, %v", err, d)
	}
	var u unstructured.Unstructured
	if err := b.Decode(&u); err != nil || u.GetName() != "wü" {
		t.Errorf("unstructured: %v, %v", err, u)
	}
	u.SetName("changed") // a private copy
	if tree, _ := b.Tree(); tree["metadata"].(map[string]any)["name"] != "wü" {
		t.Error("a decoded copy shares memory with the body")
	}
}

func TestParseRefusesWhatIsNoObject(t *testing.T) {
	for _, raw := range []string{``, `[]`, `"x"`, `{"metadata":[]}`, `{"metadata":{"name":5}}`, `{"metadata":{"labels":{"a":{}}}}`, `{"a":`} {
		if _, err := Parse([]byte(raw)); err == nil {
			t.Errorf("%s was taken", raw)
		}
	}
}

func TestIdentify(t *testing.T) {
	b := Identify(metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, "ns", "n", "u", "5")
	again, err := Parse(b.Raw())
	if err != nil || again.Name != "n" || again.UID != "u" || again.Namespace != "ns" || again.Kind != "Pod" {
		t.Errorf("%v: %s", err, b.Raw())
	}
}

var _ runtime.Object = &Body{}
var _ metav1.Object = &Body{}

func BenchmarkParse(b *testing.B) {
	raw := []byte(deployment)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func TestTimes(t *testing.T) {
	for _, c := range []struct {
		raw  string
		want time.Time // zero: none
		ok   bool
	}{
		{`"2026-11-30T01:48:26Z"`, time.Date(2026, 11, 30, 1, 48, 26, 0, time.UTC), true},
		{`"2026-11-30T02:48:26.5+01:00"`, time.Date(2026, 11, 30, 1, 48, 26, 500_000_000, time.UTC), true},
		{`null`, time.Time{}, true},
		{`""`, time.Time{}, true},
		{`"yesterday"`, time.Time{}, false},
		{`5`, time.Time{}, false},
	} {
		b, err := Parse([]byte(`{"metadata":{"creationTimestamp":` + c.raw + `,"deletionTimestamp":` + c.raw + `}}`))
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.raw, err)
		}
		if err == nil && (!b.CreationTimestamp.Time.Equal(c.want) || b.Deleting() == c.want.IsZero()) {
			t.Errorf("%s: created at %s, deleting %t", c.raw, b.CreationTimestamp, b.Deleting())
		}
	}
}

// What is null, empty or missing is nothing, and what is odd ends no watch.
func TestParseTakesWhatServersSend(t *testing.T) {
	for _, raw := range []string{
		`{}`, `null`, `{"metadata":null}`, `{"metadata":{}}`, ` { "metadata" : { "labels" : null , "annotations" : {} } } `,
		`{"kind":null,"apiVersion":null,"metadata":{"name":null,"finalizers":null,"ownerReferences":[]}}`,
	} {
		b, err := Parse([]byte(raw))
		if err != nil || b.Name != "" || b.Labels != nil || b.Annotations != nil || len(b.Finalizers) > 0 || b.Deleting() {
			t.Errorf("%s: %v, %+v", raw, err, b)
		}
	}
	b, err := Parse([]byte("{\"metadata\":{\"labels\":{\"a\":null,\"a\":\"2\"}},\"data\":\"x\xff\"}"))
	if err != nil || b.Labels["a"] != "2" {
		t.Errorf("%v, %+v", err, b)
	}
	if b.DeepCopyObject() != runtime.Object(b) {
		t.Error("a body was copied")
	}
}

// Errors say where.
func TestParseErrors(t *testing.T) {
	for raw, want := range map[string]string{
		`{"metadata":{"name":5}}`:                "object is not readable: metadata: name: got JSON number where a text is expected",
		`{"metadata":{"labels":{"a":{}}}}`:       "object is not readable: metadata: labels: a: got JSON { where a text is expected",
		"{\"metadata\":{\"name\":\"x\xff\"}}":    "object is not readable: metadata: name: ", // who knows who it is
		`[]`:                                     "object is not readable: got JSON [ where an object is expected",
		`{"metadata":{"creationTimestamp":"x"}}`: `object is not readable: metadata: creationTimestamp: parsing time "x"`,
	} {
		if _, err := Parse([]byte(raw)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", raw, err)
		}
	}
	// The rest of the object is looked at when somebody asks for it.
	b, err := Parse([]byte(`{"metadata":{"name":"x"},"spec":{"a":1},"spec":5}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Decode(&appsv1.Deployment{}); err == nil {
		t.Error("a number was taken for a spec")
	}
}

// The tree is decoded once, be it for many. For the race detector.
func TestTreeIsShared(t *testing.T) {
	b, err := Parse([]byte(deployment))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	trees := make([]map[string]any, 8)
	for i := range trees {
		all.Go(func() {
			trees[i], _ = b.Tree()
			if _, err := Parse(b.Raw()); err != nil { // decoders are pooled
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, tree := range trees {
		if reflect.ValueOf(tree).Pointer() != reflect.ValueOf(trees[0]).Pointer() {
			t.Error("there are several trees")
		}
	}
}

func TestMembers(t *testing.T) {
	var got []string
	err := Members([]byte(`{"a":1,"b":{"c":[2]},"d":"\u00fc"}`), func(name string, value jsontext.Value) error {
		got = append(got, name+"="+string(value))
		return nil
	})
	if err != nil || strings.Join(got, " ") != `a=1 b={"c":[2]} d="\u00fc"` {
		t.Errorf("%q, %v", got, err)
	}
	stop := errors.New("stop")
	if err := Members([]byte(`{"a":1,"b":2}`), func(name string, _ jsontext.Value) error { return stop }); !errors.Is(err, stop) || err.Error() != "a: stop" {
		t.Error(err)
	}
	for _, raw := range []string{`{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{1:2}`, `x`, ``} {
		if err := Members([]byte(raw), func(string, jsontext.Value) error { return nil }); err == nil {
			t.Errorf("%s was taken", raw)
		}
	}
}
