package state

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

const removed = "REMOVED"

// spelled returns the changes with removals spelled out.
func spelled(changes map[string]*string) map[string]string {
	var plain map[string]string
	for name, value := range changes {
		if plain == nil {
			plain = map[string]string{}
		}
		plain[name] = removed
		if value != nil {
			plain[name] = *value
		}
	}
	return plain
}

func TestChanges(t *testing.T) {
	widgets, err := For("widgets")
	if err != nil {
		t.Fatal(err)
	}
	const none, one = `{"retries":0,"success":false,"failure":false}`, `{"retries":1,"success":false,"failure":false}`
	long := strings.Repeat("y", 64)
	v2, v1 := "kopf.zalando.org/"+strings.Repeat("y", 56)+"-0d251g", "kopf.zalando.org/"+strings.Repeat("y", 39)+"-0d251g"
	essence := &Essence{text: []byte(`{"spec":{"a":1}}`)}
	type object = map[string]string
	store := func(id string, r Record) func(*Changes) {
		return func(c *Changes) { c.StoreRecord(&Keys{ID: id}, r) }
	}
	purge := func(id string) func(*Changes) {
		return func(c *Changes) { c.PurgeRecord(&Keys{ID: id}) }
	}
	handled := func(c *Changes) { c.StoreLastHandled(essence) }

	for _, c := range []struct {
		rule   string
		naming Naming
		object object
		do     []func(*Changes)
		want   object
	}{
		{"nothing done", Default(), object{"a": "b"}, nil, nil},
		{"T061: a record", Default(), nil, []func(*Changes){store("a/b", Record{Retries: 1})}, object{"kopf.zalando.org/a.b": one, boundTo: "u-1"}},
		{"T060: both names", Default(), nil, []func(*Changes){store(long, Record{})}, object{v2: none, v1: none, boundTo: "u-1"}},
		{"T054, B.2.5: marker", widgets, nil, []func(*Changes){store("f", Record{}), store("g", Record{})},
			object{"widgets.kopf.zalando.org/f": none, "widgets.kopf.zalando.org/g": none, "widgets.kopf.zalando.org/kopf-managed": "yes", "widgets.kopf.zalando.org/last-handled-uid": "u-1"}},
		{"B.2.5: marker there already", widgets, object{"widgets.kopf.zalando.org/kopf-managed": "no"},
			[]func(*Changes){store("f", Record{})}, object{"widgets.kopf.zalando.org/f": none, "widgets.kopf.zalando.org/last-handled-uid": "u-1"}},
		{"B.2.5: no marker for removals", widgets, object{"widgets.kopf.zalando.org/f": "x"},
			[]func(*Changes){purge("f")}, object{"widgets.kopf.zalando.org/f": removed}},
		{"B.2.5: no marker for nothing", widgets, object{"widgets.kopf.zalando.org/f": one},
			[]func(*Changes){store("f", Record{Retries: 1})}, nil},
		{"B.3.6: equal record", Default(), object{"kopf.zalando.org/f": ` {"retries":1,"x":"y","message":null} `},
			[]func(*Changes){store("f", Record{Retries: 1})}, nil},
		{"B.3.6: equal record under V1 alone", Default(), object{v1: one}, []func(*Changes){store(long, Record{Retries: 1})}, nil},
		{"B.3.6: back to what it is", Default(), object{"kopf.zalando.org/f": one},
			[]func(*Changes){store("f", Record{Retries: 2}), store("f", Record{Retries: 1})}, nil},
		{"B23: other record", Default(), object{"kopf.zalando.org/f": none}, []func(*Changes){store("f", Record{Retries: 1})}, object{"kopf.zalando.org/f": one, boundTo: "u-1"}},
		{"B23: the last record goes, and with it whose it was", Default(), object{"kopf.zalando.org/f": none, boundTo: "u-1"},
			[]func(*Changes){func(c *Changes) { c.PurgeOthers() }}, object{"kopf.zalando.org/f": removed, boundTo: removed}},
		{"B23: but not if there is a last-handled state", Default(), object{"kopf.zalando.org/f": none, boundTo: "u-1", configuration: "{}"},
			[]func(*Changes){func(c *Changes) { c.PurgeOthers() }}, object{"kopf.zalando.org/f": removed}},
		{"B23: progress beside the state of another object", Default(), object{configuration: "{}", boundTo: "u-0", "kopf.zalando.org/g": one},
			[]func(*Changes){store("f", Record{})}, object{"kopf.zalando.org/f": none, "kopf.zalando.org/g": removed, configuration: removed, boundTo: "u-1"}},
		{"corrupt record is overwritten", Default(), object{"kopf.zalando.org/f": "x"}, []func(*Changes){store("f", Record{})}, object{"kopf.zalando.org/f": none, boundTo: "u-1"}},
		{"T064: purge what is there", Default(), object{v1: one}, []func(*Changes){purge(long)}, object{v1: removed}},
		{"T064: purge what is nowhere", Default(), nil, []func(*Changes){purge("f")}, nil},
		{"T064: purge what is only in the patch", Default(), nil, []func(*Changes){store("f", Record{}), purge("f")}, nil},
		{"T064: purge what is in both", Default(), object{"kopf.zalando.org/f": none},
			[]func(*Changes){store("f", Record{Retries: 1}), purge("f")}, object{"kopf.zalando.org/f": removed}},
		{"purge, then store the same", Default(), object{"kopf.zalando.org/f": none}, []func(*Changes){purge("f"), store("f", Record{})}, nil},
		{"B.4: last handled", Default(), nil, []func(*Changes){handled}, object{configuration: `{"spec":{"a":1}}` + "\n", boundTo: "u-1"}},
		{"T056: last handled is replaced", Default(), object{configuration: "{}"}, []func(*Changes){handled}, object{configuration: `{"spec":{"a":1}}` + "\n", boundTo: "u-1"}},
		{"last handled already, by Python", Default(), object{configuration: `{"spec":{"a":1.0}}`}, []func(*Changes){handled}, nil},
		{"B23: handled as another object", Default(), object{configuration: `{"spec":{"a":1}}` + "\n", boundTo: "u-0"}, []func(*Changes){handled}, object{boundTo: "u-1"}},
		{"corrupt last handled is replaced", Default(), object{configuration: `{`}, []func(*Changes){handled}, object{configuration: `{"spec":{"a":1}}` + "\n", boundTo: "u-1"}},
		{"last handled goes back", Default(), object{configuration: `{"spec":{"a":1}}`}, []func(*Changes){
			func(c *Changes) { c.StoreLastHandled(&Essence{text: []byte(`{}`)}) }, handled}, nil},
		{"T065, B.5: touch", Default(), object{"kopf.zalando.org/touch-dummy": "t", "kopf.zalando.org/touch-dummy-ofDRS": "t"},
			[]func(*Changes){(*Changes).RemoveTouch}, object{"kopf.zalando.org/touch-dummy": removed}},
		{"T065: no touch", Default(), nil, []func(*Changes){(*Changes).RemoveTouch}, nil},
		{"a stray", Default(), object{"kopf.zalando.org/old": ""}, []func(*Changes){
			func(c *Changes) { c.PurgeOthers() }}, object{"kopf.zalando.org/old": removed}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			changes := storeWith(c.naming, nil).Changes(objectWith(c.object))
			for _, do := range c.do {
				do(changes)
			}
			if got := spelled(annotationsOf(changes)); !maps.Equal(got, c.want) {
				t.Errorf("\n got %q\nwant %q", got, c.want)
			}
		})
	}
}

// T059, B.2.2.
func TestChangesOfReplicaSets_T059(t *testing.T) {
	b := parse(t, `{"kind":"ReplicaSet","metadata":{"uid":"rs","ownerReferences":[{"kind":"Deployment"}],"annotations":{
		"kopf.zalando.org/f":"copied","kopf.zalando.org/touch-dummy":"copied","kopf.zalando.org/touch-dummy-ofDRS":"own"}}}`)
	c, f := storeWith(Default(), nil).Changes(b), storeWith(Default(), nil).Key("f")
	c.PurgeRecord(f)
	c.RemoveTouch()
	c.StoreLastHandled(essenceOf(b, Default(), nil))
	c.StoreRecord(storeWith(Default(), nil).Key("g"), Record{})
	got := slices.Sorted(maps.Keys(annotationsOf(c)))
	if want := []string{"kopf.zalando.org/g-ofDRS", configuration + "-ofDRS", boundTo + "-ofDRS", "kopf.zalando.org/touch-dummy-ofDRS"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if strays := strays(b, Default(), f); strays != nil {
		t.Errorf("copies of the Deployment's records are to be removed: %q", strays)
	}
	if strays := strays(b, Default()); !slices.Equal(strays, []string{"kopf.zalando.org/f"}) {
		t.Errorf("got %q", strays)
	}
}

func TestStray(t *testing.T) {
	long := storeWith(Default(), nil).Key(strings.Repeat("y", 64))
	v2, v1 := "kopf.zalando.org/"+strings.Repeat("y", 56)+"-0d251g", "kopf.zalando.org/"+strings.Repeat("y", 39)+"-0d251g"
	b := objectWith(map[string]string{
		"kopf.zalando.org/z": "", "kopf.zalando.org/a.b": "{}", "kopf.zalando.org/known": "",
		configuration: "{}", boundTo: "u", configuration + "-ofDRS": "", "kopf.zalando.org/kopf-managed": "yes",
		"kopf.zalando.org/touch-dummy": "t", "x.kopf.zalando.org/f": "", "kopf.zalando.org": "", "example.com/f": "",
		v2: "", v1: "",
	})
	got := strays(b, Default(), storeWith(Default(), nil).Key("known"), long)
	if want := []string{"kopf.zalando.org/a.b", "kopf.zalando.org/z"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := strays(objectWith(nil), Default()); got != nil {
		t.Errorf("got %q", got)
	}
}

// X26.
func TestOversize_X26(t *testing.T) {
	b := objectWith(map[string]string{"kept": "12345", "changed": strings.Repeat("x", 100), "removed": "1"})
	value := func(n int) *string { s := strings.Repeat("v", n); return &s }
	const limit = 256 << 10
	rest := limit - len("kept12345") - len("changed") - len("new") - 10
	for _, c := range []struct {
		changes map[string]*string
		size    int
		over    bool
	}{
		{nil, len("kept12345changed") + 100 + len("removed1"), false},
		{map[string]*string{"changed": value(10), "removed": nil, "new": value(rest), "nowhere": nil}, limit, false},
		{map[string]*string{"changed": value(10), "removed": nil, "new": value(rest + 1)}, limit + 1, true},
	} {
		if size, over := Oversize(b, c.changes); size != c.size || over != c.over {
			t.Errorf("got %d, %v; want %d, %v", size, over, c.size, c.over)
		}
	}
}
