package patching

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
)

// expected applies an edit to a tree in the plainest way: a merge patch as its RFC has
// it, but without what would only be made to hold a removal; a JSON patch by the
// library; a function by calling it.
func expected(t testing.TB, tree map[string]any, edit registry.Edit) map[string]any {
	t.Helper()
	raw, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case edit.Merge != nil:
		patch, err := decodeTree(edit.Merge)
		if err != nil {
			t.Fatal(err)
		}
		return applyMerge(tree, needed(tree, patch)).(map[string]any)
	case edit.Operations != nil:
		patch, err := jsonpatch.DecodePatch(edit.Operations)
		if err != nil {
			t.Fatal(err)
		}
		if raw, err = patch.Apply(raw); err != nil {
			t.Fatal(err)
		}
	default:
		u := new(unstructured.Unstructured)
		if u.Object, err = decodeTree(raw); err != nil {
			t.Fatal(err)
		}
		edit.Apply(u)
		if raw, err = json.Marshal(u.Object); err != nil {
			t.Fatal(err)
		}
	}
	out, err := decodeTree(raw)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func needed(present any, patch map[string]any) map[string]any {
	tree, _ := present.(map[string]any)
	out := map[string]any{}
	for key, value := range patch {
		inner, isMap := value.(map[string]any)
		if isMap {
			rest := needed(tree[key], inner)
			if tree[key] == nil && len(inner) > 0 && len(rest) == 0 {
				continue
			}
			out[key] = rest
		} else if value != nil || tree[key] != nil {
			out[key] = value
		}
	}
	return out
}

// Whatever edits there are: applying the requests to the object makes what applying
// the edits to it makes. Lists are under a lock, and nothing is sent for nothing.
func TestRequestsMakeWhatTheEditsMake_PAT1_PAT3_PAT6_PAT7(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 11))
		before := map[string]any{
			"apiVersion": "e/v1", "kind": "Thing",
			"metadata": map[string]any{"name": "t", "uid": "u", "resourceVersion": "7", "labels": map[string]any{"a": "1"}},
		}
		for _, key := range []string{"spec", "status", "data"} {
			if r.IntN(4) > 0 {
				before[key] = randomTree(r, 3)
			}
		}
		raw, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		b := parse(t, string(raw))
		want, _ := decodeTree(raw)
		var edits []registry.Edit
		for range 1 + r.IntN(3) {
			edit := randomEdit(t, r, want, len(edits) == 0)
			edits = append(edits, edit)
			want = expected(t, want, edit)
		}
		apart := r.IntN(2) == 0
		plan, err := Compose(b, Change{Edits: edits}, apart)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got := after(t, raw, plan, apart); !diff.Equal(got, want) {
			t.Fatalf("seed %d:\nbefore %s\n got %v\nwant %v\nsent %s, %s", seed, raw, got, want, plan.Object, plan.Status)
		}
		if nothing := plan.Object == nil && plan.Status == nil; nothing != diff.Equal(tree(t, raw), want) {
			t.Fatalf("seed %d: nothing is sent: %t; %s, %s", seed, nothing, plan.Object, plan.Status)
		}
		for _, request := range [][]byte{plan.Object, plan.Status} {
			if request == nil {
				continue
			}
			patch := tree(t, request)
			if version := patch["metadata"].(map[string]any)["resourceVersion"]; version == nil && hasList(patch) {
				t.Fatalf("seed %d: a list without a lock: %s", seed, request)
			}
		}
		if string(b.Raw()) != string(raw) {
			t.Fatalf("seed %d: the object is changed", seed)
		}
		response, err := json.Marshal(after(t, raw, plan, apart))
		if err != nil {
			t.Fatal(err)
		}
		for _, request := range [][]byte{plan.Object, plan.Status} {
			if paths := Dropped(request, parse(t, string(response))); paths != nil {
				t.Fatalf("seed %d: said to be dropped: %q of %s", seed, paths, request)
			}
		}
	}
}

// randomEdit is one of any kind. Only the first one tests what is there: a null may have
// gone since, which is no change, but to the library.
func randomEdit(t testing.TB, r *rand.Rand, tree map[string]any, first bool) registry.Edit {
	t.Helper()
	key := []string{"spec", "status", "data"}[r.IntN(3)]
	switch r.IntN(4) {
	case 0: // another tree in the place of the old one, by a function
		value := withoutNulls(randomTree(r, 3))
		return editOf(func(u *unstructured.Unstructured) { u.Object[key] = value })
	case 1:
		var operations []map[string]any
		if first && tree[key] != nil {
			operations = append(operations, map[string]any{"op": "test", "path": "/" + key, "value": tree[key]})
		}
		operations = append(operations,
			map[string]any{"op": "add", "path": "/" + key, "value": withoutNulls(randomTree(r, 2))},
			map[string]any{"op": "add", "path": "/" + key + "/new", "value": r.IntN(3)})
		raw, err := json.Marshal(operations)
		if err != nil {
			t.Fatal(err)
		}
		return jsonOf(string(raw))
	}
	raw, err := json.Marshal(map[string]any{key: randomTree(r, 3)})
	if err != nil {
		t.Fatal(err)
	}
	return mergeOf(string(raw))
}

// randomTree has few names and values, so that trees have much in common.
func randomTree(r *rand.Rand, depth int) map[string]any {
	out := map[string]any{}
	for range r.IntN(4) {
		name := string(rune('a' + r.IntN(4)))
		switch kind := r.IntN(8); {
		case kind < 3 && depth > 0:
			out[name] = randomTree(r, depth-1)
		case kind == 3:
			out[name] = []any{int64(r.IntN(2)), randomTree(r, 0)}
		case kind == 4:
			out[name] = nil
		case kind == 5:
			out[name] = int64(9007199254740993 + r.IntN(2))
		default:
			out[name] = fmt.Sprint(r.IntN(2))
		}
	}
	return out
}

// The same for any object and any two merge patches.
func FuzzMerge(f *testing.F) {
	f.Add(`{"spec":{"a":{"b":1}},"status":{"c":[1]}}`, `{"spec":{"a":null}}`, `{"spec":{"a":{"c":1}},"status":{"c":null}}`)
	f.Add(`{"metadata":{"annotations":{"a":"b"},"finalizers":["x"]}}`, `{"metadata":{"annotations":{"a":null},"labels":{"l":"m"}}}`, `{}`)
	f.Add(`{"data":{"a":null}}`, `{"data":{"a":{"b":null}}}`, `{"data":{"a":{"b":{}}},"kind":"X"}`)
	f.Add(`{"metadata":{"labels":{}}}`, `{"metadata":{"labels":{"a":{"b":1}}}}`, `{"metadata":"x"}`)
	f.Fuzz(func(t *testing.T, object, first, second string) {
		before, err := canonical(object)
		if err != nil {
			t.Skip()
		}
		b, err := body.Parse(before)
		if err != nil {
			t.Skip()
		}
		want, err := decodeTree(before)
		if err != nil {
			t.Fatal(err)
		}
		var edits []registry.Edit
		for _, text := range []string{first, second} {
			patch, err := canonical(text)
			if err != nil {
				t.Skip()
			}
			edits = append(edits, mergeOf(string(patch)))
			merge, _ := decodeTree(patch)
			keepIdentity(merge)
			want = applyMerge(want, needed(want, merge)).(map[string]any)
		}
		plan, err := Compose(b, Change{Edits: edits}, false)
		if err != nil {
			t.Fatal(err)
		}
		got := after(t, before, plan, false)
		tidy(got)
		tidy(want)
		if !diff.Equal(got, want) {
			t.Errorf("%s\n got %v\nwant %v\nsent %s", before, got, want, plan.Object)
		}
	})
}

// tidy takes out empty metadata, of which no server keeps any.
func tidy(tree map[string]any) {
	metadata, isMap := tree["metadata"].(map[string]any)
	for key, value := range metadata {
		inner, wasMap := value.(map[string]any)
		list, wasList := value.([]any)
		if wasMap && len(inner) == 0 || wasList && len(list) == 0 {
			delete(metadata, key)
		}
	}
	if isMap && len(metadata) == 0 {
		delete(tree, "metadata")
	}
}

func canonical(text string) ([]byte, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("it is not UTF-8")
	}
	tree, err := decodeTree([]byte(text))
	if err != nil || tree == nil {
		return nil, fmt.Errorf("it is no object: %v", err)
	}
	return json.Marshal(tree)
}
