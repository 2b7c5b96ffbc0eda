package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/engine"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/internal/stream"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/storage"
)

// engaged is an operator whose engine is at hand.
type engaged struct {
	*operator
	*engine.Engine
}

// engage is start for an operator whose engine a test has to do with.
func (w *world) engage(register func(handlers)) engaged {
	w.Helper()
	o := w.assemble(register, false)
	w.run(o)
	w.settle()
	return o
}

// assemble makes an operator that does not run yet.
func (w *world) assemble(register func(handlers), standby bool) engaged {
	w.Helper()
	r := kopf.NewRegistry()
	register(handlers{w, r})
	o := &operator{w: w, done: make(chan error, 1), link: &link{to: w.server}}
	o.link.dead, o.link.die = context.WithCancel(context.Background())
	connection := &rest.Config{Host: "http://simulated.invalid", Transport: o.link}
	client, discoverer, err := clients(connection)
	if err != nil {
		w.Fatal(err)
	}
	var all []*registry.Handler
	for _, h := range r.Handlers() {
		h := *h
		all = append(all, &h)
	}
	namespaces, err := engine.ParseNamespaces(w.spaces)
	if err = errors.Join(err, r.Err(), r.Connect(all)); err != nil {
		w.Fatal(err)
	}
	naming := state.Default()
	e := engine.New(engine.Config{
		Client: client, Discovery: discoverer, Handlers: all, Namespaces: namespaces, Naming: naming,
		State: state.Config{
			Naming: naming, Progress: storage.Smart(naming.Prefix, storage.AnnotationsOptions{}, storage.StatusOptions{}),
			LastHandled: storage.AnnotationsLastHandled(naming.Prefix, storage.LastHandledOptions{}),
		},
		Settings: engine.Settings{ExitTimeout: w.settings.Queueing.ExitTimeout},
		Log:      slog.New(logbook{w: w, of: o}),
		Standby:  standby,
	})
	return engaged{o, e}
}

func clients(connection *rest.Config) (*stream.Client, engine.Discovery, error) {
	httpClient, err := rest.HTTPClientFor(connection)
	if err != nil {
		return nil, nil, err
	}
	client, err := stream.NewClient(connection, httpClient)
	if err != nil {
		return nil, nil, err
	}
	discoverer, err := discovery.NewDiscoveryClientForConfigAndClient(connection, httpClient)
	return client, discoverer, err
}

// unemployed expects that nothing is kept any more for daemons and timers.
func (e engaged) unemployed() {
	e.w.Helper()
	if n := e.Employed(); n != 0 {
		e.w.Errorf("%d objects have work in the background", n)
	}
}

const (
	pausedReason   = "operator is paused"
	mismatchReason = "object does not match the filters of the daemon any more"
	deletedReason  = "deletion of the object was requested"
)

// DMN-14, T140: nothing runs after suspend, and what is wanted begins again after resume.
func TestSuspendAndResume_DMN14_T140(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.engage(func(h handlers) {
			h.daemon("d", nil, on.Label("run", "yes"))
			h.timer("t", nil, on.Interval(time.Minute), on.Label("run", "yes"))
		})
		w.create("w1", 1, label("run", "yes"))
		w.sleep(30 * time.Second)
		w.mark()
		o.Suspend(kopf.ErrPaused)
		w.sleep(time.Hour)
		w.resize("w1", 2) // events do not let it begin
		w.sleep(time.Hour)
		w.expect("d w1 leaves: " + pausedReason + " +0s")
		w.mark()
		o.Resume()
		w.sleep(90 * time.Second)
		w.expectSet("d w1 #0 begins", "t w1 #0 2", "t w1 #0 2")
		w.mark()
		o.Suspend(kopf.ErrPaused)
		o.Resume()
		w.sleep(6 * time.Second)
		w.expectSet("d w1 leaves: "+pausedReason, "d w1 #0 begins", "t w1 #0 2")
		w.writes()
	})
}

// What comes, goes and flips while all is suspended.
func TestEventsWhileSuspended_DMN14(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.engage(func(h handlers) { h.daemon("d", nil, on.Label("run", "yes")) })
		for _, name := range []string{"stays", "leaves", "deleted", "flips", "vanishes"} {
			w.create(name, 1, label("run", "yes"))
		}
		w.create("enters", 1)
		w.settle()
		o.Suspend(kopf.ErrPaused)
		w.settle()
		w.mark()
		w.update("leaves", label("run", "no"))
		w.update("enters", label("run", "yes"))
		w.delete("deleted")
		w.create("created", 1, label("run", "yes"))
		w.create("brief", 1, label("run", "yes"))
		for _, value := range []string{"no", "yes", "no", "yes"} {
			w.update("flips", label("run", value))
			w.settle()
		}
		w.delete("brief")
		if err := w.widgets.Vanish(ns, "vanishes"); err != nil {
			t.Fatal(err)
		}
		w.server.Compact()
		w.server.CutWatches()
		w.sleep(time.Minute)
		w.expect()
		o.Resume()
		w.settle()
		w.expectSet("d stays #0 begins", "d enters #0 begins", "d created #0 begins", "d flips #0 begins")
		for _, name := range []string{"stays", "enters", "created", "flips"} {
			w.delete(name)
		}
		w.settle()
		o.unemployed()
	})
}

// Suspended from the beginning: objects are followed, and nothing runs.
func TestSuspendedAtStart_DMN14(t *testing.T) {
	scenario(t, func(w *world) {
		w.create("w1", 1)
		release := w.server.Hold()
		o := w.engage(func(h handlers) {
			h.daemon("d", nil, on.Finalize())
			h.timer("t", nil, on.Interval(time.Minute))
		})
		o.Suspend(kopf.ErrPaused)
		release()
		w.sleep(time.Hour)
		w.mark()
		o.Resume()
		w.settle()
		w.expectSet("d w1 #0 begins")
		w.sleep(11 * time.Second)
		w.expectSet("d w1 #0 begins", "t w1 #0 1")
	})
}

// A daemon that leaves slowly, over a pause and longer: never two. What held the object
// holds it until it has left.
func TestSlowOverAPause_DMN2_DMN14(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.engage(func(h handlers) { h.daemon("d", lingering(time.Minute), on.Finalize()) })
		w.create("w1", 1)
		w.settle()
		w.mark()
		for range 3 {
			o.Suspend(kopf.ErrPaused)
			w.sleep(time.Second)
			o.Resume()
			w.sleep(time.Second)
		}
		w.sleep(time.Minute)
		w.expectAnyTime("d w1 leaves: "+pausedReason, "d w1 #0 begins")
		o.Suspend(kopf.ErrPaused)
		w.sleep(time.Second)
		w.mark()
		w.delete("w1")
		w.sleep(50 * time.Second)
		w.finalizers("w1", finalizer)
		o.Resume()
		w.sleep(time.Minute)
		w.expectAnyTime("d w1 leaves: " + pausedReason)
		w.gone("w1")
		o.unemployed()
	})
}

// An object that nothing runs on is let go although all is suspended.
func TestDeletedWhileSuspended_DMN3_DMN14(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.engage(func(h handlers) { h.daemon("d", nil, on.Finalize()) })
		w.create("w1", 1)
		w.settle()
		o.Suspend(kopf.ErrPaused)
		w.settle()
		w.finalizers("w1", finalizer)
		w.delete("w1")
		w.settle()
		w.gone("w1")
		o.unemployed()
	})
}

// Design §4 "daemons and timers": when an operator goes on with all of its objects, their
// timers do not all tick at once, as at a start.
func TestTimersAreSpreadAfterAPause_TMR4(t *testing.T) {
	scenario(t, func(w *world) {
		o := w.engage(func(h handlers) { h.timer("t", nil, on.Interval(time.Minute)) })
		for i := range 50 {
			w.create("w"+string(rune('A'+i)), i)
		}
		w.settle()
		if n := len(w.called()); n != 50 {
			t.Errorf("%d have ticked at once, of 50 that were created", n)
		}
		for range 2 {
			o.Suspend(kopf.ErrPaused)
			w.settle()
			w.mark()
			o.Resume()
			w.sleep(time.Millisecond)
			if n := len(w.called()); n > 2 {
				t.Errorf("%d have ticked at once, of 50", n)
			}
			w.sleep(3 * time.Second)
			if n := len(w.called()); n < 15 || n > 35 {
				t.Errorf("%d have ticked in the first 3 of 6 seconds, of 50", n)
			}
			w.sleep(3 * time.Second)
			if n := len(w.called()); n != 50 {
				t.Errorf("%d have ticked, of 50", n)
			}
		}
	})
}
