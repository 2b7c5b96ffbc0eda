package body_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	utiljson "sigs.k8s.io/json"

	"github.com/kopf-go/kopf/internal/body"
)

// usual is how others decode.
func usual(raw []byte) (tree map[string]any, err error, exact any, exactErr error) {
	tree = map[string]any{}
	err = utiljson.UnmarshalCaseSensitivePreserveInts(raw, &tree)
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	exactErr = decoder.Decode(&exact)
	return tree, err, exact, exactErr
}

func checkTrees(t *testing.T, raw []byte) {
	t.Helper()
	tree, err, exact, exactErr := usual(raw)
	got, gotErr := body.DecodeTree(raw)
	if fmt.Sprint(gotErr) != fmt.Sprint(err) || err == nil && !reflect.DeepEqual(got, tree) {
		t.Errorf("%q becomes %#v, %v, not %#v, %v", raw, got, gotErr, tree, err)
	}
	gotExact, gotErr := body.DecodeExactly(raw)
	if fmt.Sprint(gotErr) != fmt.Sprint(exactErr) || exactErr == nil && !reflect.DeepEqual(gotExact, exact) {
		t.Errorf("%q becomes %#v, %v, not %#v, %v", raw, gotExact, gotErr, exact, exactErr)
	}
}

var oddTrees = []string{
	``, ` `, `null`, `[]`, `1`, `"a"`, `{}`, ` { } `, `{"a":null}`, `{"a":[],"b":{}}`, `{"a":1,"a":{"b":2}}`, `{"a":{"b":1},"a":{"c":2}}`,
	`{"a":1}{"b":2}`, `{"a":1} x`, `{"a":1`, `{"a":[1`, `{"a"`, `{"a":`, `{a:1}`, `{"a":01}`, `{"a":1,}`, `{"a":[1,]}`, `{"a":nul}`, `[1}`,
	`{"n":[0,-0,1,-1,1.0,1e3,1E3,1.5e-7,-0.0,9007199254740993,9223372036854775807,9223372036854775808,-9223372036854775809,1e400,-1e400]}`,
	`{"n":123456789012345678901234567890.123456789012345678901234567890}`, "{\"a\xff\":\"\xfe\"}", `{"\u0061":"\ud83d\ude00 \ud800 \udc00 \u0000"}`,
	`{"a":"\x"}`, "{\"a\":\"\n\"}", "{\"a\":\"\u2028\"}", "\ufeff{}", `{"":""}`,
	`{"a":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`, `{"a":` + strings.Repeat("[", 10001) + strings.Repeat("]", 10001) + `}`,
}

func TestTreesAreThoseOfTheUsualDecoders(t *testing.T) {
	for _, raw := range oddTrees {
		checkTrees(t, []byte(raw))
	}
	// Spoilt ones of what is usual.
	random := rand.New(rand.NewPCG(1, 2))
	base := []byte(`{"apiVersion":"v1","metadata":{"name":"n","labels":{"a":"b\u00e4"}},"spec":{"list":[1,2.5,{"x":null},true,false],"s":"\"\\"}}`)
	for range 20_000 {
		raw := bytes.Clone(base)
		for range 1 + random.IntN(2) {
			at := random.IntN(len(raw))
			switch random.IntN(3) {
			case 0:
				raw = append(raw[:at], raw[at+1:]...)
			case 1:
				raw[at] = `{}[]",:0-1e.\ntf x`[random.IntN(18)]
			case 2:
				raw = append(raw[:at:at], append([]byte{base[random.IntN(len(base))]}, raw[at:]...)...)
			}
		}
		checkTrees(t, raw)
	}
}

func FuzzTrees(f *testing.F) {
	for _, raw := range oddTrees {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) { checkTrees(t, raw) })
}

// What is decoded in several ways is a list of 40 small objects, 4 KB in all.
func BenchmarkTree(b *testing.B) {
	var list []string
	for i := range 40 {
		list = append(list, fmt.Sprintf(`{"name":"user-%d","size":%d,"notes":{"email":"user-%d@example.com","since":"2026-01-01T00:00:00Z"}}`, i, i, i))
	}
	raw := []byte(`{"apiVersion":"v1","spec":{"users":[` + strings.Join(list, ",") + `]}}`)
	for name, decode := range map[string]func(){
		"kubernetes": func() { _, _ = body.DecodeTree(raw) },
		"exactly":    func() { _, _ = body.DecodeExactly(raw) },
		"sigs.k8s.io/json": func() {
			tree := map[string]any{}
			_ = utiljson.UnmarshalCaseSensitivePreserveInts(raw, &tree)
		},
		"encoding/json": func() {
			decoder := json.NewDecoder(bytes.NewReader(raw))
			decoder.UseNumber()
			var tree any
			_ = decoder.Decode(&tree)
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				decode()
			}
		})
	}
}
