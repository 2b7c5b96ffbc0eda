package typed

import (
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
)

// Daemon is the argument of daemons: one for each run, which may be as long as the
// object lives. Its methods are safe for concurrent use.
type Daemon[T Object] struct {
	// Patch changes the object once the daemon's function has returned, even with an
	// error (DMN-5). What is to be written earlier needs a client of one's own.
	Patch *Patch[T]
	Attempt

	live    *registry.Live
	newest  func() (object T, version, essence int, err error)
	stopped <-chan struct{}

	mu      sync.Mutex
	object  T
	version int // of which object is, or which did not decode
	essence int
}

// Object returns the newest version of the object that was seen. It is a copy that
// nobody else has, and the same one as before as long as there is no newer version; then
// the object is decoded (20 to 85 µs for 4 KB). A version that does not decode is
// told in the log, once, and the one before it is returned.
func (d *Daemon[T]) Object() T {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.live == nil {
		return d.object
	}
	if version, _ := d.live.Versions(); version == d.version {
		return d.object
	}
	object, version, essence, err := d.newest()
	// Whoever is told of a change looks at it, even if there is nothing to be seen:
	// telling of it again and again would keep the daemon busy.
	d.version, d.essence = version, essence
	if err != nil {
		d.Log.Warn("newest version of the object does not decode, so the daemon has to go by the one before", "error", err)
		return d.object
	}
	d.object = object
	return object
}

// Changed returns a channel that is closed when there has been an essential change
// since Object was called last, or since the daemon began: one of anything but the
// status and the metadata other than labels and annotations. To be told of the next
// change, call Object, then Changed again:
//
//	for {
//		apply(d.Object())
//		select {
//		case <-d.Changed():
//		case <-ctx.Done():
//			return context.Cause(ctx)
//		}
//	}
//
// Several goroutines of a daemon, which each call Object, take the channel before.
func (d *Daemon[T]) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.live == nil {
		return nil
	}
	return d.live.Changed(d.essence)
}

// Stopping returns a channel that is closed when the daemon is told to stop. Its
// context ends then, too, or on.CancellationBackoff later, and says why:
// context.Cause(ctx) is one of kopf.ErrMismatch, ErrDeleted, ErrPaused and ErrExiting.
func (d *Daemon[T]) Stopping() <-chan struct{} { return d.stopped }

// Tick is the argument of timers. It belongs to one call: its object may be kept and
// changed.
type Tick[T Object] struct {
	// Object is the object as it was last seen.
	Object T
	// Patch changes the object once the timer's function has returned, even with an error.
	Patch *Patch[T]
	Attempt
}

// NewDaemon makes the argument of a daemon from the erased call. The object is that of
// call.Live; call.Body is not needed.
func NewDaemon[T Object](call *registry.Call) (*Daemon[T], error) {
	live := call.Live
	d := &Daemon[T]{
		Attempt: newAttempt(call), live: live, stopped: call.Stopped,
		newest: func() (object T, version, essence int, err error) {
			aside(func() {
				var b *body.Body
				b, version, essence = live.Body()
				object, err = decodeBody[T](b)
			})
			return object, version, essence, err
		},
	}
	d.Patch = &Patch[T]{edits: call.Patch, object: func() ([]byte, error) {
		b, _, _ := live.Body()
		return b.Raw(), nil
	}}
	var err error
	if d.object, d.version, d.essence, err = d.newest(); err != nil {
		return nil, err
	}
	return d, nil
}

// aside runs a function in a goroutine that ends with it. Decoding needs more stack than most
// daemons, whose goroutines would keep it as long as they live: 8 KB instead of 2 to 4.
func aside(do func()) {
	done := make(chan any)
	go func() {
		var cut any = "decoding has ended its goroutine (runtime.Goexit)"
		defer func() {
			if p := recover(); p != nil {
				cut = p
			}
			done <- cut
		}()
		do()
		cut = nil
	}()
	if p := <-done; p != nil {
		panic(p)
	}
}

// NewDaemonFor makes the argument of a daemon by hand, for tests of the daemon. Each
// object that is given to show is its newest version from then on, and counts as an
// essential change; stop closes the channel of Stopping. Both are safe for concurrent
// use. The context is the test's own. Log writes nowhere; the fields may be set before
// the daemon is called.
func NewDaemonFor[T Object](object T) (d *Daemon[T], show func(T), stop func()) {
	var mu sync.Mutex
	live, stopped := new(registry.Live), make(chan struct{})
	seen := func() T {
		mu.Lock()
		defer mu.Unlock()
		return object
	}
	d = &Daemon[T]{
		Attempt: Attempt{Log: slog.New(slog.DiscardHandler), Started: time.Now()},
		Patch:   &Patch[T]{object: func() ([]byte, error) { return json.Marshal(seen()) }},
		live:    live, stopped: stopped,
		object: object.DeepCopyObject().(T),
		newest: func() (T, int, int, error) {
			mu.Lock()
			defer mu.Unlock()
			version, essence := live.Versions()
			return object.DeepCopyObject().(T), version, essence, nil
		},
	}
	show = func(newer T) {
		newer = newer.DeepCopyObject().(T)
		mu.Lock()
		defer mu.Unlock()
		object = newer
		live.Set(nil, true)
	}
	object = object.DeepCopyObject().(T)
	return d, show, sync.OnceFunc(func() { close(stopped) })
}

// NewTick makes the argument of a timer from the erased call.
func NewTick[T Object](call *registry.Call) (*Tick[T], error) {
	object, err := decode[T](call)
	if err != nil {
		return nil, err
	}
	return &Tick[T]{Object: object, Patch: newPatch[T](call), Attempt: newAttempt(call)}, nil
}
