package kopf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kopf-go/kopf/internal/engine"
	"github.com/kopf-go/kopf/internal/leading"
	"github.com/kopf-go/kopf/settings"
)

// completeElection fills in what was left open. Where there is no pod, the namespace may be
// missing.
func completeElection(s settings.Settings, operator string) settings.LeaderElection {
	l := s.WithDefaults().LeaderElection
	l.Lease = cmp.Or(l.Lease, strings.ToLower(operator), "kopf")
	l.Namespace = cmp.Or(l.Namespace, podNamespace())
	return l
}

// follow runs an engine until the context ends; it handles while this replica leads, if
// there is an election.
func (s *session) follow(ctx context.Context, e *engine.Engine) error {
	d := s.newDuties(e)
	defer d.close()
	if !s.election.Enabled {
		d.Lead(nil)
		err := e.Run(ctx)
		d.end(ErrExiting)
		return err
	}
	if s.election.Namespace == "" {
		return errors.New("Settings.LeaderElection: Namespace is not set, and the operator runs in no pod, so nobody knows where the Lease is to be")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	led := make(chan error, 1)
	go func() {
		defer cancel() // what goes on although the lease was lost must end
		led <- s.lead(ctx, d)
	}()
	err := e.Run(ctx)
	return errors.Join(<-led, err)
}

// lead has an engine handle while this replica holds the lease, until the context ends. It
// returns when nothing runs and writes any more, or with an error when something goes on after
// the lease was lost: then the process must end.
func (s *session) lead(ctx context.Context, d *duties) error {
	l := s.election
	return leading.Run(ctx, leading.Options{
		Config: s.connection, Name: l.Lease, Namespace: l.Namespace, Identity: l.Identity,
		LeaseDuration: l.LeaseDuration, RenewDeadline: l.RenewDeadline, RetryPeriod: l.RetryPeriod,
		ExitTimeout: s.config.Settings.WithDefaults().ExitTimeout + leaveTimeout, Warm: d.Warm(), Log: s.config.Log,
	}, d)
}

// duty is something that the leader does beside handling, as long as it leads. The cause of
// the end of its context is ErrExiting if the operator stops, else another replica takes over.
type duty struct {
	what string
	do   func(context.Context) error
}

// duties are what is led: an engine, and all else that only one replica does.
type duties struct {
	*engine.Engine
	session *session
	all     []duty
	peers   bool          // others may have it pause
	closed  chan struct{} // the run is over

	mu     sync.Mutex
	term   int
	cancel context.CancelCauseFunc // nil: no term goes on
	ended  chan struct{}           // closed when the duties of the last term have ended
}

func (s *session) newDuties(e *engine.Engine) *duties {
	d := &duties{Engine: e, session: s, all: s.duties, closed: make(chan struct{}), ended: make(chan struct{})}
	close(d.ended)
	if s.meets() {
		d.peers = true
		d.all = append([]duty{{"peering", d.peer}}, d.all...)
	}
	return d
}

// Lead begins a term. With peers, nothing is handled before it is known what they do.
func (d *duties) Lead(holds func() bool) {
	ctx, cancel := context.WithCancelCause(context.Background())
	before, ended := d.begin(cancel)
	if d.peers {
		d.Engine.Pause(ErrPaused)
	}
	d.Engine.Lead(holds)
	go func() {
		defer close(ended)
		<-before
		var running sync.WaitGroup
		for _, duty := range d.all {
			running.Go(func() {
				if err := duty.do(ctx); err != nil && ctx.Err() == nil {
					d.session.fail(&stageError{fmt.Errorf("%s: %w", duty.what, err)})
				}
			})
		}
		running.Wait()
	}()
}

func (d *duties) begin(cancel context.CancelCauseFunc) (before, ended chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, ended = d.ended, make(chan struct{})
	d.term++
	d.cancel, d.ended = cancel, ended
	return before, ended
}

// StepDown ends the term: first handling, then what else the leader does. When the operator
// stops, that is waited for, so that no other replica does it at the same time.
func (d *duties) StepDown(why error) <-chan struct{} {
	drained, over := d.Engine.StepDown(why), make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-drained:
		case <-d.closed: // something is left behind
		}
		d.end(why)
	}()
	return over
}

// end ends the duties of the term.
func (d *duties) end(why error) {
	d.mu.Lock()
	cancel, ended := d.cancel, d.ended
	d.cancel = nil
	d.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel(why)
	if !errors.Is(why, ErrExiting) {
		if d.peers {
			d.Engine.Continue() // a standby follows, whatever others do
		}
		return
	}
	limit := time.NewTimer(leaveTimeout)
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
	}
}

// close waits for the duties to end, after the run.
func (d *duties) close() {
	close(d.closed)
	d.end(ErrExiting)
	d.mu.Lock()
	ended := d.ended
	d.mu.Unlock()
	<-ended
}
