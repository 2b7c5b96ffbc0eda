// Package recording posts Kubernetes events about objects. What is alike is one event with
// a count, what is similar is put together, and each object has so many and no more: how,
// is client-go's correlator's business (tools/record), so that it is as users of kubectl
// know it. The queue around it is ours, because client-go's cannot be emptied at the end,
// stands still for two minutes at each event that it cannot post, and logs all of them.
package recording

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
)

// Config says what is posted, and by whom. settings.Posting says what the settings
// among it mean; zero values stand for the defaults.
type Config struct {
	Disabled  bool
	Level     slog.Level
	Loggers   bool
	Failures  bool
	Component string
	Instance  string

	Scheme *runtime.Scheme // knows the kinds of objects that do not say theirs; nil: no kinds
	Log    *slog.Logger    // required
}

// withDefaults fills in what is open.
func (c Config) withDefaults() Config {
	c.Component = cmp.Or(c.Component, "kopf")
	host, _ := os.Hostname() // without one it is unknown
	c.Instance = cmp.Or(c.Instance, prefix(host, instanceLimit), "unknown")
	return c
}

// Always is the level of events that no level holds back.
const Always = slog.Level(math.MaxInt)

// queueLimit is how many events may wait to be posted. It is client-go's.
const queueLimit = 1000

// Recorder takes events, and posts them while Run runs. Those that it is given before wait.
// It is safe for concurrent use. Nothing of it survives a restart: what is alike is not
// recognised then, and is another event.
type Recorder struct {
	config atomic.Pointer[Config]
	log    *slog.Logger
	queue  chan posting

	mu         sync.Mutex // guards what follows, and the order of the queue
	correlator *record.EventCorrelator
	stopped    bool

	warnings warnings
}

// New makes a recorder.
func New(c Config) *Recorder {
	r := &Recorder{
		log: c.Log, queue: make(chan posting, queueLimit),
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{MessageFunc: combined}),
		warnings:   warnings{log: c.Log},
	}
	r.Configure(c)
	return r
}

// Configure has the recorder go by other settings from now on. The log stays the same.
func (r *Recorder) Configure(c Config) {
	c = c.withDefaults()
	r.config.Store(&c)
}

// Config is what the recorder goes by, with the defaults filled in.
func (r *Recorder) Config() Config { return *r.config.Load() }

// Event is something to tell about an object.
type Event struct {
	About   corev1.ObjectReference
	Type    string // corev1.EventTypeNormal or EventTypeWarning; others are posted as they are
	Reason  string
	Message string
	Level   slog.Level
}

var errStopped = errors.New("the operator has stopped: no event is posted any more")

// Wants tells whether events of a level are posted at all (KEV-2).
func (r *Recorder) Wants(level slog.Level) bool {
	c := r.config.Load()
	return !c.Disabled && level >= c.Level
}

// Post has an event posted as soon as can be. It does not block. Of what goes wrong later
// there is only a log; an error says that it will not even be tried. Events about events are
// passed over without one (KEV-6, B45).
func (r *Recorder) Post(e Event) error {
	if !r.Wants(e.Level) || isEvent(e.About) {
		return nil
	}
	event, err := r.compose(e)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return errStopped
	}
	result, err := r.correlator.EventCorrelate(event)
	if err != nil {
		return fmt.Errorf("event cannot be correlated: %w", err)
	}
	if result.Skip { // there were too many about the object
		return nil
	}
	r.complete(result.Event)
	select {
	case r.queue <- posting{result.Event, result.Patch}:
	default:
		r.warnings.say("there are too many events to be posted, some are dropped", "dropped")
	}
	return nil
}

// Reference returns what names an object in events. It is an error if it does not say its
// kind, and the scheme does not know it either, or if it has no name.
func (r *Recorder) Reference(object runtime.Object) (corev1.ObjectReference, error) {
	scheme := r.config.Load().Scheme
	if scheme == nil {
		scheme = runtime.NewScheme()
	}
	ref, err := reference.GetReference(scheme, object)
	if err != nil {
		return corev1.ObjectReference{}, fmt.Errorf("no event can be about this %T: %w", object, err)
	}
	return *ref, nil
}

// carried is what a context has of a recorder.
type carriedKey struct{}

var (
	errOutside = errors.New("events are posted with the context that a handler is called with, or one that is made from it: this one is of no operator")
	silent     = New(Config{Disabled: true})
)

// In returns a context by which handlers find the recorder.
func (r *Recorder) In(ctx context.Context) context.Context {
	return context.WithValue(ctx, carriedKey{}, r)
}

// Mute returns a context in which nothing is posted, without an error.
func Mute(ctx context.Context) context.Context { return silent.In(ctx) }

// From finds the recorder of a context. It is an error if there is none (KEV-5).
func From(ctx context.Context) (*Recorder, error) {
	if r, _ := ctx.Value(carriedKey{}).(*Recorder); r != nil {
		return r, nil
	}
	return nil, errOutside
}
