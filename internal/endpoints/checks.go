package endpoints

import (
	"log/slog"
	"net/http"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// Check is a part of being alive or ready. It must be quick.
type Check struct {
	Name string
	Ask  func() error
}

// checked answers as Kubernetes' own components do: at the path itself for all checks, below
// it for one, with ?verbose and ?exclude. What is wrong is said in the log, when it begins
// and when it ends: whoever asks may be anybody.
func checked(path string, log *slog.Logger, checks []Check) http.Handler {
	h := &healthz.Handler{Checks: map[string]healthz.Checker{"ping": healthz.Ping}}
	for _, c := range checks {
		said := &lastWord{log: log.With("endpoint", path, "check", c.Name)}
		h.Checks[c.Name] = func(*http.Request) error { return said.say(c.Ask()) }
	}
	return http.StripPrefix(path, h)
}

// lastWord logs what has changed.
type lastWord struct {
	log *slog.Logger

	mu     sync.Mutex
	failed bool
}

func (l *lastWord) say(err error) error {
	l.mu.Lock()
	was := l.failed
	l.failed = err != nil
	l.mu.Unlock()
	switch {
	case err != nil && !was:
		l.log.Warn("health check fails", "error", err)
	case err == nil && was:
		l.log.Info("health check succeeds again")
	}
	return err
}
