package stream

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// withLogger has client-go log to us, and at debug level: what it calls errors and
// warnings are ordinary disturbances, and reported as failures.
func withLogger(ctx context.Context, log *slog.Logger) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(quiet{log.Handler()}))
}

type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelDebug && q.Handler.Enabled(ctx, slog.LevelDebug)
}

func (q quiet) Handle(ctx context.Context, record slog.Record) error {
	record.Level = slog.LevelDebug
	return q.Handler.Handle(ctx, record)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }
func (q quiet) WithGroup(name string) slog.Handler       { return quiet{q.Handler.WithGroup(name)} }

// clockUntil is the real clock, but nobody waits for it after ctx is done: the
// reflector does not look at its context while it waits to repeat a streamed list.
type clockUntil struct {
	clock.RealClock
	ctx context.Context
}

func (c clockUntil) After(d time.Duration) <-chan time.Time {
	over := make(chan time.Time, 1)
	go func() {
		sleep(c.ctx, d)
		over <- time.Now()
	}()
	return over
}
