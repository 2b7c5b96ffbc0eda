package state

import (
	"slices"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/storage"
)

// Changes collects what is to be kept on an object from now on. What would change
// nothing is left out, also when it undoes an earlier change of the same collection.
// Not for concurrent use.
type Changes struct {
	store    *Store
	body     *body.Body
	records  map[string]*Record // by id; nil: to be purged
	order    []string           // of the ids in records
	others   bool               // all records but those of keep are to be purged
	keep     []*Keys
	handled  *Essence
	packed   string              // handled, in the form in which it is to be kept; once it is known
	seen     map[string]*Essence // by digest
	touch    bool
	disowned bool
}

// Changes begins an empty collection for the object as it is now.
func (s *Store) Changes(b *body.Body) *Changes { return &Changes{store: s, body: b} }

// StoreRecord writes the progress of a handler, unless an equal record is there already
// (B.3.6). A record that is there but can't be read is overwritten. A message of more
// than 1 KiB is cut.
func (c *Changes) StoreRecord(k *Keys, r Record) {
	r.Message = shortened(r.Message)
	c.record(k.ID, &r)
}

// PurgeRecord removes the progress of a handler: from the object if it is there,
// and from these changes (PRG-5, T064).
func (c *Changes) PurgeRecord(k *Keys) { c.record(k.ID, nil) }

func (c *Changes) record(id string, r *Record) {
	if c.records == nil {
		c.records = map[string]*Record{}
	}
	if _, again := c.records[id]; !again {
		c.order = append(c.order, id)
	}
	c.records[id] = r
}

// PurgeOthers removes the progress of all handlers but these: of handlers renamed or
// removed since, or created for another object, too. What was stored in these changes
// for others is taken back; what is stored afterwards, is stored.
func (c *Changes) PurgeOthers(keep ...*Keys) {
	c.others, c.keep = true, keep
	c.order = slices.DeleteFunc(c.order, func(id string) bool {
		if slices.ContainsFunc(keep, func(k *Keys) bool { return k.ID == id }) {
			return false
		}
		delete(c.records, id)
		return true
	})
}

// StoreLastHandled writes what counts as handled from now on, and the UID of the
// object that it counts for, unless it counts already. What is too large is compressed,
// and what is too large then, with all that others have on the object, is reduced to
// digests (B24).
func (c *Changes) StoreLastHandled(e *Essence) {
	c.handled, c.packed = e, ""
}

// counts tells whether the essence counts as handled already, in a form that may stay.
func (c *Changes) counts(e *Essence) bool {
	last, known, err := c.store.LastHandled(c.body)
	return known && err == nil && last.Equal(e) && !c.disowned && !c.store.Exposed(c.body)
}

// StoreSeen keeps the essence that the Digest of a record stands for, while there is
// such a record, and room: see [Store.Seen].
func (c *Changes) StoreSeen(e *Essence) {
	if !e.Complete() {
		return
	}
	if c.seen == nil {
		c.seen = map[string]*Essence{}
	}
	c.seen[e.Digest()] = e
}

// RemoveTouch removes the value by which a Python operator wakes itself, if
// one was left over (B.5). We never write it.
func (c *Changes) RemoveTouch() { c.touch = true }

// Disown removes everything of ours that came along from another object (see
// [Store.Foreign]): the last-handled state and all records. The object is a new one.
func (c *Changes) Disown() {
	c.disowned = true
	c.PurgeOthers()
}

// Patch returns the changes: annotations by full name, nil standing for removal, and
// everything else as a JSON merge patch. Either is nil if there are none.
//
// If all annotations of the object together would be too large, so that the API server
// would refuse them, what handlers have seen goes first, then all of the last-handled
// state but digests. What is too large even so, is for [Oversize] to tell.
func (c *Changes) Patch() (annotations map[string]*string, merge map[string]any) {
	handled := c.handled
	if handled != nil && c.counts(handled) {
		handled = nil
	}
	text, room := "", 0
	if handled != nil {
		if c.packed == "" {
			c.packed = handled.packed(c.store.limit)
		}
		text = c.packed
		room = min(headroom, len(text))
	}
	p := c.patch(text, false)
	if c.fits(p, maxAnnotations-room) {
		return p.Annotations(), p.Tree()
	}
	if p = c.patch(text, true); c.fits(p, maxAnnotations-room) {
		return p.Annotations(), p.Tree()
	}
	if handled == nil && !c.disowned { // what is there is in the way of records
		handled, _, _ = c.store.LastHandled(c.body)
	}
	if handled != nil {
		p = c.patch(handled.digests(), true)
	}
	return p.Annotations(), p.Tree()
}

func (c *Changes) fits(p *storage.Patch, limit int) bool {
	changes := p.Annotations()
	if changes == nil {
		return true // and if it is too large, that is not ours
	}
	size, _ := Oversize(c.body, changes)
	return size <= limit
}

// patch makes the patch, with this text of the last-handled state, if any.
func (c *Changes) patch(handled string, unseen bool) *storage.Patch {
	s, b, p := c.store, c.body, storage.NewPatch(c.body)
	// What is written names the object that it is for, so what another one's is must go.
	disowned := c.disowned || len(c.order) > 0 && s.Foreign(b)
	if c.others || disowned {
		s.progress.PurgeOthers(b, p, ids(c.keep)...)
	}
	progressing := false
	for _, id := range c.order {
		if r := c.records[id]; r != nil {
			s.progress.Store(b, p, id, *r)
			progressing = true
		} else {
			s.progress.Purge(b, p, id)
		}
	}
	uid := s.names[markOf(b)].uid
	if disowned {
		s.lastHandled.Purge(b, p)
		p.RemoveAnnotation(uid)
	}
	switch {
	case progressing && (p.Annotations() != nil || p.Tree() != nil): // they are this object's, and not one's that is made of its manifest (B23)
		p.SetManaged(uid, string(b.UID))
	case disowned:
	case c.others && len(c.keep) == 0 && handled == "" && !s.isHandled(b):
		p.RemoveAnnotation(uid)
	}
	c.patchSeen(p, unseen)
	if handled != "" {
		s.storeText(b, p, handled)
	}
	if t, ok := s.progress.(storage.TouchRemover); ok && c.touch {
		t.RemoveTouch(b, p)
	}
	return p
}
