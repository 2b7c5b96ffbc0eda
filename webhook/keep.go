package webhook

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// keeper keeps the Secret of own certificates as the plan has it. Everything but served
// belongs to run's goroutine.
type keeper struct {
	served  *served
	plan    plan
	secrets Secrets
	name    types.NamespacedName
	changed func()
	log     *slog.Logger
	alone   bool // nobody else uses the Secret

	mine    *content  // what this process serves; nil: nothing yet
	version string    // of the Secret that was seen last
	rubbish string    // version of a Secret that makes no sense, and that others may repair
	hold    time.Time // until when others may speak up
}

func (k *keeper) run(ctx context.Context) {
	w := &watcher{secrets: k.secrets, name: k.name}
	defer w.stop()
	retry := backoff{}
	for ctx.Err() == nil {
		trouble := w.start(ctx) // before the first look, so that nothing is missed between
		err := k.step(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = trouble
		}
		k.served.complain(ctx, k.log, err)
		until := k.wake()
		if err != nil {
			until = time.Now().Add(retry.next())
		} else {
			retry = backoff{}
		}
		w.wait(ctx, until, k.served.woken(), &k.version)
	}
}

func (k *keeper) wake() time.Time {
	now := time.Now()
	if k.mine == nil {
		if k.hold.After(now) {
			return k.hold
		}
		return now.Add(grace)
	}
	var since time.Time
	if k.mine.next != nil {
		since = k.served.since(bundle{k.mine.next.certificate})
	}
	return k.plan.wake(k.mine, since)
}

// races is how often a step is tried again at once when others are faster.
const races = 5

// step looks at the Secret and does what is due.
func (k *keeper) step(ctx context.Context) error {
	for race := 1; ; race++ {
		raced, err := k.look(ctx)
		if !raced || race == races || ctx.Err() != nil {
			return err
		}
	}
}

func (k *keeper) look(ctx context.Context) (raced bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	secret, err := k.secrets.Get(ctx, k.name)
	if apierrors.IsNotFound(err) {
		secret, err = nil, nil
	}
	if err != nil {
		return false, explained(err, "get", k.name)
	}
	now, there := time.Now(), (*content)(nil)
	k.version = ""
	if secret != nil {
		k.version = secret.ResourceVersion
		if there, err = decode(secret); err != nil {
			k.log.WarnContext(ctx, "The Secret with the certificate for webhooks makes no sense. Repairing it.", "secret", k.name, "error", err)
			k.trust(salvage(secret), now)
		}
	}
	if k.mine == nil && k.waits(secret, there, now) {
		return false, nil
	}
	before := k.mine
	if there != nil && !foreign(there, before, now) && (before == nil || covers(there.serving.tls.Leaf, k.plan.names)) {
		k.adopt(there, now)
	}
	if there != nil {
		k.trust(there.bundle, now)
	}
	want, reasons, err := k.plan.next(there, before, k.served.trusted(), k.settled, now)
	if err != nil || len(reasons) == 0 {
		return false, err
	}
	if raced, err := k.write(ctx, secret, want, strings.Join(reasons, "; ")); err != nil {
		return raced, err
	}
	if there == nil && before == nil && !k.alone {
		k.hold = now.Add(grace) // and then look what is there
		return false, nil
	}
	k.adopt(want, time.Now())
	return false, nil
}

// waits tells whether others may still say that they serve something else, before anything
// is made anew, or before that is served.
func (k *keeper) waits(secret *corev1.Secret, there *content, now time.Time) bool {
	if secret != nil && there == nil && k.rubbish != secret.ResourceVersion {
		k.rubbish, k.hold = secret.ResourceVersion, now.Add(grace)
	}
	return now.Before(k.hold)
}

func (k *keeper) settled(a *authority) bool {
	return len(k.served.applied(bundle{a.certificate}, k.plan.settle)) == 1
}

// write puts it into the Secret. A race is lost if somebody else has changed it meanwhile.
func (k *keeper) write(ctx context.Context, secret *corev1.Secret, want *content, why string) (raced bool, err error) {
	into, err := want.encode(secret, k.name)
	if err != nil {
		return false, err
	}
	verb, do := "update", k.secrets.Update
	if secret == nil {
		verb, do = "create", k.secrets.Create
	}
	written, err := do(ctx, into)
	if err != nil {
		return lost(err), explained(err, verb, k.name)
	}
	k.version = written.ResourceVersion
	k.log.InfoContext(ctx, "The certificate for webhooks was written: "+why+".", "secret", k.name, "ends", want.serving.tls.Leaf.NotAfter)
	return false, nil
}

// adopt serves what is in the Secret now.
func (k *keeper) adopt(c *content, now time.Time) {
	k.mine = c
	k.trust(c.bundle, now)
	k.served.serve(c.serving)
}

// trust adds to what clients have to trust.
func (k *keeper) trust(b bundle, now time.Time) {
	if k.served.trust(k.served.trusted().with(b).at(now)) {
		k.changed()
	}
}

// backoff is how long to wait after failures, doubled each time.
type backoff struct{ last time.Duration }

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, time.Second), patience)
	return b.last + rand.N(b.last/5)
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
