package recording

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// reasonLogging is that of all events that were log records (KEV-3).
const reasonLogging = "Logging"

// Logger returns a logger whose records become events about an object, too, as far as the
// log's level lets them pass: this one's, with what it has said already about the object and
// the handler left out. If the settings do not ask for that, it is the same one.
func (r *Recorder) Logger(log *slog.Logger, about corev1.ObjectReference) *slog.Logger {
	if c := r.config.Load(); !c.Loggers || c.Disabled || isEvent(about) {
		return log
	}
	return slog.New(&speaker{Handler: log.Handler(), recorder: r, about: about})
}

// speaker is a handler of records that become events.
type speaker struct {
	slog.Handler
	recorder *Recorder
	about    corev1.ObjectReference
	with     []func(slog.Handler) slog.Handler // what was added since
}

// Handle posts a record after it is logged. It does not block.
func (s *speaker) Handle(ctx context.Context, record slog.Record) error {
	err := s.Handler.Handle(ctx, record)
	if s.recorder.Wants(record.Level) {
		_ = s.recorder.Post(Event{ // the only error is that the operator has stopped
			About: s.about, Type: TypeOf(record.Level), Reason: reasonLogging, Message: s.text(record), Level: record.Level,
		})
	}
	return err
}

// text is the message with the attributes, as in a log.
func (s *speaker) text(record slog.Record) string {
	const empty = `level=INFO msg=""`
	bare := slog.NewRecord(time.Time{}, slog.LevelInfo, "", 0)
	record.Attrs(func(a slog.Attr) bool {
		bare.AddAttrs(a)
		return true
	})
	var text strings.Builder
	var handler slog.Handler = slog.NewTextHandler(&text, nil)
	for _, add := range s.with {
		handler = add(handler)
	}
	_ = handler.Handle(context.Background(), bare) // a builder takes everything
	return record.Message + strings.TrimSuffix(strings.TrimPrefix(text.String(), empty), "\n")
}

// WithAttrs returns a handler that adds attributes.
func (s *speaker) WithAttrs(attrs []slog.Attr) slog.Handler {
	return s.adding(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

// WithGroup returns a handler that puts further attributes into a group.
func (s *speaker) WithGroup(name string) slog.Handler {
	return s.adding(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

func (s *speaker) adding(add func(slog.Handler) slog.Handler) *speaker {
	out := *s
	out.Handler, out.with = add(s.Handler), append(slices.Clip(s.with), add)
	return &out
}

// TypeOf is the type of an event that tells of something of a level.
func TypeOf(level slog.Level) string {
	if level >= slog.LevelWarn {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}
