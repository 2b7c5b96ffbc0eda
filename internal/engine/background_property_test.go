package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// B42, DMN-2: whatever happens to objects, operators, watches and writes, there are never
// two instances of a daemon or timer for one object in a process; and when it is over,
// those run that are to, objects that were deleted are gone, and finalizers are where
// daemons want them.
func TestDaemonsRunWhereTheyAreToRun_B42_DMN2(t *testing.T) {
	bySeed(t, 10, 3, func(w *world, n uint64) {
		w.allow("")
		p := &ordeal{
			world: w, dice: rand.New(rand.NewPCG(n, 3)), luck: &luck{seed: n, asked: map[string]int{}},
			running: map[instance]int{}, done: map[instance]bool{},
		}
		p.run()
	})
}

// instance is a daemon or timer of one object in one process.
type instance struct {
	process int
	uid     types.UID
	id      string
}

// ordeal is a world in which things happen by chance.
type ordeal struct {
	*world
	dice *rand.Rand
	luck *luck

	op        engaged
	process   int
	suspended bool
	mend      []func()

	mu      sync.Mutex
	calm    bool
	running map[instance]int
	done    map[instance]bool
}

// during counts an instance as running, and complains of a second one.
func (p *ordeal) during(i instance) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[i]++; p.running[i] > 1 {
		p.Errorf("%d of %v run", p.running[i], i)
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.running[i]--
	}
}

func (p *ordeal) isCalm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calm
}

// daemonOf is a daemon that goes on for a while, fails, panics, or ends by itself, as
// chance has it, and takes up to a time to leave.
func (p *ordeal) daemonOf(process int, id string, linger time.Duration, ends bool) daemonFn {
	return func(ctx context.Context, d *daemon) error {
		i := instance{process, d.Object().UID, id}
		defer p.during(i)()
		dice := p.luck.about(fmt.Sprint(id, i.uid))
		lives := time.NewTimer(moment(dice, 20*time.Second))
		defer lives.Stop()
		select {
		case <-lives.C:
			if p.isCalm() && !ends {
				break
			}
			d.Patch.Apply(func(o *widget) { o.Status.Phase = fmt.Sprint(id, dice.IntN(3)) })
			switch roll := dice.IntN(4); {
			case ends && roll < 2:
				p.mu.Lock()
				defer p.mu.Unlock()
				p.done[i] = true
				return []error{nil, kopf.Permanent(errFlop)}[roll]
			case roll == 2:
				panic("by chance")
			}
			return kopf.Retry(moment(dice, 5*time.Second), errFlop)
		case <-ctx.Done():
		}
		<-ctx.Done()
		time.Sleep(moment(dice, linger))
		return nil
	}
}

func (p *ordeal) register(process int) func(h handlers) {
	return func(h handlers) {
		run := on.Label("run", "yes")
		daemon := func(id string, linger time.Duration, ends bool, opts ...on.DaemonOption) {
			on.Daemon(p.daemonOf(process, id, linger, ends), append(opts, on.ID(id), on.In(h.r), forWidgets, run, on.Backoff(2*time.Second))...)
		}
		daemon("plain", time.Second, false)
		daemon("holding", 2*time.Second, false, on.Finalize(), on.InitialDelay(100*time.Millisecond))
		daemon("brief", time.Second, true, on.Finalize())
		daemon("deaf", 20*time.Second, false, on.Finalize(), on.CancellationBackoff(time.Second), on.CancellationTimeout(3*time.Second))
		on.Timer(func(ctx context.Context, k *tick) error {
			defer p.during(instance{process, k.Object.UID, "timer"})()
			dice := p.luck.about(fmt.Sprint("timer", k.Object.UID))
			k.SetResult(dice.IntN(3))
			return sleeping(moment(dice, 3*time.Second))(ctx, nil)
		}, on.ID("timer"), on.In(h.r), forWidgets, run, on.Interval(5*time.Second))
		on.Delete(failing(), on.ID("delete"), on.In(h.r), forWidgets, on.Label("bye", "yes"))
	}
}

func (p *ordeal) begin() {
	p.process++
	p.op = p.engage(p.register(p.process))
	p.suspended = false
}

// step has something happen.
func (p *ordeal) step() {
	name := fmt.Sprint("w", p.dice.IntN(5))
	there := p.widgets.Get(ns, name) != nil
	yes := func() string { return []string{"yes", "yes", "no"}[p.dice.IntN(3)] }
	labels := map[string]string{"run": yes(), "bye": yes()}
	roll := p.dice.IntN(100)
	switch {
	case !there:
		p.create(name, roll, func(o widgetObj) { o.SetLabels(labels) })
	case roll < 35:
		p.update(name, func(o widgetObj) { o.SetLabels(labels) })
	case roll < 45:
		p.resize(name, roll)
	case roll < 60:
		p.delete(name)
	case roll < 63:
		if err := p.widgets.Vanish(ns, name); err != nil {
			p.Fatal(err)
		}
	case roll < 70:
		if p.suspended {
			p.op.Resume()
		} else {
			p.op.Suspend(kopf.ErrPaused)
		}
		p.suspended = !p.suspended
	case roll < 73:
		p.op.kill()
		p.begin()
	case roll < 76:
		_ = p.op.stop() // what does not leave is named
		p.begin()
	case roll < 82:
		p.server.Compact()
		p.server.CutWatches()
	case roll < 88:
		p.server.DelayWatches(moment(p.dice, time.Second))
	case roll < 94:
		fault := []*simulated.Fault{simulated.Fail(500), simulated.Fail(409), simulated.Drop(), simulated.Delay(time.Second)}[p.dice.IntN(4)]
		hook := []func(simulated.On, func(simulated.Request) *simulated.Fault) func(){p.server.Before, p.server.After}[p.dice.IntN(2)]
		p.mend = append(p.mend, hook(simulated.On{Verb: "patch", Times: 1 + p.dice.IntN(4)}, simulated.Always(fault)))
	default:
		p.server.DelayWatches(0)
	}
}

func (p *ordeal) run() {
	p.begin()
	for range 120 {
		p.step()
		if p.dice.IntN(3) > 0 {
			time.Sleep(moment(p.dice, 2*time.Second))
		}
	}
	p.mu.Lock()
	p.calm = true
	p.mu.Unlock()
	for _, mend := range p.mend {
		mend()
	}
	p.server.DelayWatches(0)
	p.op.Resume()
	p.sleep(20 * time.Minute)
	p.check()
	for _, o := range p.widgets.List() {
		if o.GetDeletionTimestamp() == nil {
			p.delete(o.GetName())
		}
	}
	p.sleep(time.Minute)
	if left := p.widgets.List(); len(left) > 0 {
		p.Errorf("%d objects are left, the first is %v", len(left), left[0].Object)
	}
	p.op.unemployed()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, n := range p.running {
		if n != 0 {
			p.Errorf("%d of %v run at the end", n, i)
		}
	}
}

// check compares what runs with what is to.
func (p *ordeal) check() {
	p.mu.Lock()
	defer p.mu.Unlock()
	want := map[instance]bool{}
	for _, o := range p.widgets.List() {
		if o.GetDeletionTimestamp() != nil {
			p.Errorf("%s was deleted, and is still there", o.GetName())
		}
		wanted := o.GetLabels()["run"] == "yes"
		if held := slices.Contains(o.GetFinalizers(), finalizer); held != (wanted || o.GetLabels()["bye"] == "yes") {
			p.Errorf("%s with labels %v is held: %t", o.GetName(), o.GetLabels(), held)
		}
		for _, id := range []string{"plain", "holding", "brief", "deaf"} {
			i := instance{p.process, o.GetUID(), id}
			if want[i] = wanted && !p.done[i]; want[i] != (p.running[i] == 1) && id != "brief" { // which may wait to be tried again
				p.Errorf("%s of %s runs %d times", id, o.GetName(), p.running[i])
			}
		}
	}
	for i, n := range p.running {
		if n != 0 && i.id != "timer" && !want[i] {
			p.Errorf("%v runs", i)
		}
	}
}
