package settings

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kopf-go/kopf/typed"
)

// Due is a handler that could be called now, as a Lifecycle sees it.
type Due struct {
	// ID is the handler's id; for a sub-handler with those of its parents.
	ID string
	// Reason is why it would be called.
	Reason typed.Reason
	// Retry is how many attempts were made, and Started when the first one began.
	Retry   int
	Started time.Time
}

// Lifecycle picks, from the handlers of one object that are due, those that are
// called in this cycle, in this order; what has come of them is written before the
// next cycle has its turn (LIF-1). It is asked for the handlers of a change, and for
// the sub-handlers of each parent. It must not keep or change what it gets, and be
// safe for concurrent use. When it picks none, it is asked again after
// Settings.Execution.DefaultBackoff, or when the object changes.
type Lifecycle func(due []Due) []Due

// AllAtOnce calls all handlers that are due in one cycle, one after the other, in
// order of registration, and writes once: the default. Kopf's default, one handler
// and one write at a time, is ASAP.
func AllAtOnce(due []Due) []Due { return due }

// OneByOne calls the first handler only, until it has come to its end.
func OneByOne(due []Due) []Due { return due[:min(1, len(due))] }

// ASAP calls the handler with the fewest attempts so far, the first of equals, so that
// failing handlers do not keep others waiting.
func ASAP(due []Due) []Due {
	if len(due) == 0 {
		return nil
	}
	return []Due{slices.MinFunc(due, func(a, b Due) int { return a.Retry - b.Retry })}
}

// Randomized calls one handler by chance.
func Randomized(due []Due) []Due {
	if len(due) == 0 {
		return nil
	}
	return []Due{due[rand.IntN(len(due))]}
}

// Shuffled calls all handlers, in an order by chance.
func Shuffled(due []Due) []Due {
	due = slices.Clone(due)
	rand.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	return due
}
