package stream

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kopf-go/kopf/internal/body"
)

// watcher stands between client-go's watch and the reflector. It notices signs of
// life, and their absence, and what the reflector keeps to itself: errors inside of
// a watch, and deletions while the initial list is still streamed.
type watcher struct {
	stream *Stream
	ctx    context.Context // of the stream
	cancel context.CancelCauseFunc
	inner  watch.Interface
	result chan watch.Event
	done   chan struct{}
	stop   sync.Once

	initial bool         // the initial list is not over
	version string       // the last seen
	failed  chan Failure // at most one: what has ended the watch
}

// ResultChan is part of watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }

// Stop is called by the reflector's goroutine after the last event, which makes it
// the place to report what has ended the watch.
func (w *watcher) Stop() {
	w.stop.Do(func() { close(w.done) })
	select {
	case f := <-w.failed:
		if w.ctx.Err() == nil {
			w.stream.report(f)
		}
	default:
	}
}

func (w *watcher) run() {
	defer close(w.result)
	defer w.cancel(nil)
	defer w.inner.Stop()
	silence := w.stream.options.Silence
	timer := time.NewTimer(silence)
	defer timer.Stop()
	for {
		select {
		case <-w.done:
			return
		case <-timer.C:
			w.silent(silence)
			return
		case event, ok := <-w.inner.ResultChan():
			if !ok || w.ctx.Err() != nil { // the reflector may take its time to notice
				return
			}
			w.stream.alive()
			if !w.pass(w.prepare(event)) {
				return
			}
			timer.Reset(silence) // the time that the handlers take does not count
		}
	}
}

func (w *watcher) pass(event watch.Event) bool {
	select {
	case w.result <- event:
		return true
	case <-w.done:
		return false
	}
}

// silent ends a watch over which nothing came (B02). The reflector opens another
// one from the last seen version. During the initial list that would begin it
// again, for ever if the server does not know how to end it, so there the
// reflector gets an error that makes it fall back to a plain list.
func (w *watcher) silent(silence time.Duration) {
	err := silentFor(silence)
	w.fail(err)
	if w.initial {
		status := apierrors.NewTimeoutError(err.Error(), 0).Status()
		w.pass(watch.Event{Type: watch.Error, Object: &status})
	}
}

func (w *watcher) fail(err error) {
	select {
	case w.failed <- Failure{Reason: reasonOf(err), Verb: "watch", Err: err}:
	default: // only the first one counts
	}
}

// prepare makes of an event what the reflector and the store can make use of.
func (w *watcher) prepare(event watch.Event) watch.Event {
	switch object := event.Object.(type) {
	case *metav1.Status:
		if event.Type == watch.Error {
			w.fail(apierrors.FromObject(object))
		}
	case *marked:
		if object.ResourceVersion == "" {
			// The reflector would go on from there, that is, from anywhere.
			object.ResourceVersion = w.version
		}
		w.version = object.ResourceVersion
		object.deleted = event.Type == watch.Deleted
	case *body.Body:
		w.version = object.ResourceVersion
		if event.Type == watch.Bookmark && object.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
			w.initial = false
		}
		if !w.initial {
			w.stream.pauses.reset()
		}
		if event.Type == watch.Deleted && w.initial {
			event.Object = &marked{Body: object, deleted: true}
		}
	}
	if event.Type == watch.Deleted && w.initial {
		// The reflector would just drop it from its temporary store, and we were
		// left to notice by its absence that it is gone.
		event.Type = watch.Modified
	}
	return event
}
