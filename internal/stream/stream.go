// Package stream follows all objects of one resource, in one namespace or in all,
// and hands out what happens to them as events.
//
// Listing, watching, what to do about expired versions, bookmarks and streamed
// lists is the business of client-go's Reflector. This package gives it a client
// that leaves objects undecoded, and a store that makes events and keeps no objects.
package stream

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/kopf-go/kopf/internal/body"
)

// Type is what has happened to an object, in Kopf's words.
type Type string

const (
	// Listed: the object was there when the stream started.
	Listed Type = ""
	// Added: the object has been created, or has begun to match the selector.
	Added Type = "ADDED"
	// Modified: the object has another version than the last time.
	Modified Type = "MODIFIED"
	// Deleted: the object is gone, or no longer matches the selector.
	Deleted Type = "DELETED"
)

// Event is one thing that happened to one object.
type Event struct {
	Type Type
	Body *body.Body
	// Missed says that the deletion was noticed only afterwards, because the object
	// was not in a later list, or another one has its name. Body is no more than
	// body.Identify then: no labels, no spec.
	Missed bool
}

// Options say what to follow. Client, GVR, GVK and OnEvent are required.
type Options struct {
	Client *Client
	GVR    schema.GroupVersionResource
	// GVK is what the objects are.
	GVK schema.GroupVersionKind
	// Namespace is empty for all namespaces and for cluster-scoped resources.
	Namespace string
	// LabelSelector leaves out objects on the server. One that stops to match can't
	// be told from one that was deleted.
	LabelSelector string
	// FieldSelector does so by fields; all resources know metadata.name.
	FieldSelector string

	// OnEvent is called for each event. It must be quick, for nothing is read from
	// the server meanwhile.
	OnEvent func(Event)
	// OnError is told what goes wrong, at each attempt. The stream goes on anyway.
	//
	// Neither OnEvent nor OnError is ever called while one of them runs, nor after
	// Run has returned.
	OnError func(Failure)

	// Silence is for how long nothing, not even a bookmark, may come before a
	// connection is taken for dead, and the watch is opened anew from the last seen
	// version. It limits each LIST request, too. The default is 3 minutes: the API
	// server sends a bookmark about once a minute, the first one after two.
	//
	// HTTP/2 pings (client-go: after 30 s, for 15 s) notice a dead peer earlier, but
	// only the next one: not what is behind a proxy or load balancer that answers
	// them; and there are none over HTTP/1.1.
	Silence time.Duration
	// Backoff is between failed attempts. The default is client-go's for
	// reflectors: 0.8 s, doubling up to 30 s, each up to twice as long by chance;
	// from the start again as soon as a watch gives a sign of life, or after two quiet
	// minutes. A version that is too old to go on from is no failure: everything is
	// listed anew after 0.1 s (WCH-3), unless that is all that happens.
	Backoff *wait.Backoff
	// Logger gets what happens, at debug level. The default is none.
	Logger *slog.Logger
}

const (
	defaultSilence = 3 * time.Minute
	quietTime      = 2 * time.Minute
	relistDelay    = 100 * time.Millisecond
)

func defaultBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Cap: 30 * time.Second, Steps: math.MaxInt32}
}

// Stream follows the objects of one resource. For each object, every version that
// the server sends makes exactly one event, in order. A list makes events for what
// it finds changed only; versions between two lists can't be seen.
type Stream struct {
	options Options
	store   *store
	log     *slog.Logger
	synced  chan struct{}
	started time.Time
	active  atomic.Int64 // nanoseconds since started: keeps the monotonic clock
	pauses  *pauses

	mu      sync.Mutex // guards running.Add against the end of Run
	running sync.WaitGroup
}

// New makes a stream. It does nothing before Run.
func New(options Options) *Stream {
	if options.Silence <= 0 {
		options.Silence = defaultSilence
	}
	if options.Backoff == nil {
		options.Backoff = defaultBackoff()
	}
	if options.OnError == nil {
		options.OnError = func(Failure) {}
	}
	log := options.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Stream{
		options: options,
		log:     log.With("resource", options.GVR.GroupResource().String(), "namespace", options.Namespace),
		synced:  make(chan struct{}),
		started: time.Now(),
		pauses:  newPauses(*options.Backoff),
	}
	version, kind := options.GVK.ToAPIVersionAndKind()
	s.store = &store{
		kind:  metav1.TypeMeta{APIVersion: version, Kind: kind},
		emit:  options.OnEvent,
		sync:  sync.OnceFunc(func() { close(s.synced) }),
		known: map[key]alive{},
		fail: func(object *marked) {
			s.report(Failure{Reason: Unreadable, Err: object.err, Object: object.Body})
		},
	}
	return s
}

// Synced is closed when everything has been listed for the first time, after the
// last Listed event. It stays closed.
func (s *Stream) Synced() <-chan struct{} { return s.synced }

// LastActivity is when the last sign of life came from the server: an event, a
// bookmark, a part of a list, or the answer to a request. At first it is when the
// stream was made. While all is well, its age stays below Silence.
func (s *Stream) LastActivity() time.Time {
	return s.started.Add(time.Duration(s.active.Load()))
}

// Run follows the objects until ctx is done, and returns only then. It may be
// called again after it has returned: everything is listed anew, and makes events
// as far as it has changed meanwhile (WCH-6).
func (s *Stream) Run(ctx context.Context) {
	ctx = withLogger(ctx, s.log)
	reflector := cache.NewReflectorWithOptions(&source{Stream: s}, nil, s.store, cache.ReflectorOptions{
		Name:            "kopf",
		TypeDescription: s.options.GVR.String(),
		Clock:           clockUntil{ctx: ctx},
		Backoff:         s.options.Backoff,
	})
	// Not the reflector's own loop: its errors would go to apimachinery's global
	// error handlers, which log them as errors, and which sleep for decades inside
	// of a synctest bubble.
	for ctx.Err() == nil {
		err := reflector.ListAndWatchWithContext(ctx)
		if ctx.Err() == nil {
			s.log.DebugContext(ctx, "starting over with a list", "error", err)
			sleep(ctx, s.pauses.beforeList())
		}
	}
	s.leave()
}

// Reopen has the next Run tell of objects that it did not know as Listed, as at the
// start, and not as Added. It must not be called while Run does anything.
func (s *Stream) Reopen() { s.store.synced = false }

// enter has Run wait for the caller, who calls running.Done. It is false if it is
// too late for that.
func (s *Stream) enter(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	s.running.Add(1)
	return true
}

// leave waits for all who have entered.
func (s *Stream) leave() {
	s.mu.Lock()
	defer s.mu.Unlock() // who comes later sees that ctx is done
	s.running.Wait()
}

func (s *Stream) alive() { s.active.Store(int64(time.Since(s.started))) }

func (s *Stream) report(f Failure) {
	if f.Reason == Expired {
		s.pauses.expire()
	}
	s.log.Debug("stream failure", "reason", f.Reason, "error", f)
	s.options.OnError(f)
}

// pauses says how long to wait after each failure. It is safe for concurrent use.
type pauses struct {
	mu      sync.Mutex
	initial wait.Backoff
	next    wait.Backoff
	last    time.Time
	expired int // how often the version was too old, since there was a sign of life
}

func newPauses(backoff wait.Backoff) *pauses {
	return &pauses{initial: backoff, next: backoff, last: time.Now()}
}

// again is the pause after one more failure.
func (p *pauses) again() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.last) > quietTime {
		p.next = p.initial
	}
	p.last = time.Now()
	return p.next.Step()
}

// beforeList is the pause before everything is listed anew.
func (p *pauses) beforeList() time.Duration {
	p.mu.Lock()
	once := p.expired == 1
	if once {
		p.expired++ // what makes this list fail is another matter
	}
	p.mu.Unlock()
	if once {
		return relistDelay
	}
	return p.again()
}

func (p *pauses) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expired++
}

// reset begins anew: a watch works.
func (p *pauses) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.expired = p.initial, 0
}

// sleep tells whether it has slept until the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func silentFor(d time.Duration) error { return fmt.Errorf("%w (%s)", errSilent, d) }
