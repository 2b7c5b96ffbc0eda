package peering

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/internal/stream"
)

// lookout is what says when to look which kinds of peering objects there are.
type lookout struct {
	news  chan struct{} // something has changed
	blind chan struct{} // definitions of kinds cannot be watched
}

func newLookout() lookout {
	return lookout{news: make(chan struct{}, 1), blind: make(chan struct{}, 1)}
}

// look has the kinds looked for again.
func (l lookout) look() { signal(l.news) }

// plan is when to look again.
type plan struct {
	next   time.Time // zero: not without news
	step   int       // of newsPauses
	blind  bool
	failed int                                 // looks in a row
	absent map[schema.GroupVersionResource]int // looks in a row that did not find a kind
}

// newsPauses are until the looks after there was news: the API server tells of a definition
// before it serves what is in it.
var newsPauses = []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}

const (
	// gone is how many looks do not find a kind that is gone, and goneAfter the pause
	// between them: a server that starts may fail to mention a kind.
	gone, goneAfter = 2, 2 * time.Second
	// idle is how many intervals are between looks that nobody waits for.
	idle = 12
	// longestPause is between looks that fail.
	longestPause = 30 * time.Second
)

// hurry plans looks after there was news.
func (l *plan) hurry() {
	l.step = 0
	l.within(newsPauses[0])
}

// within plans a look.
func (l *plan) within(pause time.Duration) {
	if at := time.Now().Add(pause); l.next.IsZero() || at.Before(l.next) {
		l.next = at
	}
}

// again plans the look after one.
func (l *plan) again(r *run) {
	l.next = time.Time{}
	if l.step++; l.step < len(newsPauses) {
		l.within(newsPauses[l.step])
	}
	if l.failed > 0 {
		l.within(min(time.Second<<min(l.failed-1, 10), longestPause))
	}
	if len(l.absent) > 0 {
		l.within(goneAfter)
	}
	l.patiently(r)
}

// patiently plans the look that comes even if there is no news, where there can be none.
func (l *plan) patiently(r *run) {
	switch waits := r.Mandatory && len(r.kinds) == 0; {
	case waits && (l.blind || r.Once):
		l.within(r.Interval)
	case l.blind && !r.Once:
		l.within(idle * r.Interval)
	}
}

// meet takes part wherever there is something to take part in, until the context ends, and
// leaves everywhere then.
func (r *run) meet(ctx context.Context) {
	defer r.attending.Wait()
	l := &plan{next: time.Now(), step: len(newsPauses), absent: map[schema.GroupVersionResource]int{}}
	var watching sync.WaitGroup
	defer watching.Wait()
	watch := sync.OnceFunc(func() { r.watchDefinitions(ctx, &watching) })
	clock := time.NewTimer(0)
	defer clock.Stop()
	for {
		if !l.next.IsZero() && !time.Now().Before(l.next) {
			r.find(ctx, l)
			l.again(r)
		}
		if ctx.Err() != nil {
			return
		}
		if !r.Once {
			watch()
		}
		names, changed := []string{""}, (<-chan struct{})(nil)
		if r.Namespaces != nil {
			names, changed = r.Namespaces()
		}
		if names != nil {
			r.attend(ctx, names)
		}
		clock.Stop()
		if !l.next.IsZero() {
			clock.Reset(max(0, time.Until(l.next)))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-clock.C:
		case <-r.news:
			l.hurry()
		case <-r.blind:
			l.blind = true
			l.patiently(r)
		}
	}
}

// find looks which kinds there are.
func (r *run) find(ctx context.Context, l *plan) {
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	kinds, err := served(asking, r.Discovery, r.Namespaces == nil)
	if ctx.Err() != nil {
		return
	}
	if l.failed++; err == nil {
		l.failed = 0
	} else if l.failed == 1 {
		r.Log.Warn("it is not known whether there are peering objects, which is looked for again", "error", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, was := range r.kinds {
		gvr := was.GroupVersionResource
		if slices.ContainsFunc(kinds, func(k kind) bool { return k.GroupVersionResource == gvr }) {
			delete(l.absent, gvr)
			continue
		}
		if err == nil {
			l.absent[gvr]++
		}
		if l.absent[gvr] < gone {
			kinds = append(kinds, was)
		} else {
			delete(l.absent, gvr)
		}
	}
	r.kinds, r.sure = kinds, r.sure || err == nil
}

// attend takes part in the objects of all kinds in some namespaces, and in no others.
func (r *run) attend(ctx context.Context, namespaces []string) {
	r.mu.Lock()
	wanted := map[placeKey]kind{}
	for _, k := range r.kinds {
		for _, namespace := range namespaces {
			wanted[placeKey{k.GroupVersionResource, namespace}] = k
		}
	}
	for key, t := range r.places {
		if k, is := wanted[key]; !is || k != t.kind {
			t.leave()
			r.left[key] = t.left
			delete(r.places, key)
		}
	}
	for key, k := range wanted {
		if r.places[key] == nil {
			r.take(ctx, key, k)
		}
	}
	r.found = r.sure
	r.mu.Unlock()
	signal(r.wake)
}

// take begins to take part in one object, after an earlier part in it has ended. The caller
// holds the lock.
func (r *run) take(ctx context.Context, key placeKey, k kind) {
	ctx, leave := context.WithCancel(ctx)
	t := &taken{place: newPlace(r, k, key.namespace), leave: leave, left: make(chan struct{})}
	before := r.left[key]
	delete(r.left, key)
	r.places[key] = t
	r.attending.Go(func() {
		defer r.forget(key, t)
		defer leave()
		if before != nil {
			<-before
		}
		t.follow(ctx)
	})
}

// forget lets go of a place that has been left.
func (r *run) forget(key placeKey, t *taken) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left[key] == t.left {
		delete(r.left, key)
	}
	close(t.left)
}

func compareKeys(a, b placeKey) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.resource.Group, b.resource.Group))
}

var (
	definitions    = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	definitionKind = definitions.GroupVersion().WithKind("CustomResourceDefinition")
)

// watchDefinitions notices when kinds of peering objects come, change or go.
func (r *run) watchDefinitions(ctx context.Context, running *sync.WaitGroup) {
	client := r.Client.MetadataOnly(definitionKind)
	for _, gv := range groups {
		gvr := gv.WithResource(plural(r.Namespaces == nil))
		generation := int64(0)
		s := stream.New(stream.Options{
			Client: client, GVR: definitions, GVK: definitionKind, Silence: r.Silence, Logger: r.Log,
			FieldSelector: "metadata.name=" + gvr.GroupResource().String(),
			OnEvent: func(event stream.Event) {
				same := event.Body.Generation == generation || event.Type == stream.Listed
				generation = event.Body.Generation
				if event.Body.Name == gvr.GroupResource().String() && (event.Type == stream.Deleted || !same || !r.has(gvr)) {
					r.look()
				}
			},
			OnError: func(f stream.Failure) {
				if f.Reason == stream.Forbidden || f.Reason == stream.NotServed {
					signal(r.blind)
				}
			},
		})
		running.Go(func() { s.Run(ctx) })
	}
}

// has tells whether a kind is known to be served.
func (r *run) has(gvr schema.GroupVersionResource) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.kinds, func(k kind) bool { return k.GroupVersionResource == gvr })
}
