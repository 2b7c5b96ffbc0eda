package on_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/daemons"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/on"
)

// DMN-1, TMR-1: the options of daemons and timers.
func TestBackgroundOptions_DMN1_TMR1(t *testing.T) {
	for _, c := range []struct {
		name     string
		register func(in on.AnyOption)
		landed   func(h *registry.Handler) bool
	}{
		{"cancellation", func(in on.AnyOption) {
			on.Daemon(watch, on.CancellationBackoff(1), on.CancellationTimeout(2), on.CancellationPolling(3), in)
		}, func(h *registry.Handler) bool {
			return h.Cancellation == daemons.Cancellation{Backoff: 1, Timeout: 2, Polling: 3} && !h.Finalize
		}},
		{"no pause before the context ends", func(in on.AnyOption) { on.Daemon(watch, on.CancellationBackoff(0), in) },
			func(h *registry.Handler) bool { return h.Cancellation.Backoff == 0 }},
		{"finalize", func(in on.AnyOption) { on.Daemon(watch, on.Finalize(), in) },
			func(h *registry.Handler) bool { return h.Finalize }},
		{"filters and attempts of a daemon", func(in on.AnyOption) {
			on.Daemon(watch, on.Field("spec.replicas"), on.Value(3), on.Label("a", "b"), on.Annotation("c", "d"), on.When(always),
				on.Retries(1), on.Timeout(2), on.Backoff(3), on.Errors(on.Permanent), on.Param(4), in)
		}, func(h *registry.Handler) bool {
			return h.ID == "watch/spec.replicas" && h.Value != nil && len(h.Labels) == 1 && len(h.Annotations) == 1 && h.When != nil &&
				h.Retries == 1 && h.Timeout == 2 && h.Backoff == 3 && h.Errors == registry.ErrorsPermanent && h.Param == 4
		}},
		{"interval", func(in on.AnyOption) { on.Timer(tick, on.Interval(time.Minute), in) },
			func(h *registry.Handler) bool { return h.Schedule == daemons.Schedule{Interval: time.Minute} }},
		{"sharp before the interval", func(in on.AnyOption) { on.Timer(tick, on.Sharp(), on.Interval(time.Minute), on.Idle(time.Second), in) },
			func(h *registry.Handler) bool {
				return h.Schedule == daemons.Schedule{Interval: time.Minute, Sharp: true, Idle: time.Second}
			}},
		{"cron with idle", func(in on.AnyOption) { on.Timer(tick, on.Cron("30 3 * * *"), on.Idle(time.Second), in) },
			func(h *registry.Handler) bool {
				at := h.Schedule.Cron.Next(time.Date(2026, 1, 1, 4, 0, 0, 0, time.Local))
				return at.Equal(time.Date(2026, 1, 2, 3, 30, 0, 0, time.Local)) && h.Schedule.Idle == time.Second
			}},
		{"jitter", func(in on.AnyOption) { on.Timer(tick, on.Jitter(time.Second), in) },
			func(h *registry.Handler) bool { return h.Jitter == time.Second }},
		{"no jitter", func(in on.AnyOption) { on.Timer(tick, on.Jitter(0), in) },
			func(h *registry.Handler) bool { return h.Jitter == 0 }},
		{"selector and attempts of a timer", func(in on.AnyOption) {
			on.Timer(tick, on.Kind("Deployment"), on.FieldOf(ofSpec), on.Retries(1), on.ID("x"), in)
		}, func(h *registry.Handler) bool {
			return h.Selector.By == registry.ByKind && h.ID == "x/spec" && h.Retries == 1
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := only(t, c.register)
			if !c.landed(h) {
				t.Errorf("got %+v", h)
			}
			if h.Keeps() || !h.Background() {
				t.Error("it keeps something on objects, or does not work in the background")
			}
		})
	}
}

// DMN-4, TMR-4: how long the first run is put off, for each object.
func TestInitialDelays_DMN4_TMR4(t *testing.T) {
	perReplica := on.InitialDelayFunc(func(d *Dep) time.Duration { return time.Duration(*d.Spec.Replicas) * time.Second })
	for _, c := range []struct {
		option   on.BackgroundOption
		replicas string
		want     time.Duration
	}{
		{on.InitialDelay(time.Minute), "3", time.Minute},
		{on.InitialDelay(0), "3", 0},
		{perReplica, "3", 3 * time.Second},
		{perReplica, "-3", 0},
	} {
		call := &registry.Call{Body: parse(t, `{"spec":{"replicas":`+c.replicas+`}}`)}
		for _, h := range []*registry.Handler{
			only(t, func(in on.AnyOption) { on.Daemon(watch, c.option, in) }),
			only(t, func(in on.AnyOption) { on.Timer(tick, c.option, in) }),
		} {
			if got, err := h.Spawn(t.Context(), call); got != c.want || err != nil {
				t.Errorf("%s: got %s, %v, want %s", h.Name(), got, err, c.want)
			}
		}
	}
	h := only(t, func(in on.AnyOption) { on.Daemon(watch, perReplica, in) })
	var undecodable *registry.DecodeError
	if _, err := h.Spawn(t.Context(), &registry.Call{Body: parse(t, `{"spec":[]}`)}); !errors.As(err, &undecodable) {
		t.Errorf("an object that does not decode is %v", err)
	}
}

// Daemons and timers get their typed argument, and what they return comes back.
func TestInvokeInBackground(t *testing.T) {
	want := errors.New("mine")
	live := new(registry.Live)
	for name, register := range map[string]func(in on.AnyOption){
		"daemon": func(in on.AnyOption) {
			on.Daemon(func(_ context.Context, d *kopf.Daemon[*Dep]) error {
				if d.Object().Name == "x" && d.Param == 5 && d.Retry == 2 {
					return want
				}
				return nil
			}, in)
		},
		"timer": func(in on.AnyOption) {
			on.Timer(func(_ context.Context, k *kopf.Tick[*Dep]) error {
				if k.Object.Name == "x" && k.Param == 5 && k.Retry == 2 {
					return want
				}
				return nil
			}, in)
		},
	} {
		h := only(t, register)
		call := &registry.Call{
			Body: parse(t, `{"metadata":{"name":"x"}}`), Live: live, Param: 5, Retry: 2, Patch: new(registry.Edits),
		}
		live.Set(call.Body, true)
		if err := h.Invoke(t.Context(), call); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		call.Body = parse(t, `{"spec":{"replicas":"many"}}`)
		live.Set(call.Body, true)
		var undecodable *registry.DecodeError
		if err := h.Invoke(t.Context(), call); !errors.As(err, &undecodable) {
			t.Errorf("%s: an object that does not decode is %v", name, err)
		}
	}
}

func ofPod(*corev1.Pod) time.Duration        { return 0 }
func ofDep(*appsv1.Deployment) time.Duration { return 0 }

func TestMistakesInBackground(t *testing.T) {
	reg := kopf.NewRegistry()
	in := on.In(reg)
	checkMistakes(t, reg, []mistake{
		{"no daemon function", lines(), func() { on.Daemon[*Dep](nil, in) }, "daemon handler : it has no function"},
		{"no timer function", lines(), func() { on.Timer[*Dep](nil, in) }, "timer handler : it has no function"},
		{"no delay function", lines(), func() { on.Daemon(watch, on.ID("m1"), on.InitialDelayFunc[*Dep](nil), in) }, "on.InitialDelayFunc got no function"},
		{"delay of another type", lines(), func() { on.Timer(tick, on.ID("m2"), on.InitialDelayFunc(ofPod), in) },
			"timer handler m2: on.InitialDelayFunc is for *v1.Pod, the handler for *v1.Deployment"},
		{"negative delay", lines(), func() { on.Daemon(watch, on.ID("m3"), on.InitialDelay(-1), in) }, "on.InitialDelay(-1ns) is negative"},
		{"two delays", lines(), func() { on.Daemon(watch, on.ID("m4"), on.InitialDelay(1), on.InitialDelayFunc(ofDep), in) },
			"on.InitialDelayFunc does not go with on.InitialDelay"},
		{"two delays, the other way round", lines(), func() { on.Timer(tick, on.ID("m5"), on.InitialDelayFunc(ofDep), on.InitialDelay(1), in) },
			"on.InitialDelay does not go with on.InitialDelayFunc"},
		{"delay twice", lines(), func() { on.Daemon(watch, on.ID("m6"), on.InitialDelay(1), on.InitialDelay(1), in) }, "on.InitialDelay is given twice"},
		{"delay function twice", lines(), func() {
			on.Daemon(watch, on.ID("m7"), on.InitialDelayFunc(ofDep), on.InitialDelayFunc(ofDep), in)
		}, "on.InitialDelayFunc is given twice"},

		{"negative backoff", lines(), func() { on.Daemon(watch, on.ID("m10"), on.CancellationBackoff(-1), in) }, "on.CancellationBackoff(-1ns) is negative"},
		{"backoff twice", lines(), func() { on.Daemon(watch, on.ID("m11"), on.CancellationBackoff(1), on.CancellationBackoff(1), in) }, "on.CancellationBackoff is given twice"},
		{"no timeout", lines(), func() { on.Daemon(watch, on.ID("m12"), on.CancellationTimeout(0), in) }, "on.CancellationTimeout(0s) is not positive"},
		{"timeout twice", lines(), func() { on.Daemon(watch, on.ID("m13"), on.CancellationTimeout(1), on.CancellationTimeout(1), in) }, "on.CancellationTimeout is given twice"},
		{"negative polling", lines(), func() { on.Daemon(watch, on.ID("m14"), on.CancellationPolling(-1), in) }, "on.CancellationPolling(-1ns) is not positive"},
		{"polling twice", lines(), func() { on.Daemon(watch, on.ID("m15"), on.CancellationPolling(1), on.CancellationPolling(1), in) }, "on.CancellationPolling is given twice"},
		{"finalize twice", lines(), func() { on.Daemon(watch, on.ID("m16"), on.Finalize(), on.Finalize(), in) }, "on.Finalize is given twice"},

		{"no interval", lines(), func() { on.Timer(tick, on.ID("m20"), on.Interval(0), in) }, "on.Interval(0s) is not positive"},
		{"no interval, sharp", lines(), func() { on.Timer(tick, on.ID("m21"), on.Interval(-1), on.Sharp(), in) }, "on.Interval(-1ns) is not positive"},
		{"interval twice", lines(), func() { on.Timer(tick, on.ID("m22"), on.Interval(1), on.Interval(2), in) }, "on.Interval is given twice"},
		{"no idle time", lines(), func() { on.Timer(tick, on.ID("m23"), on.Idle(0), in) }, "on.Idle(0s) is not positive"},
		{"idle twice", lines(), func() { on.Timer(tick, on.ID("m24"), on.Idle(1), on.Idle(1), in) }, "on.Idle is given twice"},
		{"sharp without interval", lines(), func() { on.Timer(tick, on.ID("m25"), on.Sharp(), in) }, "on.Sharp needs on.Interval"},
		{"sharp twice", lines(), func() { on.Timer(tick, on.ID("m26"), on.Interval(1), on.Sharp(), on.Sharp(), in) }, "on.Sharp is given twice"},
		{"cron with interval", lines(), func() { on.Timer(tick, on.ID("m27"), on.Cron("@daily"), on.Interval(1), in) }, "on.Cron does not go with on.Interval"},
		{"cron with sharp", lines(), func() { on.Timer(tick, on.ID("m28"), on.Sharp(), on.Cron("@daily"), in) }, "on.Cron does not go with on.Sharp"},
		{"cron that is none", lines(), func() { on.Timer(tick, on.ID("m29"), on.Cron("61 * * * *"), in) }, `on.Cron: cron schedule "61 * * * *": `},
		{"cron that is empty", lines(), func() { on.Timer(tick, on.ID("m30"), on.Cron(""), in) }, `on.Cron: cron schedule "": `},
		{"cron twice", lines(), func() { on.Timer(tick, on.ID("m31"), on.Cron("@daily"), on.Cron("@hourly"), in) }, "on.Cron is given twice"},
		{"negative jitter", lines(), func() { on.Timer(tick, on.ID("m32"), on.Jitter(-1), in) }, "on.Jitter(-1ns) is negative"},
		{"jitter twice", lines(), func() { on.Timer(tick, on.ID("m33"), on.Jitter(1), on.Jitter(1), in) }, "on.Jitter is given twice"},

		{"unknown field", lines(), func() { on.Daemon(watch, on.ID("m40"), on.Field("spec.replica"), in) }, `no field "replica"`},
		{"value without field", lines(), func() { on.Timer(tick, on.ID("m41"), on.Value(1), in) }, "on.Value: it needs a field"},
		{"negative retries", lines(), func() { on.Timer(tick, on.ID("m42"), on.Retries(-1), in) }, "on.Retries(-1) is negative"},
		{"nil option", lines(), func() { on.Timer(tick, on.ID("m43"), nil, in) }, "an option is nil"},
	})
}

// The parser's error is wrapped, so that it says what is wrong with the text.
func TestCronErrorIsWrapped(t *testing.T) {
	reg := kopf.NewRegistry()
	on.Timer(tick, on.Cron("nonsense"), on.In(reg))
	_, want := daemons.ParseCron("nonsense")
	if err := reg.Err(); want == nil || err == nil || !strings.Contains(err.Error(), "on.Cron: "+want.Error()) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// Nothing is kept for daemons and timers, so that they share ids with others, but their
// results have one place.
func TestIDsInBackground_HID5(t *testing.T) {
	for _, c := range []struct {
		name      string
		register  func(in on.AnyOption)
		duplicate bool
	}{
		{"two daemons", func(in on.AnyOption) { on.Daemon(watch, in); on.Daemon(watch, in) }, true},
		{"two timers", func(in on.AnyOption) { on.Timer(tick, in); on.Timer(tick, in) }, true},
		{"daemon and timer", func(in on.AnyOption) { on.Daemon(watch, on.ID("x"), in); on.Timer(tick, on.ID("x"), in) }, false},
		{"daemon and change handlers", func(in on.AnyOption) {
			on.FieldChange("spec.replicas", replicas, on.ID("x"), in)
			on.Daemon(watch, on.Field("spec.replicas"), on.ID("x"), in)
			on.Resume(scaled, on.ID("x"), in)
			on.Timer(tick, on.ID("x"), in)
		}, false},
		{"users of an index", func(in on.AnyOption) {
			uses := on.Uses(on.Index(byReplicas, in))
			on.Create(scaled, on.ID("x"), uses, in)
			on.Update(func(context.Context, *kopf.Change[*Dep]) error { return nil }, on.ID("x"), uses, in)
		}, true},
		{"one function that uses an index", func(in on.AnyOption) {
			uses := on.Uses(on.Index(byReplicas, in))
			on.Create(scaled, on.ID("x"), uses, in)
			on.Update(scaled, on.ID("x"), uses, in)
			on.Delete(func(context.Context, *kopf.Change[*Dep]) error { return nil }, on.ID("x"), uses, in)
			on.Timer(tick, on.ID("x"), uses, in)
		}, false},
		{"index functions", func(in on.AnyOption) { on.Index(byReplicas, in); on.Index(byReplicas, in) }, false},
		{"index and create", func(in on.AnyOption) { on.Index(byReplicas, on.ID("x"), in); on.Create(scaled, on.ID("x"), in) }, false},
		{"index and field", func(in on.AnyOption) {
			on.Index(byReplicas, on.ID("x/spec.replicas"), in)
			on.FieldChange("spec.replicas", replicas, on.ID("x"), in)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			reg := kopf.NewRegistry()
			c.register(on.In(reg))
			mistakes := mistakesOf(reg)
			if c.duplicate != (len(mistakes) == 1 && strings.Contains(mistakes[0].Error(), "its id is taken by the registration at ")) ||
				!c.duplicate && len(mistakes) > 0 {
				t.Errorf("got %v", mistakes)
			}
		})
	}
}
