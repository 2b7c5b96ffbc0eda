package engine

import (
	"maps"
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
	if c.term.ended() && c.settled == 0 && c.carry == nil {
		return verdict{}, nil
	}
	end := c.ending()
	if c.gone {
		c.leftover = c.carried(end)
		c.object.ended = end.done
		if end.done {
			c.object.converge(c.reason)
		}
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
		if len(end.ahead) == 0 {
			clear(c.seen)
		}
		c.object.finish(c.reason)
		c.object.converge(c.reason)
		if v.again {
			if wait := c.object.circling(c.body, c.essence, c.edited); wait > 0 {
				v = verdict{after: wait, hold: true}
			}
		}
	}
	if !v.again && !v.hold {
		v.after, v.keep = end.delay, !end.done
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
		changes = c.purge(slices.Concat(c.tasks, c.others()))
		changes.StoreLastHandled(c.unwritten())
	case !end.done:
		changes = c.kind.store.Changes(c.body)
		for _, t := range c.others() {
			c.store(changes, t)
		}
		for t := range c.all() {
			if t.parent != nil && t.parent.record.Finished() || c.passing(t) {
				continue // nobody will ask for it
			}
			c.store(changes, t)
			if t.record.Finished() {
				for _, id := range t.record.Subrefs {
					changes.PurgeRecord(c.kind.store.Key(id))
				}
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
	if done && c.reason == cause.Create {
		end.handled, end.ahead = c.handled()
	}
	if c.reason == cause.Delete && c.waits && done { // what is done is kept until the daemon has left
		end.done, end.delay = false, 0
	}
	return end
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
	if done && slices.ContainsFunc(tasks, c.late) { // now it is their turn
		return false, time.Nanosecond
	}
	return done, delay
}

// others are carried records of handlers that are no tasks of this cycle: because nothing
// of what it is about concerns them, or because their parent is not called.
func (c *cycle) others() []*task {
	if c.carry == nil {
		return nil
	}
	tasks := map[string]bool{}
	for t := range c.all() {
		tasks[t.handler.ID] = true
	}
	var others []*task
	for _, id := range slices.Sorted(maps.Keys(c.carry.records)) {
		if !tasks[id] {
			others = append(others, &task{handler: &registry.Handler{ID: id}, keys: c.kind.store.Key(id), record: c.carry.records[id]})
		}
	}
	return others
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
	if t.saw != nil && (t.handler.Kind != registry.Resume || c.kind.updater[t.handler] != nil) && (c.reason == cause.Create || c.reason == cause.Update) {
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
	out := &carry{results: c.results(), edits: c.allEdits(), handled: c.unwritten(), records: map[string]state.Record{}}
	keep := slices.Concat(c.tasks, c.others())
	if end.done && (c.reason == cause.Create || c.reason == cause.Update) {
		out.handled, keep = end.handled, end.ahead
	}
	for t := range descend(keep) {
		out.records[t.handler.ID] = c.recordOf(t)
	}
	return out
}
