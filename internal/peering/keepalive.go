package peering

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// requestTimeout limits each request. A keep-alive has less time at first, so that there
	// is enough left for another one, and more each time after that.
	requestTimeout = 10 * time.Second
	// againAfter is the pause after a request that failed, for a start; slowest is the longest.
	againAfter, slowest = time.Second, 8 * time.Second
	// linger is for how long a keep-alive may go on when the operator leaves: its record must
	// not come after it was removed.
	linger = 2 * time.Second
	// leaveTimeout limits how long it is tried to remove it.
	leaveTimeout = 5 * time.Second
)

// keep tells the others again and again that the operator is alive, until the context ends,
// and then that it is not any more (PEER-5). It does all the writing.
func (p *place) keep(ctx context.Context) {
	written, warned := false, false
	again := againAfter
	next := time.NewTimer(0)
	defer next.Stop()
	renewed := time.Now()
	for {
		due := false
		select {
		case <-ctx.Done():
		case <-next.C:
			due = true
		case <-p.urge:
		}
		if ctx.Err() != nil {
			if written {
				p.leave(ctx)
			}
			return
		}
		asked, dead, version := p.wishes()
		if due || asked {
			err := p.sayAlive(ctx, min(3*again, requestTimeout))
			written = written || err == nil || uncertain(err)
			pause := p.interval()
			if err == nil || settled(err) {
				again, renewed, warned = againAfter, time.Now(), false
			} else {
				if !warned && time.Since(renewed) > p.Lifetime {
					p.log.Warn("other operators take this one for dead, since they cannot be told that it is alive", "error", err)
					warned = true
				}
				pause, again = min(pause, again), min(2*again, slowest)
			}
			next.Reset(pause)
		}
		if len(dead) > 0 && ctx.Err() == nil {
			p.clean(ctx, dead, version)
		}
	}
}

// interval is until the next keep-alive: it comes before the time of the record is over.
func (p *place) interval() time.Duration {
	margin := 5*time.Second + time.Duration(rand.IntN(6))*time.Second
	return max(time.Second, min(p.Lifetime, max(time.Second, p.Lifetime-margin)))
}

// sayAlive makes one attempt to renew the operator's record.
func (p *place) sayAlive(ctx context.Context, limit time.Duration) error {
	ctx, cancel := lingering(ctx, limit)
	defer cancel()
	own := record{priority: int64(p.Priority), lifetime: p.Lifetime, lastSeen: time.Now()}
	b, err := p.patch(ctx, p.Client, map[string]any{"status": map[string]any{p.sight.self: own.encode()}})
	p.mu.Lock()
	first, exists := !p.tried, p.object != nil
	p.tried = true
	p.mu.Unlock()
	if first {
		defer signal(p.wake)
	}
	switch {
	case err == nil:
		if !p.Stealth {
			p.log.Debug("keep-alive")
		}
		p.show(b)
	case apierrors.IsNotFound(err) && exists: // it is just being created or deleted, or has another endpoint now
		p.look()
	case apierrors.IsNotFound(err):
		p.log.Debug("keep-alive: not found")
		err = errNothing
	case apierrors.IsForbidden(err):
		p.once("permission is missing, other operators do not notice this one: grant the verb", "verb", "patch", "error", err)
		p.reread(ctx)
	default:
		p.log.Debug("keep-alive failed, it is tried again", "error", err)
	}
	return err
}

// reread looks how the peers are without the help of a keep-alive. If that is not allowed
// either, what is known has to do.
func (p *place) reread(ctx context.Context) {
	b, err := p.Client.Get(ctx, p.kind.GroupVersionResource, p.namespace, p.name)
	switch {
	case err == nil:
		p.show(b)
	case apierrors.IsForbidden(err):
		p.change(func() { p.asOf = time.Now() })
	default:
		p.log.Debug("peering object cannot be read", "error", err)
	}
}

// errNothing says that there is no peering object, which is no failure.
var errNothing = errors.New("there is no peering object")

// settled tells whether there is no use in asking again soon.
func settled(err error) bool { return errors.Is(err, errNothing) || apierrors.IsForbidden(err) }

// uncertain tells whether a request may have been carried out although it failed.
func uncertain(err error) bool {
	return !settled(err) && apierrors.ReasonForError(err) == ""
}

// clean removes the records of the dead, unless the object has been changed since they were
// found to be: they may have come back.
func (p *place) clean(ctx context.Context, dead []string, version string) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	gone := map[string]any{}
	for _, identity := range dead {
		gone[identity] = nil
	}
	b, err := p.patch(ctx, p.Client, map[string]any{"metadata": map[string]any{"resourceVersion": version}, "status": gone})
	if err != nil {
		p.log.Debug("records of dead operators were not removed", "operators", dead, "error", err)
		return
	}
	p.log.Debug("records of dead operators are removed", "operators", dead)
	p.show(b)
}

// leave removes the operator's own record, so that others need not wait until it is dead.
func (p *place) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	for again := againAfter / 2; ; again *= 2 {
		_, err := p.patch(ctx, p.Client, map[string]any{"status": map[string]any{p.sight.self: nil}})
		if err == nil || apierrors.IsNotFound(err) {
			return
		}
		if apierrors.IsForbidden(err) || !rest(ctx, again) {
			p.log.Warn("other operators were not told that this one leaves, and wait until its time is over", "lifetime", p.Lifetime, "error", err)
			return
		}
	}
}

// rest tells whether it has slept until the end.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// lingering is for a request that goes on for a moment when the context ends.
func lingering(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(linger)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-longer.Done():
		}
	})
	return longer, func() { stop(); cancel() }
}
