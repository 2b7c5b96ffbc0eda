package engine

import (
	"context"
	"time"

	"github.com/kopf-go/kopf/indexing"
	"github.com/kopf-go/kopf/internal/cause"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
)

// A handler that uses an index (on.Uses) is called again for an object when something that
// it has read there in its last call for the object is another one now. What it has read
// is known in memory only, so after a restart it is called once for each object.

// readings are what handlers have read in their last calls for an object.
type readings map[*registry.Handler]*indexing.Reader

// track has what a handler reads from the indices that it uses noted, instead of what it
// has read in its call before.
func track(ctx context.Context, h *registry.Handler, before *indexing.Reader, wake func()) (context.Context, *indexing.Reader) {
	if before != nil {
		before.Forget()
	}
	if len(h.Uses) == 0 {
		return ctx, nil
	}
	indices := make([]indexing.AnyIndex, len(h.Uses))
	for i, index := range h.Uses {
		indices[i] = index
	}
	reader := indexing.NewReader(wake, indices...)
	return indexing.WithReader(ctx, reader), reader
}

// check says once of a handler that it uses indices, and has read nothing in a way that
// could be noted.
func (e *Engine) check(h *registry.Handler, reader *indexing.Reader) {
	if reader == nil || reader.Read() {
		return
	}
	e.mu.Lock()
	known := e.pointless[h]
	e.pointless[h] = true
	e.mu.Unlock()
	if !known {
		e.log.Warn("handler has read nothing from the index that it uses, so nothing there calls it again: read through Tracked(ctx)",
			"handler", h.ID, "source", h.Source)
	}
}

// track is for a call of a change handler.
func (o *object) track(ctx context.Context, h *registry.Handler) (context.Context, *indexing.Reader) {
	o.mu.Lock()
	before := o.readings[h]
	o.mu.Unlock()
	ctx, reader := track(ctx, h, before, func() { o.rouse(h) })
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.readings == nil {
		o.readings = readings{}
	}
	o.readings[h] = reader
	return ctx, reader
}

// forgetReadings is for an object that is gone.
func (o *object) forgetReadings() {
	for _, reader := range o.readings {
		reader.Forget()
	}
}

// rouse has a handler run again.
func (o *object) rouse(h *registry.Handler) {
	o.mu.Lock()
	if o.gone {
		o.mu.Unlock()
		return
	}
	if o.woken == nil {
		o.woken = map[*registry.Handler]bool{}
	}
	o.woken[h] = true
	o.mu.Unlock()
	o.reconsider()
}

// takeWoken takes over who is to run again. Nobody knows what handlers have read in a
// former process, so all that use indices are, once.
func (c *cycle) takeWoken(handled bool) {
	o := c.object
	o.mu.Lock()
	defer o.mu.Unlock()
	c.woken, o.woken = o.woken, nil
	if o.initial && handled && !c.gone {
		for _, h := range c.kind.users {
			if _, woken := c.woken[h]; !woken && o.readings[h] == nil {
				if c.woken == nil {
					c.woken = map[*registry.Handler]bool{}
				}
				c.woken[h] = false
			}
		}
	}
	if c.reason == cause.Noop && len(c.woken) > 0 {
		c.reason = cause.Resume
	}
}

// putBackWoken returns those who are still to run: because they were not called, or have
// to be called again.
func (c *cycle) putBackWoken() {
	if c.reason == cause.Delete || c.reason == cause.Free || c.gone {
		return
	}
	left := c.woken
	for _, t := range c.tasks {
		if t.byIndex && !t.record.Finished() {
			if left == nil {
				left = map[*registry.Handler]bool{}
			}
			left[t.handler] = false
		}
	}
	c.object.mu.Lock()
	defer c.object.mu.Unlock()
	for h, atOnce := range left {
		if c.object.woken == nil {
			c.object.woken = map[*registry.Handler]bool{}
		}
		c.object.woken[h] = c.object.woken[h] || atOnce
	}
}

// wakes tells whether a handler is to be called although the change is not its own.
func (c *cycle) wakes(h *registry.Handler) bool {
	_, woken := c.woken[h]
	return woken && c.reason != cause.Delete && c.reason != cause.Free
}

// inScopeOf tells whether a handler that was woken is for the object as it is.
func (c *cycle) inScopeOf(h *registry.Handler) (bool, error) {
	matches, err := c.asks(h, c.subject.PreMatches)
	if err == nil && !matches {
		delete(c.woken, h)
	}
	return matches, err
}

// rouse has a task run although it waits, or is through, if its handler was woken. When
// there is nothing else to tell the handler, it is told that it is because of the index.
func (c *cycle) rouse(t *task) {
	atOnce, woken := c.woken[t.handler]
	if !woken {
		return
	}
	deleting := c.reason == cause.Delete || c.reason == cause.Free
	candidate := cause.Candidate(t.handler, c.reason, c.object.initial)
	switch {
	case !t.record.Finished():
		if atOnce {
			t.record.Delayed = time.Time{} // it is awake
		}
		t.byIndex = !candidate
	case deleting:
		return
	case !c.behind(t):
		t.record = state.Record{Started: c.now, Purpose: t.record.Purpose}
		t.byIndex = true
	}
	if t.byIndex {
		t.old = c.essence
	}
}
