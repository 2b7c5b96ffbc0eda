package engine

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/cause"
	"github.com/kopf-go/kopf/internal/decisions"
	"github.com/kopf-go/kopf/internal/metrics"
	"github.com/kopf-go/kopf/internal/outcome"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/tracing"

	"go.opentelemetry.io/otel/trace"
)

// account is what is told of one look at an object: in its span, and to those who ask why.
// The nil account tells nothing. It is safe for concurrent use.
type account struct {
	object *object
	began  time.Time
	span   trace.Span // nil: there is none

	mu    sync.Mutex
	entry *decisions.Decision // nil: nobody asks
}

// open begins an account of a cycle.
func (o *object) open() *account {
	a := &account{object: o, began: time.Now(), span: tracing.Cycle(o.traced)}
	if o.kind.engine.Decisions != nil {
		a.entry = new(decisions.Decision)
	}
	return a
}

// decide records a decision that was made outside of the change lane.
func (o *object) decide(reason string, v decisions.Verdict) {
	if ring := o.kind.engine.Decisions; ring != nil {
		ring.Record(o.title(), decisions.Decision{Time: time.Now(), Reason: reason, Handlers: []decisions.Verdict{v}})
	}
}

// complained records that something is wrong with the object itself.
func (o *object) complained(reason string, err error) {
	if ring := o.kind.engine.Decisions; ring != nil {
		ring.Record(o.title(), decisions.Decision{Time: time.Now(), Reason: "complaint", Notes: []string{reason + ": " + o.kind.textOf(err)}})
	}
}

func (o *object) title() decisions.Object {
	return decisions.Object{Kind: resourceName(o.kind.resource.GVR), Namespace: o.namespace, Name: o.name, UID: o.uid}
}

func (o *object) traced() tracing.Object {
	return tracing.Object{Kind: resourceName(o.kind.resource.GVR), Namespace: o.namespace, Name: o.name, UID: string(o.uid)}
}

// add changes the entry, if there is one.
func (a *account) add(change func(*decisions.Decision)) {
	if a == nil || a.entry == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a.entry)
}

// parent is the span of the account; nil: there is none.
func (a *account) parent() trace.Span {
	if a == nil {
		return nil
	}
	return a.span
}

// skip says which filter of a handler has said no. What was said of the handler before
// does not count any more.
func (a *account) skip(h *registry.Handler, refused cause.Refusal) {
	a.add(func(d *decisions.Decision) {
		put(d, decisions.Verdict{Handler: h.ID, Outcome: decisions.Skipped, Because: refused.Text(h)})
	})
}

// inScope forgets what was said of handlers while it was found out whether any is for the
// object.
func (a *account) inScope() {
	a.add(func(d *decisions.Decision) { d.Handlers = nil })
}

// settle says what has come of a handler's attempt.
func (a *account) settle(t *task, o outcome.Outcome) {
	a.add(func(d *decisions.Decision) {
		v := decisions.Verdict{Handler: t.handler.ID, Outcome: o.Name(), Attempt: t.record.Retries, Took: t.took}
		if o.Ignored != nil {
			v.Error = a.object.kind.textOf(o.Ignored)
		} else if !o.Waiting {
			v.Error = a.object.kind.textOf(o.Err)
		}
		if !t.record.Finished() {
			v.Next = decisions.At(t.record.Delayed)
		}
		put(d, v)
	})
}

func put(d *decisions.Decision, v decisions.Verdict) {
	for i := range d.Handlers {
		if d.Handlers[i].Handler == v.Handler {
			d.Handlers[i] = v
			return
		}
	}
	d.Handlers = append(d.Handlers, v)
}

// wrote says what has come of a request, also to the metrics.
func (w *writer) wrote(endpoint string, b *body.Body, err error, span trace.Span) {
	outcome := writeOutcome(err)
	w.object.kind.meter.Write(endpoint == statusEndpoint, outcome)
	tracing.Outcome(span, outcome, err != nil && outcome != "conflict")
	w.account.add(func(d *decisions.Decision) {
		write := decisions.Write{Endpoint: endpoint, Outcome: outcome}
		if b != nil {
			write.Version = b.ResourceVersion
		}
		d.Writes = append(d.Writes, write)
	})
}

const (
	objectEndpoint = "object"
	statusEndpoint = "status"
)

func writeOutcome(err error) string {
	switch {
	case err == nil:
		return "written"
	case errors.Is(err, errGone):
		return "gone"
	case errors.Is(err, errFenced):
		return "fenced"
	case apierrors.IsConflict(err):
		return "conflict"
	case apierrors.IsForbidden(err):
		return "forbidden"
	case refused(err):
		return "refused"
	}
	return "failed"
}

// arrive notes when a change has come, to measure how long it takes until it is handled.
func (w *work) arrive() {
	switch {
	case w.since.IsZero():
		w.since = time.Now()
	case w.running && !w.newer:
		w.next = time.Now()
	}
}

// converge measures how long a change took until it was handled. Of what was changed
// meanwhile it is measured from then on.
func (o *object) converge(r cause.Reason) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.work
	if r != cause.Noop && !w.since.IsZero() {
		o.kind.meter.Converge(time.Since(w.since))
	}
	w.since, w.next = w.next, time.Time{}
	o.repose = unchanged
}

// report runs the cycle, and tells of it, also if a handler ends its goroutine.
func (c *cycle) report(do func() (verdict, error)) (v verdict, err error) {
	c.account, c.version = c.object.open(), c.body.ResourceVersion
	err = errGoexit // unless it returns
	defer func() { c.close(v, err) }()
	return do()
}

// close ends the account. What has led to nothing, and is no news, is not recorded.
func (c *cycle) close(v verdict, err error) {
	a := c.account
	tracing.Reason(a.span, cmp.Or(string(c.reason), c.stage))
	if err != nil {
		tracing.Outcome(a.span, writeOutcome(err), !apierrors.IsConflict(err))
	}
	a.span.End()
	if a.entry == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.entry
	idle := err == nil && len(d.Writes)+len(d.Notes) == 0 && c.settled == 0 && !v.hold
	for t := range c.all() {
		c.pend(a.entry, t)
		idle = idle && !t.skipped && !t.interrupted
	}
	if idle && (len(c.tasks) > 0 || len(d.Handlers) == 0) {
		return
	}
	d.Time, d.Took = a.began, time.Since(a.began)
	d.Reason = cmp.Or(string(c.reason), c.stage)
	d.Version = c.version
	if c.reason == cause.Update {
		d.Changed = c.changed()
	}
	if err != nil {
		d.Error = c.kind.textOf(err)
	}
	if v.after > 0 {
		d.Next = decisions.At(time.Now().Add(v.after))
	}
	if v.hold {
		d.Notes = append(d.Notes, "is written in circles, and has to wait")
	}
	c.kind.engine.Decisions.Record(c.object.title(), *d)
}

// pend says of a selected handler that was not called why it was not.
func (c *cycle) pend(d *decisions.Decision, t *task) {
	for _, h := range d.Handlers {
		if h.Handler == t.handler.ID && h.Outcome != decisions.Skipped {
			return
		}
	}
	v := decisions.Verdict{Handler: t.handler.ID, Outcome: decisions.Pending, Attempt: t.record.Retries}
	switch {
	case t.record.Success:
		v.Outcome, v.Because = "succeeded", "before"
	case t.record.Finished():
		v.Outcome, v.Because = "failed", "before"
	case t.record.Delayed.After(c.now):
		v.Next = decisions.At(t.record.Delayed)
	case t.interrupted:
		v.Outcome, v.Because = decisions.Interrupted, "the operator stops, or does not lead any more"
	case t.skipped:
		v.Because = "the lifecycle has picked nobody"
	default:
		v.Because = "it is not its turn"
	}
	put(d, v)
}

// changed are the paths of what has changed.
func (c *cycle) changed() []string {
	d, err := c.subject.Diff(&registry.Handler{})
	if err != nil {
		return nil
	}
	paths := make([]string, 0, len(d))
	for _, item := range d {
		paths = append(paths, item.Path.String())
	}
	return paths
}

// waiting are the handlers that wait for their next attempt.
func (c *cycle) waiting() (waiting []decisions.Verdict) {
	for t := range c.all() {
		if !t.record.Finished() && t.record.Retries > 0 {
			waiting = append(waiting, decisions.Verdict{
				Handler: t.handler.ID, Outcome: decisions.Pending, Attempt: t.record.Retries, Next: decisions.At(t.record.Delayed),
			})
		}
	}
	return waiting
}

// textOf is what is shown of an error where anybody may see it. What handlers say is their
// business, but the API server and decoders quote values of objects.
func (k *kind) textOf(err error) string {
	if err == nil {
		return ""
	}
	if k.sensitive {
		return "not shown, for the resource has sensitive fields; see the log"
	}
	text := err.Error()
	for _, part := range parts(err) {
		switch part := part.(type) {
		case *registry.DecodeError:
			text = strings.ReplaceAll(text, part.Error(), fmt.Sprintf("object does not decode into %s", part.Type))
		case apierrors.APIStatus:
			text = strings.ReplaceAll(text, part.(error).Error(), statusText(part))
		}
	}
	return text
}

// parts are an error and all that it wraps.
func parts(err error) []error {
	all := []error{err}
	switch wrapping := err.(type) {
	case interface{ Unwrap() error }:
		if inner := wrapping.Unwrap(); inner != nil {
			all = append(all, parts(inner)...)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range wrapping.Unwrap() {
			all = append(all, parts(inner)...)
		}
	}
	return all
}

// statusText is an answer of the API server without the values in it.
func statusText(err apierrors.APIStatus) string {
	s := err.Status()
	text := string(s.Reason)
	if text == "" {
		text = fmt.Sprint("code ", s.Code)
	}
	if s.Details == nil {
		return text
	}
	if s.Details.Name != "" {
		text += fmt.Sprintf(" (%s %s)", s.Details.Kind, s.Details.Name)
	}
	var fields []string
	for _, c := range s.Details.Causes {
		if c.Field != "" {
			fields = append(fields, c.Field)
		}
	}
	if len(fields) > 0 {
		text += ": " + strings.Join(fields, ", ")
	}
	return text
}

// meterOf measures the calls of a handler. Those of sub-handlers count as their outermost
// parent's.
func (k *kind) meterOf(h *registry.Handler) *metrics.Handler {
	for h.Parent != nil {
		h = h.Parent
	}
	return k.meters[h]
}
