package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// posted are the events that there are, as "w1 Normal Reason message x2".
func (w *world) posted() (texts []string) {
	for _, e := range w.server.Events() {
		text := fmt.Sprintf("%s %s %s %s", e.InvolvedObject.Name, e.Type, e.Reason, e.Message)
		if e.Count > 1 {
			text += fmt.Sprintf(" x%d", e.Count)
		}
		texts = append(texts, strings.TrimSpace(text))
	}
	return texts
}

// expectPosted compares them, in any order.
func (w *world) expectPosted(want ...string) {
	w.Helper()
	w.compare(w.posted(), want)
}

func (w *world) compare(got, want []string) {
	w.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.Errorf("events:\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// expectPostedOften compares them without their counts.
func (w *world) expectPostedOften(want ...string) {
	w.Helper()
	got := w.posted()
	for i, text := range got { // no message has an x
		got[i], _, _ = strings.Cut(text, " x")
	}
	w.compare(got, want)
}

// must fails the test for an error of a call in a handler.
func (w *world) must(err error) {
	if err != nil {
		w.note("error: " + err.Error())
	}
}

// speakers are handlers of all kinds that do something with their context, object and log.
func (h handlers) speakers(do func(ctx context.Context, id string, o *widget, log *slog.Logger)) {
	changed := func(id string) changeFn {
		return func(ctx context.Context, c *change) error {
			do(ctx, id, c.Object, c.Log)
			return nil
		}
	}
	sub := func(ctx context.Context, c *change) error {
		on.Subhandler(c, "sub", changed("sub"))
		do(ctx, "create", c.Object, c.Log)
		return nil
	}
	in := []on.AnyOption{on.In(h.r), forWidgets}
	on.Create(sub, in[0], in[1], on.ID("create"))
	on.Update(changed("update"), in[0], in[1], on.ID("update"))
	on.Resume(changed("resume"), in[0], in[1], on.ID("resume"))
	on.Delete(changed("delete"), in[0], in[1], on.ID("delete"))
	on.FieldChange("spec.size", func(ctx context.Context, c *kopf.FieldChange[*widget, int]) error {
		do(ctx, "field", c.Object, c.Log)
		return nil
	}, in[0], in[1], on.ID("field"))
	on.Event(func(ctx context.Context, e *kopf.Event[*widget]) error {
		if e.Type == kopf.EventDeleted {
			do(ctx, "event", e.Object, e.Log)
		}
		return nil
	}, in[0], in[1], on.ID("event"))
	on.Index(func(ctx context.Context, s *kopf.Snapshot[*widget]) (map[string]int, error) {
		if s.Object.Spec.Rev == 7 {
			do(ctx, "index", s.Object, s.Log)
		}
		return nil, nil
	}, in[0], in[1], on.ID("index"))
	on.Daemon(func(ctx context.Context, d *daemon) error {
		do(ctx, "daemon", d.Object(), d.Log)
		<-ctx.Done()
		do(ctx, "stopped", d.Object(), d.Log)
		return nil
	}, in[0], in[1], on.ID("daemon"))
	on.Timer(func(ctx context.Context, t *tick) error {
		do(ctx, "timer", t.Object, t.Log)
		return nil
	}, in[0], in[1], on.ID("timer"), on.Interval(24*time.Hour))
}

// live has all of them called.
func (w *world) live() {
	w.create("w1", 1, func(o widgetObj) { set(o, int64(7), "spec", "rev") })
	w.settle()
	w.resize("w1", 2)
	w.settle()
	w.delete("w1")
	w.settle()
	w.gone("w1")
}

// KEV-1, KEV-5: events are posted from handlers of every kind, and from their goroutines.
func TestEventsFromEveryHandler_KEV1_KEV5_T166(t *testing.T) {
	scenario(t, func(w *world) {
		w.create("w0", 1)
		old := w.start(handlers.all)
		_ = old.stop()
		w.start(func(h handlers) {
			h.speakers(func(ctx context.Context, id string, o *widget, _ *slog.Logger) {
				inner, cancel := context.WithCancel(ctx)
				defer cancel()
				done := make(chan struct{})
				go func() {
					defer close(done)
					w.must(kopf.Info(inner, o, "By-"+id, "told"))
				}()
				<-done
			})
		})
		w.mark()
		w.live()
		w.expect()
		want := []string{"w0 Normal By-resume told", "w0 Normal By-daemon told"}
		for _, id := range []string{"create", "sub", "field", "update", "delete", "event", "index", "daemon", "stopped", "timer"} {
			want = append(want, "w1 Normal By-"+id+" told")
		}
		w.expectPostedOften(want...)
		for _, e := range w.server.Events() {
			if o := e.InvolvedObject; o.APIVersion != "demo.example/v1" || o.Kind != "Widget" || o.UID == "" || o.Namespace != ns || e.Namespace != ns {
				t.Errorf("got %+v", e)
			}
		}
	})
}

// KEV-1: about any object, and several.
func TestEventsAboutAnyObject_KEV1(t *testing.T) {
	scenario(t, func(w *world) {
		meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
		pod := &corev1.Pod{ObjectMeta: meta("pod")}
		w.start(func(h handlers) {
			h.create("create", func(ctx context.Context, c *change) error {
				w.must(kopf.Post(ctx, pod, "Custom", "A", "%d", 1))
				w.must(kopf.Info(ctx, simulated.Object(ns, "bare", map[string]any{"apiVersion": "x.example/v1", "kind": "X"}), "B", "100%%"))
				w.must(kopf.Warn(ctx, kopf.Objects{c.Object, nil, pod, (*corev1.Pod)(nil)}, "C", "c"))
				w.must(kopf.Exception(ctx, &corev1.PodList{Items: []corev1.Pod{{ObjectMeta: meta("p1")}, {ObjectMeta: meta("p2")}}}, "", fmt.Errorf("d: %w", errFlop)))
				w.must(kopf.Exception(ctx, kopf.ObjectsOf(pod, pod), "E", errFlop))
				w.must(kopf.Exception(ctx, pod, "F", nil))
				w.must(kopf.Info(ctx, &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: ns, Name: "ref"}, "G", "g"))
				w.must(kopf.Info(ctx, &corev1.Event{ObjectMeta: meta("event")}, "KEV-6", "no"))
				w.must(kopf.Info(ctx, nil, "H", "h"))
				w.must(kopf.Info(ctx, &widget{ObjectMeta: meta("unknown")}, "I", "i"))
				w.must(kopf.Info(ctx, &corev1.Pod{}, "J", "j"))
				w.must(kopf.Info(ctx, pod, "", "k"))
				w.must(kopf.Info(ctx, &metav1.Status{}, "L", "l"))
				w.must(kopf.Info(context.Background(), pod, "M", "m"))
				return nil
			})
		})
		w.mark()
		w.create("w1", 1)
		w.settle()
		got := w.called()
		for i, want := range []string{"create w1", "error: Resource default/unknown: no event can be about this *typed.Resource", "error: Pod without a name: the object of the event has no name",
			"error: Pod default/pod: the event has no reason", "error: *v1.Status has no metadata", "error: events are posted with the context"} {
			if i >= len(got) || !strings.HasPrefix(got[i], want) {
				t.Errorf("call %d of %q is not %s", i, got, want)
			}
		}
		w.expectPosted("pod Custom A 1", "bare Normal B 100%", "w1 Warning C c", "pod Warning C c", "p1 Warning Error d: flop", "p2 Warning Error d: flop",
			"pod Warning E flop x2", "ref Normal G g")
	})
}

// KEV-2: levels hold back what is below, but not what has none; all are held back together.
func TestLevelsOfEvents_KEV2_T166(t *testing.T) {
	for name, c := range map[string]struct {
		posting func(*kopf.Settings)
		want    []string
	}{
		"default":  {func(*kopf.Settings) {}, []string{"w1 Normal Posted", "w1 Normal Info", "w1 Warning Warn", "w1 Warning Exception flop"}},
		"warn":     {func(s *kopf.Settings) { s.Posting.Level = slog.LevelWarn }, []string{"w1 Normal Posted", "w1 Warning Warn", "w1 Warning Exception flop"}},
		"above":    {func(s *kopf.Settings) { s.Posting.Level = slog.LevelError + 1 }, []string{"w1 Normal Posted"}},
		"disabled": {func(s *kopf.Settings) { s.Posting.Disabled = true }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				c.posting(&w.settings)
				w.start(func(h handlers) {
					h.create("create", func(ctx context.Context, c *change) error {
						w.must(kopf.Post(ctx, c.Object, corev1.EventTypeNormal, "Posted", ""))
						w.must(kopf.Info(ctx, c.Object, "Info", ""))
						w.must(kopf.Warn(ctx, c.Object, "Warn", ""))
						w.must(kopf.Exception(ctx, c.Object, "Exception", errFlop))
						return nil
					})
				})
				w.create("w1", 1)
				w.settle()
				w.expectPosted(c.want...)
				if n := len(w.called()); n != 1 {
					t.Error(w.called())
				}
			})
		})
	}
}

// KEV-3, LOG-5: records of change handlers, daemons and timers become events on request, those
// of event and index handlers and of the operator itself never.
func TestLoggersOfHandlers_KEV3_LOG5_T166(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		t.Run(fmt.Sprint(enabled), func(t *testing.T) {
			scenario(t, func(w *world) {
				w.settings.Posting.Loggers = enabled
				w.start(func(h handlers) {
					h.speakers(func(_ context.Context, id string, _ *widget, log *slog.Logger) {
						log.Debug("not posted")
						log.Info("hello", "from", id)
					})
				})
				w.live()
				if w.logged("INFO", "hello resource=widgets.demo.example object=default/w1 handler=index from=index") == 0 {
					t.Error("the index handler has not logged anything")
				}
				if !enabled {
					w.expectPosted()
					return
				}
				var want []string
				for _, id := range []string{"create", "sub", "field", "update", "delete", "daemon", "stopped", "timer"} {
					want = append(want, "w1 Normal Logging hello from="+id)
				}
				w.expectPostedOften(want...)
			})
		})
	}
}

// Failures of handlers are posted on request, those that are alike as one event.
func TestFailuresAsEvents(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		t.Run(fmt.Sprint(enabled), func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("failed for good", "panicked", "event handler failed")
				w.settings.Posting.Failures = enabled
				passing := kopf.Retry(time.Second, errFlop)
				w.start(func(h handlers) {
					h.create("create", failing(passing, passing, kopf.Permanent(errors.New("flop for good"))))
					h.create("ignored", failing(errFlop), on.Errors(on.Ignored))
					h.create("panics", func(context.Context, *change) error {
						defer func(n int) {
							if n == 0 {
								panic("oops")
							}
						}(len(w.errorLogs("oops")))
						return nil
					}, on.Backoff(time.Second))
					sub := failing(passing)
					h.create("parent", func(_ context.Context, c *change) error {
						on.Subhandler(c, "sub", sub)
						return nil
					})
					h.daemon("d", func(context.Context, *daemon) error { return kopf.Permanent(errors.New("daemon flop")) })
					h.timer("t", func(_ context.Context, t *tick) error { return errors.New("tick flop") }, on.Interval(time.Hour), on.Retries(2), on.Backoff(time.Second))
					on.Event(func(context.Context, *kopf.Event[*widget]) error { return errFlop }, on.ID("event"), on.In(h.r), forWidgets)
				})
				w.create("w1", 1)
				w.sleep(10 * time.Second)
				if !enabled {
					w.expectPosted()
					return
				}
				w.expectPosted("w1 Warning Retrying create handler create: flop x2", "w1 Warning Failed create handler create: flop for good",
					"w1 Warning Retrying create handler panics: panicked: oops", "w1 Warning Retrying create handler parent/sub: flop",
					"w1 Warning Failed daemon handler d: daemon flop", "w1 Warning Retrying timer handler t: tick flop", "w1 Warning Failed timer handler t: did not succeed in 2 attempts: tick flop")
			})
		})
	}
}

// KEV-6, B45: handlers of events that post, about the events and about others, end.
func TestHandlersOfEvents_KEV6_B45(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			h.create("create", func(ctx context.Context, c *change) error { return kopf.Info(ctx, c.Object, "Created", "it is there") })
			on.Event(func(ctx context.Context, e *kopf.Event[*corev1.Event]) error {
				w.must(kopf.Info(ctx, e.Object, "Seen", "an event"))
				w.must(kopf.Info(ctx, &e.Object.InvolvedObject, "Seen", "an event, once more: %d", e.Object.Count))
				return nil
			}, on.Resource("v1", "events"), on.ID("events"), on.In(h.r))
			on.Event(func(ctx context.Context, e *kopf.Event[widgetObj]) error {
				w.must(kopf.Info(ctx, e.Object, "Seen", "anything"))
				return nil
			}, on.Everything(), on.ID("everything"), on.In(h.r))
		})
		w.create("w1", 1)
		w.sleep(2 * time.Second)
		const limit = 25 // of each object
		objects := map[string]int{}
		for _, e := range w.server.Events() {
			objects[e.InvolvedObject.Name]++
		}
		requests := w.server.Count(simulated.On{Verb: "create", Resource: "events"}) + w.server.Count(simulated.On{Verb: "patch", Resource: "events"})
		if objects["w1"] < 2 || len(objects) > 4 || requests > limit*len(objects) {
			t.Errorf("%d requests, events: %v", requests, objects)
		}
		w.sleep(4 * time.Minute)
		now := w.server.Count(simulated.On{Verb: "create", Resource: "events"}) + w.server.Count(simulated.On{Verb: "patch", Resource: "events"})
		if now != requests {
			t.Errorf("%d requests more in quiet time", now-requests)
		}
		for _, e := range w.server.Events() {
			if e.InvolvedObject.Kind == "Event" {
				t.Errorf("an event about an event: %+v", e)
			}
		}
	})
}

// KEV-4, KEV-5: what handlers tell when they are stopped is posted, and what they tell when
// it is too late is an error.
func TestEventsAtTheEnd_KEV4_KEV5(t *testing.T) {
	scenario(t, func(w *world) {
		release := make(chan struct{})
		late := make(chan error, 1)
		o := w.start(func(h handlers) {
			h.daemon("d", func(ctx context.Context, d *daemon) error {
				<-ctx.Done()
				w.must(kopf.Info(ctx, d.Object(), "Leaving", "%v", context.Cause(ctx)))
				go func() {
					<-release
					late <- kopf.Info(ctx, d.Object(), "Late", "text")
				}()
				return nil
			})
		})
		w.create("w1", 1)
		w.settle()
		if err := o.stop(); err != nil {
			t.Error(err)
		}
		close(release)
		if err := <-late; err == nil || !strings.Contains(err.Error(), "has stopped") {
			t.Errorf("got %v", err)
		}
		w.expectPosted("w1 Normal Leaving " + kopf.ErrExiting.Error())
	})
}

// B25: why an object does not decode is not told where it would tell of a sensitive value.
func TestUndecodableSecrets_B25(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("cannot be handled until it is changed")
		w.start(func(h handlers) {
			on.Create(func(context.Context, *kopf.Change[*datedWidget]) error { return nil }, on.ID("c"), on.In(h.r), forWidgets, on.Sensitive("spec.until"))
		})
		w.create("w1", 1, func(o widgetObj) { set(o, canary, "spec", "until") })
		w.settle()
		w.nowhere()
		if events := w.posted(); len(events) != 1 || !strings.HasPrefix(events[0], "w1 Warning Undecodable object does not decode into ") {
			t.Errorf("got %q", events)
		}
	})
}

type datedWidget = kopf.Resource[struct {
	Until metav1.Time `json:"until"`
}, struct{}]
