// Package activity runs what an operator does for itself, and for no object: startup, cleanup,
// login and probes.
package activity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/kopf-go/kopf/activities"
	"github.com/kopf-go/kopf/internal/metrics"
	"github.com/kopf-go/kopf/internal/outcome"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
)

// Activity is one of an operator's. It is not changed by running.
type Activity struct {
	Kind     registry.Kind
	Handlers []*registry.Handler      // of all kinds; only those of Kind are called
	Facts    func() registry.Activity // for one call
	Memos    *registry.Memos          // of the operator
	Backoff  time.Duration            // after errors that say none
	Patience time.Duration            // with handlers whose context has ended, before they are left behind; negative: no end
	Log      *slog.Logger
}

// InterruptedError says that the context ended before all handlers were through.
type InterruptedError struct {
	Activity string
	Cause    error
	Left     string // the handler that did not return, and is left behind; empty: none
}

func (e *InterruptedError) Error() string {
	text := fmt.Sprintf("%s was interrupted: %v", e.Activity, e.Cause)
	if e.Left != "" {
		text += fmt.Sprintf("; handler %s did not return in time after its context ended, and is left behind", e.Left)
	}
	return text
}

// Unwrap returns why.
func (e *InterruptedError) Unwrap() error { return e.Cause }

// task is a handler with what has become of it.
type task struct {
	handler *registry.Handler
	record  state.Record
	result  any
	err     error
}

// Run calls the handlers, one after the other, in rounds, until all are through (ACT-1). Its
// error is an *activities.Error with what has become of all of them if any has failed for
// good (ACT-2), or an *InterruptedError.
func (a Activity) Run(ctx context.Context) ([]activities.Outcome, error) {
	var tasks []*task
	for _, h := range a.Handlers {
		if h.Kind == a.Kind {
			tasks = append(tasks, &task{handler: h})
		}
	}
	for {
		next, err := a.round(ctx, tasks)
		if err != nil {
			return nil, err
		}
		if next.IsZero() {
			return a.conclude(tasks)
		}
		pause := time.NewTimer(time.Until(next))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, a.interrupted(ctx, "")
		}
	}
}

// round calls those who are due, and says when the next ones are; never, if all are through.
func (a Activity) round(ctx context.Context, tasks []*task) (next time.Time, err error) {
	for _, t := range tasks {
		if t.record.Awake(time.Now()) {
			if err := a.attempt(ctx, t); err != nil {
				return next, err
			}
		}
	}
	for _, t := range tasks {
		if due := t.record.Delayed; !t.record.Finished() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return next, nil
}

func (a Activity) conclude(tasks []*task) ([]activities.Outcome, error) {
	outcomes := make([]activities.Outcome, len(tasks))
	failed := false
	for i, t := range tasks {
		outcomes[i] = activities.Outcome{ID: t.handler.ID, Attempts: t.record.Retries, Result: t.result, Err: t.err}
		failed = failed || t.err != nil
	}
	if failed {
		return outcomes, &activities.Error{Activity: string(a.Kind), Outcomes: outcomes}
	}
	return outcomes, nil
}

func (a Activity) interrupted(ctx context.Context, left string) error {
	return &InterruptedError{string(a.Kind), context.Cause(ctx), left}
}

// attempt calls a handler, unless its limits forbid it. It fails if the activity does not
// go on.
func (a Activity) attempt(ctx context.Context, t *task) error {
	if ctx.Err() != nil {
		return a.interrupted(ctx, "")
	}
	h := t.handler
	if t.record.Retries == 0 { // what counts is the first attempt, not how long others took before it (OUT-6)
		t.record.Started = time.Now()
	}
	if o, refused := outcome.Refused(h, t.record, time.Now()); refused {
		a.settle(t, o)
		return nil
	}
	facts := a.Facts()
	c := &registry.Call{
		Retry: t.record.Retries, Started: t.record.Started, Param: h.Param, Activity: &facts,
		Log:   a.log(t).With("attempt", t.record.Retries+1),
		Memos: func() *registry.Memos { return a.Memos },
	}
	err, returned := a.await(ctx, call(ctx, h, c))
	switch {
	case !returned:
		return a.interrupted(ctx, h.ID)
	case err == nil:
		t.result, err = a.result(c)
	case ctx.Err() != nil && !errors.As(err, new(*outcome.PermanentError)):
		a.log(t).Debug("handler was interrupted", "error", err)
		return a.interrupted(ctx, "")
	}
	a.settle(t, outcome.Of(h, t.record, err, time.Now(), a.Backoff))
	return nil
}

var errGoexit = errors.New("the handler has ended its goroutine (runtime.Goexit)")

// call calls a handler in a goroutine of its own, and tells how that has ended.
func call(ctx context.Context, h *registry.Handler, c *registry.Call) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := error(&outcome.PanicError{Value: errGoexit}) // unless it returns
		defer func() {
			if p := recover(); p != nil {
				err = &outcome.PanicError{Value: p, Stack: debug.Stack()}
			}
			done <- err
		}()
		if h.Timeout > 0 {
			over := fmt.Errorf("timeout of %s is over: %w", h.Timeout, context.DeadlineExceeded)
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadlineCause(ctx, c.Started.Add(h.Timeout), over)
			defer cancel()
		}
		err = h.Invoke(ctx, c)
	}()
	return done
}

// await waits for a handler, but not for ever once its context has ended.
func (a Activity) await(ctx context.Context, done <-chan error) (err error, returned bool) {
	if a.Patience < 0 {
		return <-done, true
	}
	select {
	case err := <-done:
		return err, true
	case <-ctx.Done():
	}
	patience := time.NewTimer(a.Patience)
	defer patience.Stop()
	select {
	case err := <-done:
		return err, true
	case <-patience.C:
		return nil, false
	}
}

// result is what the handler has returned. That of probes becomes JSON.
func (a Activity) result(c *registry.Call) (any, error) {
	if a.Kind != registry.Probe {
		return c.Result, nil
	}
	text, err := json.Marshal(c.Result)
	switch {
	case err != nil:
		return nil, &outcome.PermanentError{Err: fmt.Errorf("its result cannot be said in JSON: %w", err)}
	case string(text) == "null":
		return nil, nil
	}
	return json.RawMessage(text), nil
}

// settle takes an outcome, and says so in the log.
func (a Activity) settle(t *task, o outcome.Outcome) {
	now := time.Now()
	t.record, t.err = o.Record(t.record, now), o.Err
	metrics.Attempts.WithLabelValues(string(a.Kind), t.handler.ID, o.Name()).Inc()
	log := a.log(t).With("attempt", t.record.Retries)
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
	case a.Kind == registry.Probe:
		log.Debug("handler succeeded")
	default:
		log.Info("handler succeeded", "took", now.Sub(t.record.Started).Round(time.Millisecond))
	}
}

func (a Activity) log(t *task) *slog.Logger {
	return a.Log.With("activity", string(a.Kind), "handler", t.handler.ID)
}
