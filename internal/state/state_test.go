package state

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/kopf-go/kopf/internal/body"
)

func parse(t testing.TB, raw string) *body.Body {
	t.Helper()
	b, err := body.Parse([]byte(raw))
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return b
}

func objectWith(annotations map[string]string) *body.Body {
	raw, err := json.Marshal(map[string]any{
		"kind": "Widget", "metadata": map[string]any{"name": "w", "uid": "u-1", "annotations": annotations}, "spec": map[string]any{"a": 1},
	})
	if err != nil {
		panic(err)
	}
	b, err := body.Parse(raw)
	if err != nil {
		panic(err)
	}
	return b
}

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err)
	}
	return t
}

// storeWith returns a store with Kopf's storages.
func storeWith(n Naming, extra [][]string) *Store {
	s, err := NewStore(Config{Naming: n, Extra: extra})
	if err != nil {
		panic(err)
	}
	return s
}

func essenceOf(b *body.Body, n Naming, extra [][]string) *Essence {
	return storeWith(n, extra).Essence(b)
}

func handledBy(b *body.Body, n Naming, extra [][]string) (same, known bool, err error) {
	return storeWith(n, extra).Handled(b)
}

func lastHandledBy(b *body.Body, n Naming) (*Essence, bool, error) {
	return storeWith(n, nil).LastHandled(b)
}

func annotationsOf(c *Changes) map[string]*string {
	annotations, _ := c.Patch()
	return annotations
}

// strays are the names of what PurgeOthers removes, sorted.
func strays(b *body.Body, n Naming, known ...*Keys) []string {
	s := storeWith(n, nil)
	c := s.Changes(b)
	c.PurgeOthers(known...)
	names := slices.Sorted(maps.Keys(annotationsOf(c)))
	if s.HasStray(b, known...) != (len(names) > 0) {
		panic("HasStray and PurgeOthers do not agree")
	}
	return names
}
