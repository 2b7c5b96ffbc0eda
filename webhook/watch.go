package webhook

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// watcher tells that a Secret has changed. What it holds now has to be read: only that is
// never late. Where watching does not work, it says so, and lets its user look now and then.
type watcher struct {
	secrets Secrets
	name    types.NamespacedName
	watch   watch.Interface // nil: none
	again   time.Time       // when to begin one
	retry   backoff
	trouble error // of the last try to begin one
}

// start begins to watch if nobody does, and it is time to.
func (w *watcher) start(ctx context.Context) error {
	if w.watch != nil || time.Now().Before(w.again) {
		return w.trouble
	}
	started, err := w.secrets.Watch(ctx, w.name)
	if w.trouble = explained(err, "watch", w.name); err != nil {
		w.again = time.Now().Add(w.retry.next())
		return w.trouble
	}
	w.watch = started
	return nil
}

func (w *watcher) stop() {
	if w.watch != nil {
		w.watch.Stop()
		w.watch = nil
	}
}

// wait returns at a time, when woken, when the Secret has another version than this one, or
// when a watch can be begun again.
func (w *watcher) wait(ctx context.Context, until time.Time, woken <-chan struct{}, version *string) {
	var events <-chan watch.Event
	if w.watch != nil {
		events = w.watch.ResultChan()
	} else {
		until = earliest(until, w.again)
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-woken:
			return
		case event, open := <-events:
			secret, isSecret := event.Object.(*corev1.Secret)
			if !open || !isSecret {
				w.stop() // its time was over, or something is wrong with it
				w.again = time.Now().Add(w.retry.next())
				return
			}
			w.retry = backoff{}
			if event.Type == watch.Deleted || secret.ResourceVersion != *version {
				return
			}
		}
	}
}
