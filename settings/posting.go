package settings

import (
	"errors"
	"fmt"
	"log/slog"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Posting says which Kubernetes events are posted about objects, and by whom: those that
// handlers ask for (kopf.Post and the others), and those of the operator itself, about objects
// that it cannot handle as it should. What is alike is one event with a count; what differs in
// its message only is put together from the tenth one within 10 minutes on; and of each type,
// an object has 25 at once, and then one in 5 minutes. The operator needs the verbs create
// and patch for events.
type Posting struct {
	// Disabled has none posted at all. Default: they are.
	Disabled bool
	// Level is the least one that is posted: that of kopf.Info is slog.LevelInfo, that of
	// kopf.Warn slog.LevelWarn, that of kopf.Exception slog.LevelError. Events of kopf.Post have
	// none, and are always posted (KEV-2). Default: slog.LevelInfo.
	Level slog.Level
	// Loggers makes records of handlers' Log events, too, if they are logged and of Level: of
	// change handlers, daemons and timers, never of others (KEV-3, LOG-5). What is logged can
	// be seen by everybody who can see events then. Default: it does not.
	Loggers bool
	// Failures has a Warning event posted on objects whose change handlers, daemons or timers
	// have failed, with the reason Retrying or Failed, and what they have returned. Default: it
	// is in the log only.
	Failures bool
	// Component is who says so in the events: a name of at most 63 letters, digits, '-', '_' and
	// '.', which may have a domain and a '/' before it. Default: kopf (SET-2).
	Component string
	// Instance tells replicas apart, in at most 128 bytes. Default: the name of the host, which
	// is that of the pod.
	Instance string
}

// instanceLimit is what the API server accepts.
const instanceLimit = 128

// Validate reports all mistakes.
func (p Posting) Validate() error {
	var mistakes []error
	if p.Component != "" {
		for _, problem := range validation.IsQualifiedName(p.Component) {
			mistakes = append(mistakes, fmt.Errorf("Settings.Posting: Component is %q: %s", p.Component, problem))
		}
	}
	if len(p.Instance) > instanceLimit {
		mistakes = append(mistakes, fmt.Errorf("Settings.Posting: Instance has %d bytes, more than %d", len(p.Instance), instanceLimit))
	}
	return errors.Join(mistakes...)
}
