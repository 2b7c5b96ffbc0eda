package engine

import "sync"

// gate bounds how many cycles hold decoded objects at the same time, so that ten
// thousand new objects do not mean ten thousand decoded ones. A cycle leaves the
// gate while a user's handler runs, which may take hours, and comes back in before
// any cycle that has not begun: what was begun is finished first.
type gate struct {
	mu       sync.Mutex
	free     int
	back     []chan struct{}
	starting []chan struct{}
}

func newGate(places int) *gate { return &gate{free: places} }

// enter waits for a place.
func (g *gate) enter() { g.wait(&g.starting) }

// reenter waits for a place ahead of those that enter.
func (g *gate) reenter() { g.wait(&g.back) }

func (g *gate) wait(queue *[]chan struct{}) {
	g.mu.Lock()
	if g.free > 0 {
		g.free--
		g.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	*queue = append(*queue, turn)
	g.mu.Unlock()
	<-turn
}

// waiting is how many wait for a place.
func (g *gate) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.back) + len(g.starting)
}

// leave gives the place to the next in line.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, queue := range []*[]chan struct{}{&g.back, &g.starting} {
		if len(*queue) > 0 {
			close((*queue)[0])
			*queue = (*queue)[1:]
			return
		}
	}
	g.free++
}
