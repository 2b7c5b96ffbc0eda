package engine

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// What was begun goes before what has not; within each, first come, first served.
func TestGateOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1)
		g.enter()
		var mu sync.Mutex
		var order []string
		wait := func(name string, enter func()) {
			go func() {
				enter()
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				g.leave()
			}()
			synctest.Wait() // it waits
		}
		wait("new 1", g.enter)
		wait("back 1", g.reenter)
		wait("new 2", g.enter)
		wait("back 2", g.reenter)
		g.leave()
		synctest.Wait()
		if want := []string{"back 1", "back 2", "new 1", "new 2"}; !slices.Equal(order, want) {
			t.Errorf("got %q, want %q", order, want)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.free != 1 || len(g.back)+len(g.starting) != 0 {
			t.Errorf("%+v", g)
		}
	})
}

func TestGatePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(3)
		var inside, most atomic.Int64
		for range 10 {
			go func() {
				g.enter()
				defer g.leave()
				most.Store(max(most.Load(), inside.Add(1)))
				time.Sleep(time.Second)
				inside.Add(-1)
				// The handler runs outside.
				g.leave()
				time.Sleep(time.Hour)
				g.reenter()
				most.Store(max(most.Load(), inside.Add(1)))
				time.Sleep(time.Second)
				inside.Add(-1)
			}()
		}
		begin := time.Now()
		synctest.Wait()
		if n := inside.Load(); n != 3 {
			t.Errorf("%d are inside", n)
		}
		time.Sleep(10 * time.Second)
		if n := inside.Load(); n != 0 {
			t.Errorf("%d are inside while all handlers run", n)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		if most.Load() != 3 || g.free != 3 {
			t.Errorf("%d were inside, %d places are free after %s", most.Load(), g.free, time.Since(begin))
		}
	})
}

// No wake-up is lost, whatever comes together. For the race detector.
func TestGateStress(t *testing.T) {
	const places = 3
	g := newGate(places)
	var inside atomic.Int64
	var all sync.WaitGroup
	for worker := range 16 {
		r := rand.New(rand.NewPCG(uint64(worker), 3))
		all.Go(func() {
			visit := func(enter func()) {
				enter()
				if n := inside.Add(1); n > places {
					t.Errorf("%d are inside", n)
				}
				if r.IntN(4) == 0 {
					time.Sleep(time.Duration(r.IntN(20)) * time.Microsecond)
				}
				inside.Add(-1)
				g.leave()
			}
			for range 300 {
				visit(g.enter)
				visit(g.reenter)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("somebody waits for ever")
	}
	if g.free != places || len(g.back)+len(g.starting) != 0 {
		t.Errorf("%d places are free, %d wait", g.free, len(g.back)+len(g.starting))
	}
}
