package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kopf-go/kopf/internal/body"
)

// look is what a term has to do with the objects of a kind that were there before it. When
// the term begins, another operator may have handled until a moment ago, and our watch may
// be behind: what it tells of that time is not believed. An object that asks for something
// is read first; if many do, all are listed once instead. So nothing is handled again that
// is handled, and objects that only have to be looked at, such as for resume handlers, need
// not be kept until then.
type look struct {
	term *term
	kind *kind
	kick chan struct{} // there is something to read

	mu     sync.Mutex
	known  bool             // fresh is known
	fresh  string           // the version when the term had begun; empty: everything is believed
	until  time.Time        // when versions are believed that cannot be compared with it
	wanted map[*object]bool // those to be read
}

const (
	// fewToRead is how many objects are read one by one in any case.
	fewToRead = 20
	// listFrom is the part of all objects, one of so many, from which on a list of all costs
	// less than reading some of them.
	listFrom = 20
	// readAtOnce is how many are being read at a time.
	readAtOnce = 10
	// gathering is how long objects are waited for that come about at the same time.
	gathering = 20 * time.Millisecond
)

// lookAt is the look at a kind; nil: its objects were not there before the term.
func (t *term) lookAt(k *kind) *look {
	if k.born == t {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.looks[k]
	if l == nil {
		l = &look{
			term: t, kind: k, kick: make(chan struct{}, 1), wanted: map[*object]bool{}, known: !t.outdated,
			until: time.Now().Add(t.engine.settings.ConsistencyTimeout),
		}
		t.looks[k] = l
		if t.enter() {
			go func() {
				defer t.exit()
				l.run()
			}()
		}
	}
	return l
}

// doubts tells whether a version may be from before the term; not so if there is no look.
func (l *look) doubts(version string) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known || l.fresh == "" {
		return !l.known
	}
	order, err := resourceversion.CompareResourceVersion(version, l.fresh)
	if err != nil {
		return time.Now().Before(l.until)
	}
	return order <= 0
}

// want has an object read. It does not block.
func (l *look) want(o *object) {
	l.mu.Lock()
	l.wanted[o] = true
	l.mu.Unlock()
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// run reads what is wanted until the term ends.
func (l *look) run() {
	ctx, e := l.term.handling, l.term.engine
	for _, o := range l.kind.all() {
		o.revive(l)
	}
	failures := 0
	for {
		pause := gathering
		if err := l.read(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, errFenced) {
			failures++
			pause = e.settings.errorDelay(failures)
			l.kind.log.Warn("objects could not be read at the beginning of the term, which is tried again", "error", err, "in", pause)
		} else {
			failures = 0
			select {
			case <-ctx.Done():
				return
			case <-l.kick:
			}
		}
		rest := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case <-rest.C:
		}
	}
}

// read reads what is wanted now; what it cannot read stays wanted.
func (l *look) read(ctx context.Context) error {
	l.mu.Lock()
	wanted, known := l.wanted, l.known
	l.wanted = map[*object]bool{}
	l.mu.Unlock()
	k := l.kind
	if known && len(wanted) == 0 {
		return nil
	}
	err := l.ask(ctx, known)
	many := len(wanted) > fewToRead && len(wanted)*listFrom >= k.count()
	if err == nil && !many {
		err = l.get(ctx, wanted)
	}
	if err == nil && many || apierrors.IsForbidden(err) {
		err = l.list(ctx, wanted)
	}
	if err != nil {
		l.mu.Lock()
		for o := range wanted {
			l.wanted[o] = true
		}
		l.mu.Unlock()
	}
	return err
}

// ask asks for the version of the resource, unless it is known.
func (l *look) ask(ctx context.Context, known bool) error {
	if known {
		return nil
	}
	k, version := l.kind, ""
	if namespaces := k.followed(); len(namespaces) > 0 { // one is as good as any other
		var err error
		if version, err = k.client.Version(ctx, k.resource.GVR, namespaces[0]); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known, l.fresh = true, version
	return nil
}

// list reads all objects.
func (l *look) list(ctx context.Context, wanted map[*object]bool) error {
	k := l.kind
	byUID := make(map[types.UID]*object, len(wanted))
	for o := range wanted {
		byUID[o.uid] = o
	}
	for _, namespace := range k.followed() {
		err := k.client.List(ctx, k.resource.GVR, namespace, l.term.engine.settings.RequestTimeout, func(b *body.Body, unreadable error) error {
			if o := byUID[b.UID]; o != nil && unreadable == nil {
				delete(wanted, o)
				o.shown(l.term, b)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil // what was not among them is gone, which its stream will tell
}

// get reads objects one by one.
func (l *look) get(ctx context.Context, wanted map[*object]bool) error {
	var reading sync.WaitGroup
	var mu sync.Mutex
	var failed error
	queue := make(chan *object, len(wanted))
	for o := range wanted {
		queue <- o
	}
	close(queue)
	for range min(readAtOnce, len(wanted)) {
		reading.Go(func() {
			for o := range queue {
				b, err := l.kind.client.Get(ctx, l.kind.resource.GVR, o.namespace, o.name)
				if err == nil && b.UID == o.uid {
					o.shown(l.term, b)
				}
				mu.Lock()
				if err == nil || apierrors.IsNotFound(err) {
					delete(wanted, o)
				} else {
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	reading.Wait()
	return failed
}

// all are the objects of a kind.
func (k *kind) all() []*object {
	k.mu.Lock()
	defer k.mu.Unlock()
	objects := make([]*object, 0, len(k.objects))
	for _, o := range k.objects {
		objects = append(objects, o)
	}
	return objects
}

func (k *kind) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.objects)
}

// followed are the namespaces that the kind is followed in; "": all.
func (k *kind) followed() (namespaces []string) {
	for _, key := range k.engine.director.Load().keysOf(k) {
		namespaces = append(namespaces, key.namespace)
	}
	return namespaces
}

// part has outcomes written that wait for another attempt, now that the term ends.
func (k *kind) part(t *term) {
	for _, o := range k.all() {
		o.mu.Lock()
		if w := o.work; w != nil && !w.running && w.carry != nil && t.follow() {
			k.engine.timers.stop(w.timer)
			w.timer, w.running = nil, true
			go o.run(t)
		}
		o.mu.Unlock()
	}
}

// revive has an object read at the beginning of a term, if there is anything that it asks
// for.
func (o *object) revive(l *look) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.work; w != nil && !w.running {
		if w.timer == nil || !w.held {
			w.held = false
			o.start()
		}
		return
	}
	if o.work == nil && o.asks() {
		l.want(o)
	}
}

// asks tells whether the object has to be looked at although nothing has happened to it:
// for resume handlers, or because something has changed in an index. The caller holds the lock.
func (o *object) asks() bool {
	return o.initial && (o.kind.resumes || len(o.kind.users) > 0) || len(o.woken) > 0
}

// shown takes a version that was read in a term, of an object that asks for something.
func (o *object) shown(t *term, b *body.Body) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.work
	if o.gone || o.kind.engine.current() != t || w != nil && (w.running || w.known == t) {
		return
	}
	o.leaving = o.leaving || b.Deleting()
	order, err := resourceversion.CompareResourceVersion(b.ResourceVersion, o.seen)
	older := o.seen != "" && err == nil && order < 0 // than an event that came meanwhile
	if older && w == nil {
		return
	}
	if !older {
		o.seen = b.ResourceVersion
		o.begin()
		if (w == nil || w.carry == nil) && o.calm(b) {
			o.initial = false
			o.drop()
			return
		}
		if w == nil {
			w = newWork()
			o.work = w
		}
		w.latest, w.newer = b, true
	}
	w.known, w.refresh = t, false
	o.start()
}

// drop is when there is nothing to do any more. The caller holds the lock.
func (o *object) drop() {
	if o.work != nil {
		o.kind.engine.timers.stop(o.work.timer)
		o.work = nil
	}
	o.rest()
}

// part decides what follows a cycle of a term that has ended: what there is to say is tried
// again while that is possible. What was not said then is dropped: nobody knows what another
// leader makes of the object, so handlers are called again by whoever leads next. The caller
// holds the lock.
func (o *object) part(t *term, v verdict, err error) (again bool, pause time.Duration) {
	e, w := o.kind.engine, o.work
	if w.carry != nil && !o.gone && w.partings < lastWords && t.may() == nil {
		w.partings++
		switch {
		case err != nil:
			return true, e.settings.errorDelay(w.partings)
		case v.again:
			return true, 0
		}
	}
	if w.carry != nil && !o.gone {
		o.log().LogAttrs(context.Background(), slog.LevelInfo,
			"what handlers have come to could not be written any more, they are called again by the next leader", slog.Any("error", err))
	}
	*w = work{latest: w.latest, seen: w.seen}
	switch {
	case o.gone:
		o.kind.forget(o)
		return false, 0
	case w.latest != nil && o.handled(w.latest):
		o.work = nil
	}
	now := e.current()
	switch {
	case now == nil:
	case o.work != nil:
		o.start()
	case o.asks():
		if l := now.lookAt(o.kind); l != nil {
			l.want(o)
		}
	}
	return false, 0
}

// lastWords is how often a write is tried again at the end of a term.
const lastWords = 3
