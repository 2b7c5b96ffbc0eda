package patching

import (
	"reflect"
	"testing"
)

// T107: what the response lacks, alters or still has is named by its path; what it has
// besides is not.
func TestDropped_VER1_T107_DIF6_T047(t *testing.T) {
	for _, c := range []struct {
		name     string
		patch    string
		response string
		want     []string
	}{
		{"all is there", `{"metadata":{"uid":"u","resourceVersion":"7","annotations":{"a":"1"}},"spec":{"b":{"c":1}}}`,
			`{"metadata":{"uid":"u","resourceVersion":"8","annotations":{"a":"1","x":"2"}},"spec":{"b":{"c":1,"d":2},"e":3},"status":{}}`, nil},
		{"lacking", `{"metadata":{"uid":"u"},"status":{"h":{"n":1},"phase":"Ready"}}`, `{"metadata":{"uid":"u"},"status":{"phase":"Ready"}}`,
			[]string{"status.h"}},
		{"X21 lacking altogether", `{"metadata":{"uid":"u"},"status":{"h/spec.x":{"n":1}}}`, `{"metadata":{"uid":"u"},"spec":{}}`,
			[]string{"status"}},
		{"lacking inside", `{"status":{"h":{"n":1,"m":{"secret":"value"}}}}`, `{"status":{"h":{"n":1,"m":{}}}}`, []string{"status.h.m.secret"}},
		{"altered", `{"spec":{"a":1,"b":"x"}}`, `{"spec":{"a":2,"b":"x"}}`, []string{"spec.a"}},
		{"altered in the last place", `{"spec":{"a":9007199254740993}}`, `{"spec":{"a":9007199254740992}}`, []string{"spec.a"}},
		{"altered to another kind", `{"spec":{"a":{"b":1}}}`, `{"spec":{"a":"x"}}`, []string{"spec.a"}},
		{"not deleted", `{"spec":{"a":null,"b":{"c":null}}}`, `{"spec":{"a":1,"b":{"c":2}}}`, []string{"spec.a", "spec.b.c"}},
		{"deleted", `{"spec":{"a":null,"b":{"c":null}}}`, `{"spec":{}}`, nil},
		{"deleted from what is a text now", `{"spec":{"b":{"c":null}}}`, `{"spec":{"b":"x"}}`, []string{"spec.b"}},
		{"null instead of nothing", `{"spec":{"a":null}}`, `{"spec":{"a":null}}`, nil},
		{"annotation", `{"metadata":{"uid":"u","annotations":{"a.b/c":"1","d":null,"e":"2"}}}`,
			`{"metadata":{"uid":"u","annotations":{"d":"1","e":"2"}}}`, []string{"metadata.annotations.d", `metadata.annotations["a.b/c"]`}},
		{"empty stanzas", `{"metadata":{"annotations":{},"labels":{},"finalizers":[]}}`, `{"metadata":{}}`, nil},
		{"empty stanzas elsewhere", `{"spec":{"a":{}}}`, `{"spec":{}}`, []string{"spec.a"}},
		{"finalizers", `{"metadata":{"finalizers":["a","b"]}}`, `{"metadata":{"finalizers":["a"]}}`, []string{"metadata.finalizers"}},
		{"number in another form", `{"spec":{"a":1,"b":1.0,"c":[1.0]}}`, `{"spec":{"a":1.0,"b":1,"c":[1]}}`, nil},
		{"quantity in another form", `{"spec":{"a":"1000m","b":"1024Mi"}}`, `{"spec":{"a":"1","b":"1Gi"}}`, nil},
		{"another quantity", `{"spec":{"a":"1000m"}}`, `{"spec":{"a":"2"}}`, []string{"spec.a"}},
		{"instant in another form", `{"spec":{"a":"2026-01-01T01:00:00.5+01:00"}}`, `{"spec":{"a":"2026-01-01T00:00:00Z"}}`, nil},
		{"another instant", `{"spec":{"a":"2026-01-01T01:00:00Z"}}`, `{"spec":{"a":"2026-01-01T00:00:00Z"}}`, []string{"spec.a"}},
		{"defaulted items of a list", `{"spec":{"l":[{"name":"a"}]}}`, `{"spec":{"l":[{"name":"a","policy":"Always"}]}}`, nil},
		{"a field of an item is lacking", `{"spec":{"l":[{"name":"a","x":1}]}}`, `{"spec":{"l":[{"name":"a"}]}}`, []string{"spec.l"}},
		{"an item is more", `{"spec":{"l":[1]}}`, `{"spec":{"l":[1,2]}}`, []string{"spec.l"}},
		{"an item is of another kind", `{"spec":{"l":[{"a":null}]}}`, `{"spec":{"l":["x"]}}`, []string{"spec.l"}},
		{"no list any more", `{"spec":{"l":[1]}}`, `{"spec":{"l":"x"}}`, []string{"spec.l"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Dropped([]byte(c.patch), parse(t, c.response)); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// X21: a result that the schema does not keep is told, not that which is kept.
func TestDroppedOfAPlan_X21_RES3(t *testing.T) {
	b := parse(t, object)
	plan, err := Compose(b, Change{Annotations: map[string]*string{"n": text("1")}, Results: map[string]any{"h": 1}}, true)
	if err != nil {
		t.Fatal(err)
	}
	if got := Dropped(plan.Status, b); !reflect.DeepEqual(got, []string{"status.h"}) {
		t.Errorf("%q", got)
	}
	kept := parse(t, `{"metadata":{"uid":"u","annotations":{"n":"1"}},"status":{"h":1.0,"replicas":1}}`)
	if got := append(Dropped(plan.Status, kept), Dropped(plan.Object, kept)...); got != nil {
		t.Errorf("%q", got)
	}
	if got := Dropped(nil, b); got != nil {
		t.Errorf("nothing sent: %q", got)
	}
}
