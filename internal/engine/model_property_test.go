//go:debug randseednop=0

package engine_test

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

const objects = 20

// steps are for each seed. The race detector makes them some five times as costly.
var steps = flag.Int("steps", 3000, "how many steps the model's property test makes for each seed")

// B06: whatever happens to 20 objects, handlers are shown what a model says that they
// must see. Objects are edited, taken in and out of scope, deleted and re-created,
// while requests and answers are lost, refused or late, watches break, and operators
// are stopped and killed. Each thing that happens by chance depends on the seed, and
// takes place at a moment of its own in virtual time, so that a seed can be repeated.
func TestHandlersSeeWhatHappened(t *testing.T) {
	bySeed(t, 10, 2, func(w *world, n uint64) { newPlay(w, n).run() })
}

// luck is chance that depends on the seed and on what it is asked about, and not on
// the order in which goroutines ask.
type luck struct {
	seed uint64

	mu    sync.Mutex
	asked map[string]int
}

// about returns the dice for the next thing of a sort.
func (l *luck) about(what string) *rand.Rand {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[what]++
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, what, " ", l.asked[what])
	return rand.New(rand.NewPCG(l.seed, h.Sum64()))
}

// moment is a random time up to a limit, of so fine a grain that hardly ever two
// things happen at once, and no finer than what records keep.
func moment(dice *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(1+dice.Int64N(int64(limit/time.Microsecond))) * time.Microsecond
}

// play is a model with what happens to its world.
type play struct {
	*world
	model    *model
	luck     *luck
	dice     *rand.Rand
	handlers []*spec

	op      *operator
	exports map[string]widgetObj // manifests that carry our annotations
	mu      sync.Mutex
	eager   map[string]bool // names that are created anew as soon as they are free
	calm    bool            // no faults any more
}

func newPlay(w *world, seed uint64) *play {
	w.Logf("repeat it with: go test ./internal/engine -run TestHandlersSeeWhatHappened -args -seed %d -steps %d", seed, *steps)
	return &play{
		world: w, model: newModel(w), luck: &luck{seed: seed, asked: map[string]int{}},
		dice: rand.New(rand.NewPCG(seed, 1)), exports: map[string]widgetObj{}, eager: map[string]bool{},
	}
}

var (
	createA  = &spec{id: "create-a", sort: "create"}
	createB  = &spec{id: "create-b", sort: "create"}
	updateA  = &spec{id: "update-a", sort: "update"}
	updateB  = &spec{id: "update-b", sort: "update"}
	limited  = &spec{id: "limited", sort: "update", retries: 3}
	gold     = &spec{id: "gold", sort: "update", tier: "gold"}
	colored  = &spec{id: "colored", sort: "update", project: func(s shape) any { return s.Color }}
	sized    = &spec{id: "sized", sort: "field", project: func(s shape) any { return s.Size }}
	deleted  = &spec{id: "delete", sort: "delete"}
	farewell = &spec{id: "farewell", sort: "optional"}
	resumed  = &spec{id: "resume", sort: "resume"}
)

// register makes the handlers of one process. What is to be tested besides is added
// here, and to the specs in run.
func (p *play) register(h handlers, in *process) {
	scope := on.Label("scope", "in")
	change := func(s *spec, plan plan) changeFn { return p.change(s, in, plan) }
	h2 := []on.AnyOption{on.In(h.r), forWidgets, scope}
	id := func(s *spec) on.AnyOption { return on.ID(s.id) }

	on.Create(change(createA, plan{retries: 30, slow: 20}), id(createA), h2[0], h2[1], h2[2])
	on.Create(change(createB, plan{retries: 15, fails: 15, result: true, tunes: true}), id(createB), h2[0], h2[1], h2[2], on.Backoff(3*time.Second))
	on.Update(change(updateA, plan{retries: 10, fails: 5, result: true, tunes: true}), id(updateA), h2[0], h2[1], h2[2], on.Backoff(7*time.Second))
	on.Update(change(updateB, plan{retries: 20, slow: 30}), id(updateB), h2[0], h2[1], h2[2])
	on.Update(change(limited, plan{fails: 40, permanent: 5}), id(limited), h2[0], h2[1], h2[2], on.Retries(limited.retries), on.Backoff(2*time.Second))
	on.Update(change(gold, plan{retries: 10}), id(gold), h2[0], h2[1], h2[2], on.Label("tier", "gold"))
	on.Update(change(colored, plan{retries: 20, slow: 10}), id(colored), h2[0], h2[1], h2[2], on.Field("spec.color"))
	on.FieldChange("spec.size", p.field(sized, in, plan{retries: 20}), id(sized), h2[0], h2[1], h2[2])
	on.Delete(change(deleted, plan{retries: 30, slow: 30}), id(deleted), h2[0], h2[1], h2[2])
	on.Delete(change(farewell, plan{retries: 5}), id(farewell), h2[0], h2[1], h2[2], on.Optional())
	on.Resume(change(resumed, plan{retries: 20}), id(resumed), h2[0], h2[1], h2[2])
	on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
		p.model.event(in, e)
		return nil
	}, on.ID("event"), h2[0], h2[1])
}

// plan is what a handler does, in percent of its calls.
type plan struct {
	retries, fails, permanent, slow int
	result                          bool // it has one
	tunes                           bool // it patches the spec, which is a change of its own (X11), and the status
}

func (p *play) change(s *spec, in *process, plan plan) changeFn {
	return func(ctx context.Context, c *change) error {
		number, _ := strconv.ParseInt(c.Object.ResourceVersion, 10, 64)
		call := &call{
			handler: s, process: in, reason: c.Reason, number: number, retry: c.Retry, started: c.Started,
			shown: shapeOf(c.New), new: s.part(shapeOf(c.New)),
		}
		if c.Old != nil {
			call.had, call.old = true, s.part(shapeOf(c.Old))
		}
		p.model.begin(c.Object.UID, call)
		err := p.attempt(ctx, call, c.Object.UID, plan, c.Attempt.SetResult)
		if size := c.New.Spec.Size; plan.tunes && err == nil {
			c.Patch.Apply(func(w *widget) { w.Spec.Rev, w.Status.Phase = size, fmt.Sprint("size ", size) })
		}
		return err
	}
}

func (p *play) field(s *spec, in *process, plan plan) func(context.Context, *kopf.FieldChange[*widget, int]) error {
	return func(ctx context.Context, c *kopf.FieldChange[*widget, int]) error {
		number, _ := strconv.ParseInt(c.Object.ResourceVersion, 10, 64)
		call := &call{
			handler: s, process: in, reason: c.Reason, number: number, retry: c.Retry, started: c.Started,
			shown: shapeOf(c.Object), had: c.HadOld, old: c.Old, new: c.New,
		}
		p.model.begin(c.Object.UID, call)
		return p.attempt(ctx, call, c.Object.UID, plan, c.Attempt.SetResult)
	}
}

// attempt does what chance has a handler do.
func (p *play) attempt(ctx context.Context, c *call, uid types.UID, plan plan, setResult func(any)) error {
	dice := p.luck.about(fmt.Sprint("handler ", c.handler.id, " ", uid))
	took := moment(dice, 2*time.Millisecond)
	if dice.IntN(100) < plan.slow {
		took = moment(dice, 8*time.Second)
	}
	if err := sleeping(took)(ctx, nil); err != nil {
		p.model.finish(c, "interrupted", 0)
		return err
	}
	p.mu.Lock()
	calm := p.calm
	p.mu.Unlock()
	roll := dice.IntN(100)
	if calm {
		roll = 100
	}
	after := moment(dice, 10*time.Second)
	switch {
	case roll < plan.retries:
		p.model.finish(c, "retry", after)
		return kopf.Retry(after, errFlop)
	case roll < plan.retries+plan.fails:
		if c.handler.retries > 0 && c.retry+1 >= c.handler.retries {
			p.model.finish(c, "failure", 0)
		} else {
			p.model.finish(c, "retry", backoffs[c.handler])
		}
		return errFlop
	case roll < plan.retries+plan.fails+plan.permanent:
		p.model.finish(c, "failure", 0)
		return kopf.Permanent(errFlop)
	}
	if plan.result {
		c.result = fmt.Sprint(c.new)
		setResult(c.result)
	}
	p.model.finish(c, "success", 0)
	return nil
}

// backoffs are those given in register.
var backoffs = map[*spec]time.Duration{createB: 3 * time.Second, updateA: 7 * time.Second, limited: 2 * time.Second}

func (p *play) chance(percent int) bool { return p.dice.IntN(100) < percent }

func (p *play) run() {
	p.allow("handling failed, will be tried again", "handler failed for good", "permission is missing")
	p.settings.Queueing.ErrorDelays = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second}
	p.handlers = []*spec{createA, createB, updateA, updateB, limited, gold, colored, sized, deleted, farewell, resumed}
	p.faults()
	p.start()
	for range *steps {
		p.step(fmt.Sprintf("w%02d", 1+p.dice.IntN(objects)))
		if p.chance(2) {
			p.disturb()
		}
		p.pause()
		p.model.mu.Lock()
		failed := p.model.failures > 0
		p.model.mu.Unlock()
		if failed {
			break
		}
	}
	p.rest()
}

// rest lets all trouble end, and compares what there is in the end.
func (p *play) rest() {
	p.mu.Lock()
	p.calm = true
	clear(p.eager)
	p.mu.Unlock()
	p.server.DelayWatches(0)
	if p.op == nil {
		p.start()
	}
	for _, o := range p.widgets.List() {
		p.release(o.GetName())
	}
	p.sleep(30 * time.Minute)
	p.model.verify(p.handlers)
	p.Log(p.model.digest())
	p.quiet(10 * time.Minute)
}

func (p *play) start() {
	in := p.model.launched()
	p.op = p.launch(func(h handlers) { p.register(h, in) })
}

// pause is anything from a few microseconds, while something is under way, to minutes,
// so that retries come due.
func (p *play) pause() {
	limits := []time.Duration{20 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second}
	limit := limits[p.dice.IntN(len(limits))]
	if p.chance(1) {
		limit = 5 * time.Minute
	}
	time.Sleep(moment(p.dice, limit))
}

// step does something to an object.
func (p *play) step(name string) {
	o := p.widgets.Get(ns, name)
	if o == nil {
		p.make(name)
		return
	}
	if o.GetDeletionTimestamp() != nil && p.chance(60) {
		if p.chance(50) {
			p.release(name)
		}
		return
	}
	switch roll := p.dice.IntN(100); {
	case roll < 45:
		for range 1 + p.dice.IntN(4) {
			p.edit(name)
			time.Sleep(moment(p.dice, 3*time.Millisecond))
		}
	case roll < 52:
		p.label(name, "scope", []string{"in", "out"}[p.dice.IntN(2)])
	case roll < 58:
		p.label(name, "tier", []string{"gold", "tin"}[p.dice.IntN(2)])
	case roll < 65:
		p.update1(name, annotation(noteName, fmt.Sprint(p.dice.IntN(3))))
	case roll < 75:
		_, err := p.widgets.UpdateStatus(ns, name, func(o widgetObj) { set(o, fmt.Sprint(p.dice.IntN(100)), "status", "foreign") })
		p.tolerate(err)
	case roll < 82:
		p.tolerate(p.widgets.Delete(ns, name))
	case roll < 86:
		p.mu.Lock()
		p.eager[name] = true
		p.mu.Unlock()
		p.tolerate(p.widgets.Delete(ns, name))
		if p.widgets.Get(ns, name) == nil {
			p.make(name)
		}
	case roll < 91:
		p.exports[name] = o
	case roll < 95 && o.GetDeletionTimestamp() == nil:
		p.update1(name, func(o widgetObj) { o.SetFinalizers(append(o.GetFinalizers(), "example.com/other")) })
	default:
		p.release(name)
	}
}

// tolerate is for edits that come too late.
func (p *play) tolerate(err error) {
	if err != nil && p.op != nil {
		p.Logf("an edit came too late: %v", err)
	}
}

func (p *play) update1(name string, edit func(widgetObj)) {
	_, err := p.widgets.Update(ns, name, edit)
	p.tolerate(err)
}

// edit changes the spec, often to what it was before.
func (p *play) edit(name string) {
	size, color := 1+p.dice.IntN(4), []string{"", "red", "green"}[p.dice.IntN(3)]
	p.update1(name, func(o widgetObj) {
		spec := o.Object["spec"].(map[string]any)
		spec["size"] = int64(size)
		if delete(spec, "color"); color != "" {
			spec["color"] = color
		}
	})
}

func (p *play) label(name, key, value string) {
	p.update1(name, func(o widgetObj) {
		labels := o.GetLabels()
		labels[key] = value
		o.SetLabels(labels)
	})
}

// release takes the foreign finalizer off.
func (p *play) release(name string) {
	if p.widgets.Get(ns, name) == nil {
		return
	}
	p.update1(name, func(o widgetObj) {
		var rest []string
		for _, f := range o.GetFinalizers() {
			if f != "example.com/other" {
				rest = append(rest, f)
			}
		}
		o.SetFinalizers(rest)
	})
}

// make creates an object, perhaps from what was exported of another one (B23).
func (p *play) make(name string) {
	if export := p.exports[name]; export != nil && p.chance(50) {
		o := simulated.Object(ns, name, map[string]any{"spec": export.Object["spec"]})
		o.SetAnnotations(export.GetAnnotations())
		o.SetLabels(export.GetLabels())
		_, err := p.widgets.Create(o)
		p.tolerate(err)
		return
	}
	_, err := p.widgets.Create(fresh(name, p.dice))
	p.tolerate(err)
}

func fresh(name string, dice *rand.Rand) widgetObj {
	o := simulated.Object(ns, name, map[string]any{"spec": map[string]any{"size": int64(1 + dice.IntN(4))}})
	scope := "in"
	if dice.IntN(100) < 20 {
		scope = "out"
	}
	o.SetLabels(map[string]string{"scope": scope})
	return o
}

// disturb is what happens to all at once.
func (p *play) disturb() {
	switch p.dice.IntN(9) {
	case 0:
		p.server.CutWatches()
	case 1:
		p.server.Compact()
		p.server.CutWatches()
	case 2:
		p.server.Mute()
	case 3:
		p.server.DelayWatches(moment(p.dice, 3*time.Second))
	case 4, 5:
		p.server.DelayWatches(0)
	case 6:
		p.turn(false)
	default:
		p.turn(true)
	}
}

// turn ends the operator, or starts one if there is none.
func (p *play) turn(hard bool) {
	switch {
	case p.op == nil:
	case hard:
		p.model.ended()
		p.op.kill()
	default:
		if err := p.op.stop(); err != nil {
			p.Error(err)
		}
		p.model.ended()
	}
	if p.op != nil && p.chance(30) {
		p.op = nil
		return
	}
	p.start()
}

// faults has requests and answers be on their way for a while, and some go wrong.
func (p *play) faults() {
	// Without 422, which is the fault of a handler whose patch it is (PAT-4).
	codes := []int{409, 429, 403, 500, 503}
	p.server.Before(simulated.On{Resource: "widgets*"}, func(r simulated.Request) *simulated.Fault {
		dice := p.luck.about("request " + r.Verb + r.Resource + r.Name)
		way := moment(dice, 3*time.Millisecond)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.calm {
			return simulated.Delay(way)
		}
		fault := &simulated.Fault{Delay: way}
		switch roll := dice.IntN(100); {
		case roll < 2:
			fault.Drop = true
		case roll < 7:
			fault.Code = codes[dice.IntN(len(codes))]
			switch fault.Code {
			case 429:
				fault.RetryAfter = time.Duration(1+dice.IntN(3)) * time.Second
			case 403:
				fault.Message = `User "operator" cannot patch resource "widgets"`
			}
		case roll < 10:
			fault.Delay = moment(dice, 4*time.Second)
		}
		if fault.Drop || fault.Code != 0 {
			p.model.fault(r.Name, fmt.Sprintf("%s %s: lost %t, code %d", r.Verb, r.Resource, fault.Drop, fault.Code))
		}
		return fault
	})
	p.server.After(simulated.On{Resource: "widgets*"}, func(r simulated.Request) *simulated.Fault {
		dice := p.luck.about("answer " + r.Verb + r.Resource + r.Name)
		fault := &simulated.Fault{Delay: moment(dice, 3*time.Millisecond)}
		p.mu.Lock()
		again := p.eager[r.Name] && p.widgets.Get(ns, r.Name) == nil
		if again {
			delete(p.eager, r.Name)
		}
		calm := p.calm
		p.mu.Unlock()
		if again {
			_, _ = p.widgets.Create(fresh(r.Name, dice))
		}
		switch roll := dice.IntN(100); {
		case calm:
		case roll < 3:
			fault.Drop = true
			p.model.fault(r.Name, fmt.Sprintf("%s %s: answer %d lost", r.Verb, r.Resource, r.Code))
		case roll < 6:
			fault.Delay = moment(dice, 4*time.Second)
		}
		return fault
	})
}
