package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/stream"
)

// following is a kind that is followed in a namespace. One goroutine attends to it, as the
// namespace begins to be served, stops, or begins again.
type following struct {
	kind    *kind
	key     streamKey
	stream  *stream.Stream // nil: not yet. The director's lock guards it
	cancel  context.CancelFunc
	restart context.CancelFunc // has everything listed anew
	ended   chan struct{}
	wanted  bool          // the namespace is served; else its objects are released. The director's lock guards it
	turned  chan struct{} // that has changed
	listed  chan struct{} // closed when it is, or cannot be
	heard   func()        // closes it

	departure *departure // of the objects that it tells of; nil: they are handled. The kind's lock guards it
}

// follow has a kind followed in a namespace, if it is time for that, or released if it is
// not wanted there any more. The caller holds the lock.
func (d *director) follow(ctx context.Context, k *kind, namespace string, wanted bool) {
	key := streamKey{k.resource.GVR, namespace}
	if f := d.following[key]; f != nil {
		if f.wanted != wanted {
			f.wanted = wanted
			signal(f.turned)
		}
		return
	}
	if len(k.indexHandlers) == 0 && !d.ready.ready() {
		return
	}
	if len(k.indexHandlers) > 0 && wanted {
		d.ready.await(key, k)
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &following{
		kind: k, key: key, cancel: cancel, restart: func() {}, ended: make(chan struct{}), wanted: wanted, turned: make(chan struct{}, 1),
	}
	if !wanted {
		f.departure = newDeparture()
	}
	f.listed = make(chan struct{})
	f.heard = sync.OnceFunc(func() { close(f.listed) })
	d.following[key] = f
	d.streams.Go(func() {
		defer close(f.ended)
		d.attend(ctx, f)
	})
}

// attend follows as long as it is wanted, and releases what there is when it is not any more.
func (d *director) attend(ctx context.Context, f *following) {
	for {
		watching, stop := context.WithCancel(ctx)
		var streams sync.WaitGroup
		d.watch(watching, f, &streams)
		d.waitWhile(ctx, f, true)
		released := ctx.Err() == nil && d.release(ctx, f)
		stop()
		streams.Wait()
		released = released && d.rested(ctx, f) // what came at last, too
		if ctx.Err() != nil || released && d.depart(f) {
			return
		}
		f.kind.takeBack(f)
	}
}

// watch runs the stream until the context ends.
func (d *director) watch(ctx context.Context, f *following, streams *sync.WaitGroup) {
	k, key := f.kind, f.key
	s := stream.New(stream.Options{
		Client: k.client, GVR: k.resource.GVR, GVK: k.resource.GVK, Namespace: key.namespace,
		OnEvent: func(event stream.Event) { k.handle(f, event) },
		OnError: func(failure stream.Failure) {
			switch failure.Reason {
			case stream.Forbidden, stream.Unauthorized, stream.NotServed:
				f.heard()
			}
			d.failed(k, key, failure)
		},
		Silence: d.settings.InactivityTimeout,
		Logger:  d.log,
	})
	d.mu.Lock()
	f.stream = s
	d.mu.Unlock()
	streams.Go(func() {
		for d.resumed(ctx, s) {
			run, restart := context.WithCancel(ctx)
			d.mu.Lock()
			f.restart = restart
			d.mu.Unlock()
			if _, paused := d.pausing(); !paused { // else nobody may have seen this one
				s.Run(run)
			}
			restart()
		}
	})
	streams.Go(func() {
		select {
		case <-ctx.Done():
		case <-s.Synced():
			k.bury(k.unlisted(key.namespace))
			d.ready.settle(key)
			f.heard()
			k.mu.Lock()
			n := len(k.objects)
			k.mu.Unlock()
			k.log.Info("watching", "namespace", key.namespace, "objects", n)
		}
	})
}

// isWanted tells whether the namespace is served.
func (d *director) isWanted(f *following) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return f.wanted
}

// waitWhile waits until it is wanted or not any more, or the context ends.
func (d *director) waitWhile(ctx context.Context, f *following, wanted bool) {
	for ctx.Err() == nil && d.isWanted(f) == wanted {
		select {
		case <-ctx.Done():
		case <-f.turned:
		}
	}
}

// release lets go of all objects of a namespace that is not served any more, as if they had
// left all filters: daemons and timers are stopped, and what is ours on the objects goes, but
// for the state that was handled last. Nobody keeps idle objects, so they are listed once.
// It tells whether all are released; else the namespace is served again, or gone.
func (d *director) release(ctx context.Context, f *following) bool {
	k := f.kind
	for _, o := range k.dismiss(f) {
		o.leave(f.departure)
	}
	for failures := 1; k.changes(); failures++ {
		err := k.client.List(ctx, k.resource.GVR, f.key.namespace, d.settings.RequestTimeout, func(b *body.Body, unreadable error) error {
			if unreadable == nil {
				k.clear(f, b)
			}
			return nil
		})
		if err == nil || apierrors.IsNotFound(err) {
			break
		}
		delay := d.settings.errorDelay(failures)
		if ctx.Err() == nil {
			d.sayUnreleased(f, err)
		}
		if !d.pause(ctx, f, delay) {
			return false
		}
	}
	return d.rested(ctx, f)
}

// sayUnreleased says what keeps objects from being released: what passes by itself for the
// debug level, what somebody has to mend once.
func (d *director) sayUnreleased(f *following, err error) {
	if apierrors.IsForbidden(err) {
		d.once(slog.LevelError, "permission is missing, objects of a namespace that is not for this operator any more cannot be released: grant the verb",
			"verb", "list", "resource", resourceName(f.key.gvr), "namespace", f.key.namespace, "error", err)
		return
	}
	f.kind.log.Debug("objects to release cannot be listed, which is tried again", "namespace", f.key.namespace, "error", err)
}

// pause waits for a time. It is false if it is not to be released any more.
func (d *director) pause(ctx context.Context, f *following, delay time.Duration) bool {
	within, cancel := context.WithTimeout(ctx, delay)
	defer cancel()
	d.waitWhile(within, f, false)
	return ctx.Err() == nil && !d.isWanted(f)
}

// rested waits until nothing goes on with the objects that depart. It is false if they do
// not any more.
func (d *director) rested(ctx context.Context, f *following) bool {
	for {
		busy := false
		for _, o := range f.kind.in(f.key.namespace) {
			for o.departs(f.departure) && o.busy() {
				busy = true
				select {
				case <-ctx.Done():
				case <-f.turned:
				case <-f.departure.rested:
				}
				if ctx.Err() != nil || d.isWanted(f) {
					return false
				}
			}
		}
		if !busy {
			return !d.isWanted(f)
		}
	}
}

// signal leaves a token in a channel that has room for one, unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
