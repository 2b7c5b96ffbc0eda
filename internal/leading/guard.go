package leading

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// guard stands between the elector and the lease. It knows for how long the lease holds by
// the clocks of this process alone: from the moment before the request that has renewed it
// last, which is before any other replica can have seen that. So it says no in time also
// where nobody comes to tell it: after the process was frozen, or cut off.
//
// The monotonic clock may stand still while a machine sleeps, and the other one be set
// back; so the lease has run out if either says so.
type guard struct {
	resourcelock.Interface
	lease   time.Duration // how long it lasts
	patient time.Duration // how long a request may take

	mu      sync.Mutex
	held    bool
	renewed time.Time
	lapsed  bool          // it has run out, or is another's. It stays so
	taken   chan struct{} // closed when it is another's
}

func newGuard(lock resourcelock.Interface, o *Options) *guard {
	return &guard{Interface: lock, lease: o.LeaseDuration, patient: o.RenewDeadline / 2, taken: make(chan struct{})}
}

// Get reads the lease. If it is another's, whoever that is has it already.
func (g *guard) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, g.patient)
	defer cancel()
	record, raw, err := g.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != g.Identity() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.held && !g.isTaken() {
			g.lapsed = true
			close(g.taken)
		}
	}
	return record, raw, err
}

func (g *guard) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return g.write(ctx, record, g.Interface.Create)
}

func (g *guard) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return g.write(ctx, record, g.Interface.Update)
}

// write has the lease written, which fails if somebody else has written it since it was read.
func (g *guard) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	before := time.Now()
	ctx, cancel := context.WithTimeout(ctx, g.patient)
	defer cancel()
	if err := write(ctx, record); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held, g.renewed = record.HolderIdentity == g.Identity(), before
	return nil
}

// holds tells whether the lease holds. Once it did not, it never does again: another guard
// is needed.
func (g *guard) holds() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lapsed = g.lapsed || !g.held || age(g.renewed) >= g.lease
	return !g.lapsed
}

// since is how long ago it was renewed.
func (g *guard) since() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return age(g.renewed)
}

// isTaken tells whether another has it.
func (g *guard) isTaken() bool {
	select {
	case <-g.taken:
		return true
	default:
		return false
	}
}

// release gives the lease back, if it still is ours by all that is known, so that others
// need not wait for its end.
func (g *guard) release(ctx context.Context) error {
	if g.mu.Lock(); !g.held || g.isTaken() {
		g.mu.Unlock()
		return nil
	}
	g.mu.Unlock()
	record, _, err := g.Get(ctx)
	if err != nil || record.HolderIdentity != g.Identity() {
		return err
	}
	record.HolderIdentity, record.LeaseDurationSeconds = "", 1
	return g.Update(ctx, *record)
}

// age is how long ago something was, by the clock that says more.
func age(t time.Time) time.Duration {
	return max(time.Since(t), time.Now().Round(0).Sub(t.Round(0)))
}
