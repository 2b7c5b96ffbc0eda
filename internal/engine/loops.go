package engine

import (
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/state"
)

// loops notices objects that the operator writes again and again for no good reason:
// their essence is the same each time, or it is its own writes that change it. An
// event handler that answers each event with another value does the first, an update
// handler that edits what it is called for the second, two programs that undo each
// other's writes one of them.
//
// Counts are kept for objects that were written in the last window or the one before.
type loops struct {
	limit  int
	window time.Duration

	mu          sync.Mutex
	turned      time.Time
	now, before map[types.UID]*laps
}

// laps are the writes of one object that a loop may be made of.
type laps struct {
	essence uint64 // its hash; selfMade: changed by each write
	count   int
	// remember is until when a slowed down object is not forgotten.
	remember time.Time
}

// selfMade stands for an essence that each write has changed.
const selfMade = 0

var lapSeed = maphash.MakeSeed()

func newLoops(limit int, window time.Duration) *loops {
	return &loops{limit: limit, window: window, now: map[types.UID]*laps{}}
}

// lap counts a write, and returns for how long the object has to wait; what pause
// makes of by how many it is over the limit.
func (l *loops) lap(uid types.UID, essence uint64, pause func(over int) time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn()
	counted := l.now[uid]
	if counted == nil {
		counted = &laps{essence: essence}
		if old := l.before[uid]; old != nil {
			*counted = *old
		}
		l.now[uid] = counted
	}
	if counted.essence != essence {
		*counted = laps{essence: essence}
	}
	counted.count++
	if counted.count <= l.limit {
		return 0
	}
	wait := pause(counted.count - l.limit)
	counted.remember = time.Now().Add(wait + l.window)
	return wait
}

// turn begins another window if it is time. What is slowed down is not forgotten
// because it is slow.
func (l *loops) turn() {
	age := time.Since(l.turned)
	if age < l.window {
		return
	}
	now := map[types.UID]*laps{}
	keep := func(old map[types.UID]*laps) {
		for uid, counted := range old {
			if counted.remember.After(time.Now()) {
				now[uid] = counted
			}
		}
	}
	keep(l.before)
	if l.before = l.now; age >= 2*l.window {
		keep(l.now)
		l.before = nil
	}
	l.now, l.turned = now, time.Now()
}

// circling has an object wait if a write of it is one of many in a circle: it returns
// for how long, or 0. was is the essence before the write, edited tells that handlers
// had something changed.
func (o *object) circling(b *body.Body, was *state.Essence, edited bool) time.Duration {
	e := o.kind.engine
	lap := uint64(selfMade)
	if o.kind.store.Essence(b).Equal(was) {
		lap = maphash.Bytes(lapSeed, was.Bytes()) | 1
	} else if !edited {
		return 0 // somebody else has changed it meanwhile
	}
	wait := e.loops.lap(o.uid, lap, e.settings.errorDelay)
	if wait == 0 {
		return 0
	}
	e.complain(o, b, looping, &loopError{limit: e.loops.limit, window: e.loops.window, self: lap == selfMade})
	return wait
}

// loopError is what is wrong with an object that is written in circles.
type loopError struct {
	limit  int
	window time.Duration
	self   bool
}

func (e *loopError) Error() string {
	why := "although nothing essential has changed: some handler writes another value each time, " +
		"or somebody takes back what is written"
	if e.self {
		why = "each time because of what its own handlers have changed in it: a handler edits what it is called for"
	}
	return fmt.Sprintf("object was written more than %d times within %s, %s; it is handled more slowly now", e.limit, e.window, why)
}
