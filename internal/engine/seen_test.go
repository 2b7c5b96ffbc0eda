package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
)

// interruptions are how an operator may end in the middle of a change-set.
var interruptions = map[string]func(*operator){
	"stopped": func(o *operator) { _ = o.stop() },
	"killed":  (*operator).kill,
}

// slowly registers handlers for a change, of which one is through at once and one
// needs three attempts, 20 seconds apart.
func slowly(h handlers) {
	h.create("create", nil)
	h.update("quick", nil)
	h.update("slow", func(_ context.Context, c *change) error {
		if c.Retry < 2 {
			return kopf.Retry(20*time.Second, errFlop)
		}
		return nil
	})
}

// PRG-7, B14 over a restart: a handler that was through is told exactly what it has not
// seen, however many changes there were.
func TestLaterChangeOverRestart_PRG7(t *testing.T) {
	for name, interrupt := range interruptions {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				o := w.start(slowly)
				w.create("w1", 1)
				w.settle()
				w.mark()
				w.resize("w1", 2)
				w.sleep(3 * time.Second)
				interrupt(o)
				w.resize("w1", 3)
				w.start(slowly)
				w.sleep(5 * time.Minute)
				w.expectAnyTime("quick w1 #0 1→2", "slow w1 #0 1→2", "slow w1 #1 1→3", "slow w1 #2 1→3", "quick w1 #0 2→3")
				w.noProgress("w1")
				w.quiet(time.Hour)
			})
		})
	}
}

// PRG-7 for handlers that were through at different times.
func TestLaterChangesOneByOne_PRG7(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) {
			slowly(h)
			h.update("middle", func(_ context.Context, c *change) error {
				if c.Retry < 1 {
					return kopf.Retry(10*time.Second, errFlop)
				}
				return nil
			})
		}
		o := w.start(register)
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.resize("w1", 2) // quick sees 2
		w.sleep(5 * time.Second)
		w.resize("w1", 3) // middle sees 3, at 10 s
		w.sleep(10 * time.Second)
		o.kill()
		w.resize("w1", 4) // slow sees 4
		w.start(register)
		w.sleep(5 * time.Minute)
		w.expectAnyTime("quick w1 #0 1→2", "slow w1 #0 1→2", "middle w1 #0 1→2", "middle w1 #1 1→3",
			"slow w1 #1 1→4", "slow w1 #2 1→4", "quick w1 #0 2→4", "middle w1 #0 3→4", "middle w1 #1 3→4")
		w.noProgress("w1")
	})
}

// PRG-7 for a creation: what its handlers have not seen is an update.
func TestLaterChangeOfCreationOverRestart_PRG7(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) {
			h.create("quick", nil)
			h.create("slow", func(_ context.Context, c *change) error {
				if c.Retry < 1 {
					return kopf.Retry(20*time.Second, errFlop)
				}
				return nil
			})
			h.update("update", nil)
		}
		o := w.start(register)
		w.create("w1", 1)
		w.settle()
		o.kill()
		w.resize("w1", 2)
		w.start(register)
		w.sleep(5 * time.Minute)
		w.expectAnyTime("quick w1 #0 →1", "slow w1 #0 →1", "slow w1 #1 →2", "update w1 #0 1→2")
		w.noProgress("w1")
	})
}

// PRG-8 over a restart: a change is taken back while nobody is there.
func TestRevertOverRestart_PRG8(t *testing.T) {
	for name, interrupt := range interruptions {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				register := func(h handlers) {
					slowly(h)
					h.resume("resume", nil)
				}
				o := w.start(register)
				w.create("w1", 1)
				w.settle()
				w.mark()
				w.resize("w1", 2)
				w.sleep(3 * time.Second)
				interrupt(o)
				w.resize("w1", 1)
				w.start(register)
				w.sleep(5 * time.Minute)
				w.expectAnyTime("quick w1 #0 1→2", "slow w1 #0 1→2", "resume w1 #0 1→1", "quick w1 #0 2→1")
				w.noProgress("w1")
			})
		})
	}
}

// PRG-7 when nobody knows any more what a handler has seen, as after a Python operator,
// or where it did not fit: it runs again for the whole change, so that it misses nothing.
func TestForgottenChange_PRG7(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.start(slowly)
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.resize("w1", 2)
		w.sleep(3 * time.Second)
		o.kill()
		w.resize("w1", 3)
		w.update("w1", func(o widgetObj) {
			annotations := o.GetAnnotations()
			for name := range annotations {
				if strings.Contains(name, "/seen-") {
					delete(annotations, name)
				}
			}
			o.SetAnnotations(annotations)
		})
		w.start(slowly)
		w.sleep(5 * time.Minute)
		w.expectAnyTime("quick w1 #0 1→2", "slow w1 #0 1→2", "slow w1 #1 1→3", "slow w1 #2 1→3", "quick w1 #0 1→3")
		w.noProgress("w1")
	})
}

// PRG-7: sub-handlers, too, are told over a restart what they have not seen.
func TestNestedLaterChangeOverRestart_PRG7(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) {
			h.create("create", nil)
			h.update("parent", func(_ context.Context, c *change) error {
				h.sub(c, "quick", nil)
				h.sub(c, "slow", func(_ context.Context, c *change) error {
					if c.Retry < 1 {
						return kopf.Retry(20*time.Second, errFlop)
					}
					return nil
				})
				return nil
			})
		}
		o := w.start(register)
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.resize("w1", 2)
		w.settle()
		o.kill()
		w.resize("w1", 3)
		w.start(register)
		w.sleep(5 * time.Minute)
		w.expectAnyTime("parent w1 #0 1→2", "  quick w1 #0 1→2", "  slow w1 #0 1→2",
			"parent w1 #1 1→3", "  quick w1 #0 2→3", "  slow w1 #1 1→3")
		w.noProgress("w1")
	})
}
