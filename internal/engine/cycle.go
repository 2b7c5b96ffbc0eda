package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/cause"
	"github.com/kopf-go/kopf/internal/patching"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
)

// cycle is one look of the change lane at one body: which cause, which handlers,
// and what to write. It keeps nothing; what it could not write is its leftover.
type cycle struct {
	term    *term
	object  *object
	kind    *kind
	body    *body.Body
	gone    bool // the object is no more: nothing can be written
	now     time.Time
	carry   *carry // of the cycle before
	seen    seen
	resumed map[string]bool       // resume handlers that are through in this process
	woken   map[*user]wakefulness // who is to be called again because of an index

	reason   cause.Reason
	held     bool // our finalizer is on the object
	holds    bool // and should be
	waits    bool // a daemon that holds the object has not left
	essence  *state.Essence
	last     *state.Essence // nil: never handled
	subject  cause.Subject
	log      *slog.Logger
	leftover *carry

	known    map[string]state.Record    // of all handlers
	forIndex map[*registry.Handler]bool // those of the selected that are only woken
	tasks    []*task
	edits    *registry.Edits
	edited   bool  // handlers have asked for something
	settled  int   // tasks that this cycle brought further
	unusable error // the object does not decode into a handler's type

	through map[string]bool // handlers whose edits and results are written, or refused

	mu          sync.Mutex // guards tasks, their records, and seen against checkpoints
	checkpoints checkpoints

	account *account
	stage   string        // what it is about before there is a reason
	version string        // that it has begun with
	refused cause.Refusal // by the filter that was asked last
}

// carry is what a cycle has to say and could not write: outcomes, results and
// edits. It is written by a later cycle, and no handler runs twice for it.
type carry struct {
	records map[string]state.Record // by handler id
	results map[string]any
	edits   []registry.Edit
	// handled is up to where all handlers are through, though nobody but us knows yet:
	// further changes are told from there. nil: the object says it itself.
	handled *state.Essence
}

// keys are those of the records.
func (c *carry) keys(k *kind) []*state.Keys {
	var keys []*state.Keys
	for id := range c.records {
		keys = append(keys, k.store.Key(id))
	}
	return keys
}

// do runs the cycle.
func (c *cycle) do() (verdict, error) {
	k, e, b := c.kind, c.kind.engine, c.body
	c.log = c.object.log()
	c.leftover = c.carry // until it is written
	c.held = b.HasFinalizer(e.naming.Finalizer)
	if c.object.departing() {
		c.stage = "depart"
		return c.depart()
	}
	c.essence = k.store.Essence(b)
	var err error
	var handled bool
	if c.last, handled, err = k.store.LastHandled(b); err != nil {
		var corrupt *state.CorruptError
		if !errors.As(err, &corrupt) || !b.Deleting() {
			return verdict{}, err
		}
		c.log.Warn("last-handled state is not readable, deletion goes on without it", "error", err)
	}
	if c.carry != nil && c.carry.handled != nil {
		if handled && c.last.Equal(c.carry.handled) && !k.store.HasStray(b, c.carry.keys(k)...) {
			c.carry, c.leftover = nil, nil // the write came through, only its answer was lost
		} else {
			c.last, handled = c.carry.handled, true
		}
	}
	c.edits = new(registry.Edits)
	c.subject = c.newSubject()

	inScope, err := c.scope()
	if err != nil {
		return verdict{}, err
	}
	if !inScope && !c.gone && (!c.holds || c.held || b.Deleting()) {
		c.stage = "release"
		return c.release()
	}
	if change := c.groundwork(); change != nil && !b.Deleting() && !c.gone {
		c.stage = "prepare"
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
	c.recall()
	if c.reason == cause.Noop || c.reason == cause.Resume {
		back, err := c.takenBack()
		if err != nil {
			return verdict{}, err
		}
		if back {
			c.reason = cause.Update
		}
	}
	c.takeWoken(handled)
	defer c.putBackWoken()
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
	store := c.kind.store
	var changes *state.Changes
	add := ""
	if c.holds && !c.held {
		c.log.Debug("finalizer is put on, for there are delete handlers")
		add = c.kind.engine.naming.Finalizer
	}
	if store.Foreign(c.body) {
		c.log.Info("state on the object is that of another one, and is dropped: it was copied or created anew")
		changes = store.Changes(c.body)
		changes.Disown()
	}
	if add == "" && changes == nil {
		return nil
	}
	change := c.kind.change(changes, nil)
	change.AddFinalizer = add
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
		matches, err := c.asks(h, c.subject.PreMatches)
		if err != nil {
			return false, err
		}
		if !matches && !inScope {
			c.account.skip(h, c.subject.Refused())
		}
		inScope = inScope || matches
		c.holds = c.holds || holds && matches
	}
	if inScope {
		c.account.inScope()
	}
	c.waits = c.object.holding()
	for _, h := range c.kind.background {
		if !h.Finalize || c.holds || c.body.Deleting() || c.object.through(h) {
			continue
		}
		if c.holds, err = c.asks(h, c.subject.PreMatches); err != nil {
			return false, err
		}
	}
	c.holds = c.holds || c.waits
	return inScope, nil
}

// asks evaluates a handler's filters. One that cannot say anything, because the object
// does not decode, holds up what is not being deleted; a deletion goes on as if it
// had said what was said when the finalizer was put on (B04).
func (c *cycle) asks(h *registry.Handler, filter func(context.Context, *registry.Handler) (bool, error)) (bool, error) {
	matches, err := filter(c.kind.engine.handling, h)
	if err != nil && c.body.Deleting() && errors.As(err, new(*registry.DecodeError)) {
		return h.Kind == registry.Delete && c.held && !h.Optional, nil
	}
	return matches, err
}

// release lets go of an object that no change handler is for: finalizer and progress go,
// if there are any (FIN-4, B35), unless a daemon still holds it.
func (c *cycle) release() (verdict, error) {
	c.object.initial = false
	if c.held && !c.holds {
		c.log.Info("no handler is for this object any more, it is released")
	}
	v, err := c.deliver(func() patching.Change {
		changes := c.purge(nil)
		if c.unwritten() != nil {
			changes.StoreLastHandled(c.unwritten())
		}
		change := c.kind.change(changes, c.allEdits())
		change.Results = c.results()
		if c.held && !c.holds {
			change.RemoveFinalizer = c.kind.engine.naming.Finalizer
		}
		return change
	})
	if err == nil {
		c.leftover = nil
	}
	return v, err
}

// selection returns the handlers for the cause, and those that were woken, in order of
// registration.
func (c *cycle) selection() ([]*registry.Handler, error) {
	var selected []*registry.Handler
	for _, h := range c.kind.changeHandlers {
		if !cause.Candidate(h, c.reason, c.object.initial) {
			continue
		}
		wants, err := c.wants(h)
		if err != nil {
			return nil, err
		}
		if wants {
			selected = append(selected, h)
		} else {
			c.account.skip(h, c.refused)
		}
	}
	return c.withWoken(cause.Unique(c.resumedOrUpdated(selected)))
}

// resumedOrUpdated leaves one of the two where one function is for resuming and for updates,
// and is wanted for both: the one that tells more of the change, unless that has to wait.
func (c *cycle) resumedOrUpdated(selected []*registry.Handler) []*registry.Handler {
	for resumer, updater := range c.kind.updater {
		if !slices.Contains(selected, resumer) || !slices.Contains(selected, updater) {
			continue
		}
		drop := resumer
		if known := c.known[updater.ID]; known.Finished() && !c.resumed[updater.ID] {
			drop = updater
		}
		selected = slices.DeleteFunc(selected, func(h *registry.Handler) bool { return h == drop })
	}
	return selected
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
