// Package activities holds what the handlers of an operator's own activities receive: when it
// starts, when it stops, when it needs credentials, and when somebody asks how it is. Users
// name these types through package kopf, such as kopf.Activity.
package activities

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/typed"
)

// Activity is the argument of handlers of on.Startup and on.Cleanup, and a part of those of
// on.Login and on.Probe. It belongs to one call. Memos of it are the operator's own
// (MEM-4).
type Activity struct {
	// Settings are those of the operator. What startup handlers change in them is what the
	// operator runs with, until it stops; when it runs again, it begins with Options.Settings.
	// Slices, maps and pointers in them are shared with Options: replace them. Other handlers
	// have a copy of their own.
	Settings *settings.Settings
	// Retry counts the attempts before this one, from 0. It does not survive restarts.
	Retry int
	// Started is when the first attempt began.
	Started time.Time
	// Param is the value given with on.Param.
	Param any
	// Log writes with the activity, the handler and the attempt named.
	Log *slog.Logger

	memoized
}

// memoized is embedded under this name so that it is not a field of users'.
type memoized = typed.Operating

// Runtime is how long ago the first attempt began.
func (a *Activity) Runtime() time.Duration { return time.Since(a.Started) }

// Login is the argument of handlers of on.Login.
type Login struct {
	Activity

	standard func() (any, error)
}

// Default returns the credentials that the operator would have without login handlers:
// Options.Config, or what controller-runtime finds: --kubeconfig, $KUBECONFIG, the service
// account of the pod, ~/.kube/config. They are the caller's own, and read anew each time. It
// is for handlers that change something in them, and for those that only want them at another
// priority.
func (l *Login) Default() (*Credentials, error) {
	if l.standard == nil { // made by hand, for a test
		found, err := config.GetConfig()
		if err != nil {
			return nil, err
		}
		return &Credentials{Config: found}, nil
	}
	found, err := l.standard()
	if err != nil {
		return nil, err
	}
	return found.(*Credentials), nil
}

// Credentials are what a login handler returns: who to be, and where.
type Credentials struct {
	// Config is the connection: the address of an API server of the operator's cluster, and
	// whatever client-go can authenticate with. It must not be changed afterwards. Required.
	Config *rest.Config
	// Priority says which credentials are used if there are several: those with the highest,
	// and of those any (AUTH-4).
	Priority int
	// Expiration is from when on they are not used any more (AUTH-5). Default: they are until
	// the API server refuses them.
	Expiration time.Time
}

// Probe is the argument of handlers of on.Probe.
type Probe struct{ Activity }

// Error is how an activity fails: at least one of its handlers did for good. It has what
// has become of all of them (ACT-2). errors.Is and errors.As look into the handlers' errors.
type Error struct {
	// Activity is startup, cleanup, login or probe.
	Activity string
	// Outcomes are those of the handlers, in order of registration.
	Outcomes []Outcome
}

// Outcome is what a handler has come to.
type Outcome struct {
	// ID is the handler's id.
	ID string
	// Attempts is how many there were.
	Attempts int
	// Result is what it has returned; nil: nothing.
	Result any
	// Err is why it has failed; nil: it has succeeded.
	Err error
}

func (e *Error) Error() string {
	var failed []string
	for _, o := range e.Outcomes {
		if o.Err != nil {
			failed = append(failed, fmt.Sprintf("handler %s: %v", o.ID, o.Err))
		}
	}
	return e.Activity + " failed: " + strings.Join(failed, "; ")
}

// Unwrap returns the errors of the handlers that have failed.
func (e *Error) Unwrap() (errs []error) {
	for _, o := range e.Outcomes {
		if o.Err != nil {
			errs = append(errs, o.Err)
		}
	}
	return errs
}

// LoginError says that there are no credentials that the API server takes, or none at all.
// It ends the operator (AUTH-1).
type LoginError struct{ Err error }

func (e *LoginError) Error() string { return "no credentials for the API server: " + e.Err.Error() }

// Unwrap returns why.
func (e *LoginError) Unwrap() error { return e.Err }

// NewActivity makes the argument of a handler of an activity from the erased call.
func NewActivity(call *registry.Call) Activity {
	return Activity{
		Settings: call.Activity.Settings.(*settings.Settings), Retry: call.Retry, Started: call.Started,
		Param: call.Param, Log: call.Log, memoized: typed.NewOperating(call.Memos),
	}
}

// NewLogin makes the argument of a login handler from the erased call.
func NewLogin(call *registry.Call) *Login {
	return &Login{Activity: NewActivity(call), standard: call.Activity.Default}
}

// errNoConfig is a mistake of a login handler.
var errNoConfig = errors.New("the credentials have no Config")

// Check finds what is wrong with credentials.
func (c *Credentials) Check() error {
	if c.Config == nil {
		return errNoConfig
	}
	if _, _, err := rest.DefaultServerUrlFor(c.Config); err != nil {
		return fmt.Errorf("the credentials' Config is wrong: %w", err)
	}
	return nil
}
