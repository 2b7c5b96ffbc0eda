package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
)

// Whatever happens to sources and targets, each target's handler has seen at last what it
// would see now, and each of its calls has a reason: a change of the target, a change of
// something that the call before has read, a failure, or a restart. What it reads depends
// on the target, and on what it has read.
func TestNoWakeIsLostOrSpurious(t *testing.T) {
	bySeed(t, 10, 2, func(w *world, n uint64) {
		p := &wakes{world: w, luck: &luck{seed: n, asked: map[string]int{}}, dice: rand.New(rand.NewPCG(n, 7)), entries: map[string]map[string]string{}}
		p.run()
	})
}

// wakes is a world in which all is written down that was read, and that has changed.
type wakes struct {
	*world
	luck *luck
	dice *rand.Rand

	log     sync.Mutex
	calm    bool
	process int
	entries map[string]map[string]string // of each source, as the index has them
	changes []indexChange
	looks   []*look
}

// indexChange is what has become another one in the index.
type indexChange struct {
	at    time.Time
	facts map[string]bool
}

// look is one call of the handler.
type look struct {
	uid, name string
	process   int
	reason    kopf.Reason
	retry     int
	began     time.Time
	reads     map[string]time.Time // facts
	saw       string
	err       error
	finished  bool
}

// said takes what a source has in the index from now on.
func (p *wakes) said(source string, entries map[string]string) {
	p.log.Lock()
	defer p.log.Unlock()
	before, facts := p.entries[source], map[string]bool{}
	has := func(key string) bool {
		for _, of := range p.entries {
			if _, has := of[key]; has {
				return true
			}
		}
		return false
	}
	had := map[string]bool{}
	for _, of := range []map[string]string{before, entries} {
		for key := range of {
			had[key] = has(key)
		}
	}
	p.entries[source] = entries
	for key, had := range had {
		if old, was := before[key]; was != listed(entries, key) || old != entries[key] {
			facts["values "+key] = true
		}
		if had != has(key) {
			facts["presence "+key], facts["keys"] = true, true
		}
	}
	if len(facts) > 0 {
		p.changes = append(p.changes, indexChange{time.Now(), facts})
	}
}

func listed(entries map[string]string, key string) bool {
	_, has := entries[key]
	return has
}

func kept(name string, spec widgetSpec) map[string]string {
	return map[string]string{fmt.Sprint("size ", spec.Size): spec.Color, spec.Color: fmt.Sprint(name, " ", spec.Rev)}
}

// gaze is what a handler does, with whatever it reads by: the index, or the truth.
func gaze(spec widgetSpec, get func(key string) []string, has func(key string) bool, keys func() int) string {
	if spec.Size == 0 {
		return fmt.Sprint(keys(), " keys")
	}
	colours := get(fmt.Sprint("size ", spec.Size))
	slices.Sort(colours)
	saw := fmt.Sprint(colours)
	for _, colour := range colours {
		if spec.Rev%3 == 0 {
			saw += fmt.Sprint(" ", has(colour))
			continue
		}
		names := get(colour)
		slices.Sort(names)
		saw += fmt.Sprint(" ", names)
	}
	return saw
}

func (p *wakes) register(h handlers) {
	p.log.Lock()
	p.process++
	process := p.process
	p.log.Unlock()
	forSources := on.Label("kind", "source")
	index := on.Index(func(_ context.Context, s *kopf.Snapshot[*widget]) (map[string]string, error) {
		entries := kept(s.Object.Name, s.Object.Spec)
		if p.alive(process) {
			p.said(string(s.Object.UID), entries)
		}
		return entries, nil
	}, on.ID("index"), on.In(h.r), forWidgets, forSources)
	on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
		if e.Type == "DELETED" && p.alive(process) {
			p.said(string(e.Object.UID), nil)
		}
		return nil
	}, on.ID("event"), on.In(h.r), forWidgets)
	see := func(ctx context.Context, c *change) error { return p.look(ctx, c, process, index) }
	awake := on.Label("asleep", filters.Absent)
	on.Create(see, on.ID("see"), on.In(h.r), forWidgets, forTargets, awake, on.Uses(index))
	on.Update(see, on.ID("see"), on.In(h.r), forWidgets, forTargets, awake, on.Uses(index))
	on.Resume(see, on.ID("see"), on.In(h.r), forWidgets, forTargets, awake)
	holdUp := func(_ context.Context, c *change) error { // the others
		dice := p.luck.about("hold up " + c.Object.Name)
		p.log.Lock()
		defer p.log.Unlock()
		if !p.calm && dice.IntN(100) < 50 {
			return kopf.Retry(moment(dice, 30*time.Second), errUnlucky)
		}
		return nil
	}
	on.Create(holdUp, on.ID("hold-up-creation"), on.In(h.r), forWidgets, forTargets)
	on.Update(holdUp, on.ID("hold-up-update"), on.In(h.r), forWidgets, forTargets)
}

func (p *wakes) alive(process int) bool {
	p.log.Lock()
	defer p.log.Unlock()
	return p.process == process
}

var errUnlucky = errors.New("bad luck")

func (p *wakes) look(ctx context.Context, c *change, process int, index *kopf.Index[string, string]) error {
	dice := p.luck.about(c.Object.Name)
	l := &look{uid: string(c.Object.UID), name: c.Object.Name, process: process, reason: c.Reason, retry: c.Retry, began: time.Now(), reads: map[string]time.Time{}}
	p.log.Lock()
	calm := p.calm
	p.looks = append(p.looks, l)
	p.log.Unlock()
	pause := func() {
		if dice.IntN(100) < 15 {
			time.Sleep(moment(dice, 3*time.Second))
		}
	}
	read := func(fact string) {
		pause()
		p.log.Lock()
		defer p.log.Unlock()
		if _, again := l.reads[fact]; !again {
			l.reads[fact] = time.Now()
		}
	}
	view := index.Tracked(ctx)
	l.saw = gaze(c.New.Spec, func(key string) []string {
		read("values " + key)
		return slices.Collect(view.Get(key))
	}, func(key string) bool {
		read("presence " + key)
		return view.Has(key)
	}, func() int {
		read("keys")
		return view.Len()
	})
	pause()
	var err error
	if !calm && dice.IntN(100) < 15 {
		err = kopf.Retry(moment(dice, 10*time.Second), errUnlucky)
	} else if dice.IntN(100) < 20 {
		phase := fmt.Sprint("saw ", len(l.saw))
		c.Patch.Apply(func(o *widget) { o.Status.Phase = phase })
	}
	p.log.Lock()
	defer p.log.Unlock()
	l.err, l.finished = err, ctx.Err() == nil
	return err
}

func (p *wakes) run() {
	p.allow("handling failed", "conflict")
	lifecycles := []settings.Lifecycle{nil, settings.OneByOne, settings.ASAP}
	p.settings.Execution.Lifecycle = lifecycles[p.dice.IntN(len(lifecycles))]
	for i := range 12 {
		p.source(fmt.Sprint("source", i), 1+i%4, fmt.Sprint("colour ", i%3))
		p.target(fmt.Sprint("target", i), i%5)
	}
	faulty := func(code, percent int) func(simulated.Request) *simulated.Fault {
		return func(r simulated.Request) *simulated.Fault {
			p.log.Lock()
			calm := p.calm
			p.log.Unlock()
			if calm || p.luck.about(r.Verb+r.Name).IntN(100) >= percent {
				return nil
			}
			return simulated.Fail(code)
		}
	}
	p.server.Before(simulated.On{Verb: "get"}, faulty(http.StatusInternalServerError, 10))
	p.server.Before(simulated.On{Verb: "patch"}, faulty(http.StatusConflict, 10))
	op := p.start(p.register)
	for range 200 {
		p.step(&op)
		time.Sleep(moment(p.dice, 2*time.Second))
		synctest.Wait()
	}
	p.log.Lock()
	p.calm = true
	p.log.Unlock()
	p.sleep(time.Hour)
	p.checkLast()
	p.checkReasons()
	if err := op.stop(); err != nil {
		p.Error(err)
	}
}

func (p *wakes) step(op **operator) {
	source, target := fmt.Sprint("source", p.dice.IntN(12)), fmt.Sprint("target", p.dice.IntN(12))
	size, colour := p.dice.IntN(5), fmt.Sprint("colour ", p.dice.IntN(4))
	exists := func(name string) bool { return p.widgets.Get(ns, name) != nil }
	switch dice := p.dice.IntN(100); {
	case dice < 10 && exists(source):
		p.delete(source)
	case dice < 60 && !exists(source):
		p.source(source, size, colour)
	case dice < 30:
		p.paint(source, colour)
	case dice < 45:
		p.resize(source, size)
	case dice < 60:
		p.update(source, func(o widgetObj) { set(o, p.dice.Int64N(3), "spec", "rev") })
	case dice < 65 && exists(target):
		p.delete(target)
	case dice < 85 && !exists(target):
		p.target(target, size)
	case dice < 75:
		p.resize(target, size)
	case dice < 78:
		p.update(target, func(o widgetObj) { o.SetLabels(map[string]string{"kind": "target", "asleep": ""}) })
	case dice < 81:
		p.update(target, label("kind", "target"))
	case dice < 85:
		p.update(target, func(o widgetObj) { set(o, p.dice.Int64N(6), "spec", "rev") })
	case dice < 88:
		p.server.CutWatches()
	case dice < 91 && exists(target):
		p.touchStatus(target, colour)
	case dice < 93:
		_ = (*op).stop()
		*op = p.launch(p.register)
	case dice < 95:
		(*op).kill()
		*op = p.launch(p.register)
	}
}

func specOf(o widgetObj) (spec widgetSpec) {
	fields, _ := o.Object["spec"].(map[string]any)
	number := func(name string) int {
		n, _ := fields[name].(int64)
		return int(n)
	}
	spec.Color, _ = fields["color"].(string)
	spec.Size, spec.Rev = number("size"), number("rev")
	return spec
}

// checkLast compares what was seen last with what is there.
func (p *wakes) checkLast() {
	p.Helper()
	truth := map[string][]string{}
	for _, o := range p.widgets.List() {
		if o.GetLabels()["kind"] == "source" {
			for key, value := range kept(o.GetName(), specOf(o)) {
				truth[key] = append(truth[key], value)
			}
		}
	}
	targets := 0
	for _, o := range p.widgets.List() {
		if _, asleep := o.GetLabels()["asleep"]; asleep || o.GetLabels()["kind"] != "target" {
			continue
		}
		targets++
		want := gaze(specOf(o), func(key string) []string { return slices.Clone(truth[key]) },
			func(key string) bool { return len(truth[key]) > 0 }, func() int { return len(truth) })
		var last *look
		for _, l := range p.looks {
			if l.uid == string(o.GetUID()) && l.finished {
				last = l
			}
		}
		if last == nil || last.err != nil || last.saw != want {
			p.Errorf("%s: want %q, last %+v", o.GetName(), want, last)
		}
		p.noProgress(o.GetName())
	}
	if targets == 0 || len(p.looks) < 100 {
		p.Errorf("not much of a test: %d targets, %d calls", targets, len(p.looks))
	}
}

// checkReasons looks for calls without a reason.
func (p *wakes) checkReasons() {
	p.Helper()
	before, reasons := map[string]*look{}, map[kopf.Reason]int{}
	for _, l := range p.looks {
		last := before[l.uid]
		before[l.uid] = l
		reasons[l.reason]++
		switch {
		case last == nil || last.process != l.process, l.reason == kopf.ReasonCreate || l.reason == kopf.ReasonUpdate:
		case l.retry > 0 && last.err != nil:
		case l.reason == kopf.ReasonIndex && p.changedFor(last, l.began):
		default:
			p.Errorf("called without a reason: %+v\nafter %+v", l, last)
		}
	}
	p.Logf("%d calls %v, %d changes of the index, %d processes", len(p.looks), reasons, len(p.changes), p.process)
}

// changedFor tells whether something has changed until then that a call has read.
func (p *wakes) changedFor(l *look, until time.Time) bool {
	return slices.ContainsFunc(p.changes, func(c indexChange) bool {
		for fact := range c.facts {
			if at, read := l.reads[fact]; read && !c.at.Before(at) && !c.at.After(until) {
				return true
			}
		}
		return false
	})
}

// 2000 sources and 200 targets on 50 nodes: a change of a source calls the targets of its
// node, once each, and nobody else.
func TestWakingIsExactAtScale(t *testing.T) {
	const nodes, sources, targets = 50, 2000, 200
	scenario(t, func(w *world) {
		for i := range sources {
			w.source(fmt.Sprint("pod", i), i%nodes, "red")
		}
		for i := range targets {
			w.target(fmt.Sprint("t", i), i%nodes)
		}
		var index *colours
		w.start(func(h handlers) {
			index = h.colours()
			on.Create(func(ctx context.Context, c *change) error {
				painted := 0
				for colour := range index.Tracked(ctx).Get(c.Object.Spec.Size) {
					if colour != "red" {
						painted++
					}
				}
				h.w.note(fmt.Sprintf("%s %d", c.Object.Name, painted))
				return nil
			}, on.ID("see"), on.In(h.r), forWidgets, forTargets, on.Uses(index))
		})
		w.sleep(time.Second)
		if calls := w.called(); len(calls) != targets {
			t.Fatalf("%d calls", len(calls))
		}
		for i := range 20 {
			node := i * 7 % nodes
			w.mark()
			w.paint(fmt.Sprint("pod", node), "green")
			w.settle()
			var want []string
			for j := node; j < targets; j += nodes {
				want = append(want, fmt.Sprintf("t%d 1", j))
			}
			w.expectSet(want...)
			w.gets(targets / nodes)
			w.writes()
		}
		if n := notes(index); n != targets {
			t.Errorf("%d notes", n)
		}
	})
}
