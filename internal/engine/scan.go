package engine

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/kopf-go/kopf/internal/registry"
)

// scan is what the director knows of the API, and when it has to look again. It
// belongs to run's goroutine; others leave news.
type scan struct {
	reader    reader
	catalogue catalogue
	crds      bool // CustomResourceDefinitions are of interest
	blind     bool // … but cannot be watched
	wake      chan struct{}

	unresolved int   // handlers that name a resource that is not served
	unread     error // why the last look at everything failed

	all     time.Time            // when to look at everything; zero: need not
	groups  map[string]time.Time // when to look at one group
	retries int                  // for what is unresolved or failed

	generations map[schema.GroupResource]int64 // of CRDs
	expected    map[schema.GroupResource]*expectation
	withdrawn   map[schema.GroupResource]bool // their CRD is gone, whatever discovery says
	renewed     map[schema.GroupResource]bool // their CRD went, and may have come again
}

// expectation is that a resource appears in discovery, or vanishes from it: the API
// server tells of a CRD before it serves what is in it.
type expectation struct {
	present bool
	at      time.Time // of the next look
	looks   int
}

// Pauses before looks for what a CRD makes expect. The first one lets the changes that
// come in a bunch be over, and the deletions of objects that come before that of
// their CRD. After the last one there has to be another event.
var lookPauses = []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second}

const (
	// looksAtLeast is how often to look after a CRD was changed, for discovery may lag
	// behind without anything missing.
	looksAtLeast = 2
	// secondLook is the pause before something is believed to be gone.
	secondLook = 2 * time.Second
	// slowest is how many intervals are between looks for what is not there.
	slowest = 12
)

func newScan(e *Engine) scan {
	s := scan{
		reader:    reader{discovery: e.Discovery, interest: interestIn(e.Handlers), timeout: e.settings.RequestTimeout, followed: map[schema.GroupVersion]bool{}},
		catalogue: catalogue{}, wake: make(chan struct{}, 1),
		groups: map[string]time.Time{}, all: time.Now(),
		generations: map[schema.GroupResource]int64{}, expected: map[schema.GroupResource]*expectation{},
		withdrawn: map[schema.GroupResource]bool{}, renewed: map[schema.GroupResource]bool{},
	}
	if len(e.Handlers) == 0 {
		s.all = time.Time{}
	}
	s.crds = !e.settings.DiscoverOnce && slices.ContainsFunc(slices.Collect(maps.Keys(s.reader.interest.groups)), extendable)
	return s
}

// extendable tells whether a group can have custom resources: not if it is one of
// Kubernetes itself.
func extendable(group string) bool {
	return group == anyGroup || strings.Contains(group, ".") && !clientscheme.Scheme.IsGroupRegistered(group)
}

// served are the resources that handlers can be for.
func (s *scan) served() []registry.APIResource {
	return slices.DeleteFunc(s.catalogue.resources(), func(r registry.APIResource) bool {
		return s.withdrawn[schema.GroupResource{Group: r.Group, Resource: r.Plural}]
	})
}

func (s *scan) lookAgain(group string, after time.Duration) {
	at := time.Now().Add(after)
	if planned, ok := s.groups[group]; !ok || at.Before(planned) {
		s.groups[group] = at
	}
}

// next is when to look again, zero if there is no need to.
func (s *scan) next() (next time.Time) {
	next = s.all
	for _, at := range s.groups {
		next = sooner(next, at)
	}
	for _, e := range s.expected {
		next = sooner(next, e.at)
	}
	return next
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// await waits until there is something to do, or the context ends.
func (d *director) await(ctx context.Context) {
	var clock <-chan time.Time
	if next := d.next(); !next.IsZero() {
		timer := time.NewTimer(time.Until(next))
		defer timer.Stop()
		clock = timer.C
	}
	select {
	case <-ctx.Done():
	case <-d.wake:
	case <-clock:
	}
}

// look reads what is due, and has what is followed revised.
func (d *director) look(ctx context.Context) {
	now := time.Now()
	due := map[string]bool{}
	for name, at := range d.groups {
		if !at.After(now) {
			due[name] = true
			delete(d.groups, name)
		}
	}
	for gr, e := range d.expected {
		if !e.at.After(now) {
			due[gr.Group] = true
			e.looks++
		}
	}
	everything := !d.all.IsZero() && !d.all.After(now)
	if !everything && len(due) == 0 {
		return
	}
	if everything {
		d.readEverything(ctx)
	} else {
		for name := range due {
			d.catalogue.replace(name, d.reader.group(ctx, name))
		}
	}
	if ctx.Err() != nil {
		return
	}
	d.settle(now)
	if d.unread == nil {
		d.sayFailures()
		d.revise(ctx)
		d.tellFirst()
	}
	d.schedule(everything)
}

// tellFirst lets those know who wait for the first look.
func (d *director) tellFirst() {
	if d.firstLook == nil {
		all, err := d.resolved()
		d.firstLook = func() ([]Hook, error) { return all, err }
		close(d.looked)
	}
}

func (d *director) readEverything(ctx context.Context) {
	var fresh map[string]group
	if fresh, d.unread = d.reader.everything(ctx); ctx.Err() != nil {
		return
	}
	if d.unread != nil {
		d.say(d, slog.LevelError, "what the API serves cannot be read, handlers wait until it can", "error", d.unread)
		return
	}
	d.unsay(d)
	for name := range d.catalogue {
		if _, is := fresh[name]; !is {
			d.catalogue.replace(name, group{})
		}
	}
	for name, g := range fresh {
		d.catalogue.replace(name, g)
	}
}

// settle ends expectations that have come true, or will not.
func (d *director) settle(now time.Time) {
	for gr, e := range d.expected {
		if e.at.After(now) {
			continue
		}
		fulfilled := d.catalogue.has(gr) == e.present
		if fulfilled && !e.present {
			delete(d.withdrawn, gr)
		}
		if fulfilled && e.looks >= looksAtLeast || e.looks >= len(lookPauses) {
			delete(d.withdrawn, gr) // somebody else serves it, then
			delete(d.expected, gr)
			continue
		}
		e.at = now.Add(lookPauses[e.looks])
	}
}

// sayFailures says what could not be read. If no handler asks for the group by name,
// it need not be a misfortune.
func (d *director) sayFailures() {
	type unread struct{ schema.GroupVersion }
	failures := d.catalogue.failures()
	for gv, err := range failures {
		level := slog.LevelWarn
		if _, named := d.reader.interest.groups[gv.Group]; named {
			level = slog.LevelError
		}
		if apierrors.IsForbidden(err) {
			err = fmt.Errorf("permission is missing: %w", err)
		}
		d.say(unread{gv}, level, "group cannot be read, new resources in it wait until it can", "group", gv.String(), "error", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.said, func(about any, _ string) bool {
		u, is := about.(unread)
		return is && failures[u.GroupVersion] == nil
	})
}

// schedule says when to look at everything again without being told to.
func (d *director) schedule(looked bool) {
	interval := d.settings.DiscoveryInterval
	failures := d.unread != nil || len(d.catalogue.failures()) > 0
	switch {
	case d.settings.DiscoverOnce && !failures:
		d.all = time.Time{}
	case d.crds && d.blind || d.unread != nil:
		if looked {
			d.all = time.Now().Add(interval)
		}
	case !failures && d.unresolved == 0:
		d.all, d.retries = time.Time{}, 0
	case looked || d.all.IsZero():
		d.all = time.Now().Add(min(interval<<min(d.retries, 10), slowest*interval))
		d.retries++
	}
}
