package recording_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/kopf-go/kopf/internal/outcome"
	"github.com/kopf-go/kopf/internal/recording"
)

// KEV-9: the form is that of Kopf, with a name of ours so that it can be counted on.
func TestFormOfEvents_KEV9(t *testing.T) {
	running(t, recording.Config{Component: "example.com/op", Instance: "pod-7"}, func(w *world) {
		w.post("Ready", "it is")
		w.settle()
		events := w.server.Events()
		if len(events) != 1 {
			t.Fatalf("%d events", len(events))
		}
		e, now := events[0], time.Now()
		if !strings.HasPrefix(e.Name, "kopf-event-") || e.EventTime.IsZero() || now.Sub(e.EventTime.Time) > time.Second ||
			now.Sub(e.FirstTimestamp.Time) > 2*time.Second || !e.LastTimestamp.Equal(&e.FirstTimestamp) {
			t.Errorf("name %s, times %s, %s, %s", e.Name, e.EventTime, e.FirstTimestamp, e.LastTimestamp)
		}
		want := corev1.Event{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
			ObjectMeta: e.ObjectMeta, FirstTimestamp: e.FirstTimestamp, LastTimestamp: e.LastTimestamp, EventTime: e.EventTime,
			InvolvedObject: widget, Type: "Normal", Reason: "Ready", Message: "it is", Action: "Handling", Count: 1,
			ReportingController: "example.com/op", ReportingInstance: "pod-7", Source: corev1.EventSource{Component: "example.com/op"},
		}
		if !reflect.DeepEqual(e, want) {
			t.Errorf("\n got %+v\nwant %+v", e, want)
		}
	})
}

func TestDefaultIdentity(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	c := recording.New(recording.Config{}).Config()
	if c.Component != "kopf" || c.Instance != host {
		t.Errorf("component %q, instance %q", c.Component, c.Instance)
	}
}

// KEV-6: events go to the namespace of their object, else to default, which is all that the
// API server accepts.
func TestNamespacesOfEvents_KEV6(t *testing.T) {
	running(t, recording.Config{}, func(w *world) {
		for i, namespace := range []string{"team", ""} {
			object := widget
			object.Namespace = namespace
			w.about(object, fmt.Sprint("Reason", i), "text")
		}
		w.settle()
		events := w.server.Events()
		if len(events) != 2 || events[0].Namespace != "team" || events[1].Namespace != "default" || events[1].InvolvedObject.Namespace != "" {
			t.Errorf("got %+v", events)
		}
	})
}

// KEV-6, B45: there are no events about events, and that is no error.
func TestNoEventsAboutEvents_KEV6_B45(t *testing.T) {
	running(t, recording.Config{Loggers: true}, func(w *world) {
		for _, version := range []string{"v1", "events.k8s.io/v1", "events.k8s.io/v1beta1"} {
			event := corev1.ObjectReference{APIVersion: version, Kind: "Event", Namespace: "default", Name: "e"}
			w.about(event, "Reason", "text")
			w.Logger(slog.New(slog.DiscardHandler), event).Error("text")
		}
		w.about(corev1.ObjectReference{APIVersion: "calendar.example/v1", Kind: "Event", Name: "party"}, "Invited", "all")
		w.settle()
		w.expect("Invited all")
		if w.requests() != 1 {
			t.Errorf("%d requests", w.requests())
		}
	})
}

// KEV-7: what the API server would refuse is cut, in bytes, and no letter is split.
func TestLongTexts_KEV7(t *testing.T) {
	for name, c := range map[string]struct{ message, want string }{
		"short":        {"text", "text"},
		"empty":        {"", ""},
		"the longest":  {strings.Repeat("x", 1024), strings.Repeat("x", 1024)},
		"one too many": {strings.Repeat("x", 512) + "y" + strings.Repeat("z", 512), strings.Repeat("x", 511) + "..." + strings.Repeat("z", 510)},
		"two bytes":    {strings.Repeat("ä", 600), strings.Repeat("ä", 255) + "..." + strings.Repeat("ä", 255)},
		"three bytes":  {strings.Repeat("한", 400), strings.Repeat("한", 170) + "..." + strings.Repeat("한", 170)},
		"four bytes":   {"x" + strings.Repeat("🦊", 400), "x" + strings.Repeat("🦊", 127) + "..." + strings.Repeat("🦊", 127)},
		"no text":      {"a\xffb", "a\uFFFDb"},
		"no long text": {strings.Repeat("\xff.", 600), strings.Repeat("\uFFFD.", 127) + "\uFFFD..." + "." + strings.Repeat("\uFFFD.", 127)},
	} {
		t.Run(name, func(t *testing.T) {
			running(t, recording.Config{}, func(w *world) {
				w.post("R", "%s", c.message)
				w.settle()
				if got := w.server.Events()[0].Message; got != c.want || len(got) > 1024 || !utf8.ValidString(got) {
					t.Errorf("%d bytes: %s", len(got), got)
				}
			})
		})
	}
	running(t, recording.Config{}, func(w *world) {
		w.post(strings.Repeat("Ä", 100), "")
		w.settle()
		if got := w.server.Events()[0].Reason; got != strings.Repeat("Ä", 64) {
			t.Errorf("reason %s", got)
		}
	})
}

// What is put together is cut once more.
func TestLongTextsOfSimilarEvents_KEV7(t *testing.T) {
	running(t, recording.Config{}, func(w *world) {
		for i := range 11 {
			w.post("R", "%d%s", i, strings.Repeat("x", 1023))
		}
		w.settle()
		for _, e := range w.server.Events() {
			if len(e.Message) > 1024 {
				t.Errorf("%d bytes: %s", len(e.Message), e.Message)
			}
		}
	})
}

// KEV-2: the level holds back what is below, and nothing is posted if that is disabled.
func TestLevels_KEV2_T166(t *testing.T) {
	for name, c := range map[string]struct {
		config recording.Config
		want   []string
	}{
		"default":  {recording.Config{}, []string{"INFO", "WARN", "ERROR", "ALWAYS"}},
		"debug":    {recording.Config{Level: slog.LevelDebug}, []string{"DEBUG", "INFO", "WARN", "ERROR", "ALWAYS"}},
		"warn":     {recording.Config{Level: slog.LevelWarn}, []string{"WARN", "ERROR", "ALWAYS"}},
		"error":    {recording.Config{Level: slog.LevelError}, []string{"ERROR", "ALWAYS"}},
		"higher":   {recording.Config{Level: slog.LevelError + 1}, []string{"ALWAYS"}},
		"disabled": {recording.Config{Disabled: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			running(t, c.config, func(w *world) {
				for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError, recording.Always} {
					reason := level.String()
					if level == recording.Always {
						reason = "ALWAYS"
					}
					if err := w.Post(recording.Event{About: widget, Type: "Normal", Reason: reason, Level: level}); err != nil {
						t.Error(err)
					}
				}
				w.settle()
				w.expect(c.want...)
			})
		})
	}
}

// KEV-1: mistakes are told at once.
func TestEventsThatAreNone_KEV1(t *testing.T) {
	running(t, recording.Config{}, func(w *world) {
		nameless, kindless := widget, widget
		nameless.Name, kindless.Kind = "", ""
		for want, e := range map[string]recording.Event{
			"no name":   {About: nameless, Type: "Normal", Reason: "R"},
			"no kind":   {About: kindless, Type: "Normal", Reason: "R"},
			"no reason": {About: widget, Type: "Normal"},
			"no type":   {About: widget, Reason: "R"},
		} {
			if err := w.Post(e); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v", want, err)
			}
		}
		w.settle()
		w.expect()
	})
}

// KEV-5: a context leads to its recorder, and one of no operator is an error.
func TestContexts_KEV5_T166(t *testing.T) {
	ctx := context.Background()
	if _, err := recording.From(ctx); err == nil || !strings.Contains(err.Error(), "of no operator") {
		t.Errorf("got %v", err)
	}
	r := recording.New(recording.Config{})
	inner, cancel := context.WithCancel(r.In(ctx))
	cancel()
	if found, err := recording.From(inner); found != r || err != nil {
		t.Errorf("got %v, %v", found, err)
	}
	muted, err := recording.From(recording.Mute(inner))
	if err != nil || muted == r || muted.Wants(recording.Always) {
		t.Errorf("got %v, %v", muted, err)
	}
	if err := muted.Post(recording.Event{}); err != nil {
		t.Error(err)
	}
}

func TestReferencesToObjects(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u", ResourceVersion: "3"}}
	want := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "n", Name: "p", UID: "u", ResourceVersion: "3"}
	r := recording.New(recording.Config{Scheme: clientscheme.Scheme})
	for _, o := range []runtime.Object{pod, &want} {
		if got, err := r.Reference(o); err != nil || got != want {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	for name, r := range map[string]*recording.Recorder{"none": recording.New(recording.Config{}), "empty": recording.New(recording.Config{Scheme: runtime.NewScheme()})} {
		if _, err := r.Reference(pod); err == nil || !strings.Contains(err.Error(), "no event can be about this *v1.Pod") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

type (
	quotaError          struct{}
	genericError[T any] struct{}
)

func (quotaError) Error() string       { return "quota" }
func (*genericError[T]) Error() string { return "generic" }

// KEV-1: an error has a reason, if any can be found.
func TestReasonsOfErrors_KEV1(t *testing.T) {
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p")
	for want, errs := range map[string][]error{
		"Error": {
			errors.New("x"), fmt.Errorf("x: %w", errors.New("y")), errors.Join(errors.New("x")),
			&outcome.PermanentError{Err: errors.New("x")}, &outcome.RetryError{Err: fmt.Errorf("x")},
		},
		"QuotaError":   {quotaError{}, &quotaError{}, fmt.Errorf("x: %w", &outcome.RetryError{Err: quotaError{}}), errors.Join(quotaError{}, errors.New("y"))},
		"GenericError": {&genericError[int]{}},
		"PathError":    {&fs.PathError{Err: os.ErrNotExist}},
		"NotFound":     {missing, fmt.Errorf("x: %w", missing)},
	} {
		for _, err := range errs {
			if got := recording.ReasonOf(err); got != want {
				t.Errorf("%T: got %s, want %s", err, got, want)
			}
		}
	}
}

// Settings that startup handlers change hold from then on, for whoever posts.
func TestOtherSettings(t *testing.T) {
	running(t, recording.Config{}, func(w *world) {
		w.post("Before", "text")
		w.Configure(recording.Config{Level: slog.LevelWarn, Component: "other"})
		w.post("Held", "back")
		if err := w.Post(recording.Event{About: widget, Type: "Normal", Reason: "After", Level: recording.Always}); err != nil {
			t.Error(err)
		}
		w.settle()
		w.expect("Before text", "After")
		if e := w.server.Events()[1]; e.ReportingController != "other" || e.Source.Component != "other" {
			t.Errorf("got %+v", e)
		}
	})
}
