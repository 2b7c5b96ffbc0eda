package storage

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
)

// patch is what a patch comes to, as JSON with removals as null.
func patchText(p *Patch) string {
	out := map[string]any{}
	for key, value := range p.Tree() {
		out[key] = value
	}
	if annotations := p.Annotations(); annotations != nil {
		out["annotations"] = annotations
	}
	text, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestPatch_T064(t *testing.T) {
	o := parse(t, `{"metadata":{"annotations":{"a":"1","p.example.com/b":"2"}},"status":{"x":{"y":1,"z":{"n":null}},"list":[1,{"a":2}]},"s":"text"}`)
	for _, c := range []struct {
		rule string
		do   func(p *Patch)
		want string
	}{
		{"nothing", func(*Patch) {}, `{}`},
		{"set", func(p *Patch) { p.SetAnnotation("c", "3"); p.Set("v", "status", "new", "deep") }, `{"annotations":{"c":"3"},"status":{"new":{"deep":"v"}}}`},
		{"the same", func(p *Patch) {
			p.SetAnnotation("a", "1")
			p.Set(1.0, "status", "x", "y")
			p.Set([]any{1, map[string]any{"a": 2}}, "status", "list")
		}, `{}`},
		{"back to the same", func(p *Patch) {
			p.SetAnnotation("a", "2")
			p.SetAnnotation("a", "1")
			p.Set(2, "status", "x", "y")
			p.Set(1, "status", "x", "y")
		}, `{}`},
		{"T064: present is removed", func(p *Patch) { p.RemoveAnnotation("a"); p.Remove("status", "x", "y") }, `{"annotations":{"a":null},"status":{"x":{"y":null}}}`},
		{"T064: only in the patch is taken out", func(p *Patch) {
			p.SetAnnotation("c", "3")
			p.RemoveAnnotation("c")
			p.Set(1, "status", "new", "deep")
			p.Remove("status", "new", "deep")
		}, `{}`},
		{"T064: nowhere is nothing", func(p *Patch) { p.RemoveAnnotation("c"); p.Remove("status", "new", "deep") }, `{}`},
		{"removed, then the same again", func(p *Patch) {
			p.RemoveAnnotation("a")
			p.SetAnnotation("a", "1")
			p.Remove("status", "x", "y")
			p.Set(1, "status", "x", "y")
		}, `{}`},
		{"kept", func(p *Patch) { p.RemoveAnnotation("a"); p.KeepAnnotation("a") }, `{}`},
		{"T056: a map replaces", func(p *Patch) { p.Set(map[string]any{"w": 1, "z": map[string]any{"m": 2}}, "status", "x") },
			`{"status":{"x":{"w":1,"y":null,"z":{"m":2,"n":null}}}}`},
		{"a map instead of a text", func(p *Patch) { p.Set(map[string]any{"w": 1}, "s") }, `{"s":{"w":1}}`},
		{"under a text", func(p *Patch) { p.Set(1, "s", "x") }, `{"s":{"x":1}}`},
		{"B.2.5: marker", func(p *Patch) { p.SetManaged("p.example.com/c", "3") }, `{"annotations":{"p.example.com/c":"3","p.example.com/kopf-managed":"yes"}}`},
		{"B.2.5: no marker for Kopf's own", func(p *Patch) { p.SetManaged("kopf.zalando.org/c", "3"); p.SetManaged("plain", "3") }, `{"annotations":{"kopf.zalando.org/c":"3","plain":"3"}}`},
		{"B.2.5: no marker for what does not change", func(p *Patch) { p.SetManaged("p.example.com/b", "2") }, `{}`},
		{"B.2.5: no marker for a removal", func(p *Patch) { p.SetManaged("p.example.com/b", "3"); p.RemoveAnnotation("p.example.com/b") }, `{"annotations":{"p.example.com/b":null}}`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			p := NewPatch(o)
			c.do(p)
			if got := patchText(p); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestPatchTellsWhatWillBe(t *testing.T) {
	p := NewPatch(objectWith(map[string]string{"kept": "1", "changed": "2", "removed": "3"}))
	p.SetAnnotation("changed", "4")
	p.RemoveAnnotation("removed")
	for name, want := range map[string]string{"kept": "1", "changed": "4", "removed": "", "none": ""} {
		if got, ok := p.Annotation(name); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
}

// SET-3: Kopf's parameters, and what each storage writes.
func TestStoragesWriteAsKopf_SET3(t *testing.T) {
	r := Record{Retries: 1, Message: "x"}
	const compact = `"{\"retries\":1,\"success\":false,\"failure\":false,\"message\":\"x\"}"`
	const tree = `{"delayed":null,"digest":null,"failure":false,"message":"x","purpose":null,"retries":1,"started":null,"stopped":null,"subrefs":null,"success":false}`
	for _, c := range []struct {
		rule    string
		storage Progress
		object  string
		want    string
	}{
		{"T061, annotations", AnnotationsProgress(DefaultPrefix, AnnotationsOptions{}), `{}`, `{"annotations":{"kopf.zalando.org/a.b":` + compact + `}}`},
		{"T063, verbose", AnnotationsProgress(DefaultPrefix, AnnotationsOptions{Verbose: true}), `{}`,
			`{"annotations":{"kopf.zalando.org/a.b":"{\"started\":null,\"stopped\":null,\"delayed\":null,\"purpose\":null,\"retries\":1,\"success\":false,\"failure\":false,\"message\":\"x\",\"subrefs\":null}"}}`},
		{"B.2.5, own prefix", AnnotationsProgress("p.example.com", AnnotationsOptions{}), `{}`, `{"annotations":{"p.example.com/a.b":` + compact + `,"p.example.com/kopf-managed":"yes"}}`},
		{"B.3.5, status", StatusProgress(StatusOptions{}), `{}`, `{"status":{"kopf":{"progress":{"a/b":` + tree + `}}}}`},
		{"B.3.5, status that has it", StatusProgress(StatusOptions{}), `{"status":{"kopf":{"progress":{"a/b":{"retries":1,"message":"x","success":false,"failure":false}}}}}`, `{}`},
		{"B.3.5, named", StatusProgress(StatusOptions{Name: "w"}), `{}`, `{"status":{"w":{"progress":{"a/b":` + tree + `}}}}`},
		{"SET-3, field", StatusProgress(StatusOptions{Name: "w", Field: "x.{name}.{name}"}), `{}`, `{"x":{"w":{"{name}":{"a/b":` + tree + `}}}}`},
		{"T066, smart", Smart(DefaultPrefix, AnnotationsOptions{}, StatusOptions{}), `{"status":{"kopf":{"progress":{"a/b":{}}}}}`, `{"annotations":{"kopf.zalando.org/a.b":` + compact + `}}`},
		{"multi", Multi(AnnotationsProgress(DefaultPrefix, AnnotationsOptions{}), StatusProgress(StatusOptions{})), `{}`,
			`{"annotations":{"kopf.zalando.org/a.b":` + compact + `},"status":{"kopf":{"progress":{"a/b":` + tree + `}}}}`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			o := parse(t, c.object)
			p := NewPatch(o)
			c.storage.Store(o, p, "a/b", r)
			if got := patchText(p); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

// T066: the status is read as a fallback, never written, and purged.
func TestSmartEmptiesTheStatus_T066(t *testing.T) {
	s := Smart(DefaultPrefix, AnnotationsOptions{}, StatusOptions{})
	status := `"status":{"kopf":{"progress":{"f":{"retries":1},"g":{"retries":2}},"dummy":"t"}}`
	o := parse(t, `{"metadata":{"annotations":{"kopf.zalando.org/g":"{\"retries\":3}"}},`+status+`}`)
	for id, want := range map[string]int{"f": 1, "g": 3} {
		if r, ok, err := s.Fetch(o, id); !ok || err != nil || r.Retries != want {
			t.Errorf("%s: %+v, %v, %v", id, r, ok, err)
		}
	}
	for want, do := range map[string]func(*Patch){
		`{"annotations":{"kopf.zalando.org/f":"{\"retries\":5,\"success\":false,\"failure\":false}"}}`: func(p *Patch) { s.Store(o, p, "f", Record{Retries: 5}) },
		`{"status":{"kopf":{"progress":{"f":null}}}}`:                                                  func(p *Patch) { s.Purge(o, p, "f") },
		`{"annotations":{"kopf.zalando.org/g":null},"status":{"kopf":{"progress":{"g":null}}}}`:        func(p *Patch) { s.PurgeOthers(o, p, "f") },
		`{"status":{"kopf":{"dummy":null}}}`:                                                           func(p *Patch) { s.(TouchRemover).RemoveTouch(o, p) },
	} {
		p := NewPatch(o)
		do(p)
		if got := patchText(p); got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
	if o := parse(t, `{`+status+`}`); !s.HasOthers(o, "f") || s.HasOthers(o, "f", "g") {
		t.Error("records in the status are not seen as such")
	}
}

// T065, B.5: present → null, absent → nothing.
func TestTouchesAreRemoved_T065(t *testing.T) {
	o := parse(t, `{"metadata":{"annotations":{"kopf.zalando.org/touch-dummy":"t","kopf.zalando.org/touch-dummy-ofDRS":"t","p.example.com/wake":"t"}}}`)
	for _, c := range []struct {
		storage Progress
		want    string
	}{
		{AnnotationsProgress(DefaultPrefix, AnnotationsOptions{}), `{"annotations":{"kopf.zalando.org/touch-dummy":null}}`},
		{AnnotationsProgress("p.example.com", AnnotationsOptions{TouchKey: "wake"}), `{"annotations":{"p.example.com/wake":null}}`},
		{AnnotationsProgress("p.example.com", AnnotationsOptions{}), `{}`},
		{StatusProgress(StatusOptions{}), `{}`},
	} {
		p := NewPatch(o)
		c.storage.(TouchRemover).RemoveTouch(o, p)
		if got := patchText(p); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
		if c.storage.HasOthers(o) && c.want != `{}` {
			t.Error("the touch is taken for a record")
		}
	}
}

// B.3.5: what cannot be a record says where it is.
func TestCorruptStatusNamesItsField(t *testing.T) {
	s := StatusProgress(StatusOptions{})
	for _, status := range []string{`"x"`, `7`, `[]`, `{"retries":"x"}`} {
		o := parse(t, `{"status":{"kopf":{"progress":{"f":`+status+`}}}}`)
		if _, ok, err := s.Fetch(o, "f"); ok || err == nil || !strings.Contains(err.Error(), "field status.kopf.progress, f is not readable") {
			t.Errorf("%s: %v, %v", status, ok, err)
		}
	}
	for _, object := range []string{`{"status":"x"}`, `{"status":{"kopf":{"progress":"f"}}}`, `{"status":{"kopf":{"progress":{"f":null}}}}`} {
		if _, ok, err := s.Fetch(parse(t, object), "f"); ok || err != nil {
			t.Errorf("%s: %v, %v", object, ok, err)
		}
	}
}

// SET-4, T062.
func TestStoragesReportMistakes_SET4_T062(t *testing.T) {
	for want, storage := range map[string]any{
		"the annotation prefix of a storage is empty":   AnnotationsProgress("", AnnotationsOptions{}),
		`annotation prefix "Two Words" is illegal`:      AnnotationsProgress("Two Words", AnnotationsOptions{}),
		`annotation key "a/b" is illegal`:               AnnotationsProgress(DefaultPrefix, AnnotationsOptions{TouchKey: "a/b"}),
		`annotation key "x y" is illegal`:               AnnotationsProgress(DefaultPrefix, AnnotationsOptions{Reserved: []string{"x y"}}),
		"prefix of a storage is empty":                  Smart("", AnnotationsOptions{}, StatusOptions{}),
		"storage is empty":                              AnnotationsLastHandled("", LastHandledOptions{}),
		`annotation key "-" is illegal`:                 AnnotationsLastHandled(DefaultPrefix, LastHandledOptions{Key: "-"}),
		`storage field "status..x" has an empty key`:    StatusProgress(StatusOptions{Field: "status..x"}),
		`storage field "metadata.x" is none of the`:     StatusProgress(StatusOptions{TouchField: "metadata.x"}),
		`storage field "kind" is none of the operator`:  StatusLastHandled(StatusLastHandledOptions{Field: "kind"}),
		"a storage is made of no storages: give it one": Multi(),
		"is made of no storages":                        MultiLastHandled(),
		`storage field ".x" has an empty key`:           MultiLastHandled(StatusLastHandled(StatusLastHandledOptions{Field: ".x"})),
	} {
		if err := storage.(Validator).Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	long := strings.Repeat("a.", 100) + "b" // a warning only
	if err := AnnotationsProgress(long, AnnotationsOptions{}).(Validator).Validate(); err != nil {
		t.Error(err)
	}
}

// DB-5, T054.
func TestLastHandledIsWrittenAsKopf_DB5_T054(t *testing.T) {
	ignored := [][]string{{"spec", "replicas"}}
	for _, c := range []struct {
		rule    string
		storage LastHandled
		want    string
		own     Fields
	}{
		{"annotation", AnnotationsLastHandled(DefaultPrefix, LastHandledOptions{}), `{"annotations":{"kopf.zalando.org/last-handled-configuration":"{}\n"}}`,
			Fields{Prefixes: []string{DefaultPrefix}}},
		{"own annotation", AnnotationsLastHandled("p.example.com", LastHandledOptions{Key: "old", Ignored: ignored}),
			`{"annotations":{"p.example.com/kopf-managed":"yes","p.example.com/old":"{}\n"}}`, Fields{Prefixes: []string{"p.example.com"}, Paths: ignored}},
		{"status", StatusLastHandled(StatusLastHandledOptions{}), `{"status":{"kopf":{"last-handled-configuration":"{}"}}}`,
			Fields{Paths: [][]string{{"status", "kopf", "last-handled-configuration"}}}},
		{"own field", StatusLastHandled(StatusLastHandledOptions{Name: "w", Field: "{name}.old", Ignored: ignored}), `{"w":{"old":"{}"}}`,
			Fields{Paths: [][]string{{"w", "old"}, ignored[0]}}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			o := objectWith(nil)
			p := NewPatch(o)
			c.storage.Store(o, p, "{}")
			if got := patchText(p); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
			if got := c.storage.Own(); !reflect.DeepEqual(got, c.own) {
				t.Errorf("owns %v", got)
			}
		})
	}
}

// T055: an empty body, white space, the first one of several.
func TestLastHandledIsFetched_T055(t *testing.T) {
	annotation := AnnotationsLastHandled(DefaultPrefix, LastHandledOptions{})
	status := StatusLastHandled(StatusLastHandledOptions{})
	const inStatus = `"status":{"kopf":{"last-handled-configuration":" {\"from\":\"status\"}\n"}}`
	const inAnnotation = `"metadata":{"annotations":{"kopf.zalando.org/last-handled-configuration":"\t{\"from\":\"annotation\"} \n"}}`
	for _, c := range []struct {
		storage      LastHandled
		object, want string
	}{
		{annotation, `{}`, ""},
		{status, `{}`, ""},
		{status, `{"status":{"kopf":{"last-handled-configuration":null}}}`, ""},
		{annotation, `{` + inAnnotation + `}`, `{"from":"annotation"}`},
		{status, `{` + inStatus + `}`, `{"from":"status"}`},
		{MultiLastHandled(annotation, status), `{` + inStatus + `,` + inAnnotation + `}`, `{"from":"annotation"}`},
		{MultiLastHandled(status, annotation), `{` + inStatus + `,` + inAnnotation + `}`, `{"from":"status"}`},
		{MultiLastHandled(status, annotation), `{` + inAnnotation + `}`, `{"from":"annotation"}`},
	} {
		if got, err := c.storage.Fetch(parse(t, c.object)); err != nil || got != c.want {
			t.Errorf("%s: %q, %v", c.object, got, err)
		}
	}
	if _, err := status.Fetch(parse(t, `{"status":{"kopf":{"last-handled-configuration":{}}}}`)); err == nil ||
		!strings.Contains(err.Error(), "field status.kopf.last-handled-configuration is not readable") {
		t.Errorf("got %v", err)
	}
}

// B21: names are in use by something else under this prefix.
func TestReservedNamesAreNoHandlers_B21(t *testing.T) {
	a := newAnnotations("p.example.com", AnnotationsOptions{TouchKey: "wake", Reserved: []string{"mine"}})
	o := objectWith(nil)
	for _, id := range []string{"wake", "mine", "touch-dummy", "kopf-managed", "seen-0123456789abcdef", "last-handled-uid"} {
		if names := a.namesOf(o, id); len(names) != 1 || names[0] == "p.example.com/"+id {
			t.Errorf("%s has the names %q", id, names)
		}
	}
	for _, id := range []string{"seen-", "seen!", "<seen>"} { // made legal, they would look like one
		if names := a.namesOf(o, id); a.isReserved(strings.TrimPrefix(names[0], "p.example.com/")) {
			t.Errorf("%s has the names %q", id, names)
		}
	}
	for _, id := range []string{"seen", "seen-0123456789abcde", "seen-0123456789abcdeg", "seen-0123456789abcdef0", "wake2"} {
		if names := a.namesOf(o, id); names[0] != "p.example.com/"+id {
			t.Errorf("%s has the names %q", id, names)
		}
	}
	o = objectWith(map[string]string{"p.example.com/wake": "", "p.example.com/mine": "", "p.example.com/seen-0123456789abcdef": "", "p.example.com/last-handled-uid": ""})
	if a.HasOthers(o) {
		t.Error("what is reserved is taken for a record")
	}
}

func TestNamesAreCachedWithinLimits(t *testing.T) {
	a := annotated(t)
	for i := range 3 * cacheSize {
		id := "f/" + strings.Repeat("x", i%50) + string(rune('a'+i%26))
		a.cache.get(id+strings.Repeat("y", i/50), func() [2][]string { return [2][]string{{id}, {id}} })
		if n := int(a.cache.count.Load()); n > cacheSize {
			t.Fatalf("%d ids are kept", n)
		}
	}
	if names := a.namesOf(objectWith(nil), "f"); names[0] != "kopf.zalando.org/f" {
		t.Error(names)
	}
}

// B.3.5: a record is the same in a field and in a text.
func TestFieldsAreTheRecord_B35(t *testing.T) {
	text, err := json.Marshal(full.Fields())
	if err != nil {
		t.Fatal(err)
	}
	if back, err := DecodeRecord(string(text)); err != nil || !back.Equal(&full) {
		t.Errorf("%s is read as %+v, %v", text, back, err)
	}
	var none Record
	for key, value := range none.Fields() {
		if value != nil && key != "retries" && key != "success" && key != "failure" {
			t.Errorf("%s is %v", key, value)
		}
	}
	if fields := full.Fields(); len(fields) != 10 || !maps.Equal(map[string]any{"started": fields["started"]}, map[string]any{"started": "2026-11-30T01:32:58.834105+00:00"}) {
		t.Errorf("got %v", fields) // T067
	}
}
