package storagetest

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kopf-go/kopf/storage"
)

// Progress checks a storage for the records of handlers. make returns a new one, as a
// restarted operator would have it; several work on the same objects.
func Progress(t testing.TB, make func() storage.Progress) {
	t.Helper()
	for name, o := range objects(t) {
		s := make()
		c := &progress{check{TB: t, what: "object " + name, own: s.Own()}, s, make}
		if v, ok := s.(storage.Validator); ok {
			if err := v.Validate(); err != nil {
				t.Fatal(err)
			}
		}
		c.empty(o)
		for id, r := range records() {
			c.roundTrip(o, id, r)
		}
		c.separate(o)
		c.corrupt(o)
		c.concurrent(o)
	}
}

type progress struct {
	check
	storage.Progress
	make func() storage.Progress
}

// records are ones by ids that handlers may have.
func records() map[string]storage.Record {
	started := time.Date(2026, 11, 30, 1, 32, 58, 834105000, time.UTC)
	return map[string]storage.Record{
		"create_fn":             {},
		"update/spec.size":      {Started: started, Purpose: "update", Retries: 3, Message: "not \"ready\" ü\n"},
		"Type.method":           {Started: started, Stopped: started.Add(time.Second), Purpose: "create", Retries: 1, Success: true, Digest: "0123456789abcdef"},
		"<lambda> at main.py:7": {Started: started, Delayed: started.Add(time.Minute), Failure: true, Subrefs: []string{"a/x", "a/y"}},
		"größe":                 {Retries: 1},
		"touch-dummy":           {Retries: 2},
		"seen-0123456789abcdef": {Retries: 3},

		"last-handled-configuration": {Retries: 4},
		strings.Repeat("long/", 60):  {Retries: 5},
		strings.Repeat("y", 300):     {Retries: 6},
	}
}

func (c *progress) empty(o storage.Object) {
	c.Helper()
	if r, ok, err := c.Fetch(o, "f"); ok || err != nil {
		c.errorf("Fetch finds %+v, %v on an object that has no record", r, err)
	}
	if c.HasOthers(o) || c.HasOthers(o, "f") {
		c.errorf("HasOthers finds records on an object that has none")
	}
	c.unchanged(o, "Purge of what is nowhere", func(p *storage.Patch) { c.Purge(o, p, "f") })
	c.unchanged(o, "PurgeOthers of what is nowhere", func(p *storage.Patch) { c.PurgeOthers(o, p, "f") })
	c.unchanged(o, "Purge of what is only in the patch", func(p *storage.Patch) {
		c.Store(o, p, "f", storage.Record{Retries: 1})
		c.Purge(o, p, "f")
	})
	c.unchanged(o, "PurgeOthers of what is only in the patch", func(p *storage.Patch) {
		c.Store(o, p, "f", storage.Record{Retries: 1})
		c.PurgeOthers(o, p)
	})
}

func (c *progress) roundTrip(o storage.Object, id string, r storage.Record) {
	c.Helper()
	full := storage.Record{
		Started: time.Unix(1, 0), Stopped: time.Unix(2, 0), Delayed: time.Unix(3, 0), Purpose: "resume",
		Retries: 9, Failure: true, Message: "old", Subrefs: []string{"old"}, Digest: "old",
	}
	stored := c.patched(o, func(p *storage.Patch) { c.Store(o, p, id, full) })
	stored = c.patched(stored, func(p *storage.Patch) { c.Store(stored, p, id, r) })
	got, ok, err := c.make().Fetch(stored, id) // after a restart
	if !ok || err != nil || !got.Equal(&r) {
		c.errorf("%q is stored as %+v and fetched as %+v, %v, %v", id, r, got, ok, err)
	}
	if !c.HasOthers(stored) || c.HasOthers(stored, id) {
		c.errorf("HasOthers does not see just the record of %q", id)
	}
	c.unchanged(stored, "Store of an equal record", func(p *storage.Patch) { c.Store(stored, p, id, r) })
	c.unchanged(stored, "Store of an equal record after another one", func(p *storage.Patch) {
		c.Store(stored, p, id, full)
		c.Store(stored, p, id, r)
	})
	c.unchanged(stored, "PurgeOthers of none", func(p *storage.Patch) { c.PurgeOthers(stored, p, id) })
	for what, do := range map[string]func(*storage.Patch){
		"Purge":       func(p *storage.Patch) { c.Purge(stored, p, id) },
		"PurgeOthers": func(p *storage.Patch) { c.PurgeOthers(stored, p, "another") },
		"Purge, after Store": func(p *storage.Patch) {
			c.Store(stored, p, id, full)
			c.Purge(stored, p, id)
		},
	} {
		purged := c.patched(stored, do)
		if got, ok, err := c.Fetch(purged, id); ok || err != nil {
			c.errorf("%s leaves %+v, %v of %q", what, got, err, id)
		}
		c.clean(o, purged)
	}
}

// separate looks whether records of different handlers stay apart.
func (c *progress) separate(o storage.Object) {
	c.Helper()
	all := records()
	stored := c.patched(o, func(p *storage.Patch) {
		for id, r := range all {
			c.Store(o, p, id, r)
		}
	})
	ids := slices.Sorted(maps.Keys(all))
	for i, id := range ids {
		left := c.patched(stored, func(p *storage.Patch) { c.Purge(stored, p, id) })
		for _, other := range ids {
			want := all[other]
			if r, ok, err := c.Fetch(left, other); ok != (other != id) || err != nil || ok && !r.Equal(&want) {
				c.errorf("when %q is purged, %q is %+v, %v, %v", id, other, r, ok, err)
			}
		}
		kept := c.patched(stored, func(p *storage.Patch) { c.PurgeOthers(stored, p, ids[:i]...) })
		for j, other := range ids {
			if _, ok, err := c.Fetch(kept, other); ok != (j < i) || err != nil {
				c.errorf("when all but %d are purged, %q is there: %v, %v", i, other, ok, err)
			}
		}
		if c.HasOthers(kept, ids[:i]...) {
			c.errorf("HasOthers finds what PurgeOthers has left")
		}
	}
}

// corrupt looks whether nonsense in annotations does no harm.
func (c *progress) corrupt(o storage.Object) {
	c.Helper()
	for _, nonsense := range []string{"", "x", "{", "null", "[]", `{"retries":"x"}`, `{"started":{}}`} {
		p := storage.NewPatch(o)
		c.Store(o, p, "f", storage.Record{})
		spoilt := storage.NewPatch(o)
		for name := range p.Annotations() {
			if !strings.HasSuffix(name, "/kopf-managed") {
				spoilt.SetAnnotation(name, nonsense)
			}
		}
		bad := Patched(c, o, spoilt)
		if r, ok, _ := c.Fetch(bad, "f"); ok && spoilt.Annotations() != nil {
			c.errorf("Fetch makes %+v of %q", r, nonsense)
		}
		purged := c.patched(bad, func(p *storage.Patch) { c.PurgeOthers(bad, p) })
		c.clean(o, purged)
	}
}

// concurrent is for the race detector.
func (c *progress) concurrent(o storage.Object) {
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for id, r := range records() {
				p := storage.NewPatch(o)
				c.Store(o, p, id, r)
				_, _, _ = c.Fetch(o, id)
				c.PurgeOthers(o, p, id)
				c.HasOthers(o, id)
			}
		})
	}
	group.Wait()
}
