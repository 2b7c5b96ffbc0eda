package state

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/rawjson"
)

// T049 to T053, ESS-1 to ESS-5.
func TestEssence_ESS_T049(t *testing.T) {
	widgets, err := For("widgets")
	if err != nil {
		t.Fatal(err)
	}
	custom := Naming{Prefix: "mine.example.com"}
	paths := func(dotted ...string) (extra [][]string) {
		for _, path := range dotted {
			extra = append(extra, strings.Split(path, "/"))
		}
		return extra
	}
	for _, c := range []struct {
		rule, body string
		naming     Naming
		extra      [][]string
		want       string
	}{
		{"ESS-1, T049, B.4: order and form; the body stays as it is",
			`{"apiVersion":"v1","kind":"K", "spec" : {"b":2,"a":[1,{"z":null}],"u":"ü\u003c\/"},
			"metadata":{"annotations":{"keep":"me"},"name":"n","labels":{"a":"b"}},"status":{"x":1},"data":{"k":"v"}}`,
			Default(), nil,
			`{"spec":{"b":2,"a":[1,{"z":null}],"u":"\u00fc</"},"data":{"k":"v"},"metadata":{"labels":{"a":"b"},"annotations":{"keep":"me"}}}`},
		{"ESS-1: nothing there", `{}`, Default(), nil, `{}`},
		{"ESS-1: null", `null`, Default(), nil, `{}`},
		{"ESS-1, T049: empty stanzas", `{"metadata":{"labels":{},"annotations":{}},"status":{},"spec":{}}`, Default(), paths("status"), `{"spec":{}}`},
		{"ESS-1: null stanzas", `{"metadata":{"labels":null,"annotations":null},"status":null}`, Default(), paths("status"), `{}`},
		{"ESS-1: null metadata", `{"metadata":null,"spec":null}`, Default(), paths("metadata/x", "metadata"), `{"spec":null}`},
		{"ESS-1: numbers as they came", `{"spec":[1,1.0,1e3,-0,9007199254740993,1E-7]}`, Default(), nil, `{"spec":[1,1.0,1e3,-0,9007199254740993,1E-7]}`},
		{"ESS-1: texts that are not UTF-8 still have one form", "{\"spec\":\"a\xffb\\ud800\"}", Default(), nil, `{"spec":"a\ufffdb\ud800"}`},
		{"ESS-1: kubectl, T051", `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}","kubectl.kubernetes.io/restartedAt":"t"}}}`,
			Default(), nil, `{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"t"}}}`},
		{"ESS-2, T052: known domain and subdomains, look-alikes stay",
			`{"metadata":{"annotations":{"kopf.zalando.org/x":"1","a.b.kopf.zalando.org/x":"1","xkopf.zalando.org/x":"kopf.zalando.org/","kopf.zalando.org":"2","kopf.zalando.org.x/y":"3","kopf.dev/x":"4"}}}`,
			custom, nil, `{"metadata":{"annotations":{"xkopf.zalando.org/x":"kopf.zalando.org/","kopf.zalando.org":"2","kopf.zalando.org.x/y":"3","kopf.dev/x":"4"}}}`},
		{"ESS-2, T052: marker, wherever it stands",
			`{"metadata":{"annotations":{"a.com/x":"1","a.com/kopf-managed":"no","b.com/kopf-managed":"","b.com/y":"1","c.com/x":"kopf-managed","kopf-managed":"yes"}}}`,
			Default(), nil, `{"metadata":{"annotations":{"c.com/x":"kopf-managed","kopf-managed":"yes"}}}`},
		{"ESS-2: escaped names", `{"\u006detadata":{"annotations":{"kopf.zalando.org\/x":"1","a\u002fb":"1"}}}`, Default(), nil, `{"metadata":{"annotations":{"a/b":"1"}}}`},
		{"ESS-4: own prefix", `{"metadata":{"annotations":{"mine.example.com/x":"1","example.com/x":"2"}}}`, custom, nil, `{"metadata":{"annotations":{"example.com/x":"2"}}}`},
		{"ESS-4: all of them ours", `{"metadata":{"name":"n","annotations":{"widgets.kopf.zalando.org/x":"1"}}}`, widgets, nil, `{}`},
		{"ESS-5: system metadata", `{"metadata":{"uid":"u","generation":1,"resourceVersion":"1","finalizers":["f"],"ownerReferences":[],"managedFields":[{"a":{}}],"selfLink":"/x"}}`,
			Default(), nil, `{}`},
		{"ESS-3, T050: status", `{"status":{"a":{"x":1,"y":2},"b":3,"c":4},"spec":1}`, Default(), paths("status/a/y", "status/c"), `{"spec":1,"status":{"a":{"y":2},"c":4}}`},
		{"ESS-3: whole status", `{"status":{"a":{"x":1}},"spec":1}`, Default(), paths("status/a/x", "status"), `{"spec":1,"status":{"a":{"x":1}}}`},
		{"ESS-3: metadata", `{"metadata":{"generation":3,"annotations":{"a":"b"},"labels":{"c":"d"},"finalizers":["f"],"name":"n"}}`, Default(),
			paths("metadata/finalizers", "metadata/generation", "metadata/labels/c"),
			`{"metadata":{"labels":{"c":"d"},"annotations":{"a":"b"},"generation":3,"finalizers":["f"]}}`},
		{"ESS-3: whole metadata, less our own", `{"metadata":{"name":"n","annotations":{"kopf.zalando.org/x":"1","x.kopf.zalando.org/y":"2"}}}`, Default(),
			paths("metadata"), `{"metadata":{"annotations":{"x.kopf.zalando.org/y":"2"},"name":"n"}}`},
		{"ESS-3: annotations", `{"metadata":{"annotations":{"kopf.zalando.org/x":"1","kubectl.kubernetes.io/last-applied-configuration":"2","x.kopf.zalando.org/y":"3"}}}`, Default(),
			[][]string{{"metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"}, {"metadata", "annotations", "kopf.zalando.org/x"}},
			`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"2"}}}`},
		{"ESS-3: leading nowhere", `{"status":{"a":[{"x":1}],"b":"s","c":null,"d":{"e":{"f":1}}},"spec":{"x":1}}`, Default(),
			paths("status/a/0", "status/b/x", "status/c/x", "status/d/e/g", "status/z", "spec/x", "nope/x", "apiVersion"), `{"spec":{"x":1}}`},
		{"ESS-3: null and empty", `{"status":{"a":null,"b":{}}}`, Default(), paths("status/a", "status/b"), `{"status":{"a":null,"b":{}}}`},
		{"ESS-3: kind", `{"kind":"K","apiVersion":"v1"}`, Default(), paths("kind"), `{"kind":"K"}`},
		{"ESS-3: empty path", `{"status":{"a":1},"kind":"K"}`, Default(), [][]string{{}, nil}, `{}`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			b := parse(t, c.body)
			before := string(b.Raw())
			e := essenceOf(b, c.naming, c.extra)
			if string(e.Bytes()) != c.want {
				t.Errorf("\n got %s\nwant %s", e.Bytes(), c.want)
			}
			if string(b.Raw()) != before {
				t.Error("the body was changed")
			}
			if _, err := e.Tree(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEssenceTreeKeepsIntegers_B28(t *testing.T) {
	tree, err := essenceOf(parse(t, `{"spec":{"n":9007199254740993,"r":1.5,"gone":null}}`), Default(), nil).Tree()
	if err != nil {
		t.Fatal(err)
	}
	spec := tree["spec"].(map[string]any)
	if gone, ok := spec["gone"]; spec["n"] != int64(9007199254740993) || spec["r"] != 1.5 || !ok || gone != nil {
		t.Errorf("got %v", spec)
	}
}

// DIF-1, DIF-4, X25: also equal digests for equal essences, and only for those.
func TestEssenceEquality_X25(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1}`, `{"a":1}`, true},
		{`{"a":1}`, `{"a":1.0}`, true},
		{`{"a":100}`, `{"a":1e2}`, true},
		{`{"a":100}`, `{"a":1E+2}`, true},
		{`{"a":1e-7}`, `{"a":1e-07}`, true},
		{`{"a":0.00000010}`, `{"a":1e-07}`, true},
		{`{"a":0}`, `{"a":-0.0e5}`, true},
		{`{"a":-1}`, `{"a":1}`, false},
		{`{"a":-1.50}`, `{"a":-1.5}`, true},
		{`{"a":10}`, `{"a":1}`, false},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		{`{"a":9007199254740993}`, `{"a":9007199254740992.0}`, false},
		{`{"a":18446744073709551617}`, `{"a":18446744073709551616}`, false},
		{`{"a":1e99999999999999999999}`, `{"a":1e99999999999999999999}`, true},
		{`{"a":1}`, `{"a":"1"}`, false},
		{`{"a":1}`, `{"a":true}`, false},
		{`{"a":1,"b":{"c":2,"d":3}}`, ` { "b" : {"d":3,"c":2} , "a":1 } `, true},
		{`{"a":null}`, `{}`, true},
		{`{"a":{"b":null}}`, `{"a":{}}`, true},
		{`{"a":{}}`, `{}`, false},
		{`{"a":[]}`, `{}`, false},
		{`{"a":[null]}`, `{"a":[]}`, false},
		{`{"a":[{"x":null}]}`, `{"a":[{}]}`, true},
		{`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{`{"a":[1,[2]]}`, `{"a":[[1],2]}`, false},
		{`{"a":"ü\/<"}`, `{"a":"\u00fc/\u003c"}`, true},
		{`{"a":"\u00FC"}`, `{"a":"\u00fc"}`, true},
		{`{"\u0061":1}`, `{"a":1}`, true},
		{`{"a":"null"}`, `{}`, false},
		{`{"a":""}`, `{}`, false},
		{`{"a":false}`, `{}`, false},
		{`{"a":1,"a":2}`, `{"a":2}`, true},
		{`{"a":1,"a":null}`, `{}`, true},
		{`{"a":"x","ab":"y"}`, `{"ab":"y","a":"x"}`, true},
	} {
		x, y := &Essence{text: []byte(c.a)}, &Essence{text: []byte(c.b)}
		if x.Equal(y) != c.same || y.Equal(x) != c.same {
			t.Errorf("%s and %s: equal is %v", c.a, c.b, !c.same)
		}
		if same := x.Digest() == y.Digest(); same != c.same {
			t.Errorf("%s and %s: equal digests is %v", c.a, c.b, same)
		}
	}
	var none *Essence
	if empty := (&Essence{text: []byte("{}")}); none.Equal(empty) || empty.Equal(none) || !none.Equal(nil) {
		t.Error("absent and empty are the same")
	}
}

// Digests are stored on objects: they must never change.
func TestDigestIsStable(t *testing.T) {
	e := &Essence{text: []byte(`{"spec":{"b":1.50,"a":["\u00fc",null],"z":null}}`)}
	// The first 16 digits of the SHA-256 of {"spec":{"a":["\u00fc",null],"b":15e-1}}.
	if got, want := e.Digest(), "f49991a356ec065c"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestViewsOfAnEssenceAreSafeForConcurrentUse(t *testing.T) {
	e := essenceOf(parse(t, string(large(t, nil))), Default(), nil)
	done := make(chan bool)
	for range 4 {
		go func() {
			_, err := e.Tree()
			done <- err == nil && e.Equal(e) && e.Digest() != ""
		}()
	}
	for range 4 {
		if !<-done {
			t.Error("failed")
		}
	}
}

func TestEssenceAllocatesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector empties pools at random")
	}
	extra := [][]string{{"status", "phase"}}
	b := parse(t, string(large(t, extra)))
	plain, store := storeWith(Default(), nil), storeWith(Default(), extra)
	if n := testing.AllocsPerRun(100, func() { plain.Essence(b) }); n > 3 {
		t.Errorf("Essence: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _, _ = store.Handled(b) }); n > 10 {
		t.Errorf("Handled: %v allocations", n)
	}
	b = parse(t, string(large(t, nil)))
	if n := testing.AllocsPerRun(100, func() { _, _ = plain.HasStray(b), plain.Foreign(b); _, _, _ = plain.Handled(b) }); n > 0 {
		t.Errorf("an object that nothing has happened to: %v allocations", n)
	}
}

// FuzzEssence compares the pass over the bytes with the rules as they are written
// down, carried out on a tree.
func FuzzEssence_ESS(f *testing.F) {
	f.Add(large(f, nil), "status/phase", "metadata/finalizers")
	f.Add([]byte(`{"metadata":{"labels":{"a":null},"annotations":{"x.y/kopf-managed":"","x.y/z":"1"}},"status":{"a":{"b":null}}}`), "status/a/b", "metadata")
	f.Add([]byte(` { "a" : [ 1 , "\u00fc\ud83d\ude00" , {} , [ ] ] , "kind" : "K" } `), "kind", "metadata/annotations")
	f.Add([]byte(`{"spec":{"":{"":""}},"metadata":{"x":{"y":{},"z":[]}}}`), "metadata/x/y", "metadata/x/y/z")
	f.Fuzz(func(t *testing.T, raw []byte, path1, path2 string) {
		if !jsontext.Value(raw).IsValid() { // strict: without repeated names
			return
		}
		b, err := body.Parse(raw)
		if err != nil {
			return
		}
		extra := [][]string{strings.Split(path1, "/"), strings.Split(path2, "/")}
		got := essenceOf(b, Default(), extra).Bytes()
		if !jsontext.Value(got).IsValid() || bytes.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatalf("%s gives %s", raw, got)
		}
		w := rawjson.Walker{Src: got}
		if again := w.Copy(nil); !bytes.Equal(got, again) {
			t.Errorf("%s becomes %s when copied", got, again)
		}
		want := essenceByTheRules(t, raw, Default(), extra)
		if !rawjson.Equal(got, want) || !rawjson.Equal(want, got) {
			t.Errorf("%s\n got %s\nwant %s", raw, got, want)
		}
	})
}

func essenceByTheRules(t *testing.T, raw []byte, n Naming, extra [][]string) []byte {
	read := func() (tree map[string]any) {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		if err := dec.Decode(&tree); err != nil {
			t.Fatal(err)
		}
		return tree
	}
	tree, essence := read(), read()
	for _, dropped := range []string{"apiVersion", "kind", "metadata", "status"} {
		delete(essence, dropped)
	}
	pick := func(path ...string) {
		from := tree
		for i, key := range path {
			value, ok := from[key]
			if !ok {
				return
			}
			if i == len(path)-1 {
				into := essence
				for _, key := range path[:i] {
					if _, ok := into[key].(map[string]any); !ok {
						into[key] = map[string]any{}
					}
					into = into[key].(map[string]any)
				}
				into[path[i]] = value
				return
			}
			if from, ok = value.(map[string]any); !ok {
				return
			}
		}
	}
	pick("metadata", "labels")
	pick("metadata", "annotations")
	each := func(drop func(prefix, name string) bool) {
		metadata, _ := essence["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		kept := map[string]any{}
		for name, value := range annotations {
			prefix, _, ok := strings.Cut(name, "/")
			if !ok {
				prefix = ""
			}
			if !drop(prefix, name) {
				kept[name] = value
			}
		}
		if annotations != nil {
			copied := map[string]any{}
			for key, value := range metadata {
				copied[key] = value
			}
			copied["annotations"] = kept
			essence["metadata"] = copied
		}
	}
	all, _ := tree["metadata"].(map[string]any)
	every, _ := all["annotations"].(map[string]any)
	each(func(prefix, name string) bool {
		_, marked := every[prefix+"/kopf-managed"]
		return name == kubectlApplied || prefix == kopfPrefix || strings.HasSuffix(prefix, "."+kopfPrefix) ||
			strings.Contains(name, "/") && marked
	})
	for _, path := range extra {
		pick(path...)
	}
	each(func(prefix, name string) bool { return prefix == n.Prefix })
	empty := func(value any) bool {
		text, _ := json.Marshal(value)
		return slices.Contains([]string{"{}", "null", "[]", `""`}, string(text))
	}
	if metadata, ok := essence["metadata"].(map[string]any); ok {
		for _, key := range []string{"labels", "annotations"} {
			if empty(metadata[key]) {
				delete(metadata, key)
			}
		}
	}
	for _, key := range []string{"metadata", "status", "kind", "apiVersion"} {
		if empty(essence[key]) {
			delete(essence, key)
		}
	}
	text, err := json.Marshal(essence)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
