package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// given is a certificate that somebody else has made, and what to trust because of it.
type given struct {
	pair   *pair
	bundle bundle
}

// parseGiven reads one from PEM. Without authorities the certificate is trusted itself. It
// fails if anything does not fit the rest, as when it is read half-way through a renewal.
func parseGiven(certPEM, keyPEM, bundlePEM []byte, now time.Time) (*given, error) {
	p, err := newPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate and key: %w", err)
	}
	g := &given{pair: p, bundle: bundle{p.tls.Leaf}}
	if len(bytes.TrimSpace(bundlePEM)) > 0 {
		if g.bundle, err = parseBundle(bundlePEM); err != nil {
			return nil, fmt.Errorf("authorities: %w", err)
		}
	}
	if !g.bundle.trusts(p, now) {
		return nil, fmt.Errorf("clients that trust these authorities do not take the certificate of %s, valid from %s until %s",
			p.tls.Leaf.Subject, p.tls.Leaf.NotBefore, p.tls.Leaf.NotAfter)
	}
	return g, nil
}

func (g *given) equal(other *given) bool {
	return bytes.Equal(g.pair.certPEM, other.pair.certPEM) && bytes.Equal(g.pair.keyPEM, other.pair.keyPEM) && g.bundle.equal(other.bundle)
}

// follower serves what others make. One that present clients trust is served at once; for
// any other, the bundle goes ahead. Everything but served belongs to run's goroutine.
type follower struct {
	served  *served
	names   []string
	settle  time.Duration
	changed func()
	log     *slog.Logger
	read    func(ctx context.Context) (*given, error) // both: it is good, but something else is wrong
	wait    func(ctx context.Context, until time.Time)

	current *given
	coming  *given    // not served yet; nil: none
	came    time.Time // when that was
	former  []*given  // other replicas may still serve them
}

func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		g, err := f.read(ctx)
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		if g != nil {
			err = errors.Join(err, f.offer(g, now))
		}
		f.served.complain(ctx, f.log, err)
		f.advance(now)
		f.wait(ctx, f.wake())
	}
}

// offer takes what was read. The error is for people: it is served all the same.
func (f *follower) offer(g *given, now time.Time) error {
	newest := f.current
	if f.coming != nil {
		newest = f.coming
	}
	if newest == nil || !newest.equal(g) {
		f.coming, f.came = g, now
		if f.current == nil || f.current.pair.ended(now) || f.current.bundle.trusts(g.pair, now) {
			f.take(now)
		}
	}
	if !covers(g.pair.tls.Leaf, f.names) {
		return fmt.Errorf("it is for %q, and the API server asks for %q", namesOf(g.pair.tls.Leaf, nil), f.names)
	}
	return nil
}

// take serves what is coming.
func (f *follower) take(now time.Time) {
	if f.current != nil {
		f.former = append(f.former, f.current)
	}
	f.current, f.coming = f.coming, nil
	f.tell(now)
	f.served.serve(f.current.pair)
}

// advance serves what is coming when clients have had time, and forgets what has ended.
// Replicas that do not keep the configurations are told nothing, and go by the time alone.
func (f *follower) advance(now time.Time) {
	if f.current == nil {
		return
	}
	if f.coming != nil {
		settled := f.served.applied(f.coming.bundle, f.settle).trusts(f.coming.pair, now)
		if settled || f.current.pair.ended(now) || now.Sub(f.came) >= 2*f.settle {
			f.take(now)
		}
	}
	f.tell(now)
}

// tell says what to trust: all that any replica may serve.
func (f *follower) tell(now time.Time) {
	all, former := f.current.bundle, f.former[:0]
	for _, g := range f.former {
		if !g.pair.ended(now) {
			former = append(former, g)
			all = all.with(g.bundle)
		}
	}
	f.former = former
	if f.coming != nil {
		all = all.with(f.coming.bundle)
	}
	if f.served.trust(all.with(nil)) {
		f.changed()
	}
}

// wake is when there is something to do that nobody tells of.
func (f *follower) wake() time.Time {
	now := time.Now()
	if f.current == nil {
		return now.Add(patience)
	}
	at := f.current.pair.tls.Leaf.NotAfter.Add(time.Second)
	if !at.After(now) {
		at = now.Add(patience)
	}
	if f.coming != nil {
		at = earliest(at, f.came.Add(2*f.settle))
		if since := f.served.since(f.coming.bundle); !since.IsZero() {
			if settled := since.Add(f.settle); settled.After(now) {
				at = earliest(at, settled)
			}
		}
	}
	for _, g := range f.former {
		at = earliest(at, g.pair.tls.Leaf.NotAfter.Add(time.Second))
	}
	return at
}

func (p *pair) ended(now time.Time) bool { return now.After(p.tls.Leaf.NotAfter) }
