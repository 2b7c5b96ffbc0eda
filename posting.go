package kopf

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kopf-go/kopf/internal/recording"
	"github.com/kopf-go/kopf/owners"
)

// Post tells of an object by a Kubernetes event, which kubectl describe and kubectl events
// show. The type is corev1.EventTypeNormal or EventTypeWarning, as a rule; the API server takes
// others, too. The reason is a word in CamelCase, the message is for people; more than 128
// bytes of the one, and more than 1024 of the other are left out, in its middle (KEV-1, KEV-7).
//
//	kopf.Post(ctx, c.Object, corev1.EventTypeNormal, "Scaled", "from %d to %d", from, to)
//
// The object can be any, not only the handler's own: of a Go type, if it says its kind or
// Options.Scheme knows it, or unstructured; several as Objects, as a list, or by ObjectsOf;
// or a *corev1.ObjectReference. About events, there are none (KEV-6). An event is in the
// namespace of its object, or in default.
//
// It can be called from any handler, and from its goroutines, with its context, which is
// what leads to the operator. What startup and login handlers tell waits until there is a connection. It does not wait: events are posted in the background, one by
// one. See settings.Posting for how many of them are. What goes wrong then is in the log only;
// events that cannot be posted when the operator stops, within 3 seconds, are lost, and
// events are gone from Kubernetes after an hour. In a dry run of an admission handler nothing
// is posted. An error is a mistake of the caller's: a context that is of no operator, or of
// one that has stopped (KEV-5), an object without a name or kind, an empty type or reason.
func Post(ctx context.Context, object runtime.Object, eventType, reason, format string, args ...any) error {
	return tell(ctx, object, recording.Always, eventType, reason, func() string { return fmt.Sprintf(format, args...) })
}

// Info posts a Normal event, as Post does, if Settings.Posting.Level is not above
// slog.LevelInfo (KEV-2).
//
//	kopf.Info(ctx, c.Object, "Provisioned", "database %s is ready", name)
func Info(ctx context.Context, object runtime.Object, reason, format string, args ...any) error {
	return tell(ctx, object, slog.LevelInfo, corev1.EventTypeNormal, reason, func() string { return fmt.Sprintf(format, args...) })
}

// Warn posts a Warning event, as Post does, if Settings.Posting.Level is not above
// slog.LevelWarn (KEV-2).
func Warn(ctx context.Context, object runtime.Object, reason, format string, args ...any) error {
	return tell(ctx, object, slog.LevelWarn, corev1.EventTypeWarning, reason, func() string { return fmt.Sprintf(format, args...) })
}

// Exception posts a Warning event with the text of an error, as Post does. If the reason is empty,
// it is what the API server calls the error, such as NotFound, or the name of its Go type, or
// Error if that says nothing (KEV-1). Without an error nothing is posted.
func Exception(ctx context.Context, object runtime.Object, reason string, err error) error {
	if err == nil {
		return nil
	}
	if reason == "" {
		reason = recording.ReasonOf(err)
	}
	return tell(ctx, object, slog.LevelError, corev1.EventTypeWarning, reason, err.Error)
}

func tell(ctx context.Context, about runtime.Object, level slog.Level, eventType, reason string, message func() string) error {
	recorder, err := recording.From(ctx)
	if err != nil || !recorder.Wants(level) {
		return err
	}
	event := recording.Event{Type: eventType, Reason: reason, Message: message(), Level: level}
	one := func(object runtime.Object) (err error) {
		if event.About, err = recorder.Reference(object); err != nil {
			return err
		}
		return recorder.Post(event)
	}
	if reference, is := about.(*corev1.ObjectReference); is && reference != nil {
		return one(reference)
	}
	return owners.Each(about, func(object owners.Object) error { return one(object) })
}

// recorderConfig says what events are posted.
func (s *session) recorderConfig() recording.Config {
	p := s.settings.Posting
	return recording.Config{
		Disabled: p.Disabled, Level: p.Level, Loggers: p.Loggers, Failures: p.Failures,
		Component: p.Component, Instance: p.Instance, Scheme: s.operator.scheme, Log: s.config.Log,
	}
}

// post begins to post events, until stopPosting is called.
func (s *session) post(ctx context.Context) error {
	client, err := s.config.Client.REST(corev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var posting sync.WaitGroup
	posting.Go(func() { s.recorder.Run(running, client) })
	s.stopPosting = func() {
		cancel()
		posting.Wait()
	}
	return nil
}
