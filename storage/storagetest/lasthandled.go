package storagetest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kopf-go/kopf/storage"
)

// LastHandled checks a storage for the state that was handled last. make returns a new
// one, as a restarted operator would have it; several work on the same objects.
func LastHandled(t testing.TB, make func() storage.LastHandled) {
	t.Helper()
	texts := []string{
		`{}`, `{"spec":{"a":1}}`, `{"spec":{"text":"\u00fc \"quoted\" \\ \n"},"metadata":{"labels":{"a":"b"}}}`,
		`{"kopf.zalando.org/gzip":"aGVsbG8="}`, `{"spec":"` + strings.Repeat("x", 100_000) + `"}`,
	}
	for name, o := range objects(t) {
		s := make()
		c := &check{TB: t, what: "object " + name, own: s.Own()}
		if v, ok := s.(storage.Validator); ok {
			if err := v.Validate(); err != nil {
				t.Fatal(err)
			}
		}
		if text, err := s.Fetch(o); text != "" || err != nil {
			c.errorf("Fetch finds %q, %v on an object that has none", text, err)
		}
		c.unchanged(o, "Purge of what is nowhere", func(p *storage.Patch) { s.Purge(o, p) })
		c.unchanged(o, "Purge of what is only in the patch", func(p *storage.Patch) {
			s.Store(o, p, "{}")
			s.Purge(o, p)
		})
		stored := o
		for _, text := range texts { // each replaces the one before
			before := stored
			stored = c.patched(before, func(p *storage.Patch) { s.Store(before, p, text) })
			got, err := make().Fetch(stored) // after a restart
			if err != nil || got != text || !json.Valid([]byte(got)) {
				c.errorf("%.100q is stored, %.100q, %v is fetched", text, got, err)
			}
			now := stored
			c.unchanged(now, "Store of the same text", func(p *storage.Patch) { s.Store(now, p, text) })
		}
		purged := c.patched(stored, func(p *storage.Patch) { s.Purge(stored, p) })
		if text, err := s.Fetch(purged); text != "" || err != nil {
			c.errorf("Purge leaves %q, %v", text, err)
		}
		c.clean(o, purged)
	}
}
