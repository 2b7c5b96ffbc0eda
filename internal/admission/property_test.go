package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kopf-go/kopf/internal/admission"
)

// world makes random objects with fields that Database does not know on any level, and
// random edits, each with what it must come to.
type world struct {
	*rand.Rand
	names int
}

func (w *world) name() string { w.names++; return fmt.Sprint("n", w.names) }

func (w *world) unknown(depth int) any {
	switch w.IntN(8 - min(depth, 2)) {
	case 0:
		return json.Number("1" + strings.Repeat("0", 18) + fmt.Sprint(w.IntN(1000))) // beyond int64
	case 1:
		return json.Number(fmt.Sprint(int64(w.Uint64() >> 1)))
	case 2:
		return json.Number(fmt.Sprintf("%d.%d0e-3", w.IntN(100), w.IntN(1000)))
	case 3:
		return nil
	case 4:
		return w.IntN(2) == 0
	case 5:
		return "<&>ü~1/\"" + w.name()
	case 6:
		return []any{w.unknown(depth + 1), w.unknown(depth + 1)}
	}
	return w.with(map[string]any{}, depth+1)
}

// with adds unknown fields.
func (w *world) with(tree map[string]any, depth int) map[string]any {
	for range w.IntN(3) {
		tree[[]string{"x-a", "x/b", "x~c", "x.d"}[w.IntN(4)]] = w.unknown(depth)
	}
	return tree
}

func (w *world) user() map[string]any {
	user := map[string]any{"name": w.name()}
	if w.IntN(2) == 0 {
		user["notes"] = map[string]any{"k": "v", "l/m": "w"}
	}
	if w.IntN(3) == 0 {
		user["admin"] = true
	}
	return w.with(user, 0)
}

func (w *world) object() map[string]any {
	spec := map[string]any{}
	if w.IntN(3) > 0 {
		spec["engine"] = "e"
	}
	if w.IntN(3) > 0 {
		spec["replicas"] = json.Number("9007199254740993")
	}
	if w.IntN(4) > 0 {
		spec["size"] = w.with(map[string]any{"disk": "1Gi"}, 0)
	}
	if n := w.IntN(5); n > 0 {
		users := make([]any, n)
		for i := range users {
			users[i] = w.user()
		}
		spec["users"] = users
	}
	if n := w.IntN(4); n > 0 {
		tags := make([]any, n)
		for i := range tags {
			tags[i] = w.name()
		}
		spec["tags"] = tags
	}
	return w.with(map[string]any{
		"apiVersion": "example.com/v1", "kind": "Database", "spec": w.with(spec, 0),
		"metadata": map[string]any{"name": "db", "namespace": "ns", "uid": "u1", "managedFields": []any{w.with(map[string]any{"manager": "x"}, 0)}},
	}, 0)
}

// edit changes the typed object, and the tree to what it must become; it returns how many
// leaves that were.
func (w *world) edit(d *Database, tree map[string]any) int {
	spec := tree["spec"].(map[string]any)
	users, _ := spec["users"].([]any)
	tags, _ := spec["tags"].([]any)
	switch w.IntN(10) {
	case 0:
		d.Spec.Engine = w.name()
		spec["engine"] = d.Spec.Engine
	case 1:
		d.Spec.Engine = ""
		delete(spec, "engine")
	case 2:
		d.Spec.Replicas = 1 << 62
		spec["replicas"] = json.Number("4611686018427387904")
	case 3:
		d.Spec.Size.Memory = w.name()
		size, _ := spec["size"].(map[string]any)
		if size == nil {
			size = map[string]any{}
			spec["size"] = size
		}
		size["memory"] = d.Spec.Size.Memory
	case 4: // an item anywhere
		i, name := w.IntN(len(d.Spec.Users)+1), w.name()
		d.Spec.Users = slices.Insert(d.Spec.Users, i, User{Name: name})
		spec["users"] = slices.Insert(slices.Clone(users), i, any(map[string]any{"name": name}))
	case 5:
		if len(users) < 2 {
			return 0
		}
		i := w.IntN(len(users))
		d.Spec.Users = slices.Delete(d.Spec.Users, i, i+1)
		spec["users"] = slices.Delete(slices.Clone(users), i, i+1)
	case 6: // in a map in an item
		if len(users) == 0 {
			return 0
		}
		i := w.IntN(len(users))
		user := users[i].(map[string]any)
		notes, _ := user["notes"].(map[string]any)
		notes = maps.Clone(notes)
		if notes == nil {
			notes = map[string]any{}
		}
		if d.Spec.Users[i].Notes == nil {
			d.Spec.Users[i].Notes = map[string]string{}
		}
		d.Spec.Users[i].Notes["a/b~"], notes["a/b~"] = w.name(), fmt.Sprint("n", w.names)
		user["notes"] = notes
	case 7: // any item's flag
		if len(users) == 0 {
			return 0
		}
		i := w.IntN(len(users))
		d.Spec.Users[i].Admin = true
		users[i].(map[string]any)["admin"] = true
	case 8:
		if len(tags) == 0 {
			return 0
		}
		i := w.IntN(len(tags))
		d.Spec.Tags[i] = w.name()
		tags[i] = d.Spec.Tags[i]
	case 9:
		if d.Labels == nil {
			d.Labels = map[string]string{}
		}
		d.Labels["a/b"] = w.name()
		metadata := tree["metadata"].(map[string]any)
		labels, _ := metadata["labels"].(map[string]any)
		if labels == nil {
			labels = map[string]any{}
			metadata["labels"] = labels
		}
		labels["a/b"] = d.Labels["a/b"]
	}
	return 1
}

// Whatever an object has that its Go type does not know is the same text afterwards, on any
// level; what is edited is edited; and the patch has no more operations than there are edits.
func TestOnlyEditsChangeTheObject_ADM12(t *testing.T) {
	for seed := range uint64(500) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, 5))}
		want := w.object()
		raw := encoded(t, want)
		edits := 0
		edit := func(_ context.Context, a *A) error {
			for range w.IntN(4) {
				edits += w.edit(a.Object, want)
			}
			return nil
		}
		q := create(`{}`)
		q.Object.Raw = []byte(raw)
		got := review(t, mutating(t, edit, edit), q)
		after := patched(t, q, got)
		if canonical(t, after) != encoded(t, want) {
			t.Fatalf("seed %d:\nfrom %s\npatch %s\ngot  %s\nwant %s", seed, raw, got.Patch, canonical(t, after), encoded(t, want))
		}
		var operations []struct{ Op string }
		if got.Patch != nil {
			if err := json.Unmarshal(got.Patch, &operations); err != nil {
				t.Fatal(err)
			}
		}
		if len(operations) > edits || edits == 0 && got.Patch != nil {
			t.Fatalf("seed %d: %d edits, %s", seed, edits, got.Patch)
		}
	}
}

func encoded(t *testing.T, tree any) string {
	t.Helper()
	raw, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// canonical is the text with its keys sorted, and nothing else changed.
func canonical(t *testing.T, text string) string { return encoded(t, exact(t, text)) }

// Between any two objects there is a patch that leads from one to the other.
func TestPatchLeadsThere_ADM12(t *testing.T) {
	for seed := range uint64(500) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, 6))}
		before, after := w.object(), w.object()
		if seed%50 == 0 { // so long that items are compared by their place
			for _, tree := range []map[string]any{before, after} {
				users := make([]any, 100+w.IntN(100))
				for i := range users {
					users[i] = map[string]any{"name": w.name()}
				}
				tree["spec"].(map[string]any)["users"] = users
			}
		}
		q := create(`{}`)
		q.Object.Raw = []byte(encoded(t, before))
		patch, err := admission.Patch(q.Object.Raw, []byte(encoded(t, after)))
		if err != nil {
			t.Fatal(err)
		}
		response := review(t, validating(t, allow), q)
		response.Patch = patch
		sameJSON(t, patched(t, q, response), encoded(t, after))
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, patch)
		}
	}
}

func FuzzPatch(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":null}],"c":1.0}`), []byte(`{"a":[{"b":2},1],"d":{"e":[[]]}}`))
	f.Add([]byte(`{"":{"~":[1,2,3]}}`), []byte(`{"":{"/":[3,2,1]}}`))
	f.Add([]byte(`{"a":[[1],[2],[3]]}`), []byte(`{"a":[[2],[1,2],[3,null]]}`))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		patch, err := admission.Patch(before, after)
		if err != nil || patch == nil {
			return
		}
		q := create(`{}`)
		q.Object.Raw = before
		response := review(t, validating(t, allow), create(`{}`))
		response.Patch = patch
		sameJSON(t, patched(t, q, response), string(after))
	})
}
