package peering_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/kopf-go/kopf/internal/peering"
	"github.com/kopf-go/kopf/internal/simulated"
)

// PEER-5: a keep-alive that fails is sent again soon, so that nobody takes the operator for dead.
func TestLostKeepAlives_PEER5(t *testing.T) {
	for name, disturb := range map[string]func(*simulated.Server) func(){
		"request lost": func(s *simulated.Server) func() { return s.Before(peeringPatches, simulated.Always(simulated.Drop())) },
		"answer lost":  func(s *simulated.Server) func() { return s.After(peeringPatches, simulated.Always(simulated.Drop())) },
		"no answer": func(s *simulated.Server) func() {
			return s.Before(peeringPatches, simulated.Always(&simulated.Fault{Hang: true}))
		},
		"unavailable": func(s *simulated.Server) func() {
			return s.Before(peeringPatches, simulated.Always(simulated.Fail(503)))
		},
		"throttled": func(s *simulated.Server) func() {
			return s.Before(peeringPatches, simulated.Always(&simulated.Fault{Code: 429, RetryAfter: 2 * time.Second}))
		},
		"conflict": func(s *simulated.Server) func() {
			return s.Before(peeringPatches, simulated.Always(simulated.Fail(409)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.with(nil)
				other := w.start("other", priority(-1), func(o *peering.Options) { o.Lifetime = time.Hour })
				op := w.start("me", func(o *peering.Options) { o.Lifetime = 30 * time.Second })
				w.sleep(18 * time.Second)
				mend := disturb(w.server)
				w.sleep(4 * time.Second)
				mend()
				w.sleep(10 * time.Minute)
				op.expect("+0s continue")
				other.expect("+0s continue", "+0s pause")
				// For too long: others are right to go on, and this one says so.
				mend = disturb(w.server)
				w.sleep(2 * time.Minute)
				if warned := w.said(slog.LevelWarn, "other operators take this one for dead"); len(warned) != 1 {
					t.Error(warned)
				}
				mend()
				w.sleep(20 * time.Second)
				if other.active() {
					t.Error("the other one is still active when all is well again")
				}
				w.identities("me", "other")
			})
		})
	}
}

// PEER-5: an operator that leaves says so, if need be more than once, but not for ever.
func TestLeaving_PEER5(t *testing.T) {
	for name, c := range map[string]struct {
		disturb func(*simulated.Server)
		leaves  bool
		within  time.Duration
	}{
		"undisturbed": {func(*simulated.Server) {}, true, 0},
		"one error": {func(s *simulated.Server) {
			s.Before(simulated.On{Verb: "patch", Times: 1}, simulated.Always(simulated.Fail(503)))
		}, true, time.Second},
		"only errors": {func(s *simulated.Server) { s.Before(peeringPatches, simulated.Always(simulated.Drop())) }, false, 5 * time.Second},
		"no answers":  {func(s *simulated.Server) { s.Before(peeringPatches, simulated.Always(&simulated.Fault{Hang: true})) }, false, 5 * time.Second},
		"forbidden":   {func(s *simulated.Server) { s.Before(peeringPatches, simulated.Always(simulated.Fail(403))) }, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.with(nil)
				op := w.start("me")
				c.disturb(w.server)
				begun := time.Now()
				op.stop()
				if took := time.Since(begun); took > c.within {
					t.Error("took", took)
				}
				if left := w.records()["me"] == nil; left != c.leaves {
					t.Error("left:", left)
				}
				if warned := len(w.said(slog.LevelWarn, "were not told that this one leaves")); (warned > 0) == c.leaves {
					t.Error(warned, "warnings")
				}
			})
		})
	}
}

// PEER-5: a keep-alive that is under way when the operator leaves does not come after.
func TestLeavingDuringKeepAlive_PEER5(t *testing.T) {
	scenario(t, func(w *world) {
		w.with(nil)
		op := w.start("me")
		w.server.Before(simulated.On{Verb: "patch", Times: 1}, simulated.Always(simulated.Delay(time.Second)))
		for sent := 1; sent == 1; sent = w.server.Count(peeringPatches) {
			w.sleep(100 * time.Millisecond)
		}
		op.stop()
		w.sleep(time.Minute)
		w.identities()
	})
}
