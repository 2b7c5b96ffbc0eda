package kopf_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

var _ = Describe("a memo", func() {
	It("MEM-1 MEM-3 is one for all that is called for an object, and goes with the object", func(ctx SpecContext) {
		type seen struct {
			mu sync.Mutex
			by map[string]bool
		}
		w, c := reported(ctx, "memo"), &calls{}
		var made, gone atomic.Int32
		memo := kopf.NewMemo(func() *seen {
			s := &seen{by: map[string]bool{}}
			made.Add(1)
			runtime.AddCleanup(s, func(struct{}) { gone.Add(1) }, struct{}{})
			return s
		})
		note := func(h kopf.Memoized, by string) {
			s := memo.Of(h)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.by[by] = true
			c.add("%s", by)
		}
		all := make(chan map[string]bool, 2) // of each object that was deleted
		on.Index(func(_ context.Context, s *kopf.Snapshot[*Widget]) (map[string]int, error) {
			note(s, "index")
			return map[string]int{s.Object.Name: 1}, nil
		}, w.widgets, w.in, on.ID("index"))
		on.Event(func(_ context.Context, e *kopf.Event[*Widget]) error { note(e, "event"); return nil }, w.widgets, w.in, on.ID("event"))
		on.Create(func(_ context.Context, change *kopf.Change[*Widget]) error {
			note(change, "create")
			on.Subhandler(change, "sub", func(_ context.Context, sub *kopf.Change[*Widget]) error { note(sub, "sub-handler"); return nil })
			return nil
		}, w.widgets, w.in, on.ID("create"), on.When(func(_ context.Context, s *kopf.Snapshot[*Widget]) bool { note(s, "filter"); return true }))
		on.Daemon(func(ctx context.Context, d *kopf.Daemon[*Widget]) error {
			note(d, "daemon")
			<-ctx.Done()
			return nil
		}, w.widgets, w.in, on.ID("daemon"))
		on.Timer(func(_ context.Context, t *kopf.Tick[*Widget]) error { note(t, "timer"); return nil },
			w.widgets, w.in, on.ID("timer"), on.Interval(50*time.Millisecond))
		on.Delete(func(_ context.Context, change *kopf.Change[*Widget]) error {
			s := memo.Of(change)
			s.mu.Lock()
			defer s.mu.Unlock()
			by := map[string]bool{}
			for name := range s.by {
				by[name] = true
			}
			all <- by
			return nil
		}, w.widgets, w.in, on.ID("delete"))
		w.start(noErrors)

		for n := range int32(2) { // of one name, and not one object
			c.forget()
			w.create(ctx, "w1", 1)
			Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(1))
			Eventually(c.all).Should(And(HaveKey("daemon"), HaveKey("timer")))
			w.remove(ctx, "w1")
			Eventually(all).Should(Receive(Equal(map[string]bool{
				"index": true, "event": true, "filter": true, "create": true, "sub-handler": true, "daemon": true, "timer": true,
			})))
			Eventually(w.isGone(ctx, "w1")).Should(BeTrue())
			Expect(made.Load()).To(Equal(n + 1))
			Eventually(func() int32 { runtime.GC(); return gone.Load() }).Should(Equal(n+1), "nothing remembers it")
		}
	})
})
