package recording

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

const (
	requestTimeout = 10 * time.Second // of one request
	flushTimeout   = 3 * time.Second  // of all requests at the end
	firstPause     = time.Second      // after an event that could not be posted
	longestPause   = 30 * time.Second
	patience       = 8 // times one event is tried: some two minutes
)

// posting is an event to be created, or, with a patch, one to be counted on.
type posting struct {
	event *corev1.Event
	patch []byte
}

// Run posts events until the context ends, and then those that wait, for three seconds at
// most; no further ones are taken. The client is one for core/v1. There is one request at
// a time, so that no trouble of the API server is made worse: while it cannot be reached,
// events wait, with growing pauses, and what does not fit into the queue is dropped; what it
// refuses is not tried again (KEV-8).
func (r *Recorder) Run(ctx context.Context, client rest.Interface) {
	writing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		limit := time.AfterFunc(flushTimeout, cancel)
		context.AfterFunc(writing, func() { limit.Stop() })
	})()
	for {
		select {
		case <-ctx.Done():
			r.flush(writing, client)
			return
		case p := <-r.queue:
			if !r.insist(ctx, writing, client, p) {
				r.flush(writing, client, p)
				return
			}
		}
	}
}

// insist posts an event, with pauses while the API server cannot be reached. It tells whether
// nothing is left to do for it; else the context has ended.
func (r *Recorder) insist(ctx, writing context.Context, client rest.Interface, p posting) (done bool) {
	pause := firstPause
	for try := 1; ctx.Err() == nil; try++ {
		err := r.post(writing, client, p)
		if reachable(err) {
			return true
		}
		r.warnings.say("events cannot be posted for now, they wait", "unreachable", "error", err)
		if try == patience {
			return true
		}
		timer := time.NewTimer(max(pause, suggested(err)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, longestPause)
	}
	return false
}

// flush posts what waits, beginning with what was taken from the queue. When the API server
// cannot be reached, or the time is over, the rest is lost.
func (r *Recorder) flush(writing context.Context, client rest.Interface, taken ...posting) {
	r.mu.Lock()
	r.stopped = true
	close(r.queue)
	r.mu.Unlock()
	for p := range r.queue {
		taken = append(taken, p)
	}
	for i, p := range taken {
		if err := r.post(writing, client, p); !reachable(err) {
			r.log.Warn("events could not be posted before the end", "lost", len(taken)-i, "error", err)
			return
		}
	}
}

// post sends an event, and says what is wrong with it if that is for good.
func (r *Recorder) post(writing context.Context, client rest.Interface, p posting) error {
	ctx, cancel := context.WithTimeout(writing, requestTimeout)
	defer cancel()
	err := send(ctx, client, p)
	switch {
	case err == nil || !reachable(err):
	case apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		r.log.Debug("event is of no use any more", "error", err)
	case apierrors.IsForbidden(err):
		r.warnings.say("events cannot be posted: the operator needs the verbs create and patch for events", "forbidden", "error", err)
	default:
		r.warnings.say("event was refused", "refused", "reason", p.event.Reason, "error", err)
	}
	return err
}

// send makes one attempt. The patch sets some scalars, so that it means the same as a merge
// patch as it does as the strategic one that it was made to be.
func send(ctx context.Context, client rest.Interface, p posting) error {
	event := *p.event
	if p.patch != nil && event.Count > 1 {
		err := client.Patch(types.MergePatchType).Namespace(event.Namespace).Resource("events").Name(event.Name).
			Body(p.patch).MaxRetries(0).Do(ctx).Error()
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	event.ResourceVersion = ""
	raw, err := json.Marshal(&event)
	if err != nil {
		return err
	}
	return client.Post().Namespace(event.Namespace).Resource("events").Body(raw).MaxRetries(0).Do(ctx).Error()
}

// reachable tells whether the API server has said something about the very event.
func reachable(err error) bool {
	if err == nil {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false
	}
	return true
}

// suggested is how long the API server asks to be left alone, within limits.
func suggested(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return min(time.Duration(seconds)*time.Second, longestPause)
}

// warnings are said now and then, not with each event.
type warnings struct {
	log *slog.Logger

	mu   sync.Mutex
	said map[string]time.Time // by what they are about
}

const warningInterval = 10 * time.Minute

func (w *warnings) say(message, about string, attrs ...any) {
	w.mu.Lock()
	last, known := w.said[about]
	level := slog.LevelWarn
	if known && time.Since(last) < warningInterval {
		level = slog.LevelDebug
	} else {
		if w.said == nil {
			w.said = map[string]time.Time{}
		}
		w.said[about] = time.Now()
	}
	w.mu.Unlock()
	w.log.Log(context.Background(), level, message, attrs...)
}
