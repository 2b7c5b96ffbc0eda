package state

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/storage"
)

// patched returns the object as it is after the changes.
func patched(t testing.TB, b *body.Body, c *Changes) *body.Body {
	t.Helper()
	annotations, merge := c.Patch()
	var tree map[string]any
	if err := json.Unmarshal(withAnnotations(t, b, annotations).Raw(), &tree); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(mergedInto(tree, merge))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(raw))
}

func mergedInto(tree, patch map[string]any) map[string]any {
	if tree == nil {
		tree = map[string]any{}
	}
	for key, value := range patch {
		inner, isMap := value.(map[string]any)
		now, _ := tree[key].(map[string]any)
		switch {
		case isMap:
			tree[key] = mergedInto(now, inner)
		case value == nil:
			delete(tree, key)
		default:
			tree[key] = value
		}
	}
	return tree
}

// configs are stores with all of Kopf's storages.
func configs() map[string]Config {
	prefix := "p.example.com"
	annotations := storage.AnnotationsProgress(prefix, storage.AnnotationsOptions{Reserved: []string{"old"}})
	status := storage.StatusProgress(storage.StatusOptions{Name: "w"})
	inAnnotation := storage.AnnotationsLastHandled(prefix, storage.LastHandledOptions{Key: "old"})
	inStatus := storage.StatusLastHandled(storage.StatusLastHandledOptions{Name: "w"})
	widgets, err := For("widgets")
	if err != nil {
		panic(err)
	}
	return map[string]Config{
		"default":     {Naming: Default()},
		"named":       {Naming: widgets},
		"annotations": {Naming: Naming{Prefix: prefix}, Progress: annotations, LastHandled: inAnnotation},
		"status":      {Naming: Default(), Progress: status, LastHandled: inStatus, Extra: [][]string{{"status"}}},
		"mixed":       {Naming: widgets, Progress: status, LastHandled: inAnnotation, Secret: true},
		"multi": {
			Naming: Default(), Progress: storage.Multi(annotations, status), LastHandled: storage.MultiLastHandled(inStatus, inAnnotation),
			Extra: [][]string{{"status", "w"}, {"metadata", "annotations"}},
		},
	}
}

// DB-5, SET-3: a whole life of an object, whatever the storages are.
func TestEveryStorageKeepsEverything_DB5_SET3(t *testing.T) {
	for name, config := range configs() {
		t.Run(name, func(t *testing.T) {
			s := newStoreOf(t, config)
			object := parse(t, `{"kind":"Widget","metadata":{"name":"w","uid":"u-1","annotations":{"note":"n"}},"spec":{"a":1},"data":{"k":"dg=="},"status":{"phase":"x"}}`)
			if _, known, err := s.Handled(object); known || err != nil {
				t.Fatal("a new object is known", err)
			}
			seen := s.Essence(object)
			f, g := s.Key("f"), s.Key("g/spec.a")

			c := s.Changes(object)
			c.StoreRecord(f, Record{Success: true, Purpose: "create", Digest: seen.Digest()})
			c.StoreSeen(seen)
			c.StoreRecord(g, Record{Retries: 1, Purpose: "create", Message: "x"})
			b := patched(t, object, c)
			records, err := s.Records(b, f, g, s.Key("h"))
			if err != nil || len(records) != 2 || !records["f"].Success || records["g/spec.a"].Message != "x" {
				t.Fatalf("records are %v, %v", records, err)
			}
			if !s.HasStray(b) || !s.HasStray(b, g) || s.HasStray(b, f, g) {
				t.Error("strays are not seen")
			}
			if was, ok := s.Seen(b, records["f"].Digest); !ok || !was.Equal(s.Essence(b)) {
				t.Error("what was seen is not known") // nor does what we have written count: ESS-4
			}

			c = s.Changes(b)
			c.PurgeOthers()
			c.StoreLastHandled(s.Essence(b))
			b = patched(t, b, c)
			if same, known, err := s.Handled(b); !same || !known || err != nil || s.HasStray(b) {
				t.Error("is not handled:", same, known, err)
			}
			last, known, err := s.LastHandled(b)
			if !known || err != nil || !last.Equal(seen) || last.Digest() != seen.Digest() {
				t.Error("the last-handled state is another one:", known, err)
			}
			c = s.Changes(b)
			c.StoreLastHandled(s.Essence(b))
			c.PurgeRecord(f)
			c.PurgeOthers()
			c.RemoveTouch()
			if annotations, merge := c.Patch(); annotations != nil || merge != nil {
				t.Errorf("what is there is written again: %q, %v", spelled(annotations), merge)
			}

			edited := parse(t, strings.Replace(string(b.Raw()), `"a":1`, `"a":2`, 1))
			if same, known, err := s.Handled(edited); same || !known || err != nil {
				t.Error("a change is not seen:", same, known, err)
			}

			// B23: the object's manifest was applied again.
			copied := parse(t, strings.Replace(string(b.Raw()), `"uid":"u-1"`, `"uid":"u-2"`, 1))
			if _, known, err := s.Handled(copied); known || err != nil || !s.Foreign(copied) || s.Foreign(b) {
				t.Error("the copy is known", err)
			}
			c = s.Changes(copied)
			c.Disown()
			clean := patched(t, copied, c)
			for name := range clean.Annotations {
				if name != "note" && !strings.HasSuffix(name, "/kopf-managed") {
					t.Errorf("%s stays", name)
				}
			}
			if _, known, err := s.LastHandled(clean); known || err != nil || s.Foreign(clean) {
				t.Error("the copy is known", err)
			}
			c.StoreLastHandled(s.Essence(copied))
			own := s.Changes(b) // whatever it was disowned for
			own.StoreLastHandled(s.Essence(b))
			own.Disown()
			if same, known, err := s.Handled(patched(t, b, own)); !same || !known || err != nil {
				t.Error("what is disowned can't be handled:", same, known, err)
			}
			if same, known, err := s.Handled(patched(t, copied, c)); !same || !known || err != nil {
				t.Error("the copy can't be handled:", same, known, err)
			}
		})
	}
}

// T053, ESS-4: own data and ignored fields are no essence, of whatever was asked for.
func TestOwnAndIgnoredFieldsAreNoEssence_T053_ESS4(t *testing.T) {
	object := parse(t, `{"kind":"W","metadata":{"uid":"u","labels":{"a":"b"},"annotations":{"p.example.com/x":"1","q.example.com/y":"2","keep":"me"}},
		"spec":{"replicas":3,"size":1,"ops":{"progress":{"f":{}}}},"status":{"phase":"x","kopf":{"progress":{"f":{}},"dummy":"t","last-handled-configuration":"{}"}}}`)
	status := Config{
		Progress:    storage.StatusProgress(storage.StatusOptions{}),
		LastHandled: storage.StatusLastHandled(storage.StatusLastHandledOptions{Ignored: [][]string{{"spec", "replicas"}, {"metadata", "labels", "a"}}}),
	}
	asked := status
	asked.Extra = [][]string{{"status"}}
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"status": {status, `{"spec":{"size":1,"ops":{"progress":{"f":{}}}},"metadata":{"annotations":{"p.example.com/x":"1","q.example.com/y":"2","keep":"me"}}}`},
		"status, asked for": {asked,
			`{"spec":{"size":1,"ops":{"progress":{"f":{}}}},"metadata":{"annotations":{"p.example.com/x":"1","q.example.com/y":"2","keep":"me"}},"status":{"phase":"x"}}`},
		"annotations": {Config{
			Naming:      Naming{Prefix: "q.example.com"},
			Progress:    storage.AnnotationsProgress("p.example.com", storage.AnnotationsOptions{}),
			LastHandled: storage.AnnotationsLastHandled("q.example.com", storage.LastHandledOptions{}),
		}, `{"spec":{"replicas":3,"size":1,"ops":{"progress":{"f":{}}}},"metadata":{"labels":{"a":"b"},"annotations":{"keep":"me"}}}`},
		"a field of the spec": {Config{
			Progress: storage.StatusProgress(storage.StatusOptions{Field: "spec.ops.progress"}),
		}, `{"spec":{"replicas":3,"size":1},"metadata":{"labels":{"a":"b"},"annotations":{"p.example.com/x":"1","q.example.com/y":"2","keep":"me"}}}`},
	} {
		if got := string(newStoreOf(t, c.config).Essence(object).Bytes()); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", name, got, c.want)
		}
	}
}

// SET-5: two operators of different names, or with different storages, are no business
// of each other.
func TestOperatorsAreIsolated_SET5(t *testing.T) {
	widgets, err := For("widgets")
	if err != nil {
		t.Fatal(err)
	}
	first, second := storeWith(Default(), nil), storeWith(widgets, nil)
	object := objectWith(nil)
	c := handledChanges(first, object)
	c.StoreRecord(first.Key("f"), Record{Retries: 1})
	c.StoreRecord(first.Key("g"), Record{Digest: first.Essence(object).Digest()})
	c.StoreSeen(first.Essence(object))
	b := patched(t, object, c)
	if _, known, err := second.Handled(b); known || err != nil || second.HasStray(b) || second.Foreign(b) {
		t.Error("the first one's state is the second one's", err)
	}
	c = handledChanges(second, b)
	c.PurgeOthers()
	both := patched(t, b, c)
	for name, value := range b.Annotations {
		if both.Annotations[name] != value {
			t.Errorf("%s was changed", name)
		}
	}
	if same, known, err := first.Handled(both); !same || !known || err != nil {
		t.Error("what the second one writes is a change for the first one", err)
	}
}

// SET-6: another storage without a transition makes objects new; with one it does not.
func TestStoragesAreChangedInSteps_SET6(t *testing.T) {
	old := Config{LastHandled: storage.AnnotationsLastHandled(storage.DefaultPrefix, storage.LastHandledOptions{}),
		Progress: storage.AnnotationsProgress(storage.DefaultPrefix, storage.AnnotationsOptions{})}
	now := Config{LastHandled: storage.StatusLastHandled(storage.StatusLastHandledOptions{}), Progress: storage.StatusProgress(storage.StatusOptions{})}
	both := Config{LastHandled: storage.MultiLastHandled(now.LastHandled, old.LastHandled), Progress: storage.Multi(now.Progress, old.Progress)}

	s := newStoreOf(t, old)
	c := handledChanges(s, objectWith(nil))
	c.StoreRecord(s.Key("f"), Record{Retries: 1})
	b := patched(t, objectWith(nil), c)
	if _, known, err := newStoreOf(t, now).Handled(b); known || err != nil {
		t.Error("it is known to a storage that it never was in", err)
	}
	s = newStoreOf(t, both)
	if same, known, err := s.Handled(b); !same || !known || err != nil {
		t.Error("it is not known in the transition:", same, known, err)
	}
	edited := parse(t, strings.Replace(string(b.Raw()), `"a":1`, `"a":2`, 1))
	c = handledChanges(s, edited)
	c.StoreRecord(s.Key("f"), Record{Retries: 2})
	b = patched(t, edited, c)
	for name, config := range map[string]Config{"old": old, "new": now} {
		s := newStoreOf(t, config)
		if same, known, err := s.Handled(b); !same || !known || err != nil {
			t.Errorf("%s: %v, %v, %v", name, same, known, err)
		}
		if records, err := s.Records(b, s.Key("f")); err != nil || records["f"].Retries != 2 {
			t.Errorf("%s: %v, %v", name, records, err)
		}
	}
}

// SET-4: storages that would destroy each other's data are not accepted.
func TestStoragesGetInEachOthersWay_SET4(t *testing.T) {
	const prefix = "p.example.com"
	for want, config := range map[string]Config{
		"takes the last-handled state for a record": {
			Progress:    storage.AnnotationsProgress(prefix, storage.AnnotationsOptions{}),
			LastHandled: storage.AnnotationsLastHandled(prefix, storage.LastHandledOptions{Key: "old"}),
		},
		"the last-handled state for a record": {
			Progress:    storage.StatusProgress(storage.StatusOptions{Field: "status.kopf"}),
			LastHandled: storage.StatusLastHandled(storage.StatusLastHandledOptions{}),
		},
		"prefix of a storage is empty":     {Progress: storage.AnnotationsProgress("", storage.AnnotationsOptions{})},
		"annotation prefix \"X\" is":       {LastHandled: storage.AnnotationsLastHandled("X", storage.LastHandledOptions{})},
		"does not find what it has stored": {LastHandled: forgetful{storage.StatusLastHandled(storage.StatusLastHandledOptions{})}},
	} {
		config.Naming = Default()
		if _, err := NewStore(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

type forgetful struct{ storage.LastHandled }

func (forgetful) Store(storage.Object, *storage.Patch, string) {}

// PRG-5, T064: what is purged, and what is stored after it.
func TestPurgeOthers_PRG5_T064(t *testing.T) {
	s := storeWith(Default(), nil)
	b := objectWith(map[string]string{"kopf.zalando.org/f": "{}", "kopf.zalando.org/g": "{}", "kopf.zalando.org/gone": "corrupt", "note": "n"})
	f, g, h := s.Key("f"), s.Key("g"), s.Key("h")
	for _, c := range []struct {
		what string
		do   func(c *Changes)
		want []string
	}{
		{"all", func(c *Changes) { c.PurgeOthers() }, nil},
		{"but one", func(c *Changes) { c.PurgeOthers(g) }, []string{"g"}},
		{"but one that is nowhere", func(c *Changes) { c.PurgeOthers(h) }, nil},
		{"and what was stored before", func(c *Changes) { c.StoreRecord(h, Record{}); c.StoreRecord(f, Record{Retries: 1}); c.PurgeOthers(g) }, []string{"g"}},
		{"but not what is stored after", func(c *Changes) { c.PurgeOthers(g); c.StoreRecord(h, Record{}); c.StoreRecord(f, Record{}) }, []string{"f", "g", "h", "last-handled-uid"}},
		{"nor what is kept and stored", func(c *Changes) { c.StoreRecord(h, Record{}); c.PurgeOthers(h) }, []string{"h", "last-handled-uid"}},
		{"and what is kept and purged", func(c *Changes) { c.PurgeRecord(f); c.PurgeOthers(f, g) }, []string{"g"}},
		{"and what is purged afterwards", func(c *Changes) { c.PurgeOthers(f, g); c.PurgeRecord(f) }, []string{"g"}},
	} {
		changes := s.Changes(b)
		c.do(changes)
		first, _ := changes.Patch()
		again, _ := changes.Patch()
		if !maps.Equal(spelled(first), spelled(again)) {
			t.Errorf("%s: the patch is another one when asked for again", c.what)
		}
		var left []string
		for name := range withAnnotations(t, b, first).Annotations {
			if id, ours := strings.CutPrefix(name, "kopf.zalando.org/"); ours {
				left = append(left, id)
			}
		}
		if slices.Sort(left); !slices.Equal(left, c.want) {
			t.Errorf("%s: %q are left", c.what, left)
		}
	}
}

// The status is cleared of what older versions of Kopf have left there (T066).
func TestTheDefaultEmptiesTheStatus_T066(t *testing.T) {
	s := storeWith(Default(), nil)
	b := parse(t, `{"kind":"W","metadata":{"uid":"u"},"status":{"kopf":{"progress":{"f":{"retries":3,"purpose":"create"}}}}}`)
	f := s.Key("f")
	if records, err := s.Records(b, f); err != nil || records["f"].Retries != 3 || !s.HasStray(b) || s.HasStray(b, f) {
		t.Errorf("got %v, %v", records, err)
	}
	c := s.Changes(b)
	c.StoreRecord(f, Record{Retries: 4})
	if annotations, merge := c.Patch(); len(annotations) != 2 || merge != nil {
		t.Errorf("got %q, %v", spelled(annotations), merge)
	}
	c = s.Changes(b)
	c.PurgeOthers()
	annotations, merge := c.Patch()
	if text, _ := json.Marshal(merge); annotations != nil || string(text) != `{"status":{"kopf":{"progress":{"f":null}}}}` {
		t.Errorf("got %q, %s", spelled(annotations), text)
	}
}
