package engine

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/kopf-go/kopf/internal/cause"
	"github.com/kopf-go/kopf/internal/decisions"
	"github.com/kopf-go/kopf/internal/outcome"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/internal/tracing"

	"go.opentelemetry.io/otel/trace"
)

// task is a selected handler with its record.
type task struct {
	handler *registry.Handler
	keys    *state.Keys
	record  state.Record
	result  any
	err     error          // of the attempt of this cycle
	old     *state.Essence // to tell changes from, if it is not the last-handled one
	saw     *state.Essence // what it has finished with, if that was in this cycle
	skipped bool           // it is due, and the lifecycle picks nobody
	byIndex bool           // it is only for what it has read from an index
	wake    wakefulness    // whether it was woken
	redone  bool           // and its sub-handlers with it

	took        time.Duration // the call
	interrupted bool
	span        trace.Span // of the call; nil: it was not called

	parent   *task
	children []*task // sub-handlers that were declared in this cycle
}

// all are the tasks of the cycle with their sub-handlers, each after its parent.
func (c *cycle) all() iter.Seq[*task] { return descend(c.tasks) }

func descend(tasks []*task) iter.Seq[*task] {
	return func(yield func(*task) bool) {
		for _, t := range tasks {
			if !yield(t) {
				return
			}
			for child := range descend(t.children) {
				if !yield(child) {
					return
				}
			}
		}
	}
}

// prepare finds the record of each selected handler, or begins one (PRG-2).
func (c *cycle) prepare(selected []*registry.Handler) error {
	keys := make([]*state.Keys, len(selected))
	for i, h := range selected {
		keys[i] = c.kind.keys[h]
	}
	records, err := c.records(keys...)
	if err != nil {
		if !c.body.Deleting() {
			return err
		}
		c.log.Warn("progress is not readable, deletion goes on without it", "error", err)
	}
	for _, h := range selected {
		t := c.newTask(h, c.kind.keys[h], records)
		t.old = c.base(h)
		c.rouse(t)
		c.tasks = append(c.tasks, t)
	}
	return nil
}

// records are those of handlers: what could not be written before what is stored.
func (c *cycle) records(keys ...*state.Keys) (map[string]state.Record, error) {
	var found map[string]state.Record
	var err error
	// What is stored is of a change-set that is over, if we know better.
	if !c.kind.store.Foreign(c.body) && c.unwritten() == nil {
		found, err = c.kind.store.Records(c.body, keys...)
	}
	if c.carry == nil {
		return found, err
	}
	for _, k := range keys {
		if record, carried := c.carry.records[k.ID]; carried {
			if found == nil {
				found = map[string]state.Record{}
			}
			found[k.ID] = record
		}
	}
	return found, err
}

func (c *cycle) newTask(h *registry.Handler, keys *state.Keys, records map[string]state.Record) *task {
	record, ok := records[h.ID]
	if !ok || !cause.Continues(h, record.Purpose, c.reason) && !c.continues(h, record) {
		record = state.Record{}
	}
	if h.Kind == registry.Resume && record.Finished() && !c.resumed[h.ID] {
		record = state.Record{} // it has resumed another process (CHG-5)
	}
	if h.Kind == registry.Resume && record.Started.IsZero() && c.resumed[h.ID] { // its record was taken off by another leader
		record = state.Record{Started: c.now, Stopped: c.now, Success: true}
	}
	if record.Started.IsZero() {
		record.Started = c.now
	}
	record.Purpose = string(c.purpose())
	return &task{handler: h, keys: keys, record: record}
}

// purpose is the reason, as records tell it.
func (c *cycle) purpose() cause.Reason {
	if c.reason == cause.Free {
		return cause.Delete
	}
	return c.reason
}

// due are the tasks that are to be called now: those that are awake, of which the
// lifecycle picks some (LIF-1).
func (c *cycle) due(tasks []*task) []*task {
	awake := slices.DeleteFunc(slices.Clone(tasks), func(t *task) bool { return !t.record.Awake(c.now) })
	pick := c.kind.engine.settings.Lifecycle
	if pick == nil || len(awake) == 0 {
		return awake
	}
	byID := make(map[string]*task, len(awake))
	choice := make([]registry.Due, len(awake))
	for i, t := range awake {
		byID[t.handler.ID] = t
		choice[i] = registry.Due{ID: t.handler.ID, Reason: string(c.reasonOf(t)), Retry: t.record.Retries, Started: t.record.Started}
	}
	var picked []*task
	for _, id := range pick(choice) {
		if t := byID[id]; t != nil {
			picked = append(picked, t)
			delete(byID, id)
		}
	}
	if len(picked) == 0 {
		for _, t := range awake {
			t.skipped = true
		}
	}
	return picked
}

// execute calls what is due, one after the other.
func (c *cycle) execute() {
	if len(c.tasks) > 1 {
		c.checkpoints.start()
	}
	defer c.checkpoints.stop()
	for _, tasks := range []func() []*task{func() []*task { return c.tasks }, c.catchUp} {
		for _, t := range c.due(tasks()) {
			if !c.attempt(c.term.handling, t) {
				return
			}
		}
	}
}

// attempt calls a handler, unless its limits forbid it. It tells whether the cycle
// goes on to the next one.
func (c *cycle) attempt(ctx context.Context, t *task) bool {
	e := c.kind.engine
	if c.term.ended() {
		return false
	}
	if t.record.Retries == 0 { // what counts is the first attempt, and not how long others took before it (OUT-6)
		c.mu.Lock()
		t.record.Started = time.Now()
		c.mu.Unlock()
	}
	if o, refused := outcome.Refused(t.handler, t.record, time.Now()); refused {
		c.settle(t, o)
		return true
	}
	err := c.outside(func() error { return c.invoke(ctx, t) })
	defer t.endSpan()
	if err != nil && c.term.interrupted(err) {
		t.interrupted = true
		tracing.Outcome(t.span, decisions.Interrupted, false)
		return false // nothing is recorded: the next leader begins this attempt anew (OUT-2)
	}
	if err != nil && errors.As(err, new(*registry.DecodeError)) {
		if c.reason != cause.Delete && c.reason != cause.Free {
			c.unusable = err
			return false
		}
		err = &outcome.PermanentError{Err: err} // or it could never be deleted (B04)
	}
	c.settle(t, outcome.Of(t.handler, t.record, err, time.Now(), e.settings.DefaultBackoff))
	return true
}

// outside runs a user's function outside of the gate, and comes back in however that
// ends.
func (c *cycle) outside(function func() error) error {
	gate := c.kind.engine.gate
	gate.leave()
	defer gate.reenter()
	return function()
}

// invoke calls a handler with an argument of its own, and then the sub-handlers that
// it has declared.
func (c *cycle) invoke(ctx context.Context, t *task) error {
	h, e := t.handler, c.kind.engine
	if h.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, t.record.Started.Add(h.Timeout), &timeoutError{h})
		defer cancel()
	}
	args, err := c.arguments(t)
	if err != nil {
		return err
	}
	ctx, reading := c.track(ctx, t)
	ctx, began := c.trace(ctx, t), time.Now()
	err = e.call(ctx, c.term, c.object, h, args)
	t.took = time.Since(began)
	c.edits.Add(args.Patch.Take()...)
	if err != nil {
		return err
	}
	t.result = args.Result
	if _, err := args.Subhandlers.Execute(ctx); err != nil {
		return err
	}
	e.check(h, reading)
	return c.unfinished(t.children)
}

func (c *cycle) arguments(t *task) (*registry.Call, error) {
	h := t.handler
	subject := c.subjectOf(t)
	args := &registry.Call{
		Body: c.body, Resource: c.kind.resource.GVR, Reason: string(c.reasonOf(t)),
		Retry: t.record.Retries, Started: t.record.Started, Param: h.Param, Patch: c.edits.For(h.ID),
		Log: c.object.speaking(c.log.With("handler", h.ID, "attempt", t.record.Retries+1)), Memos: c.object.Memos,
	}
	args.Subhandlers = &registry.Subhandlers{Parent: h, Run: func(ctx context.Context, declared []*registry.Handler) ([]registry.SubOutcome, error) {
		c.edits.Add(args.Patch.Take()...) // the sub-handlers come after them
		return c.nest(ctx, t, declared)
	}}
	if subject.Old != nil {
		args.Old, args.OldUnknown = subject.Old.Bytes(), !subject.Old.Complete()
	}
	var err error
	if args.Diff, err = subject.Diff(h); err != nil {
		return nil, err
	}
	if len(h.Field) > 0 {
		args.OldValue, args.HadOld, args.NewValue, args.HasNew, err = subject.Values(h)
	}
	return args, err
}

func (c *cycle) newSubject() cause.Subject {
	return cause.Subject{
		Body: c.body, Old: c.last, New: c.essence, Sensitive: c.kind.store.Sensitive,
		Resource: c.kind.resource.GVR, Log: c.log, Memos: c.object.Memos,
	}
}

// subjectOf is the object as a task looks at it.
func (c *cycle) subjectOf(t *task) *cause.Subject {
	if t.old == nil {
		return &c.subject
	}
	subject := c.newSubject()
	subject.Old = t.old
	return &subject
}

// metric is the handler's name in metrics. Ids of sub-handlers are made of data, and
// count as their outermost parent's.
func (t *task) metric() string {
	for t.parent != nil {
		t = t.parent
	}
	return t.handler.ID
}

// trace begins the span of a call, in the context that the handler gets. That of a
// sub-handler is below its parent's.
func (c *cycle) trace(ctx context.Context, t *task) context.Context {
	parent := c.account.parent()
	if t.parent != nil {
		parent = t.parent.span
	}
	ctx, t.span = tracing.Handler(ctx, parent, c.object.traced, tracing.Call{
		Handler: t.handler.ID, Reason: string(c.reasonOf(t)), Retry: t.record.Retries,
	})
	return ctx
}

func (t *task) endSpan() {
	if t.span != nil {
		t.span.End()
	}
}

// settle takes an outcome into the handler's record, and says so in the log.
func (c *cycle) settle(t *task, o outcome.Outcome) {
	now := time.Now()
	c.mu.Lock()
	t.record = o.Record(t.record, now)
	if t.record.Finished() {
		t.saw = c.essence
		if c.kind.resuming(t.handler) {
			c.resumed[t.handler.ID] = true
		}
	}
	c.settled++
	c.mu.Unlock()
	t.err = o.Err
	c.object.failure(t.handler, o)
	c.kind.meter.Attempt(t.metric(), o.Name(), t.record.Retries > 1)
	c.account.settle(t, o)
	tracing.Outcome(t.span, o.Name(), o.Err != nil && !o.Waiting)
	log := c.log.With("handler", t.handler.ID, "reason", c.reasonOf(t), "attempt", t.record.Retries)
	var panicked *outcome.PanicError
	switch {
	case o.Waiting:
		log.Debug("sub-handlers are not finished", "in", o.Delay)
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
