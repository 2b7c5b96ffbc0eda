package peering_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kopf-go/kopf/internal/peering"
	"github.com/kopf-go/kopf/internal/simulated"
)

var (
	peeringPatches = simulated.On{Verb: "patch", Resource: "clusterkopfpeerings"}
	peeringReads   = simulated.On{Resource: "clusterkopfpeerings"}
)

// dice are thrown by several goroutines.
type dice struct {
	mu sync.Mutex
	of *rand.Rand
}

func newDice(seed, more uint64) *dice { return &dice{of: rand.New(rand.NewPCG(seed, more))} }

func (d *dice) IntN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.of.IntN(n)
}

func priority(n int) func(*peering.Options) { return func(o *peering.Options) { o.Priority = n } }

// PEER-6, PEER-12: operators hand over to each other, and back; those of the same priority
// all pause, which each of them says once.
func TestOperatorsTakeTurns_PEER6_PEER12(t *testing.T) {
	scenario(t, func(w *world) {
		w.with(nil)
		low := w.start("low", priority(1))
		low.expect("+0s continue")
		high := w.start("high", priority(2))
		high.expect("+0s continue")
		low.expect("+0s pause: in favour of high (priority 2)")
		w.sleep(time.Hour)
		high.stop()
		low.expect("+1h0m0s continue")
		same := w.start("same", priority(1))
		same.expect("+1h0m0s pause: as there are operators of the same priority, which pause, too: low (priority 1)")
		low.expect("+1h0m0s pause: as there are operators of the same priority, which pause, too: same (priority 1)")
		w.sleep(time.Hour)
		third := w.start("third", priority(1))
		third.expect("+2h0m0s pause: as there are operators of the same priority, which pause, too: low (priority 1), same (priority 1)")
		for text, want := range map[string]int{"low": 2, "same": 2, "third": 1} {
			n := 0
			for _, line := range w.said(slog.LevelWarn, "same priority") {
				if strings.HasPrefix(line, "WARN "+text+" ") {
					n++
				}
			}
			if n != want {
				t.Errorf("%s warns %d times", text, n)
			}
		}
		third.stop()
		same.stop()
		low.expect("+2h0m0s continue")
	})
}

// PEER-12: of two that start in the same moment, none misses the other.
func TestTwoStartTogether_PEER12(t *testing.T) {
	for seed := range uint64(20) {
		scenario(t, func(w *world) {
			w.with(nil)
			random := newDice(seed, 0)
			w.server.Before(peeringReads, func(simulated.Request) *simulated.Fault {
				return simulated.Delay(time.Duration(random.IntN(50)) * time.Millisecond)
			})
			w.server.DelayWatches(time.Duration(random.IntN(50)) * time.Millisecond)
			low, high := w.launch("low"), w.launch("high", priority(1))
			w.sleep(time.Second)
			if low.active() || !high.active() {
				t.Errorf("seed %d: low is active: %v, high: %v", seed, low.active(), high.active())
			}
		})
	}
}

// PEER-12: a killed operator is missed only when its time is over.
func TestKilled_PEER12(t *testing.T) {
	scenario(t, func(w *world) {
		w.with(nil)
		low := w.start("low")
		w.put("killed", record(1, 60, 0))
		w.settle()
		low.expect("+0s continue", "+0s pause")
		w.sleep(59 * time.Second)
		low.expect()
		w.sleep(2 * time.Second)
		low.expect("+1m0s continue")
		w.identities("low")
	})
}

// PEER-7: an operator that is cut off does not go on just because it hears nothing.
func TestCutOff_PEER7(t *testing.T) {
	scenario(t, func(w *world) {
		w.with(map[string]any{"peer": record(1, 60, 0)})
		op := w.start("me")
		op.expect("+0s pause")
		mend := w.server.Before(peeringReads, simulated.Always(simulated.Drop()))
		w.server.CutWatches()
		w.sleep(10 * time.Minute)
		op.expect()
		w.put("peer", record(1, 60, 0))
		mend()
		w.sleep(time.Minute - 10*time.Second)
		op.expect()
		w.sleep(time.Minute)
		if len(w.records()) != 1 || !op.active() {
			t.Error("it does not go on when the peer's time is over", w.records())
		}
	})
}

// PEER-7: a peer whose signs of life are not heard, for the watch is dead, is asked for at
// the end of its time.
func TestHalfDeadWatch_PEER7(t *testing.T) {
	scenario(t, func(w *world) {
		w.with(map[string]any{"peer": record(1, 60, 0)})
		op := w.start("me")
		op.expect("+0s pause")
		w.server.Mute()
		for range 10 {
			w.sleep(40 * time.Second)
			w.put("peer", record(1, 60, 0))
		}
		op.expect()
		w.put("peer", nil)
		w.sleep(time.Minute + time.Second)
		if !op.active() {
			t.Error("it does not notice that the peer is gone")
		}
	})
}

// PEER-6: a clock that goes wrong does not make a peer dead that is seen to be alive, nor
// alive that is not.
func TestClockSkew_PEER6_PEER12(t *testing.T) {
	for name, behind := range map[string]time.Duration{"behind": 10 * time.Minute, "far behind": 1000 * time.Hour, "ahead": -10 * time.Minute, "far ahead": -1000 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.with(nil)
				op := w.start("me")
				op.expect("+0s continue")
				for range 20 { // it says that it is alive
					w.put("peer", record(1, 60, behind))
					w.sleep(50 * time.Second)
				}
				w.identities("me", "peer")
				op.expect("+0s pause")
				w.sleep(9 * time.Second)
				op.expect()
				w.sleep(2 * time.Second)
				op.expect("+16m50s continue")
				w.identities("me")
			})
		})
	}
}

// PEER-6: records of the dead are removed, but not of one that comes back in that moment.
func TestRemovalOfTheDead_PEER6(t *testing.T) {
	scenario(t, func(w *world) {
		w.with(map[string]any{"a": record(1, 60, time.Hour), "b": record(1, 60, time.Hour)})
		revived := false
		w.server.Before(peeringPatches, func(r simulated.Request) *simulated.Fault {
			if strings.Contains(string(r.Body), `"a":null`) && !revived {
				revived = true
				w.put("a", record(1, 60, 0))
			}
			return nil
		})
		op := w.start("me")
		w.sleep(time.Second)
		w.identities("a", "me")
		if op.active() {
			t.Error("it has not noticed who came back")
		}
	})
}

// PEER-6: what has no time does not end by itself.
func TestRecordWithoutTime_PEER6(t *testing.T) {
	scenario(t, func(w *world) {
		w.with(map[string]any{"person": map[string]any{"priority": 1000}})
		op := w.start("me")
		w.sleep(time.Hour)
		op.expect("+0s pause: in favour of person (priority 1000)")
		w.put("person", nil)
		w.settle()
		op.expect("+1h0m0s continue")
	})
}

// PEER-2: what is not permitted is said once, with the verb; optional peering goes on
// without it.
func TestForbidden_PEER2(t *testing.T) {
	for name, c := range map[string]struct {
		verbs                []string
		optional, mandatory_ string
		said                 []string
		noticed              bool
	}{
		"nothing is":    {[]string{""}, "continue", "pause: because clusterkopfpeerings.kopf.dev/default cannot be read", []string{"verb=watch", "verb=patch"}, false},
		"no writing":    {[]string{"patch"}, "continue", "continue", []string{"verb=patch"}, true},
		"no reading":    {[]string{"list", "watch", "get"}, "continue", "continue", []string{"verb=watch"}, false},
		"just watching": {[]string{"get", "patch"}, "continue", "continue", []string{"verb=patch"}, true},
	} {
		for _, m := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, mandatory: %v", name, m), func(t *testing.T) {
				scenario(t, func(w *world) {
					w.with(nil)
					for _, verb := range c.verbs {
						w.server.Before(simulated.On{Verb: verb, Resource: "clusterkopfpeerings"}, simulated.Always(simulated.Fail(403)))
					}
					op := w.start("me", func(o *peering.Options) { o.Mandatory = m })
					state := c.optional
					if m {
						state = c.mandatory_
					}
					op.expect("+0s " + state)
					w.sleep(5 * time.Minute)
					errors := w.said(slog.LevelError, "permission is missing")
					if len(errors) != len(c.said) {
						t.Error(errors)
					}
					for _, text := range c.said {
						if !strings.Contains(strings.Join(errors, "\n"), text) {
							t.Errorf("%q is not said: %q", text, errors)
						}
					}
					w.put("peer", record(1, 60, 0))
					w.sleep(time.Second)
					op.mu.Lock()
					noticed := len(op.states) > 0
					op.mu.Unlock()
					if noticed != c.noticed {
						t.Error("the peer was noticed:", noticed)
					}
					w.sleep(70 * time.Second)
					if c.noticed && !op.active() {
						t.Error("it does not go on when the peer's time is over")
					}
				})
			})
		}
	}
}

// PEER-6: one who comes and goes quicker than the operator can follow leaves it in the right
// state.
func TestFlapping_PEER6(t *testing.T) {
	for seed := range uint64(10) {
		scenario(t, func(w *world) {
			w.with(nil)
			random := newDice(seed, 1)
			var told atomic.Int32
			slowly := func() { // the operator takes its time
				if told.Add(1) != 1 {
					t.Error("it is told two things at the same time")
				}
				time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
				told.Add(-1)
			}
			op := w.launch("me", func(o *peering.Options) {
				pause, goOn := o.Pause, o.Continue
				o.Pause = func(why error) { pause(why); slowly() }
				o.Continue = func() { goOn(); slowly() }
			})
			w.settle()
			there := false
			for range 200 {
				there = !there
				if there {
					w.put("peer", record(1, 60, 0))
				} else {
					w.put("peer", nil)
				}
				time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
			}
			w.sleep(10 * time.Second)
			if op.active() == there {
				t.Errorf("seed %d: the peer is there: %v", seed, there)
			}
			op.mu.Lock()
			defer op.mu.Unlock()
			for i, state := range op.states[1:] {
				if strings.Contains(state, "continue") == strings.Contains(op.states[i], "continue") {
					t.Errorf("seed %d: told the same twice: %s, %s", seed, op.states[i], state)
				}
			}
		})
	}
}

// PEER-12: whatever happens, in the end the operator with the highest priority is active, and
// no other one.
func TestManyOperators_PEER12(t *testing.T) {
	for seed := range uint64(3) {
		scenario(t, func(w *world) {
			w.with(nil)
			random := newDice(seed, 2)
			w.server.Before(peeringReads, func(simulated.Request) *simulated.Fault {
				if random.IntN(10) > 0 {
					return nil
				}
				faults := []*simulated.Fault{simulated.Drop(), simulated.Fail(503), simulated.Fail(409), simulated.Delay(3 * time.Second), simulated.Fail(500)}
				return faults[random.IntN(len(faults))]
			})
			running := map[int]*operator{}
			for range 60 {
				switch n := random.IntN(8); {
				case running[n] == nil:
					running[n] = w.launch(fmt.Sprint("op", n), priority(n))
				case random.IntN(3) == 0:
					running[n].stop()
					delete(running, n)
				}
				switch random.IntN(8) {
				case 0:
					w.server.CutWatches()
				case 1:
					w.server.Compact()
					w.server.CutWatches()
				case 2:
					w.server.Mute()
				}
				time.Sleep(time.Duration(random.IntN(20000)) * time.Millisecond)
			}
			w.sleep(5 * time.Minute)
			top := -1
			for n := range running {
				top = max(top, n)
			}
			for n, op := range running {
				if op.active() != (n == top) {
					t.Errorf("seed %d: operator %d of %d is active: %v, records %v", seed, n, top, op.active(), w.records())
				}
			}
			for _, op := range w.all {
				op.stop()
			}
			synctest.Wait()
		})
	}
}
