package kopf

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kopf-go/kopf/internal/engine"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/storage"
	"github.com/kopf-go/kopf/webhook"
)

// engineSettings are settings in the form of the engine, which knows no groups.
func engineSettings(s settings.Settings) engine.Settings {
	return engine.Settings{
		DefaultBackoff:     s.Execution.DefaultBackoff,
		Lifecycle:          engineLifecycle(s.Execution.Lifecycle),
		CheckpointInterval: s.Execution.CheckpointInterval,
		MaxCycles:          s.Queueing.WorkerLimit,
		ErrorDelays:        s.Queueing.ErrorDelays,
		ExitTimeout:        s.Queueing.ExitTimeout,
		ConsistencyTimeout: s.Persistence.ConsistencyTimeout,
		LoopLimit:          s.Queueing.LoopLimit,
		LoopWindow:         s.Queueing.LoopWindow,
		RequestTimeout:     s.Networking.RequestTimeout,
		InactivityTimeout:  s.Watching.InactivityTimeout,
		DiscoveryInterval:  s.Scanning.Interval,
		DiscoverOnce:       s.Scanning.Disabled,
		StateInBody:        inBody(s.Persistence),
	}
}

// inBody tells whether a storage that was chosen reads more of objects than their
// metadata. The default one does too, but only for what operators with other settings
// left there.
func inBody(s settings.Persistence) bool {
	var paths [][]string
	if s.ProgressStorage != nil {
		paths = append(paths, s.ProgressStorage.Own().Paths...)
	}
	if s.DiffBaseStorage != nil {
		paths = append(paths, s.DiffBaseStorage.Own().Paths...)
	}
	return slices.ContainsFunc(paths, func(path []string) bool { return len(path) > 0 && path[0] != "metadata" })
}

// stateConfig says what the operator of this name keeps on objects. It reports mistakes in
// the settings.
func stateConfig(s settings.Persistence, name string, log *slog.Logger) (state.Config, error) {
	naming, err := state.For(name)
	if err != nil {
		return state.Config{}, err
	}
	c := state.Config{
		Progress: s.ProgressStorage, LastHandled: s.DiffBaseStorage, DigestKey: s.DigestKey, RecordLimit: max(0, s.RecordLimit), // a negative one is reported elsewhere
	}
	if c.Progress == nil {
		c.Progress = storage.Smart(naming.Prefix, storage.AnnotationsOptions{}, storage.StatusOptions{})
	}
	if c.LastHandled == nil {
		c.LastHandled = storage.AnnotationsLastHandled(naming.Prefix, storage.LastHandledOptions{})
	}
	prefixes := append(c.Progress.Own().Prefixes, c.LastHandled.Own().Prefixes...)
	for _, prefix := range prefixes {
		if len(prefix) > longPrefix {
			log.Warn("annotation prefix is very long: annotations of some handlers may be refused", "prefix", prefix)
		}
	}
	if name == "" && len(prefixes) > 0 && prefixes[0] != "" { // or two operators that differ in their storages would share it (SET-5)
		naming.Prefix = prefixes[0]
	}
	if c.Naming, err = state.Custom(naming.Prefix, cmp.Or(s.Finalizer, naming.Finalizer)); err != nil {
		return state.Config{}, err
	}
	_, err = state.NewStore(c)
	return c, err
}

// longPrefix is what Kopf takes for too long (SET-4).
const longPrefix = 189

// cleanupTimeout and exitTimeout are the limits of the process; 0: there is none.
func cleanupTimeout(s settings.Settings) time.Duration {
	return max(0, s.WithDefaults().Process.CleanupTimeout)
}

func exitTimeout(s settings.Settings) time.Duration {
	return max(0, s.WithDefaults().Process.ExitTimeout)
}

// engineLifecycle is a lifecycle in the engine's form.
func engineLifecycle(l settings.Lifecycle) func([]registry.Due) []string {
	if l == nil {
		return nil
	}
	return func(candidates []registry.Due) []string {
		due := make([]settings.Due, len(candidates))
		for i, c := range candidates {
			due[i] = settings.Due{ID: c.ID, Reason: Reason(c.Reason), Retry: c.Retry, Started: c.Started}
		}
		picked := l(due)
		ids := make([]string, len(picked))
		for i, p := range picked {
			ids[i] = p.ID
		}
		return ids
	}
}

// completeAdmission fills in what was left open. It reports what is missing.
func completeAdmission(s settings.Settings, handlers []*registry.Handler) (settings.Admission, error) {
	a := s.WithDefaults().Admission
	a.Namespace = cmp.Or(a.Namespace, podNamespace())
	if a.Certificates == nil {
		a.Certificates = &webhook.OwnCertificates{}
	}
	first := slices.IndexFunc(handlers, func(h *registry.Handler) bool { return h.Kind == registry.Validate || h.Kind == registry.Mutate })
	if first >= 0 && a.Endpoint == nil {
		return a, handlers[first].Mistake(errors.New("nobody knows how the API server reaches it: " +
			"set Settings.Admission.Endpoint to a webhook.Service, or, during development, to a webhook.URL"))
	}
	return a, nil
}

// podNamespace is that of the pod that the process runs in; empty: in none.
func podNamespace() string {
	raw, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}
