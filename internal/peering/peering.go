// Package peering lets operators that are for the same objects get along with each other,
// as Kopf's do: each says in a peering object that it is alive, and with which priority, and
// all but the one of the highest pause. A person can be such a peer for a time, with Freeze.
//
// It is a safety net, and no lock (PEER-12): at its start, after requests were lost, and if
// clocks go wrong by more than records last, two may be active for a time. Replicas of one operator
// would pause each other: only the one that leads runs this.
package peering

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/internal/stream"
)

// Client is what reads and writes the objects.
type Client = *stream.Client

// Options say how to take part. Client, Discovery, Pause and Continue are required.
type Options struct {
	Client    Client
	Discovery Discovery
	// Name, Mandatory, Standalone, Priority, Lifetime and Stealth are as in
	// settings.Peering.
	Name                  string
	Mandatory, Standalone bool
	Priority              int
	Lifetime              time.Duration
	Stealth               bool
	// Identity is the operator's name among its peers. Default: that of the function Identity, which
	// is called only if there is something to take part in.
	Identity string
	// Namespaces are those that are served at the moment, nil as long as that is not known,
	// and a channel that is closed when there are others; nil: there never are. Without
	// this function the operator is cluster-wide.
	Namespaces func() (names []string, changed <-chan struct{})

	// Pause and Continue are told what the operator has to do: at first when it is known,
	// until which it has to pause, and then whenever it changes. They are never called at
	// the same time, nor after Run has returned. why is a daemons.ErrPaused with a text.
	Pause    func(why error)
	Continue func()

	// Once has nobody notice kinds of peering objects that come later, unless the operator
	// waits for one.
	Once bool
	// Interval is between looks for such kinds if their definitions cannot be watched.
	// Default: 5 seconds, and a minute for kinds that nobody waits for.
	Interval time.Duration
	// Silence is as in stream.Options.
	Silence time.Duration
	// Log gets what happens. Default: nothing does.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = "default"
	}
	if o.Lifetime <= 0 {
		o.Lifetime = defaultLifetime
	}
	if o.Interval <= 0 {
		o.Interval = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Run takes part until the context ends, and then removes the operator's records, so that
// others can go on: it has to end after the operator has. It returns nil.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	if o.Standalone {
		o.Continue()
		<-ctx.Done()
		return nil
	}
	r := &run{
		Options: o, lookout: newLookout(), identity: sync.OnceValue(func() string { return identityOr(ctx, o.Identity) }),
		places: map[placeKey]*taken{}, left: map[placeKey]chan struct{}{}, said: map[string]bool{}, wake: make(chan struct{}, 1),
	}
	var parts sync.WaitGroup
	parts.Go(func() { r.announce(ctx) })
	r.meet(ctx)
	parts.Wait()
	return nil
}

func identityOr(ctx context.Context, given string) string {
	if given != "" {
		return given
	}
	return Identity(ctx)
}

// run is one call of Run.
type run struct {
	Options
	lookout
	identity func() string // its own
	wake     chan struct{} // something has changed, for announce

	attending sync.WaitGroup

	mu     sync.Mutex
	places map[placeKey]*taken
	left   map[placeKey]chan struct{} // of places that may still be being left
	sure   bool                       // it is known which kinds there are
	found  bool                       // … and so are the places
	kinds  []kind
	said   map[string]bool // complaints that were made
}

type placeKey struct {
	resource  schema.GroupVersionResource
	namespace string
}

// taken is a place that the operator takes part in, with what followed there.
type taken struct {
	*place
	leave context.CancelFunc
	left  chan struct{}
	known bool
	why   error
}

// report takes what follows from one place.
func (r *run) report(p *place, known bool, why error) {
	r.mu.Lock()
	if t := r.places[placeKey{p.kind.GroupVersionResource, p.namespace}]; t != nil && t.place == p {
		t.known, t.why = known, why
	}
	r.mu.Unlock()
	signal(r.wake)
}

// standing is what follows from all places: one that is in the way is enough (PEER-8).
func (r *run) standing() (known bool, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.found {
		return false, nil
	}
	if r.Mandatory && len(r.kinds) == 0 {
		return true, &reason{slog.LevelError, "because " + noKind(r.Namespaces == nil)}
	}
	known = true
	for _, key := range slices.SortedFunc(maps.Keys(r.places), compareKeys) {
		t := r.places[key]
		if t.known && t.why != nil {
			return true, t.why
		}
		known = known && t.known
	}
	return known, nil
}

// announce tells the operator what it has to do, as often as that changes. A place that is
// new makes nobody pause until it is known what is there: that takes a moment, and would
// interrupt all handlers.
func (r *run) announce(ctx context.Context) {
	said, text := false, ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		known, why := r.standing()
		switch {
		case ctx.Err() != nil:
			return
		case why == nil && (!known || said && text == ""):
		case why == nil:
			if said {
				r.Log.Info("operator goes on, as no other one is in the way any more")
			}
			said, text = true, ""
			r.Continue()
		case why.Error() != text:
			begins := text == ""
			said, text = true, why.Error()
			level := slog.LevelInfo
			if known, is := why.(*reason); is {
				level = known.level
			}
			r.Log.Log(ctx, level, text)
			if begins {
				r.Pause(why)
			}
		}
	}
}

// sayOnce tells whether a thing is said for the first time.
func (r *run) sayOnce(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.said[text]
	r.said[text] = true
	return !was
}
