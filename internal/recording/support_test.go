package recording_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/internal/recording"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/internal/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var widget = corev1.ObjectReference{
	APIVersion: "demo.example/v1", Kind: "Widget", Namespace: "default", Name: "w1", UID: "u1", ResourceVersion: "7",
}

// world is a server and a recorder, in virtual time.
type world struct {
	*testing.T
	*recording.Recorder
	server *simulated.Server
	client rest.Interface
	log    *book
	stop   func() // and wait until it has
}

// scenario runs a test in a bubble, with a recorder that does not run yet.
func scenario(t *testing.T, config recording.Config, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := simulated.New()
		client, err := stream.NewClient(&rest.Config{Host: "http://simulated.invalid", Transport: server}, nil)
		if err != nil {
			t.Fatal(err)
		}
		w := &world{T: t, server: server, log: &book{}, stop: func() {}}
		if w.client, err = client.REST(corev1.SchemeGroupVersion); err != nil {
			t.Fatal(err)
		}
		config.Log = slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: withoutTime}))
		w.Recorder = recording.New(config)
		time.Sleep(time.Hour) // zero times would hide mistakes
		test(w)
		w.stop()
		if t.Failed() {
			t.Log(w.log)
		}
	})
}

// running is a scenario with a recorder that runs.
func running(t *testing.T, config recording.Config, test func(w *world)) {
	t.Helper()
	scenario(t, config, func(w *world) {
		w.run()
		test(w)
	})
}

func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Recorder.Run(ctx, w.client)
	}()
	w.stop = func() {
		cancel()
		<-done
	}
}

// settle lets everything come to rest that needs no time.
func (w *world) settle() { w.sleep(10 * time.Millisecond) }

func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// post posts a Normal event about the widget.
func (w *world) post(reason, format string, args ...any) {
	w.Helper()
	w.about(widget, reason, format, args...)
}

func (w *world) about(object corev1.ObjectReference, reason, format string, args ...any) {
	w.Helper()
	if err := w.Post(recording.Event{About: object, Type: "Normal", Reason: reason, Message: fmt.Sprintf(format, args...)}); err != nil {
		w.Error(err)
	}
}

// expect compares the events that there are, in the form "reason message x2".
func (w *world) expect(want ...string) {
	w.Helper()
	var got []string
	for _, e := range w.server.Events() {
		text := strings.TrimSpace(e.Reason + " " + e.Message)
		if e.Count != 1 {
			text += fmt.Sprintf(" x%d", e.Count)
		}
		got = append(got, text)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		w.Errorf("events:\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// requests counts those about events.
func (w *world) requests() int { return w.server.Count(simulated.On{Resource: "events"}) }

// book is a log.
type book struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// count is how many lines of a level there are.
func (b *book) count(level slog.Level) int { return strings.Count(b.String(), "level="+level.String()) }

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
