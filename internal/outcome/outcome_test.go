package outcome

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

const defaultBackoff = time.Minute

// unlimited is a handler with the defaults of package on.
func unlimited() *registry.Handler {
	return &registry.Handler{Kind: registry.Create, ID: "h", Retries: -1, Backoff: -1}
}

func with(change func(h *registry.Handler)) *registry.Handler {
	h := unlimited()
	change(h)
	return h
}

// attempted is a record of attempts, the first of which began some time ago.
func attempted(retries int, ago time.Duration) state.Record {
	return state.Record{Retries: retries, Started: now.Add(-ago)}
}

// OUT-1, OUT-4, T092: whether an attempt is made at all.
func TestRefused_T092(t *testing.T) {
	limited := with(func(h *registry.Handler) { h.Retries, h.Timeout = 3, time.Hour })
	for _, c := range []struct {
		name   string
		h      *registry.Handler
		record state.Record
		want   string // the error; empty: not refused
	}{
		{"no limits", unlimited(), attempted(1000, 1000*time.Hour), ""},
		{"first attempt", limited, attempted(0, 0), ""},
		{"last attempt", limited, attempted(2, 0), ""},
		{"OUT-1 no attempts left", limited, attempted(3, 0), "did not succeed in 3 attempts"},
		{"more than that", limited, attempted(4, 0), "did not succeed in 3 attempts"},
		{"just in time", limited, attempted(0, time.Hour-1), ""},
		{"OUT-1 too late", limited, attempted(0, time.Hour), "did not succeed within 1h0m0s"},
		{"OUT-6 after a downtime", limited, attempted(1, 48*time.Hour), "did not succeed within 1h0m0s"},
		{"both", limited, attempted(3, time.Hour), "did not succeed within 1h0m0s"},
		{"OUT-4 never", with(func(h *registry.Handler) { h.Retries = 0 }), attempted(0, 0), "did not succeed in 0 attempts"},
	} {
		o, refused := Refused(c.h, c.record, now)
		if refused != (c.want != "") {
			t.Errorf("%s: refused is %t", c.name, refused)
			continue
		}
		var permanent *PermanentError
		if refused && (!o.Final || o.Err.Error() != c.want || !errors.As(o.Err, &permanent)) {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
}

// OUT-2, OUT-3, OUT-8, T089: what an attempt came to.
func TestOf_T089(t *testing.T) {
	plain := errors.New("plain")
	retry := func(after time.Duration) error { return &RetryError{After: after, Err: errors.New("later")} }
	permanent := &PermanentError{errors.New("never")}
	panicked := &PanicError{Value: "oops"}
	mode := func(m registry.ErrorMode) *registry.Handler {
		return with(func(h *registry.Handler) { h.Errors = m })
	}
	limited := with(func(h *registry.Handler) { h.Retries, h.Timeout, h.Backoff = 3, time.Hour, time.Second })
	for _, c := range []struct {
		name   string
		h      *registry.Handler
		record state.Record
		err    error
		final  bool
		delay  time.Duration
		text   string // of Err
		ignore bool
	}{
		{name: "success", h: unlimited(), final: true},
		{name: "success at the limits", h: limited, record: attempted(9, 9*time.Hour), final: true},

		{name: "OUT-3 a plain error is temporary", h: unlimited(), err: plain, delay: time.Minute, text: "plain"},
		{name: "temporary", h: mode(registry.ErrorsTemporary), err: plain, delay: time.Minute, text: "plain"},
		{name: "permanent mode", h: mode(registry.ErrorsPermanent), err: plain, final: true, text: "plain"},
		{name: "ignored mode", h: mode(registry.ErrorsIgnored), err: plain, final: true, ignore: true},
		{name: "own backoff", h: limited, err: plain, delay: time.Second, text: "plain"},
		{name: "OUT-8 no backoff", h: with(func(h *registry.Handler) { h.Backoff = 0 }), err: plain, text: "plain"},

		{name: "retry", h: unlimited(), err: retry(time.Hour), delay: time.Hour, text: "later"},
		{name: "retry at once", h: unlimited(), err: retry(0), text: "later"},
		{name: "retry in the past", h: unlimited(), err: retry(-time.Hour), text: "later"},
		{name: "retry in permanent mode", h: mode(registry.ErrorsPermanent), err: retry(time.Hour), delay: time.Hour, text: "later"},
		{name: "retry in ignored mode", h: mode(registry.ErrorsIgnored), err: retry(time.Hour), delay: time.Hour, text: "later"},
		{name: "retry wrapped deeply", h: unlimited(), delay: time.Hour, text: "b: a: later",
			err: fmt.Errorf("b: %w", fmt.Errorf("a: %w", retry(time.Hour)))},
		{name: "retry joined", h: unlimited(), err: errors.Join(plain, retry(time.Hour)), delay: time.Hour, text: "plain\nlater"},
		{name: "permanent", h: unlimited(), err: permanent, final: true, text: "never"},
		{name: "permanent in ignored mode", h: mode(registry.ErrorsIgnored), err: permanent, final: true, text: "never"},
		{name: "permanent wrapped", h: unlimited(), err: fmt.Errorf("a: %w", permanent), final: true, text: "a: never"},
		{name: "permanent prevails", h: unlimited(), err: errors.Join(retry(1), permanent), final: true, text: "later\nnever"},
		{name: "retry around permanent", h: unlimited(), err: &RetryError{After: 1, Err: permanent}, final: true, text: "never"},

		{name: "panic", h: unlimited(), err: panicked, delay: time.Minute, text: "panicked: oops"},
		{name: "panic in permanent mode", h: mode(registry.ErrorsPermanent), err: panicked, delay: time.Minute, text: "panicked: oops"},
		{name: "panic in ignored mode", h: mode(registry.ErrorsIgnored), err: panicked, delay: time.Minute, text: "panicked: oops"},
		{name: "panic with a permanent error", h: unlimited(), err: &PanicError{Value: permanent}, delay: time.Minute, text: "panicked: never"},
		{name: "panic at the last attempt", h: limited, record: attempted(2, 0), err: panicked, final: true,
			text: "did not succeed in 3 attempts: panicked: oops"},

		{name: "an attempt is left", h: limited, record: attempted(1, 0), err: plain, delay: time.Second, text: "plain"},
		{name: "OUT-2 none is left", h: limited, record: attempted(2, 0), err: plain, final: true,
			text: "did not succeed in 3 attempts: plain"},
		{name: "OUT-2 none is left for a retry", h: limited, record: attempted(2, 0), err: retry(0), final: true,
			text: "did not succeed in 3 attempts: later"},
		{name: "OUT-4 one attempt", h: with(func(h *registry.Handler) { h.Retries = 1 }), err: plain, final: true,
			text: "did not succeed in 1 attempts: plain"},
		{name: "the next one is in time", h: limited, record: attempted(0, time.Hour-time.Second-1), err: plain, delay: time.Second, text: "plain"},
		{name: "OUT-2 the next one would be too late", h: limited, record: attempted(0, time.Hour-time.Second), err: plain, final: true,
			text: "did not succeed within 1h0m0s: plain"},
		{name: "OUT-2 a retry would be too late", h: limited, record: attempted(0, time.Minute), err: retry(59 * time.Minute), final: true,
			text: "did not succeed within 1h0m0s: later"},
		{name: "ignored at the limits", h: with(func(h *registry.Handler) { h.Retries, h.Errors = 1, registry.ErrorsIgnored }),
			err: plain, final: true, ignore: true},
		{name: "timeout of the context", h: limited, record: attempted(0, time.Hour), err: context.DeadlineExceeded, final: true,
			text: "did not succeed within 1h0m0s: context deadline exceeded"},
	} {
		if c.record.Started.IsZero() {
			c.record.Started = now
		}
		o := Of(c.h, c.record, c.err, now, defaultBackoff)
		text := ""
		if o.Err != nil {
			text = o.Err.Error()
		}
		if o.Final != c.final || o.Delay != c.delay || text != c.text || (o.Ignored != nil) != c.ignore {
			t.Errorf("%s: %+v", c.name, o)
		}
		if c.err != nil && !errors.Is(errors.Join(o.Err, o.Ignored), c.err) {
			t.Errorf("%s: the error is lost in %v", c.name, o.Err)
		}
	}
}

// PRG-3, T073: the record after an attempt.
func TestRecord_PRG3_T073(t *testing.T) {
	first := now.Add(-time.Hour)
	before := state.Record{
		Started: first, Purpose: "update", Retries: 2, Delayed: now.Add(-time.Minute), Message: "earlier",
		Subrefs: []string{"h/a"}, Digest: "d",
	}
	for _, c := range []struct {
		name    string
		before  state.Record
		outcome Outcome
		want    state.Record
	}{
		{"success", before, Outcome{Final: true},
			state.Record{Started: first, Stopped: now, Retries: 3, Success: true}},
		{"ignored", before, Outcome{Final: true, Ignored: errors.New("x")},
			state.Record{Started: first, Stopped: now, Retries: 3, Success: true}},
		{"failure", before, Outcome{Final: true, Err: errors.New("x")},
			state.Record{Started: first, Stopped: now, Retries: 3, Failure: true, Message: "x"}},
		{"retry", before, Outcome{Err: errors.New("x"), Delay: time.Minute},
			state.Record{Started: first, Delayed: now.Add(time.Minute), Retries: 3, Message: "x"}},
		{"OUT-8 retry at once", before, Outcome{Err: errors.New("x")},
			state.Record{Started: first, Delayed: now, Retries: 3, Message: "x"}},
		{"stopped before", state.Record{Started: first, Stopped: first, Purpose: "update", Subrefs: []string{"h/a"}, Digest: "d"}, Outcome{Final: true},
			state.Record{Started: first, Stopped: first, Retries: 1, Success: true}},
	} {
		c.want.Purpose, c.want.Subrefs, c.want.Digest = "update", []string{"h/a"}, "d"
		if got := c.outcome.Record(c.before, now); !got.Equal(&c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

// T071, T072: a retried handler sleeps until its time, and is awake at it.
func TestRecordSleeps_T072(t *testing.T) {
	r := Of(unlimited(), attempted(0, 0), &RetryError{After: time.Minute, Err: errors.New("x")}, now, 0).Record(attempted(0, 0), now)
	for _, c := range []struct {
		at    time.Duration
		awake bool
	}{{0, false}, {time.Minute - 1, false}, {time.Minute, true}, {time.Hour, true}} {
		at := now.Add(c.at)
		if r.Awake(at) != c.awake || r.Sleeping(at) == c.awake || r.Finished() {
			t.Errorf("after %s: awake %t, sleeping %t", c.at, r.Awake(at), r.Sleeping(at))
		}
	}
	o, _ := Refused(with(func(h *registry.Handler) { h.Retries = 0 }), attempted(0, 0), now)
	if r := o.Record(attempted(0, 0), now); !r.Failure || !r.Finished() || r.Awake(now) || r.Sleeping(now) {
		t.Errorf("refused: %+v", r)
	}
}

func TestErrors(t *testing.T) {
	cause := errors.New("cause")
	for _, err := range []error{&RetryError{Err: cause}, &PermanentError{cause}} {
		if err.Error() != "cause" || !errors.Is(err, cause) {
			t.Errorf("%T: %v", err, err)
		}
	}
	panicked := &PanicError{Value: cause, Stack: []byte("stack")}
	if text := panicked.Error(); text != "panicked: cause" || strings.Contains(text, "stack") {
		t.Error(text)
	}
	if errors.Is(panicked, cause) {
		t.Error("a panic with an error passes for that error")
	}
}
