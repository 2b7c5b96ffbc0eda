package webhook

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// store is the one Secret of a cluster, in virtual time.
type store struct {
	mu       sync.Mutex
	secret   *corev1.Secret
	version  int
	history  []*corev1.Secret // all versions
	served   map[string]bool  // all serving certificates
	watchers map[*watching]bool
}

// watching is a client's watch; events come late, but in order.
type watching struct {
	store *store
	lag   func() time.Duration
	ctx   context.Context
	stop  context.CancelFunc
	queue chan watch.Event
	out   chan watch.Event
}

func (w *watching) ResultChan() <-chan watch.Event { return w.out }
func (w *watching) Stop()                          { w.stop() }

func (w *watching) deliver() {
	defer close(w.out)
	for {
		select {
		case <-w.ctx.Done():
			return
		case event := <-w.queue:
			select {
			case <-time.After(w.lag()):
			case <-w.ctx.Done():
				return
			}
			select {
			case w.out <- event:
			case <-w.ctx.Done():
				return
			}
		}
	}
}

// set stores a version, or deletes it if that is nil. mu is held.
func (s *store) set(secret *corev1.Secret) *corev1.Secret {
	s.version++
	event := watch.Event{Type: watch.Modified}
	switch {
	case secret == nil && s.secret == nil:
		return nil
	case secret == nil:
		event = watch.Event{Type: watch.Deleted, Object: s.secret}
		s.secret = nil
	default:
		s.secret = secret.DeepCopy()
		s.secret.ResourceVersion = strconv.Itoa(s.version)
		s.history = append(s.history, s.secret)
		event.Object = s.secret
		if s.served == nil {
			s.served = map[string]bool{}
		}
		if certificate := string(secret.Data[keyCertificate]); strings.HasPrefix(certificate, "-----BEGIN") {
			s.served[certificate] = true
		}
	}
	for w := range s.watchers {
		if w.ctx.Err() != nil {
			delete(s.watchers, w)
			continue
		}
		w.queue <- event
	}
	return s.secret.DeepCopy()
}

// edit is what people do by hand.
func (s *store) edit(change func(data map[string][]byte)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.secret == nil {
		return
	}
	edited := s.secret.DeepCopy()
	edited.Data = maps.Clone(edited.Data)
	change(edited.Data)
	s.set(edited)
}

func (s *store) delete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(nil)
}

func (s *store) now() *corev1.Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secret.DeepCopy()
}

// client is how one replica sees it.
type client struct {
	store   *store
	latency func() time.Duration
	lag     func() time.Duration
	before  func(verb string) error // nil: all is well
	after   func(verb string) error
	stale   *corev1.Secret // what the first read shows; nil: what is there
}

func none() time.Duration { return 0 }

func (s *store) client() *client { return &client{store: s, latency: none, lag: none} }

func (c *client) do(ctx context.Context, verb string, action func() (*corev1.Secret, error)) (*corev1.Secret, error) {
	select {
	case <-time.After(c.latency()):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c.before != nil {
		if err := c.before(verb); err != nil {
			return nil, err
		}
	}
	c.store.mu.Lock()
	result, err := action()
	c.store.mu.Unlock()
	if c.after != nil && err == nil {
		if err := c.after(verb); err != nil {
			return nil, err
		}
	}
	return result, err
}

func (c *client) Get(ctx context.Context, name types.NamespacedName) (*corev1.Secret, error) {
	return c.do(ctx, "get", func() (*corev1.Secret, error) {
		if old := c.stale; old != nil {
			c.stale = nil
			return old.DeepCopy(), nil
		}
		if c.store.secret == nil {
			return nil, apierrors.NewNotFound(secretsResource, name.Name)
		}
		return c.store.secret.DeepCopy(), nil
	})
}

func (c *client) Create(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	return c.do(ctx, "create", func() (*corev1.Secret, error) {
		if c.store.secret != nil {
			return nil, apierrors.NewAlreadyExists(secretsResource, secret.Name)
		}
		return c.store.set(secret), nil
	})
}

func (c *client) Update(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	return c.do(ctx, "update", func() (*corev1.Secret, error) {
		switch {
		case c.store.secret == nil:
			return nil, apierrors.NewNotFound(secretsResource, secret.Name)
		case c.store.secret.ResourceVersion != secret.ResourceVersion:
			return nil, apierrors.NewConflict(secretsResource, secret.Name, errors.New("somebody was faster"))
		}
		return c.store.set(secret), nil
	})
}

func (c *client) Watch(ctx context.Context, _ types.NamespacedName) (watch.Interface, error) {
	if c.before != nil {
		if err := c.before("watch"); err != nil {
			return nil, err
		}
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	w := &watching{store: c.store, lag: c.lag, queue: make(chan watch.Event, 1000), out: make(chan watch.Event)}
	w.ctx, w.stop = context.WithCancel(ctx)
	if c.store.secret != nil {
		w.queue <- watch.Event{Type: watch.Added, Object: c.store.secret}
	}
	if c.store.watchers == nil {
		c.store.watchers = map[*watching]bool{}
	}
	c.store.watchers[w] = true
	go w.deliver()
	return w, nil
}

// generations counts how many serving certificates the Secret has had.
func (s *store) generations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.served)
}

// cut ends all watches, as an API server does that is restarted.
func (s *store) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		w.stop()
		delete(s.watchers, w)
	}
}
