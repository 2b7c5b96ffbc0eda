package engine

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// timers is the one place where things wait: retries, back-offs and deadlines of
// all objects are entries of one heap, not goroutines and not runtime timers. An
// entry costs about 60 bytes.
type timers struct {
	mu      sync.Mutex
	entries timerHeap
	kick    chan struct{} // the earliest entry has changed
	pulse   pulse
}

// timer is one wait. Its function is called once, unless it is stopped before, and
// must not block.
type timer struct {
	at    time.Time
	fire  func()
	index int // in the heap; -1: not in it
}

func newTimers() *timers { return &timers{kick: make(chan struct{}, 1)} }

// at calls fire at a time, at once if that has passed.
func (t *timers) at(when time.Time, fire func()) *timer {
	entry := &timer{at: when, fire: fire}
	t.mu.Lock()
	heap.Push(&t.entries, entry)
	earliest := entry.index == 0
	t.mu.Unlock()
	if earliest {
		t.wake()
	}
	return entry
}

// stop takes an entry out; one that has fired, or nil, is no matter.
func (t *timers) stop(entry *timer) {
	if entry == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if entry.index >= 0 {
		heap.Remove(&t.entries, entry.index)
	}
}

func (t *timers) wake() {
	select {
	case t.kick <- struct{}{}:
	default: // a kick is waiting already
	}
}

// run fires entries until the context ends.
func (t *timers) run(ctx context.Context) {
	clock := time.NewTimer(time.Hour)
	defer clock.Stop()
	for {
		clock.Reset(t.fireDue())
		select {
		case <-ctx.Done():
			return
		case <-t.kick:
		case <-clock.C:
		}
	}
}

// fireDue fires what is due and returns the time until the next entry is.
func (t *timers) fireDue() time.Duration {
	for {
		t.mu.Lock()
		if len(t.entries) == 0 {
			t.mu.Unlock()
			return time.Hour
		}
		entry := t.entries[0]
		if wait := time.Until(entry.at); wait > 0 {
			t.mu.Unlock()
			return wait
		}
		heap.Pop(&t.entries)
		t.mu.Unlock()
		t.pulse.work()
		entry.fire()
		t.pulse.rest()
	}
}

type timerHeap []*timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timerHeap) Push(x any) {
	entry := x.(*timer)
	entry.index = len(*h)
	*h = append(*h, entry)
}

func (h *timerHeap) Pop() any {
	old := *h
	entry := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	entry.index = -1
	return entry
}
