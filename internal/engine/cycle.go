package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/cause"
	"github.com/kopf-go/kopf/internal/outcome"
	"github.com/kopf-go/kopf/internal/patching"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
)

// cycle is one look of the change lane at one body: which cause, which handlers,
// and what to write. It keeps nothing; what it could not write is its leftover.
type cycle struct {
	object *object
	kind   *kind
	body   *body.Body
	gone   bool // the object is no more: nothing can be written
	now    time.Time
	carry  *carry // of the cycle before
	saw    saw

	reason   cause.Reason
	held     bool // our finalizer is on the object
	holds    bool // and should be
	essence  *state.Essence
	last     *state.Essence // nil: never handled
	subject  cause.Subject
	log      *slog.Logger
	leftover *carry

	tasks    []*task
	edits    *registry.Edits
	settled  int   // tasks that this cycle brought further
	unusable error // the object does not decode into a handler's type

	mu         sync.Mutex // guards what follows, and the records of tasks, against checkpoints
	checkpoint *body.Body // what a checkpoint has made of the object
	uncertain  bool       // nobody knows whether one has been written
}

// task is a selected handler with its record.
type task struct {
	handler *registry.Handler
	record  state.Record
	result  any
}

// saw is what each finished handler of the running change-set has been shown. It is
// in memory only: after a restart, finished handlers count as up to date, as in Kopf.
type saw map[*registry.Handler]*state.Essence

// carry is what a cycle has to say and could not write: outcomes, results and
// edits. It is written by a later cycle, and no handler runs twice for it.
type carry struct {
	records map[*registry.Handler]state.Record
	results map[string]any
	edits   []registry.Edit
	// handled is up to where all handlers are through, though nobody but us knows yet:
	// further changes are told from there. nil: the object says it itself.
	handled *state.Essence
}

// do runs the cycle.
func (c *cycle) do() (verdict, error) {
	k, e, b := c.kind, c.kind.engine, c.body
	c.log = c.object.log()
	c.leftover = c.carry // until it is written
	c.held = b.HasFinalizer(e.naming.Finalizer)
	c.essence = state.EssenceOf(b, e.naming, k.extra)
	var err error
	var handled bool
	if c.last, handled, err = state.LastHandled(b, e.naming); err != nil {
		var corrupt *state.CorruptError
		if !errors.As(err, &corrupt) || !b.Deleting() {
			return verdict{}, err
		}
		c.log.Warn("last-handled state is not readable, deletion goes on without it", "error", err)
	}
	if c.carry != nil && c.carry.handled != nil {
		if handled && c.last.Equal(c.carry.handled) {
			c.carry, c.leftover = nil, nil // the write came through, only its answer was lost
		} else {
			c.last, handled = c.carry.handled, true
		}
	}
	c.subject = cause.Subject{Body: b, Old: c.last, New: c.essence, Resource: k.resource.GVR, Log: c.log}

	inScope, err := c.scope()
	if err != nil {
		return verdict{}, err
	}
	if !inScope && !c.gone {
		return c.release()
	}
	if change := c.groundwork(); change != nil && !b.Deleting() && !c.gone {
		return c.write(*change)
	}
	c.reason = cause.Detect(cause.Facts{
		Deleting: b.Deleting(), Held: c.held && !c.gone, Handled: handled,
		Unchanged: handled && c.last.Equal(c.essence), Initial: c.object.initial,
	})
	switch {
	case c.gone && k.slipped(b):
		c.reason = cause.Delete
	case c.gone:
		c.reason = cause.Free
	}
	if c.reason == cause.Free && c.object.ended {
		c.leftover = nil
		return verdict{}, nil // all delete handlers are through, records or not
	}
	selected, err := c.selection()
	if err != nil {
		return verdict{}, err
	}
	if c.reason == cause.Free && len(selected) == 0 {
		c.leftover = nil
		return verdict{}, nil // somebody else's business
	}
	if err := c.prepare(selected); err != nil {
		return verdict{}, err
	}
	c.announce()
	c.execute()
	return c.conclude()
}

// groundwork is what must be on the object, confirmed by a response, before any
// handler is called: the finalizer, if its deletion is to be waited for (FIN-3), and
// no state that came along from another object (B23).
func (c *cycle) groundwork() *patching.Change {
	n := c.kind.engine.naming
	var change patching.Change
	if c.holds && !c.held {
		c.log.Debug("finalizer is put on, for there are delete handlers")
		change.AddFinalizer = n.Finalizer
	}
	if state.Foreign(c.body, n) {
		c.log.Info("state on the object is that of another one, and is dropped: it was copied or created anew")
		changes := state.NewChanges(c.body, n)
		changes.Disown()
		change.Annotations = changes.Annotations()
	}
	if change.AddFinalizer == "" && len(change.Annotations) == 0 {
		return nil
	}
	return &change
}

// scope finds out whether any handler is for this object, and whether one wants to
// hold it (FLT-13, FIN-2).
func (c *cycle) scope() (inScope bool, err error) {
	for _, h := range c.kind.changeHandlers {
		holds := h.Kind == registry.Delete && !h.Optional
		if inScope && (!holds || c.holds) {
			continue // nothing new to learn from it
		}
		matches, err := c.subject.PreMatches(c.kind.engine.handling, h)
		if err != nil {
			return false, err
		}
		inScope = inScope || matches
		c.holds = c.holds || holds && matches
	}
	return inScope, nil
}

// release lets go of an object that no handler is for: finalizer and progress go,
// if there are any (FIN-4, B35).
func (c *cycle) release() (verdict, error) {
	c.object.initial = false
	change := patching.Change{}
	if c.held {
		change.RemoveFinalizer = c.kind.engine.naming.Finalizer
	}
	changes := c.purge(nil)
	change.Annotations = changes.Annotations()
	if c.carry != nil {
		change.Edits, change.Results = c.carry.edits, c.carry.results
	}
	if c.held {
		c.log.Info("no handler is for this object any more, it is released")
	}
	v, err := c.write(change)
	if err == nil {
		c.leftover = nil
	}
	return v, err
}

// selection returns the handlers for the cause, in order of registration.
func (c *cycle) selection() ([]*registry.Handler, error) {
	var selected []*registry.Handler
	for _, h := range c.kind.changeHandlers {
		if !cause.Candidate(h, c.reason, c.object.initial) {
			continue
		}
		matches, err := c.subject.Matches(c.kind.engine.handling, h)
		if err != nil {
			return nil, err
		}
		if matches {
			selected = append(selected, h)
		}
	}
	return cause.Unique(selected), nil
}

// prepare finds the record of each selected handler, or begins one (PRG-2).
func (c *cycle) prepare(selected []*registry.Handler) error {
	c.edits = new(registry.Edits)
	var stored map[string]state.Record
	// What is stored is of a change-set that is over, if we know better.
	if !state.Foreign(c.body, c.kind.engine.naming) && (c.carry == nil || c.carry.handled == nil) {
		keys := make([]*state.Keys, len(selected))
		for i, h := range selected {
			keys[i] = c.kind.keys[h]
		}
		var err error
		if stored, err = state.Records(c.body, keys...); err != nil {
			return err
		}
	}
	purpose := c.reason
	if purpose == cause.Free {
		purpose = cause.Delete
	}
	for _, h := range selected {
		record, ok := stored[h.ID]
		if c.carry != nil {
			if carried, is := c.carry.records[h]; is {
				record, ok = carried, true
			}
		}
		if !ok || !cause.Continues(h, record.Purpose, c.reason) {
			record = state.Record{}
		}
		if record.Started.IsZero() {
			record.Started = c.now
		}
		record.Purpose = string(purpose)
		c.tasks = append(c.tasks, &task{handler: h, record: record})
	}
	return nil
}

// announce says what begins.
func (c *cycle) announce() {
	if c.reason == cause.Noop || len(c.tasks) == 0 || !c.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	attrs := []any{"reason", c.reason, "handlers", len(c.tasks)}
	if c.reason == cause.Update {
		if d, err := c.subject.Diff(&registry.Handler{}); err == nil {
			attrs = append(attrs, "diff", d)
		}
	}
	c.log.Debug("change is being handled", attrs...)
}

// execute calls what is awake, one after the other.
func (c *cycle) execute() {
	e := c.kind.engine
	stop := c.checkpoints()
	defer stop()
	for _, t := range c.tasks {
		if e.stopping() {
			return
		}
		if !t.record.Awake(c.now) {
			continue
		}
		if o, refused := outcome.Refused(t.handler, t.record, time.Now()); refused {
			c.settle(t, o)
			continue
		}
		e.gate.leave()
		err := c.invoke(t)
		e.gate.reenter()
		if err != nil && e.interrupted(err) {
			return // nothing is recorded: the next operator begins this attempt anew (OUT-2)
		}
		if err != nil && errors.As(err, new(*registry.DecodeError)) {
			if c.reason != cause.Delete && c.reason != cause.Free {
				c.unusable = err
				return
			}
			err = &outcome.PermanentError{Err: err} // or it could never be deleted (B04)
		}
		c.settle(t, outcome.Of(t.handler, t.record, err, time.Now(), e.settings.DefaultBackoff))
	}
}

// invoke calls one handler with an argument of its own.
func (c *cycle) invoke(t *task) error {
	h, e := t.handler, c.kind.engine
	ctx := e.handling
	if h.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, t.record.Started.Add(h.Timeout), &timeoutError{h})
		defer cancel()
	}
	args := &registry.Call{
		Body: c.body, Resource: c.kind.resource.GVR, Reason: string(c.reason),
		Retry: t.record.Retries, Started: t.record.Started, Param: h.Param, Patch: new(registry.Edits),
		Log: c.log.With("handler", h.ID, "attempt", t.record.Retries+1),
	}
	if c.reason == cause.Free {
		args.Reason = string(cause.Delete)
	}
	if c.last != nil {
		args.Old = c.last.Bytes()
	}
	var err error
	if args.Diff, err = c.subject.Diff(h); err != nil {
		return err
	}
	if len(h.Field) > 0 {
		args.OldValue, args.HadOld, args.NewValue, args.HasNew, err = c.subject.Values(h)
		if err != nil {
			return err
		}
	}
	err = e.call(ctx, c.object, h, args)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, edit := range args.Patch.List() {
		c.edits.Add(edit)
	}
	if err == nil {
		t.result = args.Result
	}
	return err
}

// settle takes an outcome into the handler's record, and says so in the log.
func (c *cycle) settle(t *task, o outcome.Outcome) {
	now := time.Now()
	c.mu.Lock()
	t.record = o.Record(t.record, now)
	c.settled++
	c.mu.Unlock()
	if t.record.Finished() {
		c.saw[t.handler] = c.essence
	}
	log := c.log.With("handler", t.handler.ID, "reason", t.record.Purpose, "attempt", t.record.Retries)
	var panicked *outcome.PanicError
	switch {
	case o.Ignored != nil:
		log.Warn("handler failed, which is ignored", "error", o.Ignored)
	case errors.As(o.Err, &panicked):
		log.Error("handler panicked", "error", o.Err, "stack", string(panicked.Stack), "final", o.Final, "next", o.Delay)
	case o.Err != nil && o.Final:
		log.Error("handler failed for good", "error", o.Err)
	case o.Err != nil:
		log.Warn("handler failed, will be tried again", "error", o.Err, "in", o.Delay)
	default:
		log.Info("handler succeeded", "took", now.Sub(t.record.Started).Round(time.Millisecond))
	}
}

// conclude writes what came of the handlers.
func (c *cycle) conclude() (verdict, error) {
	n := c.kind.engine.naming
	if c.checkpoint != nil {
		c.body = c.checkpoint
	}
	if c.unusable != nil && c.settled == 0 {
		c.kind.engine.complain(c.object, c.body, c.unusable)
		return verdict{}, nil // until it changes
	}
	if c.kind.engine.stopping() && c.settled == 0 {
		return verdict{}, nil
	}
	done, delay := c.progress()
	through, ahead := c.through()
	if done && len(ahead) == 0 {
		clear(c.saw)
	}
	change := patching.Change{Results: c.results(), Edits: c.allEdits()}
	leaves := done && c.held && (c.reason == cause.Delete || !c.holds)
	if leaves {
		change.RemoveFinalizer = n.Finalizer
	}
	if c.gone {
		c.leftover = c.carried(done, through)
		c.object.ended = done
		return verdict{after: delay}, nil
	}
	var changes *state.Changes
	switch {
	case !done && c.unwritten() != nil:
		changes = c.purge(c.tasks)
		changes.StoreLastHandled(c.unwritten())
	case !done:
		changes = state.NewChanges(c.body, n)
		for _, t := range c.tasks {
			changes.StoreRecord(c.kind.keys[t.handler], t.record)
		}
	case c.reason == cause.Delete || c.reason == cause.Free:
		changes = c.purge(c.optional())
	default:
		changes = c.purge(ahead)
		if c.reason != cause.Noop || c.unwritten() != nil {
			changes.StoreLastHandled(through)
		}
	}
	change.Annotations = changes.Annotations()
	if len(change.Annotations) > 0 {
		changes.RemoveTouch()
		change.Annotations = changes.Annotations()
	}
	if c.uncertain { // or a record would stay that nobody knows of, and be taken for the next change's
		c.leftover = c.carried(done, through)
		c.object.initial = c.object.initial && !done
		c.object.mistrust()
		return verdict{again: true}, nil
	}
	v, err := c.write(change)
	if err != nil {
		c.leftover = c.carried(done, through)
		c.object.initial = c.object.initial && !done
		return v, err
	}
	c.leftover = nil
	if done {
		c.object.finish(c.reason)
	}
	if !v.again {
		v.after = delay
	}
	if c.unusable != nil {
		return verdict{}, nil
	}
	return v, nil
}

// progress tells whether all handlers are through, else when the next one is due.
func (c *cycle) progress() (done bool, delay time.Duration) {
	done = true
	for _, t := range c.tasks {
		if t.record.Finished() {
			continue
		}
		wait := max(time.Until(t.record.Delayed), time.Nanosecond)
		if done || wait < delay {
			delay = wait
		}
		done = false
	}
	return done, delay
}

// through is the essence up to where all handlers of a change-set are through, and
// ahead are the tasks that are further, if somebody has changed the object between the
// attempts: the others, which were through before, are told of it by another update,
// from what they saw to what there is now (PRG-7).
func (c *cycle) through() (through *state.Essence, ahead []*task) {
	if c.reason != cause.Create && c.reason != cause.Update {
		return c.essence, nil
	}
	var first *task
	for _, t := range c.tasks {
		switch saw := c.saw[t.handler]; {
		case saw == nil || saw.Equal(c.essence) || t.handler.Kind == registry.Resume:
			ahead = append(ahead, t)
		case first == nil || t.record.Stopped.Before(first.record.Stopped):
			first = t
		}
	}
	switch {
	case first == nil:
		return c.essence, nil
	case c.reason == cause.Create: // the update is for other handlers
		return c.saw[first.handler], nil
	}
	return c.saw[first.handler], ahead
}

// unwritten is the essence up to where handlers are through, if that is not written.
func (c *cycle) unwritten() *state.Essence {
	if c.carry == nil {
		return nil
	}
	return c.carry.handled
}

// purge collects the removal of all progress, except of the tasks to keep. The
// record of an optional delete handler stays as long as the object does: it is all
// that tells the next operator that the handler has run.
func (c *cycle) purge(keep []*task) *state.Changes {
	n := c.kind.engine.naming
	changes := state.NewChanges(c.body, n)
	kept := make([]*state.Keys, 0, len(keep))
	for _, t := range keep {
		key := c.kind.keys[t.handler]
		kept = append(kept, key)
		changes.StoreRecord(key, t.record)
	}
	for _, name := range state.Stray(c.body, n, kept...) {
		changes.Remove(name)
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
	for _, t := range c.tasks {
		if t.result != nil {
			results[t.handler.ID] = t.result
		}
	}
	return results
}

// allEdits are the carried edits and those of this cycle, in order.
func (c *cycle) allEdits() []registry.Edit {
	if c.carry == nil {
		return c.edits.List()
	}
	return append(c.carry.edits[:len(c.carry.edits):len(c.carry.edits)], c.edits.List()...)
}

// carried is everything that the cycle has to say, for a later one to write.
func (c *cycle) carried(done bool, through *state.Essence) *carry {
	out := &carry{
		results: c.results(), edits: c.allEdits(), handled: c.unwritten(),
	}
	if done && (c.reason == cause.Create || c.reason == cause.Update) {
		out.handled = through
		return out
	}
	out.records = map[*registry.Handler]state.Record{}
	for _, t := range c.tasks {
		out.records[t.handler] = t.record
	}
	return out
}
