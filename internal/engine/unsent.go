package engine

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kopf-go/kopf/daemons"
	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/outcome"
	"github.com/kopf-go/kopf/internal/patching"
	"github.com/kopf-go/kopf/internal/registry"
)

// unsent is what a run has to say and could not write yet: it is tried again before
// anything else happens.
type unsent struct {
	change patching.Change
	err    error // of the run
	failed int   // how often
}

// say is what a run wants written: edits also after an error, the result only after none.
func (w *worker) say(call *registry.Call, err error) patching.Change {
	change := w.object.kind.change(nil, call.Patch.Take())
	if call.Result != nil && err == nil {
		change.Results = map[string]any{w.handler.ID: call.Result}
	}
	return change
}

// send writes. What is refused is an error of the handler; what could not be written for
// another reason is not sent.
func (w *worker) send(change patching.Change) (sent bool, refusal error) {
	if len(change.Edits) == 0 && len(change.Results) == 0 {
		return true, nil
	}
	b, _ := w.background.newest()
	if b == nil {
		return true, nil
	}
	return w.sendTo(w.termOfRun(), b, change)
}

func (w *worker) sendTo(t *term, b *body.Body, change patching.Change) (sent bool, refusal error) {
	o := w.object
	e := o.kind.engine
	e.gate.enter()
	defer e.gate.leave()
	out := &writer{term: t, object: o, body: b, learn: func(b *body.Body) *body.Body { return b }}
	_, _, err := out.insist(change)
	switch {
	case err == nil:
		o.kind.show(w.background, out.body)
	case errors.Is(err, errGone), apierrors.IsNotFound(err):
	case errors.As(err, new(*patching.EditError)), refused(err), apierrors.IsForbidden(err):
		return true, err
	default:
		w.log().Warn("what it wants changed could not be written yet", "error", err)
		return false, nil
	}
	return true, nil
}

// later has something written before the next run. It is not known before what the run has
// come to, for what it wants written may be refused.
func (w *worker) later(s standing, change patching.Change, err error) daemons.Result {
	s.unsent = &unsent{change: change, err: err, failed: 1}
	w.stand(s)
	return daemons.Result{Next: time.Now().Add(w.object.kind.engine.settings.errorDelay(1))}
}

// resend writes what an earlier run could not.
func (w *worker) resend(s standing) daemons.Result {
	settings := w.object.kind.engine.settings
	sent, refusal := w.send(s.unsent.change)
	if !sent {
		u := *s.unsent
		u.failed++
		s.unsent = &u
		w.stand(s)
		return daemons.Result{Next: time.Now().Add(settings.errorDelay(u.failed))}
	}
	err := s.unsent.err
	if err == nil {
		err = refusal
	}
	s.unsent = nil
	result := w.conclude(s, outcome.Of(w.handler, s.record, err, s.last.Ended, settings.DefaultBackoff))
	if w.roused() { // this run was asked for, and was none
		result.Next = time.Now()
	}
	return result
}

// drop says that what a run wanted changed will not be written.
func (w *worker) drop(err error) {
	if err != nil {
		w.log().Error("what it wanted changed could not be written, and is dropped", "error", err)
	}
}

var errUnsent = errors.New("the API server could not be reached in time, or did not answer")

// farewell is for one that is stopped before it could write what it wanted changed: it is
// tried a last time.
func (w *worker) farewell() {
	s := w.standing()
	if s.unsent == nil || w.Running() {
		return
	}
	b, _ := w.background.newest()
	w.stand(standing{})
	t := w.termOfRun()
	if b == nil || t == nil || !t.follow() {
		w.drop(errUnsent)
		return
	}
	go func() {
		defer t.exit()
		sent, refusal := w.sendTo(t, b, s.unsent.change)
		if !sent {
			refusal = errUnsent
		}
		w.drop(refusal)
	}()
}
