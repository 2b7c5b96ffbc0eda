package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kopf-go/kopf/daemons"
	"github.com/kopf-go/kopf/internal/outcome"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/stream"
)

// term is a time in which the engine is active: it leads, and is not paused. Change
// handlers, daemons and timers run in terms only, and so does all that is written. A term
// ends in two steps. First nothing begins any more, and what runs is told to end; what has
// come to an end is still written. Then it is fenced: no request is made in its name.
//
// Between terms objects are followed as ever: event handlers and index functions run, and
// objects that ask for something have it noted (see object.offer).
type term struct {
	engine *Engine
	holds  func() bool // whether there may be a term by the clock; nil: there may

	// handling is what change handlers run with, working is for work in the background, which
	// is stopped object by object, and writing is for requests.
	handling, working, writing context.Context
	stopHandling, stopWorking  context.CancelCauseFunc
	fence                      context.CancelCauseFunc

	over    atomic.Bool
	why     error         // it is over
	running int           // goroutines that belong to it. The engine's lock guards it
	drained chan struct{} // closed when it is over, and none runs any more

	// outdated tells that what streams tell may be from before the term.
	outdated bool
	mu       sync.Mutex
	looks    map[*kind]*look
}

// errFenced is why something is not written any more.
var errFenced = errors.New("nothing is written any more, for this operator does not lead, or is paused")

func (e *Engine) newTerm(outdated bool) *term {
	t := &term{engine: e, holds: e.holds, drained: make(chan struct{}), outdated: outdated, looks: map[*kind]*look{}}
	base := context.WithoutCancel(e.handling)
	t.handling, t.stopHandling = context.WithCancelCause(base)
	t.working, t.stopWorking = context.WithCancelCause(base)
	t.writing, t.fence = context.WithCancelCause(stream.Checked(base, t.may))
	return t
}

// ended tells whether nothing may begin in the term any more. It asks the clock: a process
// that was stopped for a while finds out before it does anything else.
func (t *term) ended() bool { return t.over.Load() || !t.holding() }

func (t *term) holding() bool { return t.holds == nil || t.holds() }

// may tells whether requests may be made in the name of the term.
func (t *term) may() error {
	if t.writing.Err() != nil || !t.holding() {
		return errFenced
	}
	return nil
}

// wait lets time pass, as long as requests may be made.
func (t *term) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.writing.Done():
	case <-timer.C:
	}
}

// enters tells whether a handler may be called. It is asked when the object has been decoded
// for it: that takes time, while hundreds of others do the same after a promotion, and the
// process may be frozen in it.
func (t *term) enters() error {
	if t.ended() {
		return errFenced
	}
	return nil
}

// interrupted tells whether an error of a handler is only that the term ends.
func (t *term) interrupted(err error) bool {
	return t.ended() && !errors.As(err, new(*outcome.PermanentError)) && !errors.As(err, new(*outcome.RetryError))
}

// enter registers a goroutine that does the term's work; none begins once it has ended.
func (t *term) enter() bool { return !t.ended() && t.join(false) }

// follow registers one that finishes the term's work, while there is any.
func (t *term) follow() bool { return t.may() == nil && t.join(true) }

func (t *term) join(late bool) bool {
	e := t.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || t.over.Load() && (!late || t.running == 0) {
		return false
	}
	e.running++
	t.running++
	return true
}

// exit is the end of a goroutine that has entered.
func (t *term) exit() {
	t.engine.exit()
	t.leave()
}

// leave is the end of one that the end of the engine need not wait for any more.
func (t *term) leave() {
	e := t.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	t.running--
	e.sweep()
}

// sweep closes what tells that terms are drained, one after the other. The caller holds
// the lock.
func (e *Engine) sweep() {
	for len(e.terms) > 0 && e.terms[0].over.Load() && e.terms[0].running == 0 {
		close(e.terms[0].drained)
		e.terms = slices.Delete(e.terms, 0, 1)
	}
}

// current is the term that goes on; nil: there is none.
func (e *Engine) current() *term { return e.term.Load() }

// Lead begins a term, unless the engine is paused; then it begins when that is over. It is
// for an engine that began as a standby, or has stepped down, and has no effect if it leads.
// holds tells by the clock whether it may lead, for the caller may not be able to say so in
// time: it is asked before anything begins, and before each request. Once it has said no, it
// must not say yes again before the engine has stepped down. nil: it may.
func (e *Engine) Lead(holds func() bool) {
	e.mu.Lock()
	e.leading, e.holds = true, holds
	e.mu.Unlock()
	e.activate(true)
}

// StepDown ends the term, if there is one: nothing begins any more, the contexts of what runs
// end with a cause, and what has come to an end is written. The channel is closed when
// nothing of that, nor of former terms, runs any more. Daemons that are stopped by steps
// have them until Fence.
func (e *Engine) StepDown(why error) (drained <-chan struct{}) {
	e.mu.Lock()
	e.leading = false
	e.mu.Unlock()
	return e.deactivate(why)
}

// Fence ends what is left of terms that have ended: requests that are under way are
// cancelled, none is made any more until the next term, and contexts end that have not
// yet. It ends the present term, too, if there is one.
func (e *Engine) Fence() {
	if t := e.current(); t != nil {
		t.fence(errFenced) // before anything else is done about it
		e.StepDown(daemons.ErrPaused)
	}
	e.mu.Lock()
	terms := slices.Clone(e.terms)
	e.mu.Unlock()
	for _, t := range terms {
		if t.over.Load() {
			t.fence(errFenced)
			t.stopHandling(t.why)
			t.stopWorking(t.why)
		}
	}
}

// Pause is StepDown for as long as somebody else is to work instead: what is followed is not
// followed any more either, except for namespaces and what is served (PEER-9). Whether the
// engine leads is another matter.
func (e *Engine) Pause(why error) (drained <-chan struct{}) {
	e.mu.Lock()
	if e.paused == nil {
		e.continued = make(chan struct{})
	}
	e.paused = why
	e.mu.Unlock()
	if d := e.director.Load(); d != nil {
		d.interrupt()
	}
	return e.deactivate(why)
}

// Continue ends a pause: everything is listed anew, and what has changed meanwhile is news.
// A term begins, if the engine leads.
func (e *Engine) Continue() {
	e.mu.Lock()
	if e.paused != nil {
		e.paused, e.continuing = nil, time.Now()
		close(e.continued)
	}
	e.mu.Unlock()
	e.activate(false)
}

// pausing tells whether the engine is paused, and has a channel then that is closed when
// that is over.
func (e *Engine) pausing() (continued <-chan struct{}, is bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.continued, e.paused != nil
}

// Running names handlers, daemons and timers that run although their term has ended.
func (e *Engine) Running() (names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.calls {
		if c.handler.Kind != registry.Event && c.handler.Kind != registry.Index {
			names = append(names, c.String())
		}
	}
	slices.Sort(names)
	return names
}

func (c calling) String() string {
	return fmt.Sprintf("%s on %s/%s", c.handler.Name(), c.object.namespace, c.object.name)
}

// activate begins a term if it is time for that.
func (e *Engine) activate(outdated bool) {
	e.mu.Lock()
	if e.handling == nil || e.closed || e.stopping() || !e.leading || e.paused != nil || e.current() != nil {
		e.mu.Unlock()
		return
	}
	t := e.newTerm(outdated)
	t.running++ // of its begin
	e.running++
	e.terms = append(e.terms, t)
	e.suspended = nil
	e.term.Store(t)
	e.mu.Unlock()
	go func() { // it asks functions of the user's
		defer t.exit()
		e.begin(t)
	}()
}

// begin has everything go on that asks for something.
func (e *Engine) begin(t *term) {
	for _, k := range e.kinds() {
		k.mu.Lock()
		clear(k.complaints) // those that were made by a standby were not posted
		k.mu.Unlock()
		t.lookAt(k)
	}
	e.steerAll(true)
}

// deactivate ends the term, if there is one.
func (e *Engine) deactivate(why error) (drained <-chan struct{}) {
	e.mu.Lock()
	e.suspended = why
	t := e.current()
	if t == nil {
		drained = e.drained()
		e.mu.Unlock()
		return drained
	}
	t.why = why
	t.running++ // or it would be drained too soon
	t.over.Store(true)
	e.term.Store(nil)
	drained = t.drained
	e.mu.Unlock()
	t.stopHandling(why)
	e.steerAll(false)
	if t.may() == nil {
		for _, k := range e.kinds() {
			k.part(t)
		}
	}
	t.leave()
	return drained
}

// drained is closed when all terms that have ended are drained. The caller holds the lock.
func (e *Engine) drained() <-chan struct{} {
	if n := len(e.terms); n > 0 {
		return e.terms[n-1].drained
	}
	none := make(chan struct{})
	close(none)
	return none
}

// kinds are those that are followed.
func (e *Engine) kinds() []*kind {
	d := e.director.Load()
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.kinds)
}
