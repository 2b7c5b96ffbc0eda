package peering

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/stream"
)

// place is one peering object, whether it exists or not, where the operator meets its
// peers: one for each kind, and for each namespace unless it is cluster-wide.
type place struct {
	*run
	spot
	log   *slog.Logger
	sight sight
	said  map[string]string // complaints about records, by identity; of judge's goroutine
	wake  chan struct{}     // there is something new to judge, for judge
	urge  chan struct{}     // there is something to write, for keep

	mu      sync.Mutex
	object  *body.Body // the newest version; nil: it does not exist, as far as is known
	asOf    time.Time  // when that was so
	listed  bool       // the stream has told whether it exists
	tried   bool       // the first keep-alive was answered, or failed
	hidden  error      // it cannot be read; nil: it can
	touch   bool       // a keep-alive is due at once
	dead    []string   // records to be removed from the version below
	version string
}

func newPlace(r *run, k kind, namespace string) *place {
	return &place{
		run: r, spot: spot{k, namespace, r.Name},
		log:   r.Log.With("resource", k.GroupResource().String(), "namespace", namespace, "name", r.Name),
		sight: sight{priority: int64(r.Priority)}, said: map[string]string{},
		wake: make(chan struct{}, 1), urge: make(chan struct{}, 1),
	}
}

// follow takes part until the context ends, and takes the operator's record away then.
func (p *place) follow(ctx context.Context) {
	var parts sync.WaitGroup
	p.sight.self = p.identity()
	s := stream.New(stream.Options{
		Client: p.Client, GVR: p.kind.GroupVersionResource, GVK: p.kind.gvk(), Namespace: p.namespace,
		FieldSelector: "metadata.name=" + p.name, Silence: p.Silence, Logger: p.Log,
		OnEvent: p.hear, OnError: p.failed,
	})
	parts.Go(func() { s.Run(ctx) })
	parts.Go(func() {
		select {
		case <-ctx.Done():
		case <-s.Synced():
			p.change(func() { p.listed, p.hidden = true, nil })
		}
	})
	parts.Go(func() { p.judge(ctx) })
	p.keep(ctx)
	parts.Wait()
}

// change changes what is known, and has it judged.
func (p *place) change(what func()) {
	p.mu.Lock()
	what()
	p.mu.Unlock()
	signal(p.wake)
}

// hear takes an event of the stream.
func (p *place) hear(event stream.Event) {
	b := event.Body
	if b.Name != p.name { // an API server that does not know the selector
		return
	}
	if event.Type != stream.Deleted {
		p.show(b)
		return
	}
	p.change(func() {
		if p.object != nil && p.object.UID == b.UID {
			p.object, p.asOf = nil, time.Now()
		}
	})
}

// show takes a version of the object, from an event or the answer to a request, unless a
// newer one is known.
func (p *place) show(b *body.Body) {
	p.change(func() {
		if p.object != nil {
			if order, err := resourceversion.CompareResourceVersion(b.ResourceVersion, p.object.ResourceVersion); err == nil && order < 0 {
				return
			}
		}
		p.object, p.asOf, p.hidden = b, time.Now(), nil
	})
}

// failed takes what goes wrong with the stream.
func (p *place) failed(f stream.Failure) {
	switch f.Reason {
	case stream.Forbidden:
		p.once("permission is missing, other operators are not noticed: grant the verb", "verb", f.Verb, "error", f.Err)
		p.change(func() { p.hidden = f.Err })
	case stream.NotServed:
		p.look()
	default:
		p.log.Debug("stream of a peering object was interrupted, it goes on", "reason", f.Reason, "error", f.Err)
	}
}

// once says a thing that somebody has to mend.
func (p *place) once(text string, args ...any) {
	if p.sayOnce(p.kind.GroupResource().String() + " " + text) {
		p.log.Error(text, args...)
	}
}

// judge finds out what the peers mean, whenever there is something new. When the time of a
// peer that is in the way is over, it asks for a keep-alive, and judges the answer: for the
// peer may have said that it is alive, unheard (PEER-7).
func (p *place) judge(ctx context.Context) {
	clock := time.NewTimer(0)
	clock.Stop()
	defer clock.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
			p.write(func() { p.touch = true })
			continue
		case <-p.wake:
		}
		p.mu.Lock()
		object, asOf, hidden, tried := p.object, p.asOf, p.hidden, p.tried
		known := tried && (object != nil || p.listed || hidden != nil)
		p.mu.Unlock()
		v := p.sight.look(object, p.String(), asOf)
		p.complain(v.corrupt)
		if v.why == nil && object == nil && p.Mandatory {
			v.why = p.missing(hidden)
		}
		clock.Stop()
		if !v.until.IsZero() {
			clock.Reset(max(0, time.Until(v.until)))
		}
		if appeared := v.fresh && !v.present && tried; appeared || len(v.dead) > 0 {
			p.write(func() {
				p.touch = p.touch || appeared
				p.dead, p.version = v.dead, object.ResourceVersion
			})
		}
		p.report(p, known, v.why)
	}
}

// missing is why an operator pauses that needs a peering object.
func (p *place) missing(hidden error) error {
	if hidden != nil {
		return &reason{slog.LevelError, "because " + p.String() + " cannot be read: " + hidden.Error()}
	}
	return &reason{slog.LevelError, "because there is no " + p.String() + ": create it, or run the operator without peering"}
}

// complain says once of each record that it cannot be read.
func (p *place) complain(corrupt map[string]error) {
	for identity, err := range corrupt {
		if p.said[identity] != err.Error() {
			p.said[identity] = err.Error()
			p.log.Warn("record of an operator cannot be read and is ignored", "operator", identity, "error", err)
		}
	}
	for identity := range p.said {
		if corrupt[identity] == nil {
			delete(p.said, identity)
		}
	}
}

// write says what is to be written, and has it written.
func (p *place) write(what func()) {
	p.mu.Lock()
	what()
	p.mu.Unlock()
	signal(p.urge)
}

// wishes takes what is to be written.
func (p *place) wishes() (touch bool, dead []string, version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	touch, dead, version = p.touch, slices.Clone(p.dead), p.version
	p.touch, p.dead = false, nil
	return touch, dead, version
}

// signal leaves a note for one that waits, unless there is one already.
func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
