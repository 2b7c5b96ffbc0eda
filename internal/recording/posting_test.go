package recording_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kopf-go/kopf/internal/recording"
	"github.com/kopf-go/kopf/internal/simulated"
)

// KEV-4: what is alike is one event, what is similar is put together, and there is a limit for
// each object and type.
func TestFloods_KEV4(t *testing.T) {
	running(t, recording.Config{}, func(w *world) {
		w.post("Same", "text")
		w.sleep(time.Minute)
		for range 4 {
			w.post("Same", "text")
		}
		w.settle()
		w.expect("Same text x5")
		e := w.server.Events()[0]
		if e.LastTimestamp.Sub(e.FirstTimestamp.Time) != time.Minute {
			t.Errorf("from %s to %s", e.FirstTimestamp, e.LastTimestamp)
		}
	})
	running(t, recording.Config{Component: "c", Instance: "i"}, func(w *world) {
		var want []string
		for i := range 13 {
			w.post("Similar", "text %d", i)
			w.sleep(time.Second)
			if i < 9 {
				want = append(want, fmt.Sprintf("Similar text %d", i))
			}
		}
		w.expect(append(want, "Similar (combined from similar events): text 12 x4")...)
		events := w.server.Events()
		if e := events[len(events)-1]; e.ReportingController != "c" || e.ReportingInstance != "i" || e.Action == "" || e.EventTime.IsZero() || e.Source.Component != "c" {
			t.Errorf("got %+v", e)
		}
	})
	running(t, recording.Config{}, func(w *world) {
		other := widget
		other.Name, other.UID = "w2", "u2"
		for range 1000 {
			w.post("Flood", "text")
		}
		if err := w.Post(recording.Event{About: widget, Type: "Warning", Reason: "Other", Message: "type"}); err != nil {
			t.Error(err)
		}
		w.about(other, "Other", "object")
		w.settle()
		w.expect("Flood text x25", "Other type", "Other object")
		if w.requests() != 27 {
			t.Errorf("%d requests", w.requests())
		}
		w.sleep(6 * time.Minute)
		w.post("Flood", "text")
		w.post("Flood", "text")
		w.settle()
		w.expect("Flood text x1001", "Other type", "Other object")
	})
}

// KEV-4: events wait until they can be posted, also for the recorder itself.
func TestEventsBeforeTheRecorderRuns_KEV4(t *testing.T) {
	scenario(t, recording.Config{}, func(w *world) {
		w.post("First", "text")
		w.sleep(time.Hour)
		w.expect()
		w.run()
		w.settle()
		w.expect("First text")
	})
}

// KEV-8: what the API server refuses is told in the log, now and then, and forgotten.
func TestRefusedEvents_KEV8(t *testing.T) {
	for code, c := range map[int]struct {
		warnings int
		text     string
	}{
		403: {1, "needs the verbs create and patch for events"},
		422: {1, "event was refused"},
		500: {1, "event was refused"},
		404: {0, "of no use any more"}, // the namespace is gone
		409: {1, "event was refused"},
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			running(t, recording.Config{}, func(w *world) {
				remove := w.server.Before(simulated.On{Resource: "events"}, simulated.Always(simulated.Fail(code)))
				for i := range 5 {
					w.post(fmt.Sprint("R", i), "text")
				}
				w.sleep(time.Minute)
				if n := w.log.count(slog.LevelWarn); n != c.warnings || !strings.Contains(w.log.String(), c.text) || w.requests() != 5 {
					t.Errorf("%d warnings, %d requests", n, w.requests())
				}
				w.sleep(10 * time.Minute)
				w.post("Later", "text")
				w.settle()
				if n := w.log.count(slog.LevelWarn); n != 2*c.warnings {
					t.Errorf("%d warnings later", n)
				}
				remove()
				w.post("Good", "text")
				w.settle()
				w.expect("Good text")
				if w.log.count(slog.LevelError) > 0 {
					t.Error("errors")
				}
			})
		})
	}
}

// KEV-8: while the API server cannot be reached, events wait, in order, and it is left alone.
func TestEventsWhileNobodyAnswers_KEV8(t *testing.T) {
	for name, fault := range map[string]*simulated.Fault{
		"dropped": simulated.Drop(), "503": simulated.Fail(503), "429": simulated.Fail(429),
		"asked to wait": {Code: 429, RetryAfter: 20 * time.Second}, "hanging": {Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			running(t, recording.Config{}, func(w *world) {
				remove := w.server.Before(simulated.On{Resource: "events"}, simulated.Always(fault))
				for i := range 3 {
					w.post(fmt.Sprint("R", i), "text")
				}
				w.sleep(time.Minute)
				if n := w.requests(); n < 3 || n > 6 {
					t.Errorf("%d requests in a minute", n)
				}
				if w.log.count(slog.LevelWarn) != 1 {
					t.Error("not one warning")
				}
				remove()
				w.sleep(time.Minute)
				w.expect("R0 text", "R1 text", "R2 text")
			})
		})
	}
}

// KEV-8: an event is not insisted on for ever, nor are others kept for it.
func TestAnEventIsGivenUp_KEV8(t *testing.T) {
	running(t, recording.Config{}, func(w *world) {
		w.server.Before(simulated.On{Resource: "events", Times: 8}, simulated.Always(simulated.Drop()))
		w.post("Lost", "text")
		w.post("Kept", "text")
		w.sleep(5 * time.Minute)
		w.expect("Kept text")
	})
}

// An answer that was lost does not make another event.
func TestLostAnswers(t *testing.T) {
	running(t, recording.Config{}, func(w *world) {
		w.server.After(simulated.On{Resource: "events", Times: 1}, simulated.Always(simulated.Drop()))
		w.post("Once", "text")
		w.sleep(time.Minute)
		w.post("Once", "text")
		w.settle()
		w.expect("Once text x2")
	})
}

// An event that is gone, as after an hour, begins anew, with its count.
func TestEventsThatAreGone(t *testing.T) {
	running(t, recording.Config{}, func(w *world) {
		w.post("Same", "text")
		w.settle()
		e := w.server.Events()[0]
		if err := w.server.Collection("v1", "events").Delete(e.Namespace, e.Name); err != nil {
			t.Fatal(err)
		}
		w.post("Same", "text")
		w.settle()
		w.expect("Same text x2")
		w.post("Same", "text")
		w.settle()
		w.expect("Same text x3")
	})
}

// KEV-4: the queue has an end, so that memory has one.
func TestTooManyEvents_KEV4(t *testing.T) {
	scenario(t, recording.Config{}, func(w *world) {
		object := widget
		for i := range 1100 {
			object.Name = fmt.Sprint("w", i)
			w.about(object, "R", "text")
		}
		if n := w.log.count(slog.LevelWarn); n != 1 || !strings.Contains(w.log.String(), "too many events") {
			t.Errorf("%d warnings", n)
		}
		w.run()
		w.settle()
		if n := len(w.server.Events()); n != 1000 {
			t.Errorf("%d events", n)
		}
	})
}

// KEV-4, EXT-4 in Kopf: what waits at the end is posted, if that can be in three seconds.
func TestEventsAtTheEnd_KEV4(t *testing.T) {
	scenario(t, recording.Config{}, func(w *world) {
		object := widget
		for i := range 20 {
			object.Name = fmt.Sprint("w", i)
			w.about(object, "R", "text")
		}
		w.run()
		w.stop()
		if n := len(w.server.Events()); n != 20 {
			t.Errorf("%d events", n)
		}
		if err := w.Post(recording.Event{About: widget, Type: "Normal", Reason: "R"}); err == nil || !strings.Contains(err.Error(), "has stopped") {
			t.Errorf("after the end: got %v", err)
		}
	})
	for name, c := range map[string]struct {
		fault *simulated.Fault
		least time.Duration
		most  time.Duration
		lost  string
	}{
		"slow":        {simulated.Delay(time.Second), 3 * time.Second, 3 * time.Second, "lost=8"},
		"hanging":     {&simulated.Fault{Hang: true}, 3 * time.Second, 3 * time.Second, "lost=11"},
		"unreachable": {simulated.Drop(), 0, 0, "lost=11"},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, recording.Config{}, func(w *world) {
				w.server.Before(simulated.On{Resource: "events"}, simulated.Always(c.fault))
				w.run()
				w.settle()
				w.post("R", "text") // it is under way
				w.settle()
				object := widget
				for i := range 10 {
					object.Name = fmt.Sprint("x", i)
					w.about(object, "R", "text")
				}
				began := time.Now()
				w.stop()
				if took := time.Since(began).Round(10 * time.Millisecond); took < c.least || took > c.most {
					t.Errorf("it took %s", took)
				}
				if !strings.Contains(w.log.String(), c.lost) {
					t.Errorf("%s is not told", c.lost)
				}
			})
		})
	}
}

// Handlers post from many goroutines, also while it ends.
func TestConcurrentEvents_KEV5(t *testing.T) {
	running(t, recording.Config{Loggers: true}, func(w *world) {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				object := widget
				object.Name = fmt.Sprint("w", i)
				log := w.Logger(slog.New(slog.DiscardHandler), object)
				for range 5 {
					w.about(object, "Same", "text")
					log.Info("not enabled")
				}
			})
		}
		all.Wait()
		all.Go(func() {
			for range 100 {
				_ = w.Post(recording.Event{About: widget, Type: "Normal", Reason: "R"})
			}
		})
		w.stop()
		all.Wait()
		counts := map[string]int32{}
		for _, e := range w.server.Events() {
			counts[e.InvolvedObject.Name] += e.Count
		}
		for i := range 8 {
			if name := fmt.Sprint("w", i); name != "w1" && counts[name] != 5 {
				t.Errorf("%s: %d", name, counts[name])
			}
		}
	})
}

// KEV-3, LOG-5: records become events as far as the log's own level and that of events let
// them, with what is new in them.
func TestLogger_KEV3_LOG5_T166(t *testing.T) {
	running(t, recording.Config{}, func(w *world) {
		log := slog.New(slog.NewTextHandler(w.log, nil))
		if w.Logger(log, widget) != log {
			t.Error("it is wrapped by default")
		}
	})
	running(t, recording.Config{Loggers: true, Disabled: true}, func(w *world) {
		log := slog.New(slog.NewTextHandler(w.log, nil))
		if w.Logger(log, widget) != log {
			t.Error("it is wrapped though events are disabled")
		}
	})
	running(t, recording.Config{Loggers: true, Level: slog.LevelDebug}, func(w *world) {
		options := &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: withoutTime}
		log := w.Logger(slog.New(slog.NewTextHandler(w.log, options)).With("object", "w1"), widget)
		log.Debug("it is filtered out")
		log.Info("plain")
		log.With("size", 3).WithGroup("g").Warn("hm", "why", "no reason", "msg", "m")
		log.Error("worse")
		w.settle()
		w.expect("Logging plain", `Logging hm size=3 g.why="no reason" g.msg=m`, "Logging worse")
		for i, want := range []string{corev1.EventTypeNormal, corev1.EventTypeWarning, corev1.EventTypeWarning} {
			if e := w.server.Events()[i]; e.Type != want || e.InvolvedObject != widget {
				t.Errorf("event %d: %+v", i, e)
			}
		}
		if want := "level=INFO msg=plain object=w1\nlevel=WARN msg=hm object=w1 size=3 g.why=\"no reason\" g.msg=m\nlevel=ERROR msg=worse object=w1\n"; w.log.String() != want {
			t.Errorf("log:\n%s", w.log)
		}
	})
	running(t, recording.Config{Loggers: true, Level: slog.LevelWarn}, func(w *world) {
		log := w.Logger(slog.New(slog.NewTextHandler(w.log, nil)), widget)
		log.Info("below the level of events")
		log.Warn("on it")
		w.settle()
		w.expect("Logging on it")
	})
}
