package engine

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/kopf-go/kopf/internal/outcome"
	"github.com/kopf-go/kopf/internal/registry"
)

// nest executes sub-handlers that a running handler has declared (SUB-1 to SUB-4). It
// is called from the user's function, or right after it: outside of the gate.
func (c *cycle) nest(ctx context.Context, parent *task, declared []*registry.Handler) ([]registry.SubOutcome, error) {
	e := c.kind.engine
	e.gate.reenter()
	defer e.gate.leave()
	c.checkpoints.start()
	var children []*task
	for _, h := range declared {
		t, err := c.newChild(parent, h)
		if err != nil {
			return nil, err
		}
		matches, err := c.matches(ctx, t)
		if err != nil {
			return nil, err
		}
		if matches {
			children = append(children, t)
		}
	}
	c.adopt(parent, children)
	for _, t := range c.due(children) {
		if !c.attempt(ctx, t) {
			break
		}
	}
	outcomes := make([]registry.SubOutcome, len(children))
	for i, t := range children {
		outcomes[i] = t.outcome()
	}
	return outcomes, c.unfinished(children)
}

// newChild is the task of a sub-handler. One that is through, and has not seen the
// present state of the object, is called again for what it has not seen: other than
// its parent it will not be told by another change (PRG-7).
func (c *cycle) newChild(parent *task, h *registry.Handler) (*task, error) {
	keys := c.kind.store.Key(h.ID)
	records, err := c.records(keys)
	if err != nil {
		return nil, err
	}
	t := c.newTask(h, keys, records)
	t.parent = parent
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.behind(t) {
		c.anew(t)
	} else {
		t.old = c.essenceOf(t.record.Digest)
	}
	if t.old == nil {
		t.old = parent.old
	}
	c.rouseChild(t)
	return t, nil
}

// adopt notes the children in the records of all their ancestors (SUB-7).
func (c *cycle) adopt(parent *task, children []*task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	parent.children, parent.redone = append(parent.children, children...), true
	for ancestor := parent; ancestor != nil; ancestor = ancestor.parent {
		refs := slices.Clone(ancestor.record.Subrefs)
		for _, t := range children {
			refs = append(refs, t.handler.ID)
		}
		slices.Sort(refs)
		ancestor.record.Subrefs = slices.Compact(refs)
	}
}

// unfinished is the error of a parent that waits for its children; nil if there is
// nothing to wait for.
func (c *cycle) unfinished(children []*task) error {
	if done, delay := c.progress(children); !done {
		return &outcome.UnfinishedError{Delay: delay}
	}
	return nil
}

func (t *task) outcome() registry.SubOutcome {
	o := registry.SubOutcome{
		ID: strings.TrimPrefix(t.handler.ID, t.parent.handler.ID+"/"), Finished: t.record.Finished(),
		Err: t.err, Result: t.result,
	}
	if o.Err == nil && !t.record.Success && t.record.Message != "" {
		o.Err = errors.New(t.record.Message) // of an earlier cycle
	}
	return o
}
