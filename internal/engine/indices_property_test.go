package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// IDX-2, IDX-4, IDX-8: whatever happens to objects, watches and functions, in the end an
// index holds what its functions say of the objects that are there; and whoever reads it
// meanwhile sees of each object all or nothing.
func TestIndexIsWhatItsObjectsSay_IDX2_IDX4_IDX8(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			scenario(t, func(w *world) { newIndexChaos(w, seed).run() })
		})
	}
}

// indexChaos is the chaos of other tests, with an index.
type indexChaos struct {
	*chaos
	index *textIndex
}

func newIndexChaos(w *world, seed uint64) *indexChaos {
	return &indexChaos{chaos: newChaos(w, seed, 1)} // with a sibling, no operator ends
}

var colors = []string{"red", "green", "blue", ""}

// says is what the functions say of an object: several keys, as many as its color is long,
// and what its label adds.
func says(name, color string, size int, in string) (first, second texts) {
	first, second = texts{}, texts{}
	for i := range len(color) {
		first[fmt.Sprint(color, i)] = fmt.Sprint(name, size)
	}
	if in == "yes" {
		second[color+"0"], second["all"] = "too", name
	}
	return first, second
}

func (c *indexChaos) register(h handlers) {
	fail := func() error {
		c.mu.Lock()
		roll, after := c.dice.IntN(20), time.Duration(c.dice.IntN(4000))*time.Millisecond
		c.mu.Unlock()
		switch roll {
		case 0:
			return kopf.Retry(after, errFlop)
		case 1:
			return errFlop
		case 2:
			panic("oops")
		case 3:
			time.Sleep(after)
		}
		return nil
	}
	said := func(which int) indexFn {
		return func(_ context.Context, s *snapshot) (texts, error) {
			first, second := says(s.Object.Name, s.Object.Spec.Color, s.Object.Spec.Size, s.Object.Labels["in"])
			return []texts{first, second}[which], fail()
		}
	}
	c.index = h.index("x", said(0), on.Errors(on.Temporary), on.Backoff(10*time.Second))
	h.index("x", said(1), on.Errors(on.Temporary), on.Backoff(time.Second), on.Label("in", "yes"))
	h.create("create", func(_ context.Context, ch *change) error {
		ch.Patch.Apply(func(o *widget) { o.Status.Phase = "created" })
		return nil
	})
	h.update("update", nil)
}

func (c *indexChaos) run() {
	c.allow("handling failed, will be tried again")
	names := []string{"w1", "w2", "w3", "w4", "w5"}
	c.create("w1", 1, inColor("red"))
	remove := c.faults()
	c.launch(c.register)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() { c.read(stop) })
	}
	for range 200 {
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
	c.sleep(20 * time.Minute)
	close(stop)
	readers.Wait()
	c.holds(c.index, c.model()...)
}

func (c *indexChaos) act(name string) {
	if c.widgets.Get(ns, name) == nil {
		c.create(name, c.random.IntN(5), inColor(pick(c.random, colors)))
		return
	}
	switch c.random.IntN(10) {
	case 0:
		c.delete(name)
	case 1, 2:
		c.update(name, label("in", pick(c.random, []string{"yes", "no"})))
	case 3:
		c.touchStatus(name, fmt.Sprint(c.random.IntN(3)))
	default:
		for range 1 + c.random.IntN(3) {
			c.resize(name, c.random.IntN(5))
			c.paint(name, pick(c.random, colors))
		}
	}
}

func pick(random *rand.Rand, texts []string) string { return texts[random.IntN(len(texts))] }

// read looks at the index, in which an object has all keys of a color or none.
func (c *indexChaos) read(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Second):
		}
		keys := map[string]int{} // by value and color
		for key, value := range c.index.All() {
			if value != "too" && key != "all" {
				keys[value+" "+strings.TrimRight(key, "0123456789")]++
			}
		}
		for of, n := range keys {
			_, color, _ := strings.Cut(of, " ")
			if n%len(color) != 0 {
				c.Errorf("%d of the keys of %s are in the index", n, of)
			}
		}
	}
}

func (c *indexChaos) model() (entries []string) {
	for _, o := range c.widgets.List() {
		spec := o.Object["spec"].(map[string]any)
		color, _ := spec["color"].(string)
		size, _ := spec["size"].(int64)
		first, second := says(o.GetName(), color, int(size), o.GetLabels()["in"])
		for _, said := range []texts{first, second} {
			for key, value := range said {
				entries = append(entries, key+"="+value)
			}
		}
	}
	slices.Sort(entries)
	return entries
}
