// Package leading has one of several replicas lead: the one that holds a Lease. It is built on
// client-go's leader election, and adds what that leaves to its users: that work ends before
// the lease does, whatever has happened to the process, and that the lease is given back only
// when it has.
//
// How long two replicas can be inside of handlers at a time:
//
//   - Not at all, as long as the clocks of both run equally fast, and handlers return within
//     LeaseDuration − RenewDeadline after their context has ended. A replica that has not
//     renewed the lease for RenewDeadline begins nothing any more, and ends the contexts of
//     what runs; after LeaseDuration it makes no request any more. Others wait for
//     LeaseDuration, counted from when they have seen the renewal, which is later.
//   - If the clocks do not run equally fast, for at most LeaseDuration times the difference of
//     their speed: with 15 seconds, and one part in a thousand, 15 ms.
//   - A process that was frozen while it was in a handler, or had just decided to call one, goes
//     on there when it is thawed, until the handler looks at its context, which has ended by
//     then: that long. Nothing else begins, and no request is made; only what the kernel had
//     taken over already is sent.
//   - A handler that does not look at its context goes on. If it has not returned by the end
//     of the lease, Run returns an error that names it, and the process has to end.
//   - Whoever deletes or overwrites the lease by hand has two replicas lead until the first one
//     tries to renew it: for RetryPeriod, and the time of a request.
package leading

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/kopf-go/kopf/daemons"
)

// Options say which lease it is, and how it is kept. Config, Name, Namespace and the three
// times are required.
type Options struct {
	Config          *rest.Config
	Name, Namespace string // of the lease
	// Identity says who holds the lease; something is added that makes it unique, for two
	// with the same one would both lead. Default: the name of the host.
	Identity string
	// The times; settings.LeaderElection says what they mean, and how they are to be.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// ExitTimeout is how long handlers may take when Run is to end. Default: LeaseDuration.
	ExitTimeout time.Duration
	// Warm is closed when the replica is able to lead at once; before that it does not stand
	// for election, unless that takes longer than LeaseDuration. nil: it is.
	Warm <-chan struct{}
	Log  *slog.Logger
	// OnChange is told when the replica leads, and when it does not any more; it must not
	// block. Not required.
	OnChange func(leads bool)
}

// Terms are what is led: engine.Engine.
type Terms interface {
	// Lead has work begin. holds tells by the clock whether it may go on.
	Lead(holds func() bool)
	// StepDown has nothing begin any more, and everything end. The channel is closed when it has.
	StepDown(why error) (drained <-chan struct{})
	// Fence has no request be made any more until the next Lead.
	Fence()
	// Running names what has not ended.
	Running() []string
}

// Run competes for the lease, and leads while it holds, again and again, until the context
// ends. Then it waits until everything has stopped, holding the lease meanwhile, and gives
// it back. It returns an error if the options are wrong, or if something goes on after it was
// told to stop: the lease was lost then, or will be, and the process must end.
func Run(ctx context.Context, o Options, terms Terms) error {
	lock, err := o.lock()
	if err != nil {
		return err
	}
	o.await(ctx)
	for ctx.Err() == nil {
		if err := o.compete(ctx, newGuard(lock, &o), terms); err != nil {
			return err
		}
	}
	return nil
}

// lock is the lease.
func (o *Options) lock() (*resourcelock.LeaseLock, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.ExitTimeout <= 0 {
		o.ExitTimeout = o.LeaseDuration
	}
	if o.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("the host has no name, leader election needs an identity: %w", err)
		}
		o.Identity = host
	}
	o.Identity += "_" + string(uuid.NewUUID())
	o.Log = o.Log.With("lease", o.Namespace+"/"+o.Name, "identity", o.Identity)
	config := rest.CopyConfig(o.Config)
	config.QPS = -1
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON // which servers for tests know, too
	if config.Transport == nil {
		// A connection that has died unnoticed takes all requests along that share it. Over
		// HTTP/1.1, one that is given up takes its connection with it, and the next is made on
		// another.
		config.NextProtos = []string{"http/1.1"}
	}
	client, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the API server for leader election: %w", err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace}, Client: client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: o.Identity},
	}, nil
}

// await waits until the replica is able to lead, for a time.
func (o *Options) await(ctx context.Context) {
	if o.Warm == nil {
		return
	}
	limit := time.NewTimer(o.LeaseDuration)
	defer limit.Stop()
	select {
	case <-o.Warm:
	case <-ctx.Done():
	case <-limit.C:
	}
}

// Why a term ends.
var (
	errTaken   = errors.New("another replica has taken the lease")
	errRenewal = errors.New("the lease could not be renewed in time")
)

// compete waits for the lease, and leads until it is lost, or the context ends.
func (o *Options) compete(ctx context.Context, g *guard, terms Terms) error {
	electing, stop := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.FromSlogHandler(quiet{o.Log.Handler()})))
	defer stop()
	elected, ended := make(chan struct{}), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: g, Name: o.Name,
		LeaseDuration: o.LeaseDuration, RenewDeadline: o.RenewDeadline, RetryPeriod: o.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(elected) },
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				if identity != o.Identity && identity != "" {
					o.Log.Info("another replica leads", "leader", identity)
				}
			},
		},
		// Not ReleaseOnCancel: it gives the lease back also when it could not be renewed, and
		// work is going on.
	})
	if err != nil {
		return fmt.Errorf("leader election is not possible: %w", err)
	}
	go func() {
		defer close(ended)
		elector.Run(electing)
	}()
	finish := func() {
		stop()
		<-ended
		o.release(ctx, g)
	}
	select {
	case <-ctx.Done():
		finish()
		return nil
	case <-elected:
	}
	if ctx.Err() != nil {
		finish()
		return nil
	}
	o.Log.Info("this replica leads")
	o.changed(true)
	terms.Lead(g.holds)
	lost := o.keep(ctx, g, ended)
	if lost == nil {
		err = o.end(g, terms.StepDown(daemons.ErrExiting), time.Now().Add(o.ExitTimeout), terms)
	} else {
		if errors.Is(lost, errTaken) {
			terms.Fence()
		}
		drained := terms.StepDown(daemons.ErrPaused)
		stop()
		o.Log.Warn("this replica does not lead any more", "why", lost)
		err = o.end(g, drained, time.Now().Add(max(o.LeaseDuration-g.since(), o.LeaseDuration-o.RenewDeadline)), terms)
	}
	o.changed(false)
	if err != nil {
		stop()
		<-ended
		return err
	}
	finish()
	return nil
}

func (o *Options) changed(leads bool) {
	if o.OnChange != nil {
		o.OnChange(leads)
	}
}

// keep waits until the lease is lost, and says why; nil: the context has ended.
func (o *Options) keep(ctx context.Context, g *guard, ended <-chan struct{}) error {
	clock := time.NewTimer(0)
	defer clock.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.taken:
			return errTaken
		case <-ended:
			return errRenewal
		case <-clock.C:
			left := o.RenewDeadline - g.since()
			if left <= 0 || !g.holds() {
				return errRenewal
			}
			clock.Reset(left)
		}
	}
}

// end waits until everything has ended. When the lease has, it has no request made any more.
func (o *Options) end(g *guard, drained <-chan struct{}, until time.Time, terms Terms) error {
	clock, limit := time.NewTimer(0), time.NewTimer(time.Until(until))
	defer clock.Stop()
	defer limit.Stop()
	taken := g.taken
	for {
		select {
		case <-drained:
			terms.Fence()
			return nil
		case <-taken:
			taken = nil
			terms.Fence()
		case <-clock.C:
			if !g.holds() {
				terms.Fence()
				continue // and the clock has stopped
			}
			clock.Reset(max(o.LeaseDuration-g.since(), time.Millisecond))
		case <-limit.C:
			terms.Fence()
			return o.unwind(drained, terms)
		}
	}
}

// unwind waits for what is on its way out, now that all have had their time. A handler that
// goes on even so is deaf. What is none, such as a request that was cancelled, can do nothing
// any more, and may take long on a machine that is busy.
func (o *Options) unwind(drained <-chan struct{}, terms Terms) error {
	pause := min(o.RetryPeriod, time.Second)
	for limit := time.Now().Add(o.LeaseDuration); ; {
		last := time.NewTimer(pause)
		select {
		case <-drained:
			last.Stop()
			return nil
		case <-last.C:
		}
		if names := terms.Running(); len(names) > 0 || time.Now().After(limit) {
			return deaf(names)
		}
	}
}

func deaf(names []string) error {
	if len(names) == 0 {
		return errors.New("this replica does not lead any more, and writing has not ended: the process has to end")
	}
	return fmt.Errorf("this replica does not lead any more, and these go on although their context has ended, so that the process has to end: %s",
		strings.Join(names, ", "))
}

// release gives the lease back, unless that takes too long: it ends by itself.
func (o *Options) release(ctx context.Context, g *guard) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(o.RenewDeadline, max(o.LeaseDuration-g.since(), o.RetryPeriod)))
	defer cancel()
	if err := g.release(ctx); err != nil {
		o.Log.Debug("the lease could not be given back, and ends by itself", "error", err)
	}
}

// quiet is a log of ordinary disturbances, whatever client-go calls them.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelDebug && q.Handler.Enabled(ctx, slog.LevelDebug)
}

func (q quiet) Handle(ctx context.Context, record slog.Record) error {
	record.Level = slog.LevelDebug
	return q.Handler.Handle(ctx, record)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }
func (q quiet) WithGroup(name string) slog.Handler       { return quiet{q.Handler.WithGroup(name)} }
