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

// user is a function that uses indices, with all its registrations under one id: as it is
// called once for all of them, what its last call has read is that of all.
type user struct {
	handlers []*registry.Handler // in order of registration
	indices  []indexing.AnyIndex
	parting  bool // it may be called for an object that is being deleted
}

// usersAmong finds the users among handlers.
func usersAmong(handlers []*registry.Handler) (users []*user, of map[*registry.Handler]*user) {
	type key struct {
		code uintptr
		id   string
	}
	uses, found := map[key]bool{}, map[key]*user{}
	for _, h := range handlers {
		uses[key{h.Func, h.ID}] = uses[key{h.Func, h.ID}] || len(h.Uses) > 0
	}
	of = map[*registry.Handler]*user{}
	for _, h := range handlers {
		k := key{h.Func, h.ID}
		if !uses[k] {
			continue
		}
		u := found[k]
		if u == nil {
			u = &user{}
			found[k] = u
			users = append(users, u)
		}
		of[h] = u
		u.handlers = append(u.handlers, h)
		u.indices = append(u.indices, indicesOf(h)...)
		u.parting = u.parting || h.Kind == registry.Delete || h.Kind == registry.Field || h.Deleted
	}
	return users, of
}

func indicesOf(h *registry.Handler) []indexing.AnyIndex {
	indices := make([]indexing.AnyIndex, len(h.Uses))
	for i, index := range h.Uses {
		indices[i] = index
	}
	return indices
}

// newReader makes a reader that tells who it is when it is woken.
func newReader(indices []indexing.AnyIndex, wake func(*indexing.Reader)) (reader *indexing.Reader) {
	reader = indexing.NewReader(func() { wake(reader) }, indices...)
	return reader
}

// wakefulness is why a user is to be called for an object although it may have nothing
// else to be told.
type wakefulness int

const (
	asleep  wakefulness = iota
	begun               // it was called for an index, and is to be called again when it is time
	unknown             // nobody knows what it has read in a former process
	changed             // what it has read is another one now: it does not wait
)

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

// track has what a call reads noted, instead of what was read in the call before. Of a
// handler that is called again for the sake of its sub-handlers it is noted in addition:
// those that are through have read in an earlier call.
func (c *cycle) track(ctx context.Context, t *task) (context.Context, *indexing.Reader) {
	u := c.kind.userOf[t.handler]
	if u == nil {
		return ctx, nil
	}
	o := c.object
	delete(c.woken, u)
	goesOn := len(t.record.Subrefs) > 0 && t.wake < unknown
	o.mu.Lock()
	before := o.readings[u]
	if goesOn && before != nil {
		o.mu.Unlock()
		return indexing.WithReader(ctx, before), before
	}
	reader := newReader(u.indices, func(r *indexing.Reader) { o.rouse(u, r) })
	if o.readings == nil {
		o.readings = map[*user]*indexing.Reader{}
	}
	o.readings[u] = reader
	delete(o.woken, u) // this call sees that
	o.mu.Unlock()
	if before != nil {
		before.Close()
	}
	return indexing.WithReader(ctx, reader), reader
}

// forgetReadings is for an object that is gone.
func (o *object) forgetReadings() {
	for _, reader := range o.readings {
		reader.Close()
	}
}

// rouse has a user called again, unless it was called meanwhile. Of an object that is
// gone, only those are of interest that are still to be called.
func (o *object) rouse(u *user, r *indexing.Reader) {
	o.mu.Lock()
	if o.readings[u] != r || o.departure != nil || o.gone && o.work == nil || (o.gone || o.leaving) && !u.parting {
		o.mu.Unlock()
		return
	}
	o.wakeLater(u, changed)
	if o.gone {
		o.work.newer = true
		o.start()
		o.mu.Unlock()
		return
	}
	o.mu.Unlock()
	if o.kind.engine.current() != nil { // else it is remembered
		o.reconsider()
	}
}

// wakeLater notes that a user is to be called. The caller holds the lock.
func (o *object) wakeLater(u *user, why wakefulness) {
	if o.woken == nil {
		o.woken = map[*user]wakefulness{}
	}
	o.woken[u] = max(o.woken[u], why)
}

// takeWoken takes over who is to be called. Nobody knows what was read in a former process;
// so all are whose calls for the object may have been there.
func (c *cycle) takeWoken(handled bool) {
	o := c.object
	o.mu.Lock()
	defer o.mu.Unlock()
	c.woken, o.woken = o.woken, nil
	if !o.found || c.gone {
		return
	}
	for _, u := range c.kind.users {
		_, called := c.known[u.handlers[0].ID]
		if (handled || called) && o.readings[u] == nil && c.woken[u] == asleep {
			if c.woken == nil {
				c.woken = map[*user]wakefulness{}
			}
			c.woken[u] = unknown
		}
	}
}

// putBackWoken returns those who are still to be called: because they were not, or are to
// be called once more. One whom the object is not for now is called when it is.
func (c *cycle) putBackWoken() {
	if c.gone {
		return
	}
	left := map[*user]wakefulness{}
	deleting := c.reason == cause.Delete || c.reason == cause.Free
	if !deleting {
		for u, why := range c.woken {
			left[u] = why
		}
	}
	for _, t := range c.tasks {
		u := c.kind.userOf[t.handler]
		if u == nil || t.record.Finished() {
			continue
		}
		left[u] = max(left[u], c.woken[u])
		if t.byIndex {
			left[u] = max(left[u], begun)
		}
		if t.wake >= unknown && !t.redone && len(t.record.Subrefs) > 0 { // its sub-handlers are still to be called
			left[u] = max(left[u], unknown)
		}
	}
	c.object.mu.Lock()
	defer c.object.mu.Unlock()
	for u, why := range left {
		if why > asleep && (why != unknown || c.object.readings[u] != nil) { // else it is found out again
			c.object.wakeLater(u, why)
		}
	}
}

// withWoken adds those that are only woken to the handlers that are selected: of each
// user one handler, the first one that is for the object as it is.
func (c *cycle) withWoken(selected []*registry.Handler) ([]*registry.Handler, error) {
	c.forIndex = nil
	if len(c.woken) == 0 || c.reason == cause.Delete || c.reason == cause.Free {
		return selected, nil
	}
	chosen, taken := map[*registry.Handler]bool{}, map[*user]bool{}
	for _, h := range selected {
		chosen[h] = true
		taken[c.kind.userOf[h]] = true
	}
	for _, h := range c.kind.changeHandlers {
		u := c.kind.userOf[h]
		if u == nil || c.woken[u] == asleep || taken[u] || h.Kind == registry.Delete {
			continue
		}
		matches, err := c.asks(h, c.unchanged().PreMatches)
		if err != nil {
			return nil, err
		}
		if !matches {
			continue
		}
		chosen[h], taken[u] = true, true
		if c.forIndex == nil {
			c.forIndex = map[*registry.Handler]bool{}
		}
		c.forIndex[h] = true
	}
	if len(c.forIndex) == 0 {
		return selected, nil
	}
	if c.reason == cause.Noop {
		c.reason = cause.Resume
	}
	selected = nil
	for _, h := range c.kind.changeHandlers {
		if chosen[h] {
			selected = append(selected, h)
		}
	}
	return selected, nil
}

// unchanged is the object as those look at it who are only woken.
func (c *cycle) unchanged() *cause.Subject {
	subject := c.newSubject()
	subject.Old = c.essence
	return &subject
}

// continues tells whether a record is of a call for an index that is to be gone on with,
// although something else is going on with the object than when it began.
func (c *cycle) continues(h *registry.Handler, r state.Record) bool {
	return c.forIndex[h] && !r.Finished() && r.Purpose != string(cause.Delete) &&
		(!h.UpdateLike() || r.Purpose == string(cause.Resume) || r.Digest != "")
}

// rouse has a task run although it waits, or is through, if its handler was woken. When
// there is nothing else to tell the handler, it is told that it is because of the index.
func (c *cycle) rouse(t *task) {
	u := c.kind.userOf[t.handler]
	if u == nil {
		return
	}
	t.wake = c.woken[u]
	switch only := c.forIndex[t.handler]; {
	case !t.record.Finished():
		if t.wake == changed {
			t.record.Delayed = time.Time{} // it is awake
		}
		t.byIndex = only || c.repeats(t)
	case t.wake < unknown, c.reason == cause.Delete, c.reason == cause.Free:
	case only || !c.behind(t) || t.handler.Kind == registry.Create:
		t.record = state.Record{Started: c.now, Purpose: t.record.Purpose, Digest: t.record.Digest}
		t.byIndex = true
	case c.reason == cause.Update:
		c.anew(t)
	}
	if t.byIndex {
		t.old = c.essence
	}
}

// repeats tells whether a handler, that something could be told besides, was told that
// already, and has been called for an index since.
func (c *cycle) repeats(t *task) bool {
	switch {
	case t.handler.Kind == registry.Resume:
		return t.wake == begun
	case c.reason != cause.Create || t.record.Digest == "":
		return false
	case t.handler.Kind == registry.Create:
		return true
	}
	seen := c.essenceOf(t.record.Digest)
	if seen != nil && !seen.Equal(c.essence) {
		t.old = seen
		return false
	}
	return true
}

// rouseChild has a sub-handler run again whose parent was woken, for nobody knows which of
// them has read what.
func (c *cycle) rouseChild(t *task) {
	r := &t.record
	t.wake = t.parent.wake
	switch {
	case r.Finished() && t.wake >= unknown:
		*r = state.Record{Started: c.now, Purpose: r.Purpose, Digest: r.Digest}
		t.byIndex = true
	case !r.Finished() && t.wake == changed:
		r.Delayed = time.Time{}
	}
	if t.parent.byIndex && t.old == t.parent.old || !r.Finished() && r.Digest == c.essence.Digest() {
		t.byIndex = true
	}
	if t.byIndex {
		t.old = c.essence
	}
}

// matches tells whether a sub-handler is to be called. One that is called because of an
// index needs no change.
func (c *cycle) matches(ctx context.Context, t *task) (bool, error) {
	if t.byIndex {
		return c.unchanged().PreMatches(ctx, t.handler)
	}
	return c.subjectOf(t).Matches(ctx, t.handler)
}

// reasonOf is what a task's handler is told.
func (c *cycle) reasonOf(t *task) cause.Reason {
	if t.byIndex {
		return cause.Index
	}
	return c.purpose()
}

// passing tells whether nothing needs to be kept of a call for an index: it has succeeded,
// or failed for good, or has not begun yet, and no attempt before it is on record.
func (c *cycle) passing(t *task) bool {
	if !t.byIndex || t.parent != nil || !t.record.Finished() && t.record.Retries > 0 {
		return false
	}
	if c.carry != nil {
		if _, unwritten := c.carry.records[t.handler.ID]; unwritten {
			return false // there may be another one on the object
		}
	}
	r, kept := c.known[t.handler.ID]
	return !kept || r.Finished()
}

// track has what a run reads from indices noted, instead of what the one before has read.
func (w *worker) track(ctx context.Context) (context.Context, *indexing.Reader) {
	if len(w.handler.Uses) == 0 {
		return ctx, nil
	}
	reader := newReader(indicesOf(w.handler), w.rouse)
	w.mu.Lock()
	before := w.reading
	w.reading, w.woken = reader, false
	w.mu.Unlock()
	if before != nil {
		before.Close()
	}
	return indexing.WithReader(ctx, reader), reader
}

// rouse has the timer tick because of what a run has read, unless it has run again since.
func (w *worker) rouse(r *indexing.Reader) {
	w.mu.Lock()
	current := w.reading == r
	w.woken = w.woken || current
	w.mu.Unlock()
	if current {
		w.Wake()
	}
}

// roused tells, once, whether something has changed that the last run has read.
func (w *worker) roused() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	woken := w.woken
	w.woken = false
	return woken
}

// unread is for a worker that is not wanted any more.
func (w *worker) unread() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reading != nil {
		w.reading.Close()
	}
	w.reading, w.woken = nil, false
}
