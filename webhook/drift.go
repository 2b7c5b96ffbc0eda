package webhook

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// How Run waits: between watches and after errors, ever longer within these limits; for
// the next repair after one that was undone; and between looks where it may not watch.
const (
	minPause = time.Second
	maxPause = time.Minute
)

// Run repairs what others do to the objects, until the context ends, and tries again what
// Apply could not do. A repair comes at once; where somebody undoes it again and again, a
// second to a minute later.
func (k *Keeper) Run(ctx context.Context) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	watches.Go(func() {
		watchAll(ctx, k, &k.validating, metav1.ListOptions{FieldSelector: "metadata.name=" + k.options.Name})
	})
	watches.Go(func() {
		watchAll(ctx, k, &k.mutating, metav1.ListOptions{FieldSelector: "metadata.name=" + k.options.Name})
	})
	var policies sync.Once // only who has policies may watch them, perhaps

	var failures, repairs pauses
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		repairing := false
		select {
		case <-ctx.Done():
			return nil
		case <-k.drift:
			repairing = true
			if !repairs.wait(ctx) {
				return nil
			}
		case <-k.news:
		case <-retry.C:
		}
		if want := k.wanted(); want != nil && len(want.policies) > 0 {
			policies.Do(func() {
				ours := metav1.ListOptions{LabelSelector: ownerLabel + "=" + k.options.owner()}
				watches.Go(func() { watchAll(ctx, k, &k.policies, ours) })
				watches.Go(func() { watchAll(ctx, k, &k.bindings, ours) })
			})
		}
		done := k.isDone()
		if done && !repairing {
			continue
		}
		changed, err := k.sync(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			pause := failures.longer()
			k.log.ErrorContext(ctx, "Webhooks cannot be configured", "name", k.options.Name, "retry", pause, "err", err)
			retry.Reset(pause)
			continue
		}
		failures = pauses{}
		if changed && done {
			k.log.WarnContext(ctx, "Webhooks were changed by somebody else, and are repaired", "name", k.options.Name)
			repairs.longer()
		}
	}
}

// pauses get longer as long as they follow each other closely.
type pauses struct {
	pause time.Duration
	since time.Time
}

// longer begins the next pause.
func (p *pauses) longer() time.Duration {
	if time.Since(p.since) > 2*p.pause+maxPause {
		p.pause = 0
	}
	p.pause, p.since = min(maxPause, max(minPause, 2*p.pause)), time.Now()
	return p.pause
}

// wait lasts until the pause is over, but the first one of a minute is none; false: the
// context has ended.
func (p *pauses) wait(ctx context.Context) bool {
	if p.pause <= 0 {
		return true
	}
	return sleep(ctx, p.pause-time.Since(p.since))
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// watchAll says whenever objects may be other ones than are wanted. Where watching is
// forbidden, it says so every minute.
func watchAll[T object](ctx context.Context, k *Keeper, s *stored[T], options metav1.ListOptions) {
	var broken pauses
	told := false
	for ctx.Err() == nil {
		watched, err := s.client.Watch(ctx, options)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				watched.Stop()
			}
			return
		case apierrors.IsForbidden(err):
			if !told {
				k.log.WarnContext(ctx, "Webhooks are looked at every minute only, for they cannot be watched",
					"err", s.failed("watch", k.options.Name, err))
				told = true
			}
			if !sleep(ctx, maxPause) {
				return
			}
			signal(k.drift)
			continue
		case err != nil:
			k.log.DebugContext(ctx, "Webhooks cannot be watched now", "resource", s.resource, "err", err)
		default:
			signal(k.drift) // for what was missed
			follow(ctx, k, s, watched)
		}
		if !sleep(ctx, broken.longer()) {
			return
		}
	}
}

func follow[T object](ctx context.Context, k *Keeper, s *stored[T], watched watch.Interface) {
	defer watched.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-watched.ResultChan():
			if !open {
				return
			}
			have, ok := event.Object.(T)
			if !ok {
				return // an error, such as a version that is too old
			}
			if drifted(k.wanted(), s, event.Type, have) {
				signal(k.drift)
			}
		}
	}
}

// drifted tells whether the object is not what is wanted.
func drifted[T object](want *wanting, s *stored[T], event watch.EventType, have T) bool {
	if want == nil {
		return false
	}
	i := slices.IndexFunc(want.objects(), func(o object) bool {
		_, same := o.(T)
		return same && o.GetName() == have.GetName()
	})
	switch {
	case i < 0:
		return event != watch.Deleted && event != watch.Bookmark && len(have.GetLabels()[ownerLabel]) > 0
	case event == watch.Deleted:
		return true
	}
	return event != watch.Bookmark && !s.same(have, want.objects()[i].(T))
}

// objects are all that are wanted.
func (w *wanting) objects() []object {
	objects := []object{w.validating, w.mutating}
	for _, policy := range w.policies {
		objects = append(objects, policy)
	}
	for _, binding := range w.bindings {
		objects = append(objects, binding)
	}
	return objects
}
