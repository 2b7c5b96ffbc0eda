package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/leading"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// B43: two replicas, of which the leader is stopped, killed, cut off and paused at any time,
// while objects are edited, and requests and answers are lost, refused or late. Never are two
// of them inside of handlers and daemons at a time; no handler is called for what counts as
// handled already, or for a state before one that it was called for; a process resumes each
// object once at most; and in the end all is handled.
func TestReplicasTakeTurns_B43(t *testing.T) {
	bySeed(t, 8, 2, func(w *world, n uint64) {
		r := &relay{
			world: w, random: rand.New(rand.NewPCG(n, 1)), dice: rand.New(rand.NewPCG(n, 2)), last: map[string]int{},
			inside: map[string]int{}, resumed: map[string]bool{}, candidates: map[string]engaged{}, paused: map[string]bool{}, off: map[string]bool{},
		}
		r.run()
	})
}

// relay is what happens to two replicas.
type relay struct {
	*world
	random *rand.Rand

	mu      sync.Mutex // guards what handlers use
	dice    *rand.Rand
	inside  map[string]int  // handlers and daemons that run, by process
	last    map[string]int  // by UID: the newest size that a handler was called for
	resumed map[string]bool // by process and UID
	turns   int             // how often another process than before was inside
	latest  string          // process

	candidates  map[string]engaged
	paused, off map[string]bool
	processes   int
	edits       int
}

func (r *relay) roll(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dice.IntN(n)
}

// enter notes that a process is inside of a handler.
func (r *relay) enter(process, what string) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside[process]++
	if len(r.inside) > 1 {
		r.Errorf("%s begins in %s: inside are %v", what, process, r.inside)
	}
	if r.latest != process {
		r.latest = process
		r.turns++
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.inside[process]--; r.inside[process] == 0 {
			delete(r.inside, process)
		}
	}
}

func (r *relay) register(process string) func(handlers) {
	change := func(ctx context.Context, c *change) error {
		defer r.enter(process, fmt.Sprint(c.Reason, " ", c.Object.Name))()
		name, uid, size := c.Object.Name, string(c.Object.UID), c.New.Spec.Size
		if o := r.widgets.Get(ns, name); o != nil && string(o.GetUID()) == uid && (c.Reason == kopf.ReasonCreate || c.Reason == kopf.ReasonUpdate) &&
			o.GetAnnotations()[lastHandledName] != "" && r.handledSize(name) == size {
			r.Errorf("%s of %s for %d in %s, which is handled already", c.Reason, name, size, process)
		}
		r.mu.Lock()
		if size < r.last[uid] {
			r.Errorf("%s of %s in %s goes back from %d to %d at %s version %s deleting %v", c.Reason, name, process, r.last[uid], size, time.Now().Format("15:04:05.000"), c.Object.ResourceVersion, c.Object.DeletionTimestamp)
		}
		r.last[uid] = size
		r.mu.Unlock()
		if r.roll(3) == 0 {
			if err := sleeping(time.Duration(r.roll(8000))*time.Millisecond)(ctx, c); err != nil {
				return err
			}
		}
		if r.roll(5) == 0 {
			return kopf.Retry(time.Duration(r.roll(9000))*time.Millisecond, errFlop)
		}
		if c.Reason == kopf.ReasonResume {
			r.mu.Lock()
			defer r.mu.Unlock()
			key := process + " " + uid
			if r.resumed[key] {
				r.Errorf("%s is resumed twice in %s", name, process)
			}
			r.resumed[key] = true
			return nil
		}
		c.Patch.Apply(func(o *widget) { o.Status.Phase = fmt.Sprint("size ", size) })
		return nil
	}
	return func(h handlers) {
		on.Create(change, on.ID("create"), on.In(h.r), forWidgets)
		on.Update(change, on.ID("update"), on.In(h.r), forWidgets)
		on.Update(change, on.ID("sibling"), on.In(h.r), forWidgets)
		on.Delete(change, on.ID("delete"), on.In(h.r), forWidgets)
		on.Resume(change, on.ID("resume"), on.In(h.r), forWidgets)
		on.Daemon(func(ctx context.Context, d *kopf.Daemon[*widget]) error {
			defer r.enter(process, "daemon of "+d.Object().Name)()
			<-ctx.Done()
			time.Sleep(time.Duration(r.roll(1000)) * time.Millisecond)
			return nil
		}, on.ID("daemon"), on.In(h.r), forWidgets, on.CancellationBackoff(2*time.Second))
	}
}

// begin starts a replica.
func (r *relay) begin(name string) {
	r.processes++
	o := r.assemble(r.register(fmt.Sprint(name, r.processes)), true)
	ctx, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	go func() {
		ctx, end := context.WithCancel(ctx)
		led := make(chan error, 1)
		go func() {
			defer end()
			led <- leading.Run(ctx, leading.Options{
				Config: &rest.Config{Host: "http://simulated.invalid", Transport: o.link}, Name: "kopf", Namespace: "ops", Identity: name,
				LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, Warm: o.Warm(),
			}, o.Engine)
		}()
		err := o.Run(ctx)
		o.done <- errors.Join(err, <-led)
	}()
	r.operators = append(r.operators, o.operator)
	r.candidates[name], r.paused[name], r.off[name] = o, false, false
}

func (r *relay) run() {
	r.elect()
	r.allow("handling failed, will be tried again", "could not be", "event handler", "cannot be read", "is not found")
	removed := r.faults()
	names := []string{"w1", "w2", "w3", "w4", "w5", "w6"}
	r.begin("a")
	r.begin("b")
	for range 400 {
		name := names[r.random.IntN(len(names))]
		switch o := r.widgets.Get(ns, name); {
		case o == nil:
			r.edits++
			r.create(name, r.edits)
		case r.random.IntN(12) == 0:
			r.delete(name)
		case o.GetDeletionTimestamp() == nil:
			r.edits++
			r.resize(name, r.edits)
		}
		if r.random.IntN(8) == 0 {
			r.disturb([]string{"a", "b"}[r.random.IntN(2)])
		}
		time.Sleep([]time.Duration{0, time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second}[r.random.IntN(6)])
	}
	removed()
	r.server.DelayWatches(0)
	for name, o := range r.candidates {
		o.link.mend()
		if r.paused[name] {
			o.Continue()
		}
	}
	if len(r.candidates) == 0 {
		r.begin("a")
	}
	r.sleep(20 * time.Minute)
	r.verify(names)
}

// disturb has something happen to a replica, or to all watches.
func (r *relay) disturb(name string) {
	o, is := r.candidates[name]
	switch roll := r.random.IntN(12); {
	case !is:
		r.begin(name)
	case roll == 0:
		if err := o.stop(); err != nil {
			r.Error(err)
		}
		delete(r.candidates, name)
	case roll == 1:
		r.killed(o)
		delete(r.candidates, name)
	case roll < 5:
		if r.off[name] = !r.off[name]; r.off[name] {
			o.link.cut()
		} else {
			o.link.mend()
		}
	case roll < 7:
		if r.paused[name] = !r.paused[name]; r.paused[name] {
			o.Pause(kopf.ErrPaused)
		} else {
			o.Continue()
		}
	case roll == 7:
		r.server.CutWatches()
	case roll == 8:
		r.server.Compact()
		r.server.CutWatches()
	case roll == 9:
		r.server.DelayWatches(time.Duration(r.random.IntN(20000)) * time.Millisecond)
	default:
		r.server.DelayWatches(0)
	}
}

// killed ends a process. Its handlers still see the end of their context here.
func (r *relay) killed(o engaged) {
	o.link.die()
	o.cancel()
	err := <-o.done
	o.done <- err
}

// faults disturb requests for objects.
func (r *relay) faults() (remove func()) {
	fault := func(request simulated.Request) *simulated.Fault {
		switch r.roll(40) {
		case 0:
			return simulated.Drop()
		case 1:
			return simulated.Fail(500)
		case 2:
			if request.Writes() && request.Code == 0 {
				return simulated.Fail(409)
			}
		case 3:
			return &simulated.Fault{Code: 429, RetryAfter: time.Duration(1+r.roll(3)) * time.Second}
		case 4:
			return simulated.Delay(time.Duration(r.roll(3000)) * time.Millisecond)
		}
		return nil
	}
	before := r.server.Before(simulated.On{}, fault)
	after := r.server.After(simulated.On{}, func(request simulated.Request) *simulated.Fault {
		switch r.roll(30) {
		case 0:
			return simulated.Drop()
		case 1:
			return simulated.Delay(time.Duration(r.roll(3000)) * time.Millisecond)
		}
		return nil
	})
	return func() { before(); after() }
}

func (r *relay) verify(names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Logf("%d processes, %d turns, %d edits", r.processes, r.turns, r.edits)
	if r.turns < 2 {
		r.Errorf("only %d turns", r.turns)
	}
	if n := len(r.widgets.List()); len(r.inside) != min(n, 1) || n > 0 && slices.Max(slices.Collect(maps.Values(r.inside))) != n {
		r.Errorf("inside are %v, of %d objects", r.inside, n)
	}
	for _, name := range names {
		o := r.widgets.Get(ns, name)
		switch {
		case o == nil:
			continue
		case o.GetDeletionTimestamp() != nil:
			r.Errorf("%s is not released: %v", name, o.Object)
			continue
		}
		size := int(o.Object["spec"].(map[string]any)["size"].(int64))
		if handled := r.handledSize(name); handled != size {
			r.Errorf("%s: %d counts as handled, the last edit is %d", name, handled, size)
		}
		r.noProgress(name)
		r.finalizers(name, finalizer)
	}
}
