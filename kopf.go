// Package kopf makes Kubernetes operators out of small typed functions, one per
// cause: an object was created, a field of it has changed, it is being deleted.
// The library finds the cause, hands over the old and the new state and the
// difference between them in the Go type of the resource, keeps what it needs to
// know on the object itself, and writes as little as possible.
//
//	on.Update(func(ctx context.Context, c *kopf.Change[*appsv1.Deployment]) error {
//		c.Log.Info("scaled", "from", *c.Old.Spec.Replicas, "to", *c.New.Spec.Replicas)
//		return nil
//	}, on.Field("spec.replicas"), on.ID("scaled"))
//
//	kopf.Main(kopf.Options{})
//
// Handlers are registered with package on. The model, and the state on the objects,
// are those of Python's Kopf, so that an operator can move over in place.
package kopf

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/activities"
	"github.com/kopf-go/kopf/daemons"
	"github.com/kopf-go/kopf/indexing"
	"github.com/kopf-go/kopf/internal/engine"
	"github.com/kopf-go/kopf/internal/outcome"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/typed"
)

// What handlers receive; see package typed.
type (
	// Object is what handlers can be written for: any client.Object.
	Object = typed.Object
	// Change is what handlers for created, updated, deleted and resumed objects get.
	Change[T Object] = typed.Change[T]
	// FieldChange is what handlers for one field get.
	FieldChange[T Object, V any] = typed.FieldChange[T, V]
	// Event is what handlers for every event get.
	Event[T Object] = typed.Event[T]
	// Outcome is what a sub-handler has come to; see on.Execute.
	Outcome = typed.Outcome
	// Admission is what validating and mutating handlers get.
	Admission[T Object] = typed.Admission[T]
	// Daemon is what daemons get.
	Daemon[T Object] = typed.Daemon[T]
	// Tick is what timers get.
	Tick[T Object] = typed.Tick[T]
	// Memo remembers something for each object, in memory; see NewMemo.
	Memo[S any] = typed.Memo[S]
	// Memoized is what there can be memos of: what handlers and filters get.
	Memoized = typed.Memoized
	// Index is what on.Index returns: entries of many objects, by key; see package indexing.
	Index[K comparable, V any] = indexing.Index[K, V]
	// Snapshot is what filters and index functions get.
	Snapshot[T Object] = typed.Snapshot[T]
	// Patch collects changes of the object.
	Patch[T Object] = typed.Patch[T]
	// PatchOperation is an operation of a JSON patch, for Patch.JSON.
	PatchOperation = typed.PatchOperation
	// Resource is a custom resource made of a spec and a status.
	Resource[Spec, Status any] = typed.Resource[Spec, Status]
	// Reason says why a change handler is called.
	Reason = typed.Reason
	// EventType says what a watch told of an object.
	EventType = typed.EventType
	// Activity is what handlers of on.Startup and on.Cleanup get; see package activities.
	Activity = activities.Activity
	// Login is what handlers of on.Login get.
	Login = activities.Login
	// Credentials are what handlers of on.Login return.
	Credentials = activities.Credentials
	// Probe is what handlers of on.Probe get.
	Probe = activities.Probe
	// Registry collects registrations, for operators that do not use the default one.
	Registry = registry.Registry
	// Settings tune an operator; see package settings.
	Settings = settings.Settings
)

// The reasons of changes.
const (
	ReasonCreate = typed.ReasonCreate
	ReasonUpdate = typed.ReasonUpdate
	ReasonDelete = typed.ReasonDelete
	ReasonResume = typed.ReasonResume
	ReasonIndex  = typed.ReasonIndex // see on.Uses
)

// The types of events.
const (
	EventListed   = typed.EventListed
	EventAdded    = typed.EventAdded
	EventModified = typed.EventModified
	EventDeleted  = typed.EventDeleted
)

// NewPatch makes a patch of an object as a handler gets it, for tests of the handler;
// see [typed.NewPatch].
func NewPatch[T Object](object T) *Patch[T] { return typed.NewPatch(object) }

// NewDaemon makes the argument of a daemon, for tests of the daemon: show gives it another
// version of the object, stop tells it to stop; see [typed.NewDaemonFor].
func NewDaemon[T Object](object T) (d *Daemon[T], show func(T), stop func()) {
	return typed.NewDaemonFor(object)
}

// NewMemo makes a Memo, which remembers an S for each object, made by init when it is
// first asked for; see [typed.NewMemo].
func NewMemo[S any](init func() S) *Memo[S] { return typed.NewMemo(init) }

// Why the context of a daemon or timer ends, beside ErrExiting: context.Cause(ctx) returns
// one of them, which the function may return as its error.
var (
	// ErrMismatch says that the object does not match the filters any more. The daemon runs
	// again once it does.
	ErrMismatch = daemons.ErrMismatch
	// ErrDeleted says that the deletion of the object was requested, or that it is gone.
	ErrDeleted = daemons.ErrDeleted
	// ErrPaused says that the operator pauses, because another one has taken over. The daemon
	// runs again when it goes on.
	ErrPaused = daemons.ErrPaused
)

// ErrExiting is the cause of the end of a handler's context when the operator stops:
// context.Cause(ctx) returns it. The handler should return soon; it is called again
// by the next operator, with the same retry number.
var ErrExiting = engine.ErrExiting

// ActivityError says that handlers of an activity have failed for good, and what has become of
// all of them; for errors.As.
type ActivityError = activities.Error

// LoginError says that there are no credentials that the API server takes; for errors.As.
type LoginError = activities.LoginError

// NewRegistry returns an empty registry, to be filled with on.In and given to New
// with Options.Registry: for several operators in one process, and for tests.
func NewRegistry() *Registry { return new(Registry) }

// RetryError is what Retry returns, for errors.As: After is the time until the next
// attempt, Err the error.
type RetryError = outcome.RetryError

// PermanentError is what Permanent returns, for errors.As: Err is the error.
type PermanentError = outcome.PermanentError

// Retry returns an error that asks for another attempt of the handler after a
// time, which survives restarts. on.Retries and on.Timeout still limit the attempts.
func Retry(after time.Duration, err error) error {
	if err == nil {
		err = errors.New("not ready yet")
	}
	return &outcome.RetryError{After: after, Err: err}
}

// Permanent returns an error that ends the handler's attempts: the change counts as
// handled, and only a further change brings the handler back.
func Permanent(err error) error {
	if err == nil {
		err = errors.New("failed for good")
	}
	return &outcome.PermanentError{Err: err}
}

// RejectError is what Reject returns, also for errors.As.
type RejectError = outcome.RejectError

// Reject returns an error of a validating or mutating handler that denies the request, with
// a code as of HTTP, such as 422 (invalid) or 403 (forbidden), and a text for the client,
// formatted as by fmt.Errorf. Field says which fields are wrong:
//
//	return kopf.Reject(422, "database is not valid").Field("spec.engine", "is required")
//
// A code that is none of an error, such as 0, is 500 (ADM-11). Of several errors, those of
// Reject come first: the first one's code and text lead (ADM-10). To other handlers it is an
// error like any.
func Reject(code int, format string, args ...any) *RejectError {
	return outcome.Reject(code, format, args...)
}

// Options say what an operator is. The zero value is an operator with Kopf's default
// identity, for the handlers of the default registry, everywhere in the cluster.
type Options struct {
	// Name keeps the operator's state on objects apart from that of others: with it,
	// annotations begin with NAME.kopf.zalando.org and the finalizer is
	// NAME.kopf.zalando.org/finalizer. Without it they are Kopf's own, which is what
	// continues the work of a Python operator. It must not change while there are
	// objects: to an operator of another name they are new.
	Name string
	// Registry holds the handlers. Default: the one that package on fills.
	Registry *Registry
	// Namespaces say where objects are handled, by name. Each is a name or a pattern with *, ?
	// and [...] as in shells, or a list of them with commas, in which those that begin with !
	// exclude, such as "team-*,!team-secret": the last one of a list that fits a namespace
	// decides, and if the first one excludes, all others are included. Of several, one is
	// enough (NS-2, NS-3). Default: the whole cluster.
	Namespaces []string
	// NamespaceSelector says where objects are handled, by the labels of namespaces, such as
	// "team=a,stage in (test, prod),!frozen", as for kubectl -l. With Namespaces, both have to
	// match. When a namespace begins to match, its objects are dealt with as at the start; when
	// it does not any more, they are released; see docs/scope.md. The operator has to be
	// permitted to list and watch namespaces. Default: all labels match.
	NamespaceSelector string
	// Config is the connection. Default: the kubeconfig or in-cluster configuration
	// that controller-runtime finds, or what handlers of on.Login say.
	Config *rest.Config
	// Scheme knows the Go types that handlers name no resource for. Default: client-go's,
	// with all kinds that Kubernetes has itself.
	Scheme *runtime.Scheme
	// Logger gets what the operator says. Default: slog.Default().
	Logger *slog.Logger
	// Settings tune the operator. Handlers of on.Startup may change them.
	Settings Settings
	// OnStarted is called in each run when all startup handlers have succeeded, before anything
	// else (EMB-4). It must not block. Operator.Ready tells when there is more. Default: nobody is told.
	OnStarted func()
}

// withDefaults fills in what is nil.
func (o Options) withDefaults() Options {
	if o.Registry == nil {
		o.Registry = registry.Default
	}
	if o.Scheme == nil {
		o.Scheme = clientscheme.Scheme
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Operator runs handlers. Make it with New.
type Operator struct {
	setup      // of Options; each run may have another one
	name       string
	given      *rest.Config // nil: none
	activities []*registry.Handler
	registry   *Registry
	scheme     *runtime.Scheme
	onStarted  func()
	exit       func(after time.Duration) // ends the process, of which Main is the whole; nil: it is not
	running    atomic.Pointer[session]   // nil: it does not run
}

// New makes an operator from what is registered so far. It reports all mistakes in
// the registrations together, each with its file and line, and connects to nothing
// yet, so that it needs no cluster.
func New(o Options) (*Operator, error) {
	o = o.withDefaults()
	namespaces, namespaceErr := scope(o)
	all, handlerErr := resolved(o.Registry, o.Scheme)
	op := &Operator{name: o.Name, given: o.Config, registry: o.Registry, scheme: o.Scheme, onStarted: o.OnStarted}
	base := engine.Config{Namespaces: namespaces, Log: o.Logger}
	for _, h := range all {
		if h.Activity() {
			op.activities = append(op.activities, h)
		} else {
			base.Handlers = append(base.Handlers, h)
		}
	}
	var settingsErr error
	op.setup, settingsErr = setUp(o.Settings, o.Name, base)
	if err := errors.Join(namespaceErr, o.Registry.Err(), handlerErr, settingsErr); err != nil {
		return nil, err
	}
	return op, nil
}

// scope is where objects are handled.
func scope(o Options) (engine.Namespaces, error) {
	named, nameErr := engine.ParseNamespaces(o.Namespaces)
	both, selectorErr := named.Select(o.NamespaceSelector)
	return both, errors.Join(nameErr, selectorErr)
}

// Ready tells whether the operator runs, its indices are complete, and its webhooks, if it
// has any, can be answered: whether they have a certificate that has not ended. It is a
// healthz.Checker of controller-runtime, and does not use the request. It is safe for
// concurrent use, and costs some microseconds.
func (o *Operator) Ready(*http.Request) error {
	s := o.running.Load()
	if s == nil {
		return errors.New("operator does not run")
	}
	run := s.engine.Load()
	if run == nil {
		return errors.New("operator is starting, or has no credentials yet")
	}
	if !run.IsReady() {
		return errors.New("resources are not known, or indices not complete, yet")
	}
	return s.certified()
}

// resolved returns the handlers with a selector each, from the scheme where they
// name none, and with the indices that they use.
func resolved(r *Registry, scheme *runtime.Scheme) (handlers []*registry.Handler, err error) {
	var mistakes []error
	for _, h := range r.Handlers() {
		h := *h // the registry may serve other operators
		// A type that is no pointer is a mistake of the registration, and said there.
		if h.Selector.Empty() && h.Type.Kind() == reflect.Pointer && !h.Activity() {
			if h.Selector, err = schemeSelector(&h, scheme); err != nil {
				mistakes = append(mistakes, h.Mistake(err))
			}
		}
		for _, other := range handlers {
			if h.Keeps() && other.Kind == h.Kind && other.Selector == h.Selector && other.ID != h.ID && state.SameNames(other.ID, h.ID) {
				mistakes = append(mistakes, h.Mistake(fmt.Errorf("its progress would be kept under the same name "+
					"as that of %s at %s: name one of them otherwise with on.ID", other.ID, other.Source)))
			}
		}
		handlers = append(handlers, &h)
	}
	mistakes = append(mistakes, r.Connect(handlers))
	return handlers, errors.Join(mistakes...)
}
