package indexing_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kopf-go/kopf/indexing"
)

var noContext = context.Background()

// written is a value that tells whose it is, and of which of its updates.
type written struct {
	owner  int
	update int
}

// Each update writes the same number under all keys of an owner, in a random number of
// keys which it also says. Who sees two numbers, or too few keys, has seen half of it.
func TestUpdatesAreVisibleAtOnce_IDX4(t *testing.T) {
	const writers, ownersEach, updates, keys = 4, 3, 300, 40
	w := indexing.NewWriter[int, [2]written]()
	var writing sync.WaitGroup
	var left atomic.Int32
	left.Store(writers)
	for writer := range writers {
		writing.Go(func() {
			defer left.Add(-1)
			random := rand.New(rand.NewPCG(uint64(writer), 2))
			for update := range updates {
				owner := writer*ownersEach + random.IntN(ownersEach)
				chosen := random.Perm(keys)[:random.IntN(keys)]
				entries := map[int][2]written{}
				for _, key := range chosen {
					entries[key] = [2]written{{owner, update}, {owner, len(chosen)}}
				}
				w.Replace(indexing.Owner(fmt.Sprint(owner)), entries)
			}
		})
	}
	reads := 0
	for left.Load() > 0 || reads == 0 {
		reads++
		seen, count := map[int][2]written{}, map[int]int{}
		for _, value := range w.Index().All() {
			owner := value[0].owner
			if before, ok := seen[owner]; ok && before != value {
				t.Fatalf("of owner %d, there are %v and %v", owner, before, value)
			}
			seen[owner] = value
			count[owner]++
		}
		for owner, value := range seen {
			if value[1].update != count[owner] {
				t.Fatalf("of owner %d, there are %d of %d keys", owner, count[owner], value[1].update)
			}
		}
		listed := 0
		for key := range w.Index().Keys() {
			listed++
			for value := range w.Index().Get(key) {
				if value[0].owner != value[1].owner {
					t.Fatalf("a value that nobody wrote: %v", value)
				}
			}
		}
		if listed > keys {
			t.Fatalf("%d keys of %d", listed, keys)
		}
	}
	writing.Wait()
}

// Readers that sleep until they are woken see the last of all updates, or the test
// ends in a deadlock; and what they see when woken is never what they saw before.
func TestNoWakeIsLostOrForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const updates, keys, readers = 2000, 4, 3
		w := indexing.NewWriter[int, int]()
		var all sync.WaitGroup
		for key := range keys {
			all.Go(func() {
				for i := range updates {
					w.Replace(indexing.Owner(fmt.Sprint(key)), map[int]int{key: i + 1})
				}
			})
			for range readers {
				all.Go(func() {
					wake := make(chan struct{}, 1) // never full when somebody is woken, or it ends in a deadlock, too
					reader := indexing.NewReader(func() { wake <- struct{}{} })
					view := w.Index().Tracked(indexing.WithReader(noContext, reader))
					for last := -1; last < updates; {
						value, _ := view.First(key)
						if value == last {
							t.Errorf("woken with %d, as before", value)
						}
						if last = value; value < updates {
							<-wake
						}
					}
				})
			}
		}
		all.Wait()
	})
}

// One update and one reading at the same time, again and again: either it is read, and
// nobody is woken, or the reader is woken, once. With many keys, and somebody else's
// note, the writer takes its time between what he does.
func TestReadingDuringAnUpdate(t *testing.T) {
	for name, c := range map[string]struct{ keys, rounds int }{"one key": {1, 3000}, "many keys": {250, 500}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := indexing.NewWriter[int, int]()
				if c.keys > 1 {
					w.Index().Tracked(indexing.WithReader(noContext, indexing.NewReader(func() {}))).Has(-1)
				}
				random := rand.New(rand.NewPCG(3, 4))
				for round := range c.rounds {
					entries := map[int]int{}
					for key := range c.keys {
						entries[key] = round
					}
					wake := make(chan struct{}, 2)
					reader := indexing.NewReader(func() { wake <- struct{}{} })
					view := w.Index().Tracked(indexing.WithReader(noContext, reader))
					var both sync.WaitGroup
					both.Go(func() { w.Replace("owner", entries) })
					both.Go(func() {
						for range random.IntN(50 * c.keys) { // so that they meet anywhere
							w.Index().First(0)
						}
						for {
							if value, ok := view.First(round % c.keys); ok && value == round {
								return
							}
							<-wake
						}
					})
					both.Wait()
					if len(wake) > 0 {
						t.Fatal("woken for what was read already")
					}
					reader.Forget()
				}
			})
		})
	}
}

// Reading, forgetting and writing at the same time, of two indices.
func TestForgettingWhileOthersWrite(t *testing.T) {
	const rounds = 2000
	w, v := indexing.NewWriter[int, int](), indexing.NewWriter[string, int]()
	var wakes atomic.Int64
	reader := indexing.NewReader(func() { wakes.Add(1) })
	ctx := indexing.WithReader(noContext, reader)
	var all sync.WaitGroup
	all.Go(func() {
		for i := range rounds {
			w.Replace("owner", map[int]int{i % 3: i})
		}
	})
	all.Go(func() {
		for i := range rounds {
			v.Replace("owner", map[string]int{fmt.Sprint(i % 3): i})
		}
	})
	for range 2 {
		all.Go(func() {
			for i := range rounds {
				w.Index().Tracked(ctx).Has(i % 3)
				v.Index().Tracked(ctx).Len()
				if i%5 == 0 {
					reader.Forget()
				}
			}
		})
	}
	all.Wait()
	reader.Forget()
	before := wakes.Load()
	w.Clear()
	v.Clear()
	if wakes.Load() != before {
		t.Error("woken after it has forgotten")
	}
}
