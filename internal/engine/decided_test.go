package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/decisions"
	"github.com/kopf-go/kopf/internal/engine"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/internal/stream"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/storage"
)

// observed is an operator that can be asked why.
type observed struct {
	*world
	*engine.Engine
	ring *decisions.Ring
	stop func()
}

// observe runs handlers, and remembers what is decided.
func (w *world) observe(register func(handlers)) *observed {
	w.Helper()
	r := kopf.NewRegistry()
	register(handlers{w, r})
	if err := r.Err(); err != nil {
		w.Fatal(err)
	}
	o := &operator{w: w, done: make(chan error, 1), link: &link{to: w.server}}
	o.link.dead, o.link.die = context.WithCancel(context.Background())
	connection := &rest.Config{Host: "http://simulated.invalid", Transport: o.link}
	httpClient := &http.Client{Transport: o.link}
	client, err := stream.NewClient(connection, httpClient)
	if err != nil {
		w.Fatal(err)
	}
	found, err := discovery.NewDiscoveryClientForConfigAndClient(connection, httpClient)
	if err != nil {
		w.Fatal(err)
	}
	naming, err := state.For("")
	if err != nil {
		w.Fatal(err)
	}
	ring := decisions.NewRing()
	e := engine.New(engine.Config{
		Client: client, Discovery: found, Handlers: r.Handlers(), Naming: naming, Decisions: ring, Log: slog.New(logbook{w: w, of: o}),
		State: state.Config{
			Naming: naming, Progress: storage.Smart(naming.Prefix, storage.AnnotationsOptions{}, storage.StatusOptions{}),
			LastHandled: storage.AnnotationsLastHandled(naming.Prefix, storage.LastHandledOptions{}),
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	go func() { o.done <- e.Run(ctx) }()
	w.operators = append(w.operators, o)
	w.settle()
	return &observed{world: w, Engine: e, ring: ring, stop: func() { _ = o.stop() }}
}

// why is what was decided for a widget, the last first, such as
// "update spec.size: a succeeded; b skipped (label x does not match) | object written".
func (o *observed) why(name string) (all []string) {
	o.Helper()
	for _, h := range o.ring.Histories(10, func(object decisions.Object) bool { return object.Name == name }) {
		for _, d := range h.Decisions {
			text := strings.TrimSpace(d.Reason+" "+strings.Join(d.Changed, " ")) + ":"
			for _, v := range d.Handlers {
				text += " " + v.Handler + " " + v.Outcome
				if v.Because != "" {
					text += " (" + v.Because + ")"
				}
				if v.Error != "" {
					text += " [" + v.Error + "]"
				}
				if v.Next != nil {
					text += " +" + v.Next.Sub(d.Time).Round(time.Second).String()
				}
			}
			for _, write := range d.Writes {
				text += " | " + write.Endpoint + " " + write.Outcome
			}
			for _, note := range d.Notes {
				text += " ! " + note
			}
			if d.Error != "" {
				text += " error " + d.Error
			}
			if d.Repeated > 0 {
				text += fmt.Sprintf(" x%d", d.Repeated+1)
			}
			all = append(all, text)
		}
	}
	return all
}

func (o *observed) decided(name string, want ...string) {
	o.Helper()
	if got := o.why(name); strings.Join(got, "\n") != strings.Join(want, "\n") {
		o.Errorf("decided for %s:\n%s\nwant:\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What was decided: causes, paths, handlers with their outcomes, the filter that has said no
// to others, what was written, and when there will be another attempt.
func TestDecisionsAreRemembered(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.observe(func(h handlers) {
			h.create("make", nil)
			h.update("flaky", failing(kopf.Retry(30*time.Second, errors.New("not yet"))))
			h.update("tiered", nil, on.Label("tier", "gold"))
			h.update("noted", nil, on.Annotation("note", "x"))
			h.update("coloured", nil, on.Field("spec.color"))
			h.update("grown", nil, on.Field("spec.size"), on.New(9))
			h.update("shrunk", nil, on.Field("spec.size"), on.Old(9))
			h.update("valued", nil, on.Field("spec.size"), on.Value(7))
			h.update("asked", nil, on.When(func(context.Context, *kopf.Snapshot[*widget]) bool { return false }))
			h.delete("free", nil)
		})
		w.create("w1", 1)
		w.settle()
		w.resize("w1", 2)
		w.settle()
		const skipped = "tiered skipped (label tier does not match) noted skipped (annotation note does not match) " +
			"coloured/spec.color skipped (value of spec.color does not match) grown/spec.size skipped (new value of spec.size does not match) " +
			"shrunk/spec.size skipped (old value of spec.size does not match) valued/spec.size skipped (value of spec.size does not match) asked skipped (the function of on.When says no)"
		o.decided("w1",
			"update spec.size: "+skipped+" flaky retried [not yet] +30s | object written",
			"create: make succeeded | object written", "prepare: | object written")
		s, ok := o.Standing(w.get("w1").GetUID())
		if !ok || s.State != "waiting" || s.Next == nil || time.Until(*s.Next).Round(time.Second) != 30*time.Second || len(s.Waiting) != 1 || s.Waiting[0].Handler != "flaky" {
			t.Errorf("%+v", s)
		}
		w.sleep(time.Minute)
		if got := o.why("w1")[0]; got != "update spec.size: "+skipped+" flaky succeeded | object written" {
			t.Error(got)
		}
		if found := o.Find("widget", ns, "w1", 5); len(found) != 1 || found[0].State != "unchanged since it was handled: nothing to do" {
			t.Errorf("%+v", found)
		}
		w.delete("w1")
		w.settle()
		if got := o.why("w1")[0]; got != "delete: free succeeded | object written" {
			t.Error(got)
		}
		if _, ok := o.Standing("nobody"); ok {
			t.Error("nobody is known")
		}
	})
}

// What asks for nothing is not remembered, but it is known why there was nothing to do.
func TestQuietEventsLeaveNoDecisions(t *testing.T) {
	scenario(t, func(w *world) {
		w.create("handled", 1)
		w.create("other", 1)
		w.start(func(h handlers) { h.create("make", nil, on.Label("tier", "gold")) }).stop()
		w.create("mine", 1, label("tier", "gold"))
		w.start(func(h handlers) { h.create("make", nil, on.Label("tier", "gold")) }).stop()
		o := w.observe(func(h handlers) { h.create("make", nil, on.Label("tier", "gold")) })
		for range 3 {
			w.touchStatus("mine", "x")
			w.resize("other", 5)
			w.settle()
		}
		o.decided("mine")
		o.decided("other")
		for name, want := range map[string]string{"mine": "unchanged since it was handled", "other": "no handler of changes is for it"} {
			if found := o.Find("", "", name, 5); len(found) != 1 || !strings.Contains(found[0].State, want) {
				t.Errorf("%s: %+v", name, found)
			}
		}
	})
}

// Nothing of what is remembered has values of objects in it: not those of the API server's
// answers, and of resources with sensitive fields not even what handlers say.
func TestDecisionsHaveNoValues(t *testing.T) {
	const secret = "s3cr3t"
	scenario(t, func(w *world) {
		w.allow("handling failed", "failed for good", "cannot be handled")
		w.server.Before(simulated.On{Verb: "patch", Times: 1}, func(simulated.Request) *simulated.Fault {
			return &simulated.Fault{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "spec.color: Invalid value: " + secret}
		})
		o := w.observe(func(h handlers) {
			h.create("make", nil)
			h.update("quotes", func(_ context.Context, c *change) error {
				return kopf.Permanent(errors.New("told me " + c.New.Spec.Color))
			},
				on.Field("spec.size"), on.Sensitive("spec.color"))
		})
		w.create("w1", 1, func(o widgetObj) { set(o, secret, "spec", "color") })
		w.sleep(time.Minute)
		w.resize("w1", 2)
		w.sleep(time.Minute)
		all := strings.Join(o.why("w1"), "\n")
		if !strings.Contains(all, "not shown, for the resource has sensitive fields") || !strings.Contains(all, "quotes/spec.size failed") {
			t.Error(all)
		}
		if strings.Contains(all, secret) {
			t.Error("the secret is in it:", all)
		}
	})
	scenario(t, func(w *world) {
		w.allow("handling failed", "cannot be handled", "failed for good")
		w.server.Before(simulated.On{Verb: "patch", Times: 1}, func(simulated.Request) *simulated.Fault {
			return &simulated.Fault{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "spec.color: Invalid value: " + secret}
		})
		o := w.observe(func(h handlers) { h.create("make", nil) })
		w.create("w1", 1, func(o widgetObj) { set(o, secret, "spec", "color") })
		w.create("odd", 1, func(o widgetObj) { set(o, secret, "spec", "size") })
		w.sleep(time.Minute)
		all := strings.Join(append(o.why("w1"), o.why("odd")...), "\n")
		if !strings.Contains(all, "object refused error Invalid") || !strings.Contains(all, "Undecodable: object does not decode into") {
			t.Error(all)
		}
		if strings.Contains(all, secret) {
			t.Error("the secret is in it:", all)
		}
	})
}

// Daemons and timers: when they begin, how they fail, why they stop. What a timer always
// does is no news.
func TestDecisionsOfBackground(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.observe(func(h handlers) {
			on.Daemon(func(ctx context.Context, d *kopf.Daemon[*widget]) error { <-ctx.Done(); return context.Cause(ctx) },
				forWidgets, on.In(h.r), on.ID("watch"), on.Label("tier", "gold"))
			n := 0
			on.Timer(func(context.Context, *kopf.Tick[*widget]) error {
				if n++; n == 3 {
					return errFlop
				}
				return nil
			}, forWidgets, on.In(h.r), on.ID("tick"), on.Interval(time.Minute), on.Backoff(time.Second))
		})
		w.create("w1", 1, label("tier", "gold"))
		w.settle()
		if found := o.Find("widgets", ns, "w1", 5); len(found) != 1 || strings.Join(found[0].Running, ",") != "daemon watch" {
			t.Errorf("%+v", found)
		}
		w.sleep(5 * time.Minute)
		w.update("w1", label("tier", "none"))
		w.settle()
		got := o.why("w1")
		want := []string{"daemon: watch stopped [" + kopf.ErrMismatch.Error() + "]", "timer: tick succeeded", "timer: tick retried [flop] +1s", "daemon: watch began"}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// The report has kinds, streams and handlers with counts, and says what waits.
func TestReport(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.observe(func(h handlers) {
			h.create("make", failing(kopf.Retry(time.Hour, nil)), on.Label("tier", "gold"))
			h.create("sub", func(_ context.Context, c *change) error {
				h.sub(c, "part", failing(kopf.Retry(time.Hour, nil)))
				return nil
			})
		})
		w.create("w1", 1, label("tier", "gold"))
		w.create("w2", 1)
		w.settle()
		r := o.Report()
		if len(r.Kinds) != 1 || !r.Ready || !r.Running || r.Waiting != 2 || r.Queued != 0 {
			t.Fatalf("%+v", r)
		}
		k := r.Kinds[0]
		if k.Name != "widgets.demo.example" || k.Kind != "Widget" || k.Objects != 2 || k.Busy != 2 || len(k.Streams) != 1 || !k.Streams[0].Listed {
			t.Errorf("%+v", k)
		}
		if h := k.Handlers[0]; h.ID != "make" || h.Waiting != 1 || h.Counts["retried"] != 1 || strings.Join(h.Filters, ",") != "label tier" {
			t.Errorf("%+v", h)
		}
		if h := k.Handlers[1]; h.Waiting != 2 && h.Waiting != 4 || h.Counts["waiting"] != 2 {
			t.Errorf("%+v", h)
		}
	})
}

// metric is a metric of widgets as it is served; -1: there is none.
func metric(t *testing.T, name, handler string) float64 {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if family.GetName() == name && labels["kind"] == "widgets.demo.example" && (handler == "" || labels["handler"] == handler || labels["outcome"] == handler) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
			}
		}
	}
	return -1
}

// Design §7: what metrics say while something is going on.
func TestMetricsOfWork(t *testing.T) {
	scenario(t, func(w *world) {
		release := make(chan struct{})
		o := w.observe(func(h handlers) {
			h.create("make", failing(kopf.Retry(10*time.Second, nil)))
			h.update("long", func(ctx context.Context, _ *change) error { <-release; return nil })
			h.delete("never", func(context.Context, *change) error { return kopf.Retry(time.Minute, errFlop) })
		})
		w.create("w1", 1)
		w.settle()
		is := func(name, handler string, want float64) {
			t.Helper()
			if got := metric(t, name, handler); got < want-.1 || got > want+.1 {
				t.Errorf("%s %s is %v, want %v", name, handler, got, want)
			}
		}
		is("kopf_objects", "", 1)
		is("kopf_handlers_waiting", "make", 1)
		is("kopf_object_writes_total", "written", 2)
		w.sleep(20 * time.Second)
		is("kopf_convergence_seconds", "", 10)
		is("kopf_handler_retries_total", "make", 1)
		is("kopf_handlers_waiting", "make", -1)
		w.resize("w1", 2)
		w.sleep(5 * time.Second)
		is("kopf_handlers_running", "long", 1)
		w.touchStatus("w1", "x")
		close(release)
		w.settle()
		is("kopf_handlers_running", "long", 0)
		is("kopf_handler_duration_seconds", "long", 5)
		is("kopf_convergence_seconds", "", 15)
		w.delete("w1")
		w.settle()
		is("kopf_deletions_stuck", "", 0)
		w.sleep(10 * time.Minute)
		is("kopf_deletions_stuck", "", 1)
		o.stop()
		is("kopf_objects", "", -1)
		is("kopf_handler_attempts_total", "", -1) // nobody follows the kind any more
	})
}

// B02: while nothing is heard of a connection, the age of the stream passes the limit, and
// what missed it is not ready; then the connection is replaced.
func TestStreamAge_B02(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.observe(func(h handlers) { h.create("make", nil); h.update("grow", nil) })
		if err := errors.Join(o.StreamsAlive(), o.Alive()); err != nil {
			t.Error(err)
		}
		w.create("w1", 1)
		w.settle()
		w.server.Mute()
		w.server.Before(simulated.On{Verb: "watch"}, simulated.Always(simulated.Delay(time.Minute)))
		w.resize("w1", 2)
		w.sleep(3*time.Minute + 35*time.Second)
		if got := metric(t, "kopf_stream_age_seconds", ""); got < 180 {
			t.Error("the age is", got)
		}
		if err := o.StreamsAlive(); err == nil || !strings.Contains(err.Error(), "nothing was heard of widgets.demo.example") {
			t.Error(err)
		}
		if err := o.Alive(); err != nil {
			t.Error("a restart would not help, but:", err)
		}
		w.sleep(5 * time.Minute)
		if err := o.StreamsAlive(); err != nil {
			t.Error(err)
		}
		w.expectAnyTime("make w1 #0 →1", "grow w1 #0 1→2")
	})
}
