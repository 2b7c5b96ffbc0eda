package state

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kopf-go/kopf/internal/body"
)

func newStoreOf(t testing.TB, c Config) *Store {
	t.Helper()
	if c.Naming.Prefix == "" {
		c.Naming = Default()
	}
	s, err := NewStore(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const canary = "CANARY-7f3a"

func secret(t testing.TB, uid, data string, more ...string) *body.Body {
	t.Helper()
	return parse(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","uid":"`+uid+`","labels":{"a":"b"}},"type":"Opaque","data":`+data+strings.Join(more, "")+`}`)
}

// B25: no value, plain or base64, in what is kept; and changes are seen.
func TestSecretValuesAreNeverKept_B25(t *testing.T) {
	s := newStoreOf(t, Config{Secret: true})
	encoded := base64.StdEncoding.EncodeToString([]byte(canary))
	b := secret(t, "u-1", `{"password":"`+encoded+`","empty":"","none":null}`, `,"stringData":{"plain":"`+canary+`"},"immutable":true`)
	e := s.Essence(b)
	c := s.Changes(b)
	c.StoreLastHandled(e)
	c.StoreSeen(e)
	c.StoreRecord(s.Key("f"), Record{Success: true, Digest: e.Digest()})
	written := fmt.Sprint(spelled(annotationsOf(c)), string(e.Bytes()), e.Digest())
	for _, value := range []string{canary, encoded, "CANARY", encoded[:8]} {
		if strings.Contains(written, value) {
			t.Errorf("%s is in %s", value, written)
		}
	}
	tree, err := e.Tree()
	if err != nil {
		t.Fatal(err)
	}
	data := tree["data"].(map[string]any)
	password, _ := data["password"].(string)
	if !IsDigest(password) || !IsDigest(data["empty"].(string)) || data["none"] != nil || len(data) != 3 {
		t.Errorf("got %v", data)
	}
	if tree["type"] != "Opaque" || tree["immutable"] != true || tree["stringData"] == nil {
		t.Errorf("got %v", tree)
	}
	var typed corev1.Secret // old states are decoded for handlers
	if err := json.Unmarshal(e.Bytes(), &typed); err != nil || len(typed.Data["password"]) == 0 {
		t.Errorf("does not decode: %v", err)
	}

	for what, other := range map[string]*body.Body{
		"another value":  secret(t, "u-1", `{"password":"b3RoZXI=","empty":"","none":null}`, `,"stringData":{"plain":"`+canary+`"},"immutable":true`),
		"another object": secret(t, "u-2", `{"password":"`+encoded+`","empty":"","none":null}`, `,"stringData":{"plain":"`+canary+`"},"immutable":true`),
		"absent":         secret(t, "u-1", `{"empty":""}`, `,"stringData":{"plain":"`+canary+`"},"immutable":true`),
	} {
		if s.Essence(other).Equal(e) {
			t.Errorf("%s is not seen", what)
		}
		if strings.Contains(string(s.Essence(other).Bytes()), password) {
			t.Errorf("%s: the same digest", what)
		}
	}
	if other := newStoreOf(t, Config{Secret: true, DigestKey: []byte("key")}); other.Essence(b).Equal(e) {
		t.Error("the key does not matter")
	}
	if again := newStoreOf(t, Config{Secret: true}).Essence(b); !again.Equal(e) {
		t.Error("digests do not survive a restart")
	}
}

// B25: equal values in different fields of one object are not recognisable either.
func TestDigestsDependOnTheField_B25(t *testing.T) {
	s := newStoreOf(t, Config{Secret: true})
	tree, _ := s.Essence(secret(t, "u-1", `{"a":"eA==","b":"eA==","ab":"eA=="}`)).Tree()
	data := tree["data"].(map[string]any)
	if data["a"] == data["b"] || data["a"] == data["ab"] || data["b"] == data["ab"] {
		t.Errorf("got %v", data)
	}
}

// B25: marked fields of any type, wherever they are.
func TestSensitiveFields_B25(t *testing.T) {
	s := newStoreOf(t, Config{
		Sensitive: [][]string{{"spec", "token"}, {"spec", "nested"}, {"metadata", "annotations", "x.y/z"}, {"status", "key"}, {"nowhere", "x"}},
		Extra:     [][]string{{"status", "key"}, {"metadata", "annotations", kubectlApplied}},
	})
	widget := func(token, nested string) *body.Body {
		return parse(t, `{"kind":"W","metadata":{"uid":"u","annotations":{"x.y/z":"CANARY","keep":"me","`+kubectlApplied+`":"CANARY"}},
			"spec":{"token":`+token+`,"nested":`+nested+`,"size":1},"status":{"key":"CANARY","other":1}}`)
	}
	e := s.Essence(widget(`"CANARY"`, `{"a":{"b":"CANARY","n":null},"l":["CANARY"],"e":{}}`))
	if bytes.Contains(e.Bytes(), []byte("CANARY")) {
		t.Errorf("got %s", e.Bytes())
	}
	tree, err := e.Tree()
	if err != nil {
		t.Fatal(err)
	}
	spec := tree["spec"].(map[string]any)
	nested := spec["nested"].(map[string]any)
	inner := nested["a"].(map[string]any)
	annotations := tree["metadata"].(map[string]any)["annotations"].(map[string]any)
	for _, value := range []any{spec["token"], inner["b"], nested["l"], annotations["x.y/z"], tree["status"].(map[string]any)["key"]} {
		if text, ok := value.(string); !ok || !IsDigest(text) {
			t.Errorf("%v is no digest", value)
		}
	}
	if annotations["keep"] != "me" || len(annotations) != 2 || spec["size"] != int64(1) || inner["n"] != nil {
		t.Errorf("got %v", tree)
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`1`, `1.0`, true},
		{`1`, `2`, false},
		{`"1"`, `1`, false},
		{`true`, `"true"`, false},
		{`true`, `true`, true},
		{`null`, `0`, false},
		{`[1,{"a":null}]`, `[1.0,{}]`, true},
		{`[]`, `{}`, false},
		{`"\u0061"`, `"a"`, true},
		{`""`, `null`, false},
	} {
		if same := s.Essence(widget(c.a, `{}`)).Equal(s.Essence(widget(c.b, `{}`))); same != c.same {
			t.Errorf("%s and %s: same is %v", c.a, c.b, same)
		}
	}
	for path, want := range map[string]bool{
		"spec": true, "spec.token": true, "spec.token.x": true, "spec.size": false, "spec.nested.a.b": true,
		"metadata": true, "metadata.labels": false, "status": true, "status.other": false, "": true, "other": false,
	} {
		var keys []string
		if path != "" {
			keys = strings.Split(path, ".")
		}
		if got := s.Sensitive(keys); got != want {
			t.Errorf("%q: sensitive is %v", path, got)
		}
	}
	if newStoreOf(t, Config{}).Sensitive([]string{"data"}) {
		t.Error("without a mark something is sensitive")
	}
	if data := []string{"data", "x"}; !newStoreOf(t, Config{Secret: true}).Sensitive(data) {
		t.Error("data of a secret are not sensitive")
	}
}

// B25: what was written before is not shown to anybody, is no change, and goes.
func TestExposedStateIsReplaced_B25(t *testing.T) {
	s := newStoreOf(t, Config{Secret: true})
	plain := secret(t, "u-1", `{"password":"Q0FOQVJZ"}`)
	python := withAnnotations(t, plain, annotationsOf(handledChanges(storeWith(Default(), nil), plain)))
	if !strings.Contains(python.Annotations[configuration], "Q0FOQVJZ") {
		t.Fatal("the test has no exposed state")
	}
	last, known, err := s.LastHandled(python)
	if !known || err != nil || bytes.Contains(last.Bytes(), []byte("Q0FOQVJZ")) || !last.Equal(s.Essence(python)) {
		t.Fatalf("got %s, %v, %v", last.Bytes(), known, err)
	}
	if same, known, err := s.Handled(python); same || !known || err != nil || !s.Exposed(python) {
		t.Error("it passes for handled:", same, known, err)
	}
	clean := withAnnotations(t, python, annotationsOf(handledChanges(s, python)))
	if strings.Contains(string(clean.Annotations[configuration]), "Q0FOQVJZ") {
		t.Error("it is still there")
	}
	if same, known, err := s.Handled(clean); !same || !known || err != nil || s.Exposed(clean) {
		t.Error(same, known, err)
	}
	if changes := annotationsOf(handledChanges(s, clean)); changes != nil {
		t.Errorf("it is written again: %v", changes)
	}
}

func handledChanges(s *Store, b *body.Body) *Changes {
	c := s.Changes(b)
	c.StoreLastHandled(s.Essence(b))
	return c
}

func TestIsDigest(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "kopfhmac": false, digestMark + strings.Repeat("A", 24): true, digestMark + strings.Repeat("A", 23): false,
		digestMark + strings.Repeat("!", 24): false, "x" + digestMark + strings.Repeat("A", 24): false,
	} {
		if IsDigest(text) != want {
			t.Errorf("%q: got %v", text, !want)
		}
		if _, err := base64.StdEncoding.DecodeString(text); want && err != nil {
			t.Error(err)
		}
	}
}

// B25: whatever the object is like, what is read again is what was written.
func FuzzSensitive_B25(f *testing.F) {
	f.Add([]byte(`{"metadata":{"uid":"u"},"data":{"k":"dg=="},"spec":{"a":{"b":[1,{}]}}}`), "spec/a")
	f.Add([]byte(`{"data":"x","spec":null,"status":{"a":1.50}}`), "status/a")
	f.Add([]byte(`{"d\u0061ta":{"\"":{"":true}},"spec":{"a":"kopfhmacAAAAAAAAAAAAAAAAAAAAAAAA"}}`), "spec")
	f.Fuzz(func(t *testing.T, raw []byte, path string) {
		b, err := body.Parse(raw)
		if err != nil || !json.Valid(raw) {
			return
		}
		keys := strings.Split(path, "/")
		s := newStoreOf(t, Config{Secret: true, Sensitive: [][]string{keys}, Extra: [][]string{keys}})
		e := s.Essence(b)
		if !json.Valid(e.Bytes()) {
			t.Fatalf("%s becomes %s", raw, e.Bytes())
		}
		again, exposed := s.rules.apply(nil, e.Bytes(), b.UID, true)
		if exposed || !bytes.Equal(again, e.Bytes()) {
			t.Errorf("%s is read as %s, exposed %v", e.Bytes(), again, exposed)
		}
	})
}

// withAnnotations returns the object as it is after the changes.
func withAnnotations(t testing.TB, b *body.Body, changes map[string]*string) *body.Body {
	t.Helper()
	var tree map[string]any
	if err := json.Unmarshal(b.Raw(), &tree); err != nil {
		t.Fatal(err)
	}
	metadata, _ := tree["metadata"].(map[string]any)
	annotations := map[string]any{}
	for name, value := range b.Annotations {
		annotations[name] = value
	}
	for name, value := range changes {
		if value == nil {
			delete(annotations, name)
		} else {
			annotations[name] = *value
		}
	}
	metadata["annotations"] = annotations
	raw, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(raw))
}
