package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/cause"
	"github.com/kopf-go/kopf/internal/decisions"
	"github.com/kopf-go/kopf/internal/patching"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/internal/stream"
	"github.com/kopf-go/kopf/internal/tracing"
)

// observe queues an event for the event handlers. The lane never waits for the
// change lane: a handler that creates something for an hour does not hold events up.
func (o *object) observe(event stream.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, event)
	if !o.observing && o.kind.engine.enter() {
		o.observing = true
		go o.drain()
	}
}

func (o *object) drain() {
	defer o.kind.engine.exit()
	ended := false
	defer func() {
		if !ended { // by a handler, as in object.cutOff
			o.log().Error("event handling was cut off", "error", errGoexit)
			o.resume()
		}
	}()
	for {
		o.mu.Lock()
		if len(o.events) == 0 || o.kind.engine.stopping() {
			o.events, o.observing = nil, false
			o.rest()
			o.mu.Unlock()
			ended = true
			return
		}
		event := o.events[0]
		o.events[0] = stream.Event{}
		o.events = o.events[1:]
		o.mu.Unlock()
		if o.tell(event) {
			ended = true
			return
		}
	}
}

// tell shows an event to all who observe. It tells whether the lane pauses after that.
func (o *object) tell(event stream.Event) (pauses bool) {
	edits := new(registry.Edits)
	if event.Type != again && !o.departing() {
		for _, h := range o.kind.eventHandlers {
			o.show(h, event, edits)
		}
	}
	var wait time.Duration
	if len(edits.List()) > 0 && event.Type != stream.Deleted {
		if t := o.kind.engine.current(); t != nil && t.enter() { // else the leader's handlers ask for the same
			wait = o.amend(t, event.Body, edits)
			t.exit()
		}
	}
	o.supervise(event)
	if wait > 0 {
		o.kind.engine.timers.at(time.Now().Add(wait), o.resume)
	}
	return wait > 0
}

// resume goes on with the events after a pause.
func (o *object) resume() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kind.engine.enter() {
		go o.drain()
	} else {
		o.events, o.observing = nil, false
	}
}

// amend writes what event handlers want changed: all of it in one, or if that cannot
// be, what each of them wants by itself. It returns for how long the lane has to wait,
// if it runs in circles.
func (o *object) amend(t *term, b *body.Body, edits *registry.Edits) time.Duration {
	whole := o.kind.change(nil, edits.List())
	w := &writer{term: t, object: o, body: b, learn: func(b *body.Body) *body.Body { return b }}
	wait, err := w.amend(whole)
	parts := byHandler(whole)
	if len(parts) > 1 && (refused(err) || errors.As(err, new(*patching.EditError))) {
		err = nil
		for _, p := range parts {
			pause, failed := w.amend(p.Change)
			wait = max(wait, pause)
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", p.handler, failed))
			}
		}
	}
	if err != nil && !errors.Is(err, errGone) && !errors.Is(err, errFenced) && !apierrors.IsNotFound(err) {
		o.log().Error("changes by event handlers could not be written, and are dropped", "error", err)
	}
	return wait
}

// amend writes edits of event handlers.
func (w *writer) amend(change patching.Change) (wait time.Duration, err error) {
	was, changed, err := w.insist(change)
	if err == nil && changed {
		wait = w.object.circling(w.body, was, true)
	}
	return wait, err
}

// insist writes what takes no part in the change lane's bookkeeping, which gets to know
// of it by the event that it causes. It returns the essence that it was applied to.
func (w *writer) insist(change patching.Change) (was *state.Essence, changed bool, err error) {
	o := w.object
	for range maxConflicts {
		was = o.kind.store.Essence(w.body)
		if changed, err = w.apply(change); !apierrors.IsConflict(err) {
			return was, changed, err
		}
		fresh, err := o.kind.client.Get(w.term.writing, o.kind.resource.GVR, o.namespace, o.name)
		if err != nil {
			return was, false, err
		}
		if fresh.UID != o.uid {
			return was, false, errGone
		}
		w.body = fresh
	}
	return was, false, fmt.Errorf("there was a conflict each time: %w", err)
}

// show calls an event handler; whatever it returns is logged and forgotten (EVT-3).
func (o *object) show(h *registry.Handler, event stream.Event, edits *registry.Edits) {
	e, k := o.kind.engine, o.kind
	log := o.log().With("handler", h.ID, "event", eventName(event.Type))
	subject := &cause.Subject{Body: event.Body, Resource: k.resource.GVR, Log: log, Memos: o.Memos}
	matches, err := subject.PreMatches(e.handling, h)
	if matches && err == nil {
		own := edits.For(h.ID)
		ctx, span := tracing.Handler(e.handling, nil, o.traced, tracing.Call{Handler: h.ID, Reason: eventName(event.Type)})
		defer span.End()
		err = e.call(ctx, nil, o, h, &registry.Call{
			Body: event.Body, Identity: event.Missed, Resource: k.resource.GVR,
			Type: eventName(event.Type), Param: h.Param, Log: log, Patch: own, Memos: o.Memos,
		})
		edits.Add(own.List()...)
		if err != nil {
			tracing.Outcome(span, "ignored", true)
		}
	}
	outcome := "succeeded"
	if err != nil && !e.stopping() {
		outcome = "ignored"
		log.LogAttrs(context.Background(), slog.LevelError, "event handler failed", slog.Any("error", err))
		o.decide("event", decisions.Verdict{Handler: h.ID, Outcome: outcome, Error: k.textOf(err)})
	}
	if matches {
		k.meter.Attempt(h.ID, outcome, false)
	}
}

// eventName is what users see; a listed object has no event type on the wire.
func eventName(t stream.Type) string {
	if t == stream.Listed {
		return "LISTED"
	}
	return string(t)
}
