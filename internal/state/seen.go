package state

import (
	"strings"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/storage"
)

// What a handler has seen when it succeeded, while others are not through, is kept in an
// annotation under its digest: the records of all handlers that have seen the same name
// it, so it is there once. After a restart, a handler can be told exactly what it has
// not seen (PRG-7).

// Seen finds the essence that a record's Digest stands for. It is not known if it was
// too large to be kept, or was removed.
func (s *Store) Seen(b *body.Body, digest string) (*Essence, bool) {
	value, ok := b.Annotations[s.seenName(b, digest)]
	if !ok || s.Foreign(b) {
		return nil, false
	}
	e, _, err := s.decode(b, value)
	if err != nil || e.Digest() != digest {
		return nil, false
	}
	return e, true
}

func (s *Store) seenName(b *body.Body, digest string) string {
	n := &s.names[markOf(b)]
	return n.seenPrefix + digest + n.seenSuffix
}

// seenDigest returns the digest that is in the name of an annotation of the object's own.
func (s *Store) seenDigest(b *body.Body, name string) (digest string, ok bool) {
	n := &s.names[markOf(b)]
	if digest, ok = strings.CutPrefix(name, n.seenPrefix); !ok {
		return "", false
	}
	if digest, ok = strings.CutSuffix(digest, n.seenSuffix); !ok {
		return "", false
	}
	return digest, len(digest) == 16 && strings.Trim(digest, "0123456789abcdef") == ""
}

// hasStraySeen tells whether something is kept that no record names.
func (s *Store) hasStraySeen(b *body.Body, known []*Keys) bool {
	for name := range b.Annotations {
		if digest, ok := s.seenDigest(b, name); ok && !s.named(b, digest, known) {
			return true
		}
	}
	return false
}

// named tells whether one of the records on the object names the digest.
func (s *Store) named(b *body.Body, digest string, keys []*Keys) bool {
	for _, k := range keys {
		if r, ok, err := s.progress.Fetch(b, k.ID); ok && err == nil && r.Digest == digest {
			return true
		}
	}
	return false
}

// patchSeen adds what was seen, and removes what no record names any more, if others'
// records are purged; with none, it removes all.
func (c *Changes) patchSeen(p *storage.Patch, none bool) {
	s, b := c.store, c.body
	for name := range b.Annotations {
		digest, ok := s.seenDigest(b, name)
		if ok && (none || c.disowned || c.others && !c.names(digest)) {
			p.RemoveAnnotation(name)
		}
	}
	for digest, e := range c.seen {
		name := s.seenName(b, digest)
		if _, there := b.Annotations[name]; there && !c.disowned || none || c.others && !c.names(digest) {
			continue
		}
		p.SetManaged(name, e.packed(s.limit))
	}
}

// names tells whether a record that stays names the digest.
func (c *Changes) names(digest string) bool {
	for _, r := range c.records {
		if r != nil && r.Digest == digest {
			return true
		}
	}
	for _, k := range c.keep {
		if _, changed := c.records[k.ID]; !changed && c.store.named(c.body, digest, []*Keys{k}) {
			return true
		}
	}
	return false
}
