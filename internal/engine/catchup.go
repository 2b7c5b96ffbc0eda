package engine

import (
	"time"

	"github.com/kopf-go/kopf/internal/cause"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
)

// A change-set may last, for one of its handlers is failing, and the object may be
// changed meanwhile. A handler that is through has not seen that. So its record says, by
// a digest, which essence it has seen, and the essence itself is kept for as long: when
// the others are through, the handler is called again for what leads from there to the
// present state, and for nothing else (PRG-7). If there is no such difference any more,
// it is not; and if the object has become again what was last handled, only those are
// called that have seen something else (PRG-8).

// seen are essences that finished handlers of the running change-set have been shown, by
// digest.
type seen map[string]*state.Essence

// recall reads the records of all handlers, if there are any.
func (c *cycle) recall() {
	if c.carry == nil && !c.kind.store.HasStray(c.body) {
		return
	}
	keys := make([]*state.Keys, 0, len(c.kind.changeHandlers))
	for _, h := range c.kind.changeHandlers {
		keys = append(keys, c.kind.keys[h])
	}
	c.known, _ = c.records(keys...) // one that is not readable is an error if its handler is selected
}

// base is the essence that a handler is told changes from, other than the last-handled
// one: what it has seen in the running change-set. nil: nothing.
func (c *cycle) base(h *registry.Handler) *state.Essence {
	r, ok := c.known[h.ID]
	if !ok || r.Digest == "" || !h.UpdateLike() {
		return nil
	}
	switch {
	case c.reason == cause.Update && cause.Continues(h, r.Purpose, cause.Update):
	case c.reason == cause.Delete && h.Kind == registry.Field && r.Purpose != string(cause.Delete):
	default:
		return nil
	}
	return c.essenceOf(r.Digest)
}

// essenceOf is the essence that a digest stands for; nil if it is not known any more.
func (c *cycle) essenceOf(digest string) *state.Essence {
	if c.seen[digest] == nil {
		if e, ok := c.kind.store.Seen(c.body, digest); ok {
			c.seen[digest] = e
		}
	}
	return c.seen[digest]
}

// wants tells whether a handler is to be called for what it has not been told yet.
func (c *cycle) wants(h *registry.Handler) (bool, error) {
	base := c.base(h)
	if base == nil {
		if c.reason == cause.Update && h.UpdateLike() && c.last.Equal(c.essence) {
			c.refused = cause.Refusal{Filter: cause.Seen}
			return false, nil
		}
		matches, err := c.asks(h, c.subject.Matches)
		c.refused = c.subject.Refused()
		return matches, err
	}
	if base.Equal(c.essence) {
		c.refused = cause.Refusal{Filter: cause.Seen}
		return false, nil
	}
	subject := c.newSubject()
	subject.Old = base
	matches, err := c.asks(h, subject.Matches)
	c.refused = subject.Refused()
	return matches, err
}

// takenBack tells whether there are handlers to be called although the object is what was
// last handled: a change that was taken back, for those that have seen it.
func (c *cycle) takenBack() (bool, error) {
	if c.known == nil {
		return false, nil
	}
	reason := c.reason
	defer func() { c.reason = reason }()
	c.reason = cause.Update
	for _, h := range c.kind.changeHandlers {
		if c.base(h) == nil {
			continue
		}
		if wants, err := c.wants(h); wants || err != nil {
			return wants, err
		}
	}
	return false, nil
}

// behind tells whether a handler is through, and the object was changed since. A record
// of Python's, which has no digest, counts as up to date, as it does there.
func (c *cycle) behind(t *task) bool {
	if t.handler.Kind == registry.Resume || c.reason != cause.Create && c.reason != cause.Update {
		return false
	}
	r := &t.record
	return r.Finished() && t.saw == nil && r.Digest != "" && r.Digest != c.essence.Digest()
}

// late tells whether a handler is to be called again when the others are through: it is
// behind, and no later update will tell it. Of a creation one will, from what its
// handlers have seen, unless nobody knows that any more.
func (c *cycle) late(t *task) bool {
	return c.behind(t) && (c.reason == cause.Update ||
		c.reason == cause.Create && t.handler.Kind != registry.Field && c.essenceOf(t.record.Digest) == nil)
}

// catchUp begins the calls of those that are late, if all others are through, and
// returns them.
func (c *cycle) catchUp() []*task {
	var late []*task
	for _, t := range c.tasks {
		if !t.record.Finished() {
			return nil
		}
		if c.late(t) {
			late = append(late, t)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range late {
		c.anew(t)
	}
	return late
}

// anew has a task begin again, to be told of what it has not seen.
func (c *cycle) anew(t *task) {
	t.record = state.Record{Started: time.Now(), Purpose: t.record.Purpose, Digest: t.record.Digest}
	t.old = c.essenceOf(t.record.Digest)
}

// handled is the essence up to where all handlers of a creation are through: what the
// first of those has seen that have not seen the present one. further are the field
// handlers that have seen something else than that, for they are told of the creation
// and of the update that follows it (CHG-6).
func (c *cycle) handled() (handled *state.Essence, further []*task) {
	handled = c.essence
	var first *task
	for _, t := range c.tasks {
		if t.handler.Kind != registry.Field && c.behind(t) && (first == nil || t.record.Stopped.Before(first.record.Stopped)) {
			first = t
			handled = c.essenceOf(t.record.Digest)
		}
	}
	tasks := map[*registry.Handler]*task{}
	for _, t := range c.tasks {
		tasks[t.handler] = t
	}
	for _, h := range c.kind.changeHandlers {
		t := tasks[h]
		if h.Kind != registry.Field {
			continue
		}
		if t == nil { // its field is not there any more
			t = c.newTask(h, c.kind.keys[h], c.known)
		}
		seen := t.saw
		if seen == nil && t.record.Finished() {
			seen = c.essenceOf(t.record.Digest)
		}
		if seen != nil && !seen.Equal(handled) {
			t.record.Purpose = string(cause.Update)
			further = append(further, t)
		}
	}
	return handled, further
}
