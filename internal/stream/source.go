package stream

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// source is where the reflector gets its lists and watches from. It reports what
// fails, and repeats what is worth it, so that an ordinary disturbance does not
// cost a list of everything.
type source struct{ *Stream }

var _ cache.ListerWatcherWithContext = &source{}

// List is part of an interface that the reflector asks for but does not use.
func (s *source) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

// Watch is part of an interface that the reflector asks for but does not use.
func (s *source) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

// ListWithContext gets one page of a list. The reflector gets no items: they are
// handed out here, so that there is never more than one page in memory.
func (s *source) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if !s.enter(ctx) { // the reflector does not wait for us when ctx is done
		return nil, context.Cause(ctx)
	}
	defer s.running.Done()
	if options.ResourceVersion == "0" {
		// The reflector would be content with what some API server remembers, which
		// may be from before the last run of this operator.
		options.ResourceVersion = ""
	}
	if options.Continue == "" {
		s.store.begin()
	}
	options.LabelSelector, options.FieldSelector = s.options.LabelSelector, s.options.FieldSelector
	var got *page
	err := s.attempt(ctx, "list", false, func() (err error) {
		ctx, cancel := context.WithTimeoutCause(ctx, s.options.Silence, silentFor(s.options.Silence))
		defer cancel()
		got, err = s.options.Client.list(ctx, s.options.GVR, s.options.Namespace, options, s.store.kind)
		return because(ctx, err)
	})
	if err != nil {
		return nil, err
	}
	for i, object := range got.Items {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		s.store.see(object, true)
		got.Items[i] = nil
	}
	got.Items = nil
	return got, nil
}

// WatchWithContext opens a watch.
func (s *source) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	streamedList := options.SendInitialEvents != nil && *options.SendInitialEvents
	if streamedList {
		s.store.begin()
	}
	options.LabelSelector, options.FieldSelector = s.options.LabelSelector, s.options.FieldSelector
	var w *watcher
	err := s.attempt(ctx, "watch", streamedList, func() (err error) {
		w, err = s.open(ctx, options)
		return err
	})
	if err != nil {
		return nil, err
	}
	w.initial = streamedList
	s.running.Go(w.run)
	return w, nil
}

// open makes one attempt to open a watch. Its context is its own, for what limits
// the time until the answer must not limit the watch.
func (s *source) open(ctx context.Context, options metav1.ListOptions) (*watcher, error) {
	opened, cancel := context.WithCancelCause(ctx)
	limit := time.AfterFunc(s.options.Silence, func() { cancel(silentFor(s.options.Silence)) })
	defer limit.Stop()
	inner, err := s.options.Client.watch(opened, s.options.GVR, s.options.Namespace, options)
	if err != nil {
		err = because(opened, err)
		cancel(nil)
		return nil, err
	}
	return &watcher{
		stream: s.Stream, ctx: ctx, cancel: cancel, inner: inner,
		result: make(chan watch.Event), done: make(chan struct{}),
		version: options.ResourceVersion, failed: make(chan Failure, 1),
	}, nil
}

// attempt repeats a request while its failures are of the kind that passes, with
// longer and longer pauses, or those that the server asked for (B03).
func (s *source) attempt(ctx context.Context, verb string, streamedList bool, request func() error) error {
	for {
		err := request()
		if err == nil {
			s.alive()
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if streamedList && declined(err) {
			s.log.DebugContext(ctx, "the server does not stream lists", "error", err)
			return err
		}
		s.report(Failure{Reason: reasonOf(err), Verb: verb, Err: err})
		if !passes(err, streamedList) {
			return err
		}
		if !sleep(ctx, max(s.pauses.again(), retryAfter(err))) {
			return context.Cause(ctx)
		}
	}
}

// because replaces what a request says of being cancelled by the cause.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
