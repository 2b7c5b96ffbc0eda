package engine

import (
	"slices"
	"time"

	"github.com/kopf-go/kopf/internal/cause"
	"github.com/kopf-go/kopf/internal/patching"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
)

// ending is how a change-set stands at the end of a cycle.
type ending struct {
	done  bool          // all handlers are through
	delay time.Duration // else: until the next one is due
	// handled is the essence up to where all of them are through, and ahead are those
	// that are further.
	handled *state.Essence
	ahead   []*task
}

// conclude writes what came of the handlers.
func (c *cycle) conclude() (verdict, error) {
	if c.checkpoints.body != nil {
		c.body = c.checkpoints.body
	}
	if c.unusable != nil && c.settled == 0 {
		c.kind.engine.complain(c.object, c.body, undecodable, c.unusable)
		return verdict{}, nil // until it changes
	}
	if c.kind.engine.stopping() && c.settled == 0 {
		return verdict{}, nil
	}
	end := c.ending()
	if end.done && len(end.ahead) == 0 {
		clear(c.seen)
	}
	if c.gone {
		c.leftover = c.carried(end)
		c.object.ended = end.done
		return verdict{after: end.delay}, nil
	}
	if c.checkpoints.uncertain { // or a record would stay that nobody knows of, and be taken for the next change's
		c.leftover = c.carried(end)
		c.object.initial = c.object.initial && !end.done
		c.object.mistrust()
		return verdict{again: true}, nil
	}
	v, err := c.deliver(func() patching.Change {
		end = c.ending()
		return c.change(end)
	})
	if err != nil {
		c.leftover = c.carried(end)
		c.object.initial = c.object.initial && !end.done
		return v, err
	}
	c.leftover = nil
	if end.done {
		c.object.finish(c.reason)
		if v.again {
			if wait := c.object.circling(c.body, c.essence, c.edited); wait > 0 {
				v = verdict{after: wait, hold: true}
			}
		}
	}
	if !v.again && !v.hold {
		v.after = end.delay
	}
	if c.unusable != nil {
		return verdict{}, nil
	}
	return v, nil
}

// change is everything that there is to write.
func (c *cycle) change(end ending) patching.Change {
	var changes *state.Changes
	switch {
	case !end.done && c.unwritten() != nil:
		changes = c.purge(c.tasks)
		changes.StoreLastHandled(c.unwritten())
	case !end.done:
		changes = c.kind.store.Changes(c.body)
		for t := range c.all() {
			if t.parent == nil || !t.parent.record.Finished() { // or nobody will ask for it
				c.store(changes, t)
			}
		}
	case c.reason == cause.Delete || c.reason == cause.Free:
		changes = c.purge(c.optional())
	default:
		changes = c.purge(end.ahead)
		if c.reason != cause.Noop || c.unwritten() != nil || c.kind.store.Exposed(c.body) {
			changes.StoreLastHandled(end.handled)
		}
	}
	change := c.kind.change(changes, c.allEdits())
	change.Results = c.results()
	if end.done && c.held && (c.reason == cause.Delete || !c.holds) {
		change.RemoveFinalizer = c.kind.engine.naming.Finalizer
	}
	return change
}

// ending finds out how the change-set stands.
func (c *cycle) ending() ending {
	done, delay := c.progress(c.tasks)
	end := ending{done: done, delay: delay, handled: c.essence}
	if !done || c.reason != cause.Create && c.reason != cause.Update {
		return end
	}
	var first *task
	for _, t := range c.tasks {
		if !c.behind(t) {
			continue
		}
		if c.seenBy(t) == nil { // nobody knows any more what it has seen: it begins anew
			t.record = state.Record{Started: time.Now(), Purpose: t.record.Purpose}
			end.done, end.delay = false, time.Nanosecond
		} else if first == nil || t.record.Stopped.Before(first.record.Stopped) {
			first = t
		}
	}
	if first == nil || !end.done {
		return end
	}
	// Somebody has changed the object between the attempts. Those that were through by
	// then are told of it by another update, from what they saw to what there is now
	// (PRG-7).
	end.handled = c.seenBy(first)
	for _, t := range c.tasks {
		if t.saw == nil && t.record.Digest == first.record.Digest {
			continue
		}
		if c.reason == cause.Create { // the update is for other handlers, but for field handlers
			if t.handler.Kind != registry.Field {
				continue
			}
			t.record.Purpose = string(cause.Update)
		}
		end.ahead = append(end.ahead, t)
	}
	return end
}

// behind tells whether a handler is through, and the object was changed since.
func (c *cycle) behind(t *task) bool {
	if t.handler.Kind == registry.Resume || c.reason != cause.Create && c.reason != cause.Update {
		return false
	}
	r := &t.record
	// A record of Python's, which has no digest, counts as up to date, as it does there.
	return r.Finished() && t.saw == nil && r.Digest != "" && r.Digest != c.essence.Digest()
}

// seenBy is the essence that a handler has finished with; nil if it is not known.
func (c *cycle) seenBy(t *task) *state.Essence {
	if t.saw != nil {
		return t.saw
	}
	return c.essenceOf(t.record.Digest)
}

// essenceOf is the essence that a digest stands for; nil if it is not known.
func (c *cycle) essenceOf(digest string) *state.Essence {
	if c.seen[digest] == nil {
		if e, ok := c.kind.store.Seen(c.body, digest); ok {
			c.seen[digest] = e
		}
	}
	return c.seen[digest]
}

// reverted finds the handlers which were through with a change that was taken back
// before all of them were: it is a change for those that have seen it (PRG-8). It
// returns what the first of them has seen.
func (c *cycle) reverted() (*state.Essence, error) {
	if c.carry == nil && !c.kind.store.HasStray(c.body) {
		return nil, nil
	}
	keys := make([]*state.Keys, 0, len(c.kind.keys))
	for _, h := range c.kind.changeHandlers {
		if h.Kind != registry.Resume {
			keys = append(keys, c.kind.keys[h])
		}
	}
	var first *state.Record
	for len(keys) > 0 {
		records, err := c.records(keys...)
		if err != nil {
			return nil, err
		}
		keys = keys[:0]
		for _, r := range records {
			if r.Purpose != string(cause.Update) {
				continue
			}
			if s := c.essenceOf(r.Digest); r.Finished() && s != nil && !s.Equal(c.essence) && (first == nil || r.Stopped.Before(first.Stopped)) {
				first = &r
			}
			for _, id := range r.Subrefs {
				if !r.Finished() {
					keys = append(keys, c.kind.store.Key(id))
				}
			}
		}
	}
	if first == nil {
		return nil, nil
	}
	return c.essenceOf(first.Digest), nil
}

// tellOf has handlers told of the change from an essence that was taken back.
func (c *cycle) tellOf(handled *state.Essence) (verdict, error) {
	c.log.Debug("a change was taken back, those that have handled it are told")
	v, err := c.deliver(func() patching.Change {
		changes := c.purge(nil)
		changes.StoreLastHandled(handled)
		change := c.kind.change(changes, c.allEdits())
		change.Results = c.results()
		return change
	})
	c.leftover = nil
	if err != nil {
		c.leftover = &carry{results: c.results(), edits: c.allEdits(), handled: handled}
	}
	return v, err
}

// change is what changes of the state, and edits of handlers, mean for an object.
func (k *kind) change(changes *state.Changes, edits []registry.Edit) patching.Change {
	change := patching.Change{Edits: edits, Finalizer: k.engine.naming.Finalizer, Owns: k.engine.naming.Owns}
	if changes != nil {
		if annotations, merge := changes.Patch(); annotations != nil || merge != nil {
			changes.RemoveTouch()
		}
		change.Annotations, change.Merge = changes.Patch()
	}
	return change
}

// progress tells whether all of the tasks are through, else when the next one is due.
func (c *cycle) progress(tasks []*task) (done bool, delay time.Duration) {
	done = true
	for _, t := range tasks {
		if t.record.Finished() {
			continue
		}
		wait := max(time.Until(t.record.Delayed), time.Nanosecond)
		if t.skipped { // or it would be asked again and again
			wait = max(wait, c.kind.engine.settings.DefaultBackoff)
		}
		if done || wait < delay {
			delay = wait
		}
		done = false
	}
	return done, delay
}

// unwritten is the essence up to where handlers are through, if that is not written.
func (c *cycle) unwritten() *state.Essence {
	if c.carry == nil {
		return nil
	}
	return c.carry.handled
}

// store collects the record of a task, with what its handler has seen: a change of the
// object before the others are through is told to it afterwards.
func (c *cycle) store(changes *state.Changes, t *task) {
	r := c.recordOf(t)
	changes.StoreRecord(t.keys, r)
	if seen := c.seen[r.Digest]; seen != nil {
		changes.StoreSeen(seen)
	}
}

// recordOf is the record of a task as it is kept.
func (c *cycle) recordOf(t *task) state.Record {
	r := t.record
	if t.saw != nil && t.handler.Kind != registry.Resume && (c.reason == cause.Create || c.reason == cause.Update) {
		r.Digest = t.saw.Digest()
		c.seen[r.Digest] = t.saw
	}
	return r
}

// purge collects the removal of all progress, except of the tasks to keep. The
// record of an optional delete handler stays as long as the object does: it is all
// that tells the next operator that the handler has run.
func (c *cycle) purge(keep []*task) *state.Changes {
	changes := c.kind.store.Changes(c.body)
	var kept []*state.Keys
	for t := range descend(keep) {
		kept = append(kept, t.keys)
		if t.record.Finished() {
			continue
		}
		for _, id := range t.record.Subrefs { // not all of them were declared in this cycle
			kept = append(kept, c.kind.store.Key(id))
		}
	}
	changes.PurgeOthers(kept...)
	for t := range descend(keep) {
		c.store(changes, t)
	}
	return changes
}

// optional are the tasks of delete handlers whose records must outlive their end,
// because somebody else still holds the object.
func (c *cycle) optional() []*task {
	others := len(c.body.Finalizers)
	if c.held {
		others--
	}
	var tasks []*task
	for _, t := range c.tasks {
		if t.handler.Optional && others > 0 {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// results are the values of the handlers that have succeeded, by id (RES-1).
func (c *cycle) results() map[string]any {
	results := map[string]any{}
	if c.carry != nil {
		for id, result := range c.carry.results {
			results[id] = result
		}
	}
	for t := range c.all() {
		if t.result != nil && t.record.Success {
			results[t.handler.ID] = t.result
		}
	}
	for id := range c.through {
		delete(results, id)
	}
	return results
}

// allEdits are the carried edits and those of this cycle, in order, as far as they are
// still to be written.
func (c *cycle) allEdits() []registry.Edit {
	var edits []registry.Edit
	if c.carry != nil {
		edits = append(edits, c.carry.edits...)
	}
	return slices.DeleteFunc(append(edits, c.edits.List()...), func(edit registry.Edit) bool {
		_, is := c.through[edit.Handler]
		return is
	})
}

// carried is everything that the cycle has to say, for a later one to write.
func (c *cycle) carried(end ending) *carry {
	out := &carry{results: c.results(), edits: c.allEdits(), handled: c.unwritten()}
	keep := c.tasks
	if end.done && (c.reason == cause.Create || c.reason == cause.Update) {
		out.handled, keep = end.handled, end.ahead
	}
	out.records = map[string]state.Record{}
	for t := range descend(keep) {
		out.records[t.handler.ID] = c.recordOf(t)
	}
	return out
}
