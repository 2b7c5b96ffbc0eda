package kopf_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

var _ = Describe("reports on retries and superseding", func() {
	It("B10 keeps a planned attempt in spite of the event of its own status write", func(ctx SpecContext) {
		w, proxy := reported(ctx, "planned"), newProxy()
		proxy.Latency(widgetWatches, 100*time.Millisecond)
		m := &moments{}
		on.Create(func(_ context.Context, change *kopf.Change[*Widget]) error {
			if m.add() == 1 {
				change.Patch.Apply(func(o *Widget) { o.Status.Phase = "Waiting" })
				return kopf.Retry(time.Second, errors.New("not ready"))
			}
			return nil
		}, w.widgets, w.in, on.ID("create"))
		w.start(through(proxy), noErrors)
		w.create(ctx, "w1", 1)
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(1))
		w.quiet(ctx, time.Second)
		Expect(m.gaps()).To(ConsistOf(And(BeNumerically(">=", time.Second), BeNumerically("<", 10*time.Second))), "two calls")
		widget, err := w.get(ctx, "w1")
		Expect(err).NotTo(HaveOccurred())
		Expect(widget.Status.Phase).To(Equal("Waiting"))
	})

	It("B11 takes the delay that comes with an error, and begins anew after a success", func(ctx SpecContext) {
		const base, wanted = 100 * time.Millisecond, time.Second
		w, j, m := reported(ctx, "delays"), &journal{}, &moments{}
		plain := errors.New("plain")
		script := []error{plain, plain, plain, plain, plain, nil /* now an edit */, plain, kopf.Retry(wanted, errors.New("with a delay")), nil}
		var attempts []int
		step := func(_ context.Context, change *kopf.Change[*Widget]) error {
			attempts = append(attempts, change.Retry) // one at a time
			return script[m.add()-1]
		}
		on.Create(step, w.widgets, w.in, on.ID("step"))
		on.Update(step, w.widgets, w.in, on.ID("step"))
		op := w.start(j.into, func(o *kopf.Options) { o.Settings.Execution.DefaultBackoff = base })
		w.create(ctx, "w1", 1)
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(1))
		w.edit(ctx, "w1", 2)
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(2))
		w.quiet(ctx, time.Second)
		op.stop()
		Expect(attempts).To(Equal([]int{0, 1, 2, 3, 4, 5, 0, 1, 2}))
		gaps := m.gaps()
		for i := range 5 {
			Expect(gaps[i]).To(And(BeNumerically(">=", base), BeNumerically("<", wanted)), "creation, pause %d", i+1)
		}
		Expect(gaps[6]).To(And(BeNumerically(">=", base), BeNumerically("<", wanted)), "after a single failure")
		Expect(gaps[7]).To(And(BeNumerically(">=", wanted), BeNumerically("<", 10*wanted)), "after one with a delay")
		Expect(j.errors()).To(BeEmpty())
		Expect(j.String()).NotTo(ContainSubstring("ignored"))
	})

	It("B14 has each handler see the last state in the end, and no handler for ever", func(ctx SpecContext) {
		w, c := reported(ctx, "versions"), &calls{}
		w.note(c, kopf.ReasonCreate)
		var mu sync.Mutex
		last := map[string]int64{}
		succeed := func(handler string, value int64) {
			mu.Lock()
			defer mu.Unlock()
			last[handler] = value
			c.add("%s succeeds", handler)
		}
		on.Update(func(_ context.Context, change *kopf.Change[*Widget]) error {
			succeed("h1", change.New.Spec.Value)
			return nil
		}, w.widgets, w.in, on.ID("h1"))
		var failures atomic.Int32
		on.Update(func(_ context.Context, change *kopf.Change[*Widget]) error {
			if failures.Add(1) <= 2 {
				return kopf.Retry(500*time.Millisecond, errors.New("not ready"))
			}
			succeed("h2", change.New.Spec.Value)
			return nil
		}, w.widgets, w.in, on.ID("h2"))
		w.start(noErrors)
		w.create(ctx, "w1", 1)
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(1))
		w.edit(ctx, "w1", 2)
		Eventually(failures.Load).Should(BeNumerically("==", 1))
		Eventually(c.of("h1 succeeds")).Should(Equal(1))
		w.edit(ctx, "w1", 3)
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(3))
		w.quiet(ctx, 2*time.Second)
		mu.Lock()
		defer mu.Unlock()
		Expect(last).To(Equal(map[string]int64{"h1": 3, "h2": 3}))
		Expect(c.of("h1 succeeds")()).To(BeNumerically("<=", 2))
		Expect(c.of("h2 succeeds")()).To(BeNumerically("<=", 2))
	})

	It("B19 gives up creation, and deletes at once, when a deletion comes during retries", func(ctx SpecContext) {
		w, c := reported(ctx, "superseded"), &calls{}
		on.Create(func(_ context.Context, change *kopf.Change[*Widget]) error {
			c.add("create %s", change.Object.Name)
			return kopf.Retry(time.Minute, errors.New("not ready"))
		}, w.widgets, w.in, on.ID("create"))
		w.note(c, kopf.ReasonDelete)
		w.start(noErrors)
		w.create(ctx, "w1", 1)
		Eventually(func() (map[string]string, error) {
			widget, err := w.get(ctx, "w1")
			return widget.Annotations, err
		}).Should(HaveKey("kopf.zalando.org/create"))
		w.remove(ctx, "w1")
		Eventually(w.isGone(ctx, "w1"), 10*time.Second).Should(BeTrue(), "long before the next attempt of creation")
		w.quiet(ctx, time.Second)
		Expect(c.all()).To(Equal(map[string]int{"create w1": 1, "delete w1": 1}))
	})
})
