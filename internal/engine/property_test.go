package engine_test

import (
	"context"
	"flag"
	"fmt"
	oldrand "math/rand"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
)

var (
	seed     = flag.Uint64("seed", 0, "run the property test with this seed only")
	allSeeds = flag.Uint64("seeds", 0, "run the property test with seeds from 1 to this one")
)

// B06: whatever happens, the last edit is not lost. Objects are created, edited in
// bursts, deleted and re-created, while requests and answers get lost, are refused,
// or are late, watches are cut or go silent, and operators are stopped and killed.
// When all is quiet in the end, each object's last edit is what was handled, its
// handler has seen it last, and nothing is left over.
func TestNoEditIsLost(t *testing.T) {
	for _, siblings := range []int{0, 2} {
		t.Run(fmt.Sprint(siblings, " siblings"), func(t *testing.T) {
			bySeed(t, 8, 2, func(w *world, n uint64) { newChaos(w, n, siblings).run() })
		})
	}
}

// bySeed runs a scenario once for each seed: for so many, or in short mode so few of them, or
// as the flags say. The pauses that client-go makes by chance depend on the seed, too.
func bySeed(t *testing.T, usual, few uint64, play func(w *world, seed uint64)) {
	first, last := uint64(1), max(usual, *allSeeds)
	if testing.Short() {
		last = few
	}
	if *seed != 0 {
		first, last = *seed, *seed
	}
	for n := first; n <= last; n++ {
		t.Run(fmt.Sprint("seed ", n), func(t *testing.T) {
			oldrand.Seed(int64(n)) //lint:ignore SA1019 they come from there
			scenario(t, func(w *world) {
				w.Logf("repeat it with: go test ./internal/engine -run %s -args -seed %d", t.Name(), n)
				play(w, n)
			})
		})
	}
}

// chaos is what happens to a world by chance.
type chaos struct {
	*world
	random *rand.Rand

	mu   sync.Mutex // guards what handlers use
	dice *rand.Rand
	last map[string]int // by UID and handler: the size that was last handled with success

	// siblings are how many more update handlers there are. With them no operator
	// ends, for what each has seen of a change-set is in memory.
	siblings int

	edits   int
	current map[string]bool // names that are there
	op      *operator
	deleted map[string]bool // UIDs of finished deletions
}

func newChaos(w *world, seed uint64, siblings int) *chaos {
	w.Logf("run it alone with: -run 'NoEditIsLost' -args -seed %d", seed)
	return &chaos{
		world: w, siblings: siblings, random: rand.New(rand.NewPCG(seed, 1)), dice: rand.New(rand.NewPCG(seed, 2)),
		last: map[string]int{}, current: map[string]bool{}, deleted: map[string]bool{},
	}
}

func (c *chaos) chance(percent int) bool { return c.random.IntN(100) < percent }

// pause is around the time constants that there are.
func (c *chaos) pause() time.Duration {
	base := []time.Duration{0, time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second, time.Minute}
	return base[c.random.IntN(len(base))] + time.Duration(c.random.IntN(3)-1)*time.Duration(c.random.IntN(2000))*time.Microsecond
}

func (c *chaos) register(h handlers) {
	h.create("create", c.handler(0))
	h.update("update", c.handler(0))
	for i := range c.siblings {
		h.update(fmt.Sprint("sibling-", i+1), c.handler(i+1))
	}
	h.delete("delete", c.handler(0))
	h.resume("resume", nil)
}

func key(uid types.UID, sibling int) string { return fmt.Sprint(uid, " ", sibling) }

func (c *chaos) handler(sibling int) changeFn {
	return func(ctx context.Context, ch *change) error {
		c.mu.Lock()
		fail, slow, edit := c.dice.IntN(100) < 20, c.dice.IntN(100) < 20, c.dice.IntN(100) < 20
		took := time.Duration(c.dice.IntN(4000)) * time.Millisecond
		c.mu.Unlock()
		if slow {
			if err := sleeping(took)(ctx, ch); err != nil {
				return err
			}
		}
		if fail {
			return kopf.Retry(took, errFlop)
		}
		if edit {
			phase := fmt.Sprint("phase ", ch.New.Spec.Size)
			ch.Patch.Apply(func(w *widget) { w.Status.Phase = phase })
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.deleted[string(ch.Object.UID)] && ch.Reason != kopf.ReasonDelete {
			c.Errorf("%s after the deletion of %s", ch.Reason, ch.Object.Name)
		}
		if ch.Reason == kopf.ReasonDelete {
			c.deleted[string(ch.Object.UID)] = true
			return nil
		}
		for i := range 1 + c.siblings {
			if i != sibling && ch.Reason != kopf.ReasonCreate {
				continue
			}
			if was := c.last[key(ch.Object.UID, i)]; ch.New.Spec.Size < was {
				c.Errorf("%s goes back from %d to %d", ch.Object.Name, was, ch.New.Spec.Size)
			}
			c.last[key(ch.Object.UID, i)] = ch.New.Spec.Size
		}
		return nil
	}
}

func (c *chaos) run() {
	c.allow("handling failed, will be tried again")
	c.settings.Queueing.WorkerLimit = 3
	c.settings.Queueing.ErrorDelays = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second}
	names := []string{"w1", "w2", "w3", "w4", "w5"}
	c.op = c.launch(c.register)
	remove := c.faults()
	for range 300 {
		c.act(names[c.random.IntN(len(names))])
		if c.chance(8) {
			c.disturb()
		}
		if c.chance(70) {
			time.Sleep(c.pause())
		}
	}
	remove()
	c.server.DelayWatches(0)
	if c.op == nil {
		c.op = c.launch(c.register)
	}
	c.sleep(20 * time.Minute)
	c.verify(names)
}

func (c *chaos) act(name string) {
	switch o := c.widgets.Get(ns, name); {
	case o == nil:
		c.edits++
		c.create(name, c.edits)
	case c.chance(6):
		c.delete(name)
	case c.chance(15):
		c.touchStatus(name, fmt.Sprint("foreign ", c.edits))
	default:
		for range 1 + c.random.IntN(3) {
			if o.GetDeletionTimestamp() == nil {
				c.edits++
				c.resize(name, c.edits)
			}
		}
	}
}

// faults disturb requests until remove is called.
func (c *chaos) faults() (remove func()) {
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(c.random.Uint64(), 3))
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return dice.IntN(n)
	}
	before := c.server.Before(simulated.On{Resource: "widgets*"}, func(r simulated.Request) *simulated.Fault {
		switch roll(40) {
		case 0:
			return simulated.Drop()
		case 1:
			return simulated.Fail(500)
		case 2:
			if r.Writes() {
				return simulated.Fail(409)
			}
		case 3:
			return &simulated.Fault{Code: 429, RetryAfter: time.Duration(1+roll(3)) * time.Second}
		case 4:
			return simulated.Delay(time.Duration(roll(3000)) * time.Millisecond)
		case 5:
			if r.Writes() && c.widgets.Get(ns, r.Name) != nil {
				_, _ = c.widgets.UpdateStatus(ns, r.Name, func(o widgetObj) { set(o, fmt.Sprint("quick ", roll(1000)), "status", "phase") })
			}
		}
		return nil
	})
	after := c.server.After(simulated.On{Resource: "widgets*"}, func(simulated.Request) *simulated.Fault {
		switch roll(30) {
		case 0:
			return simulated.Drop()
		case 1:
			return simulated.Delay(time.Duration(roll(3000)) * time.Millisecond)
		}
		return nil
	})
	return func() { before(); after() }
}

func (c *chaos) disturb() {
	switch c.random.IntN(8) {
	case 0:
		c.server.CutWatches()
	case 1:
		c.server.Compact()
		c.server.CutWatches()
	case 2:
		c.server.Mute()
	case 3:
		c.server.DelayWatches(time.Duration(c.random.IntN(3000)) * time.Millisecond)
	case 4:
		c.server.DelayWatches(0)
	case 5:
		c.turn(false)
	default:
		c.turn(true)
	}
}

// turn ends the operator, or starts one if there is none.
func (c *chaos) turn(hard bool) {
	switch {
	case c.siblings > 0:
		return
	case c.op == nil:
		c.op = c.launch(c.register)
		return
	case hard:
		c.op.kill()
	default:
		if err := c.op.stop(); err != nil {
			c.Error(err)
		}
	}
	c.op = nil
	if c.chance(70) {
		c.op = c.launch(c.register)
	}
}

func (c *chaos) verify(names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		o := c.widgets.Get(ns, name)
		switch {
		case o == nil:
			continue
		case o.GetDeletionTimestamp() != nil:
			c.Errorf("%s is not released: %v", name, o.Object)
			continue
		}
		size := int(o.Object["spec"].(map[string]any)["size"].(int64))
		if handled := c.handledSize(name); handled != size {
			c.Errorf("%s: %d counts as handled, the last edit is %d", name, handled, size)
		}
		for i := range 1 + c.siblings {
			if last := c.last[key(o.GetUID(), i)]; last != size {
				c.Errorf("%s: handler %d has last seen %d, the last edit is %d", name, i, last, size)
			}
		}
		c.noProgress(name)
		c.finalizers(name, finalizer)
	}
}
