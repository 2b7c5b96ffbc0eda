package peering_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/kopf-go/kopf/internal/peering"
	"github.com/kopf-go/kopf/internal/simulated"
)

// PEER-1, PEER-2: kinds that come, go and come again while the operator runs, in discovery
// that is late or wrong for a moment.
func TestKindsComeAndGo_PEER1_PEER2(t *testing.T) {
	scenario(t, func(w *world) {
		op := w.start("me")
		op.expect("+0s continue")
		for range 3 {
			w.with(map[string]any{"peer": record(1, 3600, 0)})
			w.sleep(time.Second)
			if op.active() {
				t.Error("the kind is not noticed")
			}
			w.server.Withdraw("kopf.dev/v1", "clusterkopfpeerings")
			w.sleep(10 * time.Second)
			if !op.active() {
				t.Error("it is not noticed that the kind is gone")
			}
		}
		w.with(map[string]any{"peer": record(1, 3600, 0)})
		w.sleep(time.Second)
		// Discovery does not mention it once.
		omit := w.server.Before(simulated.On{Verb: "discover", Resource: "kopf.dev/v1", Times: 1}, simulated.Always(simulated.Fail(404)))
		w.serve("kopf.dev", true, func(k *simulated.Kind) { k.ShortNames = []string{"ckp"} })
		w.sleep(time.Minute)
		omit()
		if op.active() {
			t.Error("a kind was taken for gone after one look")
		}
	})
}

// PEER-2: while it cannot be found out which kinds there are, nobody goes on.
func TestDiscoveryFails_PEER2(t *testing.T) {
	scenario(t, func(w *world) {
		w.with(map[string]any{"peer": record(1, 3600, 0)})
		mend := w.server.Before(simulated.On{Verb: "discover"}, simulated.Always(simulated.Fail(503)))
		op := w.start("me")
		w.sleep(10 * time.Minute)
		op.expect()
		if found := w.said(slog.LevelWarn, "it is not known whether there are peering objects"); len(found) != 1 {
			t.Error(found)
		}
		mend()
		w.sleep(31 * time.Second)
		if len(op.states) != 1 {
			t.Error(op.states)
		}
		op.expect("+10m")
	})
}

// PEER-2: with Once, what comes later is not noticed, unless the operator waits for it.
func TestOnce_PEER2(t *testing.T) {
	once := func(o *peering.Options) { o.Once = true }
	scenario(t, func(w *world) {
		optional, waiting := w.start("optional", once), w.start("waiting", once, mandatory)
		w.with(nil)
		w.sleep(10 * time.Minute)
		optional.expect("+0s continue")
		waiting.expect("+0s pause: because the cluster has no kind", "+5s continue")
		w.identities("waiting")
		if n := w.server.Count(simulated.On{Resource: "customresourcedefinitions"}); n != 0 {
			t.Error("definitions are watched")
		}
	})
}
