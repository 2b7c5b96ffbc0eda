package state

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
)

const (
	configuration = "kopf.zalando.org/last-handled-configuration"
	boundTo       = "kopf.zalando.org/last-handled-uid"
)

// T055, B.2.4, B.4, B23; the object is always {"spec":{"a":1}} with the UID u-1.
func TestLastHandled_T055(t *testing.T) {
	for _, c := range []struct {
		rule        string
		annotations map[string]string
		last        string // "" is unknown
		same        bool
	}{
		{"nothing there", nil, "", false},
		{"Kopf's form", map[string]string{configuration: `{"spec":{"a":1}}` + "\n"}, `{"spec":{"a":1}}`, true},
		{"no newline", map[string]string{configuration: `{"spec":{"a":1}}`}, `{"spec":{"a":1}}`, true},
		{"white space", map[string]string{configuration: " \n {\"spec\" : {\"a\":\t1}}\r\n"}, `{"spec":{"a":1}}`, true},
		{"other escapes", map[string]string{configuration: `{"spec":{"a":1},"x":"ü\/\u003C"}`}, `{"spec":{"a":1},"x":"\u00fc/<"}`, false},
		{"numbers by value", map[string]string{configuration: `{"spec":{"a":1.0}}`}, `{"spec":{"a":1.0}}`, true},
		{"a null", map[string]string{configuration: `{"spec":{"a":1,"b":null}}`}, `{"spec":{"a":1,"b":null}}`, true},
		{"another", map[string]string{configuration: `{"spec":{"a":2}}`}, `{"spec":{"a":2}}`, false},
		{"empty but known, B.4", map[string]string{configuration: "{}\n"}, `{}`, false},
		{"null is nothing", map[string]string{configuration: "null\n"}, "", false},
		{"of this object, B23", map[string]string{configuration: `{"spec":{"a":1}}`, boundTo: "u-1"}, `{"spec":{"a":1}}`, true},
		{"of another object, B23", map[string]string{configuration: `{"spec":{"a":1}}`, boundTo: "u-0"}, "", false},
		{"of another object and corrupt, B23", map[string]string{configuration: `{`, boundTo: "u-0"}, "", false},
		{"of another operator", map[string]string{"x.kopf.zalando.org/last-handled-configuration": `{"spec":{"a":1}}`}, "", false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			b := objectWith(c.annotations)
			last, known, err := lastHandledBy(b, Default())
			if err != nil || known != (c.last != "") || known && string(last.Bytes()) != c.last {
				t.Errorf("got %v, %v, %v", last, known, err)
			}
			same, known, err := handledBy(b, Default(), nil)
			if err != nil || known != (c.last != "") || same != c.same {
				t.Errorf("handled: same %v, known %v, %v", same, known, err)
			}
			if foreign := c.annotations[boundTo] == "u-0"; storeWith(Default(), nil).Foreign(b) != foreign {
				t.Errorf("foreign is %v", !foreign)
			}
		})
	}
}

// B.2.3, B.2.4: with a long prefix even this name has two forms.
func TestLastHandledIsReadFromBothNames_T060(t *testing.T) {
	n, err := Custom("operator-of-widgets.department.example.com", Default().Finalizer)
	if err != nil {
		t.Fatal(err)
	}
	changes := storeWith(n, nil).Changes(objectWith(nil))
	changes.StoreLastHandled(essenceOf(objectWith(nil), n, nil))
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(annotationsOf(changes))), func(name string) bool {
		return !strings.Contains(name, "/last-handled") || strings.Contains(name, "uid")
	})
	if len(names) != 2 {
		t.Fatal(names)
	}
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) }) // V2 first
	for _, c := range []struct {
		annotations map[string]string
		want        string
	}{
		{map[string]string{names[0]: `{"x":1}`, names[1]: `{"x":2}`}, `{"x":1}`},
		{map[string]string{names[1]: `{"x":2}`}, `{"x":2}`},
		{map[string]string{names[0]: `null`, names[1]: `{"x":2}`}, `{"x":2}`},
	} {
		last, known, err := lastHandledBy(objectWith(c.annotations), n)
		if err != nil || !known || string(last.Bytes()) != c.want {
			t.Errorf("%v: got %v, %v, %v", c.annotations, last, known, err)
		}
	}
}

// T059, B.2.2: what was copied from the Deployment is not read.
func TestLastHandledOfReplicaSets_T059(t *testing.T) {
	const replicaSet = `{"kind":"ReplicaSet","metadata":{"uid":"rs","ownerReferences":[{"kind":"Deployment"}],"annotations":{
		"kopf.zalando.org/last-handled-configuration":"{\"spec\":{\"a\":1}}","kopf.zalando.org/last-handled-uid":"deployment"OWN}},"spec":{"a":1}}`
	b := parse(t, strings.Replace(replicaSet, "OWN", "", 1))
	if _, known, err := lastHandledBy(b, Default()); known || err != nil {
		t.Error("the Deployment's is read")
	}
	b = parse(t, strings.Replace(replicaSet, "OWN", `,"kopf.zalando.org/last-handled-configuration-ofDRS":"{\"spec\":{\"a\":1}}","kopf.zalando.org/last-handled-uid-ofDRS":"rs"`, 1))
	if same, known, err := handledBy(b, Default(), nil); !same || !known || err != nil {
		t.Error(same, known, err)
	}
	if b = parse(t, strings.Replace(string(b.Raw()), `"rs"}`, `"other"}`, 1)); !storeWith(Default(), nil).Foreign(b) {
		t.Error("the marked UID is not looked at")
	}
}

// DB-6.
func TestACorruptLastHandledNamesItsAnnotation_DB6(t *testing.T) {
	for _, value := range []string{"", "x", `{`, `[]`, `"{}"`, `{"a":01}`, `{} x`, `{"a":NaN}`} {
		b := objectWith(map[string]string{configuration: value})
		var corrupt *CorruptError
		if _, _, err := lastHandledBy(b, Default()); !errors.As(err, &corrupt) || corrupt.Where != "annotation "+configuration || corrupt.Unwrap() == nil {
			t.Errorf("%q: error is %v", value, err)
		}
		if _, _, err := handledBy(b, Default(), nil); !errors.As(err, &corrupt) || !strings.Contains(err.Error(), configuration) {
			t.Errorf("%q: error is %v", value, err)
		}
	}
}

func FuzzLastHandled(f *testing.F) {
	f.Add(`{"spec":{"a":1}}` + "\n")
	f.Add(` {"spec":{"a":1.0,"b":null}}`)
	f.Add(`{"spec":{"a":"\ud800"}}`)
	f.Add("\u00a0{}")
	f.Add(`{"a":[[{},{"b":[]}]]}`)
	f.Add(compressed([]byte(`{"spec":{"a":1.0}}`)))
	f.Add((&Essence{text: []byte(`{"spec":{"a":1}}`)}).digests())
	f.Fuzz(func(t *testing.T, value string) {
		b := objectWith(map[string]string{configuration: value})
		last, known, err := lastHandledBy(b, Default())
		same, alsoKnown, alsoErr := handledBy(b, Default(), nil)
		if known != alsoKnown || (err == nil) != (alsoErr == nil) {
			t.Fatalf("%q: known %v, %v or %v, %v", value, known, err, alsoKnown, alsoErr)
		}
		if !known {
			return
		}
		if last.Complete() && !json.Valid(last.Bytes()) {
			t.Errorf("%q is read as %q", value, last.Bytes())
		}
		if _, err := last.Tree(); (err == nil) != last.Complete() {
			t.Errorf("%q: %v", value, err)
		}
		now := essenceOf(b, Default(), nil)
		if now.Equal(last) != same || last.Complete() && (now.Digest() == last.Digest()) != same {
			t.Errorf("%q: same is %v", value, same)
		}
		c := storeWith(Default(), nil).Changes(b)
		c.StoreLastHandled(last)
		if changes := annotationsOf(c); changes != nil {
			t.Errorf("%q: what is there is written again: %v", value, changes)
		}
	})
}
