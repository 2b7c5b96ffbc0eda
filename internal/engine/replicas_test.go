package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// elect has operators elect a leader from now on.
func (w *world) elect() *simulated.Collection {
	w.settings.LeaderElection.Enabled, w.settings.LeaderElection.Namespace = true, "ops"
	return w.server.Serve(simulated.Kind{
		GroupVersion: "coordination.k8s.io/v1", Kind: "Lease", Plural: "leases", Namespaced: true, NoGeneration: true,
	})
}

// replica starts an operator, whose first name is that of the lease's holder.
func (w *world) replica(name string, register func(handlers)) *operator {
	w.Helper()
	w.settings.LeaderElection.Identity = name
	return w.start(register)
}

func (w *world) leader() string {
	o := w.server.Collection("coordination.k8s.io/v1", "leases").Get("ops", "kopf")
	if o == nil {
		return ""
	}
	holder, _, _ := unstructured.NestedString(o.Object, "spec", "holderIdentity")
	holder, _, _ = strings.Cut(holder, "_")
	return holder
}

// awaitLeader lets time pass until a replica leads.
func (w *world) awaitLeader(name string) {
	w.Helper()
	for range 600 {
		if w.leader() == name {
			w.settle()
			return
		}
		w.sleep(100 * time.Millisecond)
	}
	w.Fatalf("%s does not lead", name)
}

// objectWrites are the writes but those of leases.
func (w *world) objectWrites() (writes []simulated.Request) {
	for _, r := range w.server.Writes() {
		if r.Resource != "leases" {
			writes = append(writes, r)
		}
	}
	return writes
}

// noted are handlers that say in whose name they are called.
func noted(name string, fn changeFn) func(handlers) {
	return func(h handlers) {
		on.Create(h.change(name+"-create", fn), on.ID("create"), on.In(h.r), forWidgets)
		on.Update(h.change(name+"-update", fn), on.ID("update"), on.In(h.r), forWidgets)
		on.Delete(h.change(name+"-delete", fn), on.ID("delete"), on.In(h.r), forWidgets)
	}
}

// EXT-9: standbys follow, and handle nothing. When the leader stops, the next one goes on at
// once with what was not handled, without a list of everything; and does not repeat what was.
func TestStandbyTakesOver_EXT9_EXT10(t *testing.T) {
	scenario(t, func(w *world) {
		w.elect()
		a := w.replica("a", noted("a", nil))
		b := w.replica("b", noted("b", nil))
		w.create("w1", 1)
		w.create("w2", 2)
		w.settle()
		w.expectSet("a-create w1 #0 →1", "a-create w2 #0 →2")
		w.mark()
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		w.resize("w1", 3)
		w.create("w3", 3)
		w.delete("w2")
		w.awaitLeader("b")
		w.sleep(2 * time.Minute)
		w.expectSet("b-update w1 #0 1→3", "b-create w3 #0 →3", "b-delete w2 #0 2→2")
		if n := w.server.Count(simulated.On{Verb: "list", Resource: "widgets"}); n != 1 {
			t.Errorf("%d lists: %v", n, w.server.Requests(simulated.On{Verb: "list"}))
		}
		w.gone("w2")
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		if w.leader() != "" {
			t.Error("the lease was not given back")
		}
	})
}

// B43: a standby whose watch is behind reads what it comes to lead before it does anything.
func TestWatchIsBehindAtPromotion_B43(t *testing.T) {
	for name, more := range map[string]int{"few": 0, "many": 50} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.elect()
				a := w.replica("a", noted("a", nil))
				w.create("old", 1)
				w.settle()
				b := w.replica("b", noted("b", nil))
				w.sleep(time.Second)
				w.server.DelayWatches(30 * time.Second)
				w.resize("old", 2)
				for i := range more {
					w.create(fmt.Sprint("more", i), 1)
				}
				w.sleep(31 * time.Second) // a sees it, and so does b, which does not see what a makes of it
				w.mark()
				if err := a.stop(); err != nil {
					t.Error(err)
				}
				w.awaitLeader("b")
				w.sleep(time.Minute)
				w.expect()
				if n := len(w.objectWrites()); n != 0 {
					t.Errorf("%d writes", n)
				}
				w.server.DelayWatches(0)
				w.sleep(time.Minute)
				w.expect()
				w.resize("old", 3)
				w.settle()
				w.expectAnyTime("b-update old #0 2→3")
				_ = b
			})
		})
	}
}

// B43: the lease is taken while the leader has 100 objects in work, and daemons are being
// spawned. From when it notices, nothing begins, and what runs has ended before it does
// elsewhere; each object is created once.
func TestLeaseIsTakenAmidstWork_B43(t *testing.T) {
	scenario(t, func(w *world) {
		leases := w.elect()
		type stay struct {
			name, replica string
			from, to      time.Time
		}
		var mu sync.Mutex
		inside := map[string]*stay{} // by object and function
		created := map[string]int{}
		enter := func(replica, key string) (leave func()) {
			mu.Lock()
			defer mu.Unlock()
			if other := inside[key]; other != nil {
				t.Errorf("%s in %s, while in %s", key, replica, other.replica)
			}
			s := &stay{name: key, replica: replica, from: time.Now()}
			inside[key] = s
			return func() {
				mu.Lock()
				defer mu.Unlock()
				if s.to = time.Now(); inside[key] == s {
					delete(inside, key)
				}
			}
		}
		var taken time.Time
		register := func(replica string) func(handlers) {
			return func(h handlers) {
				on.Create(func(ctx context.Context, c *change) error {
					defer enter(replica, "create "+c.Object.Name)()
					mu.Lock()
					since := time.Since(taken)
					mu.Unlock()
					if replica == "a" && since > 3*time.Second && since < time.Hour {
						t.Errorf("%s begins %s after the lease was taken", c.Object.Name, since)
					}
					if err := sleeping(time.Second)(ctx, c); err != nil {
						return err
					}
					mu.Lock()
					defer mu.Unlock()
					created[c.Object.Name]++
					return nil
				}, on.ID("create"), on.In(h.r), forWidgets)
				on.Daemon(func(ctx context.Context, d *kopf.Daemon[*widget]) error {
					defer enter(replica, "daemon "+d.Object().Name)()
					<-ctx.Done()
					time.Sleep(500 * time.Millisecond)
					return nil
				}, on.ID("daemon"), on.In(h.r), forWidgets)
			}
		}
		w.settings.Queueing.WorkerLimit = 5
		a := w.replica("a", register("a"))
		w.replica("b", register("b"))
		w.sleep(20 * time.Second) // warm, and waiting
		for i := range 50 {
			w.create(fmt.Sprint("w", i), 1)
		}
		w.sleep(500 * time.Millisecond)
		for i := range 50 {
			w.create(fmt.Sprint("v", i), 1)
		}
		if _, err := leases.Update("ops", "kopf", func(o *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(o.Object, "thief", "spec", "holderIdentity")
			_ = unstructured.SetNestedField(o.Object, int64(1), "spec", "leaseDurationSeconds")
		}); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		taken = time.Now()
		mu.Unlock()
		w.sleep(time.Minute)
		mu.Lock()
		if len(inside) != 100 {
			t.Errorf("%d daemons run", len(inside))
		}
		first := ""
		for _, s := range inside {
			if first == "" {
				first = s.replica
			}
			if s.replica != first {
				t.Errorf("daemons run in %s and %s", first, s.replica)
			}
		}
		for i := range 50 {
			for _, kind := range []string{"w", "v"} {
				if n := created[fmt.Sprint(kind, i)]; n < 1 {
					t.Errorf("%s%d was created %d times", kind, i, n)
				}
			}
		}
		taken = time.Time{}
		mu.Unlock()
		// a goes on as a replica: it leads again, when the others do not.
		for _, o := range w.operators {
			if o != a {
				if err := o.stop(); err != nil {
					t.Error(err)
				}
			}
		}
		w.awaitLeader("a")
		w.create("last", 1)
		w.sleep(2 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if created["last"] != 1 {
			t.Error("a does not lead again")
		}
	})
}

// A handler that runs when the lease is lost is interrupted with ErrPaused, and begins anew on
// the next leader: the attempt does not count.
func TestLostWhileAHandlerRuns_B43(t *testing.T) {
	scenario(t, func(w *world) {
		w.elect()
		a := w.replica("a", noted("a", func(ctx context.Context, _ *change) error {
			<-ctx.Done()
			w.note("a ends: " + context.Cause(ctx).Error())
			return ctx.Err()
		}))
		b := w.replica("b", noted("b", nil))
		w.create("w1", 1)
		w.settle()
		a.link.cut()
		w.awaitLeader("b")
		w.sleep(10 * time.Second)
		w.expectAnyTime("a-create w1 #0 →1", "a ends: operator is paused", "b-create w1 #0 →1")
		a.link.mend()
		w.sleep(time.Minute)
		w.mark()
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		w.awaitLeader("a")
		w.sleep(time.Minute)
		w.expect() // it has seen that b has handled it
	})
}

// What has come to an end when the lease is lost is written, if the API server can be
// reached; else whoever leads next repeats it. If only the answer is lost, nobody does.
func TestLostWhileWriting_B43(t *testing.T) {
	for name, c := range map[string]struct {
		disturb func(w *world, a *operator)
		repeat  bool
	}{
		"the request is lost": {func(w *world, a *operator) {
			w.server.Before(simulated.On{Verb: "patch", Resource: "widgets", Skip: 1, Times: 1}, func(simulated.Request) *simulated.Fault {
				a.link.cut()
				return simulated.Drop()
			})
		}, true},
		"the answer is lost": {func(w *world, a *operator) {
			w.server.After(simulated.On{Verb: "patch", Resource: "widgets", Skip: 1, Times: 1}, func(simulated.Request) *simulated.Fault {
				a.link.cut()
				return simulated.Drop()
			})
		}, false},
		"there is a conflict at the end": {func(w *world, a *operator) {
			w.server.Before(simulated.On{Verb: "patch", Resource: "widgets", Skip: 1, Times: 1}, func(simulated.Request) *simulated.Fault {
				go a.cancel()
				time.Sleep(time.Second)
				return simulated.Fail(409)
			})
		}, false},
		"an error at the end": {func(w *world, a *operator) {
			w.server.Before(simulated.On{Verb: "patch", Resource: "widgets", Skip: 1, Times: 1}, func(simulated.Request) *simulated.Fault {
				go a.cancel()
				time.Sleep(time.Second)
				return simulated.Fail(500)
			})
		}, false},
		"the answer is late": {func(w *world, a *operator) {
			w.server.After(simulated.On{Verb: "patch", Resource: "widgets", Skip: 1, Times: 1}, func(simulated.Request) *simulated.Fault {
				a.link.cut()
				return simulated.Delay(time.Minute)
			})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.elect()
				w.allow("handling failed, will be tried again")
				a := w.replica("a", noted("a", nil))
				w.replica("b", noted("b", nil))
				c.disturb(w, a)
				w.create("w1", 1)
				w.awaitLeader("b")
				w.sleep(time.Minute)
				want := []string{"a-create w1 #0 →1"}
				if c.repeat {
					want = append(want, "b-create w1 #0 →1")
				}
				w.expectAnyTime(want...)
				if w.handledSize("w1") != 1 {
					t.Error("it does not count as handled")
				}
				w.noProgress("w1")
			})
		})
	}
}

// A checkpoint is written when the lease is lost: what it has of handlers that are through
// counts for the next leader.
func TestLostAfterACheckpoint_B43(t *testing.T) {
	scenario(t, func(w *world) {
		w.elect()
		register := func(name string, second changeFn) func(handlers) {
			return func(h handlers) {
				on.Create(h.change(name+"-1", nil), on.ID("first"), on.In(h.r), forWidgets)
				on.Create(h.change(name+"-2", second), on.ID("second"), on.In(h.r), forWidgets)
			}
		}
		a := w.replica("a", register("a", sleeping(time.Hour)))
		w.replica("b", register("b", nil))
		w.server.After(simulated.On{Verb: "patch", Resource: "widgets", Times: 1}, func(simulated.Request) *simulated.Fault {
			a.link.cut()
			return simulated.Drop()
		})
		w.create("w1", 1)
		w.awaitLeader("b")
		w.sleep(time.Minute)
		w.expectAnyTime("a-1 w1 #0 →1", "a-2 w1 #0 →1", "b-2 w1 #0 →1")
		w.noProgress("w1")
	})
}

// A handler that does not look at its context ends the operator, by name, when the lease has
// ended; nothing that it says later is written.
func TestDeafHandlerEndsTheOperator_B43(t *testing.T) {
	scenario(t, func(w *world) {
		w.elect()
		w.allow("is left behind")
		release := make(chan struct{})
		a := w.replica("a", noted("a", func(context.Context, *change) error {
			<-release
			return nil
		}))
		w.replica("b", noted("b", nil))
		w.create("w1", 1)
		w.settle()
		a.link.cut()
		err := <-a.done
		a.done <- err
		if err == nil || !strings.Contains(err.Error(), "create on default/w1") && !strings.Contains(err.Error(), "a-create") {
			t.Errorf("%v", err)
		}
		a.link.mend()
		w.awaitLeader("b")
		w.sleep(time.Second)
		w.mark()
		close(release)
		w.sleep(time.Minute)
		if writes := w.objectWrites(); len(writes) != 0 {
			t.Errorf("it was written: %s", writes[0].Body)
		}
	})
}

// Design: resume handlers are called in each process that comes to lead, once for each object;
// also for those that have appeared while another one led.
func TestResumedOncePerLeader_B43(t *testing.T) {
	scenario(t, func(w *world) {
		w.elect()
		register := func(name string) func(handlers) {
			return func(h handlers) {
				on.Create(h.change(name+"-create", nil), on.ID("create"), on.In(h.r), forWidgets)
				on.Resume(h.change(name+"-resume", nil), on.ID("resume"), on.In(h.r), forWidgets)
			}
		}
		w.create("w0", 1)
		a := w.replica("a", register("a"))
		w.replica("b", register("b"))
		w.expectAnyTime("a-create w0 #0 →1")
		w.create("w1", 1)
		w.sleep(20 * time.Second)
		w.mark()
		a.link.cut()
		w.awaitLeader("b")
		w.sleep(time.Second)
		w.expectSet("b-resume w0 #0 1→1", "b-resume w1 #0 1→1")
		w.mark()
		a.link.mend()
		w.create("w2", 1)
		w.sleep(time.Minute)
		w.expectAnyTime("b-create w2 #0 →1")
		w.mark()
		for _, o := range w.operators {
			if o != a {
				o.kill()
			}
		}
		w.awaitLeader("a")
		w.sleep(time.Second)
		w.expectAnyTime("a-resume w2 #0 1→1")
		if n := len(w.objectWrites()); n != 0 {
			t.Errorf("%d writes", n)
		}
	})
}

// Resume handlers of which one was through when the lease was lost.
func TestResumedHalf_B43(t *testing.T) {
	scenario(t, func(w *world) {
		w.elect()
		register := func(name string, second changeFn) func(handlers) {
			return func(h handlers) {
				on.Resume(h.change(name+"-1", nil), on.ID("first"), on.In(h.r), forWidgets)
				on.Resume(h.change(name+"-2", second), on.ID("second"), on.In(h.r), forWidgets)
			}
		}
		fail := make([]error, 10)
		for i := range fail {
			fail[i] = kopf.Retry(10*time.Second, errFlop)
		}
		w.create("w1", 1, annotation(lastHandledName, `{"spec":{"size":1}}`))
		w.allow("connection refused")
		a := w.replica("a", register("a", failing(fail...)))
		b := w.replica("b", register("b", nil))
		w.expectAnyTime("a-1 w1 #0 1→1", "a-2 w1 #0 1→1")
		w.mark()
		a.link.cut()
		w.awaitLeader("b")
		w.sleep(12 * time.Second)
		calls := w.called()
		if len(calls) < 2 || !strings.HasPrefix(calls[len(calls)-2], "b-1 w1 #0") || !strings.HasPrefix(calls[len(calls)-1], "b-2 w1 #") {
			t.Errorf("%q", calls)
		}
		a.link.mend()
		w.sleep(time.Minute)
		w.mark()
		b.kill()
		w.awaitLeader("a")
		w.sleep(5 * time.Second)
		w.expectAnyTime("a-2 w1 #0 1→1")
	})
}

// Event handlers run on every replica; what they want changed is written by the leader.
func TestEventHandlersOfAllReplicas_EXT9(t *testing.T) {
	scenario(t, func(w *world) {
		w.elect()
		register := func(name string) func(handlers) {
			return func(h handlers) {
				on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
					w.note(fmt.Sprint(name, " ", e.Object.Name, " ", e.Type, " ", e.Object.Status.Phase))
					e.Patch.Apply(func(o *widget) { o.Status.Phase = "seen" })
					return nil
				}, on.ID("event"), on.In(h.r), forWidgets)
			}
		}
		w.replica("a", register("a"))
		w.replica("b", register("b"))
		w.sleep(20 * time.Second)
		w.mark()
		w.create("w1", 1)
		w.settle()
		w.expectSet("a w1 ADDED ", "b w1 ADDED ", "a w1 MODIFIED seen", "b w1 MODIFIED seen")
		if n := len(w.objectWrites()); n != 1 {
			t.Errorf("%d writes", n)
		}
	})
}

// A standby forgets objects that are gone, and keeps nothing of those that the leader handles.
func TestStandbyForgets_FIN7(t *testing.T) {
	scenario(t, func(w *world) {
		w.elect()
		register := func(name string) func(handlers) {
			return func(h handlers) {
				on.Create(h.change(name+"-create", nil), on.ID("create"), on.In(h.r), forWidgets)
				on.Delete(h.change(name+"-farewell", nil), on.ID("farewell"), on.In(h.r), forWidgets, on.Optional())
			}
		}
		a := w.replica("a", register("a"))
		w.replica("b", register("b"))
		w.create("w1", 1)
		w.create("w2", 1)
		w.sleep(20 * time.Second)
		w.mark()
		w.delete("w1")
		w.settle()
		w.expectAnyTime("a-farewell w1 #0 1→1")
		a.link.cut()
		w.settle()
		w.delete("w2") // nobody leads that knows of it
		w.awaitLeader("b")
		w.sleep(time.Minute)
		w.expectAnyTime("a-farewell w1 #0 1→1")
	})
}

// Retries that wait go on at their time, on the next leader.
func TestRetriesGoOnElsewhere_PRG1(t *testing.T) {
	scenario(t, func(w *world) {
		w.elect()
		a := w.replica("a", noted("a", failing(kopf.Retry(time.Minute, errFlop))))
		w.replica("b", noted("b", nil))
		w.create("w1", 1)
		w.sleep(20 * time.Second)
		w.mark()
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		w.awaitLeader("b")
		w.sleep(time.Minute)
		w.expect("b-create w1 #1 →1 +40s")
	})
}
