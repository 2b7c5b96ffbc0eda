package kopf_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/on"
)

var _ = Describe("a daemon", func() {
	// slow leaves some time after it was told to.
	const slow = 300 * time.Millisecond
	leaves := func(c *calls) func(context.Context, *kopf.Daemon[*Widget]) error {
		return func(ctx context.Context, d *kopf.Daemon[*Widget]) error {
			c.add("begins")
			<-ctx.Done()
			time.Sleep(slow)
			c.add("leaves: %v", context.Cause(ctx))
			return context.Cause(ctx)
		}
	}
	wholeLife := map[string]int{"begins": 1, "leaves: " + kopf.ErrDeleted.Error(): 1}

	It("DMN-3 DMN-11 holds its object with on.Finalize until it has left, and no longer", func(ctx SpecContext) {
		w, c := reported(ctx, "holding"), &calls{}
		on.Daemon(leaves(c), w.widgets, w.in, on.ID("d"), on.Finalize())
		w.start(noErrors)
		Expect(w.requests(ctx, func() {
			w.create(ctx, "w1", 1)
			Eventually(c.of("begins")).Should(Equal(1))
			Expect(w.finalizers(ctx, "w1")()).To(ConsistOf(ourFinalizer), "it begins when the finalizer is there")
		})).To(Equal(map[string]int{"POST": 1, "PATCH": 1}), "the finalizer")
		var took time.Duration
		Expect(w.requests(ctx, func() {
			told := time.Now()
			w.remove(ctx, "w1")
			Eventually(w.isGone(ctx, "w1")).WithPolling(5 * time.Millisecond).Should(BeTrue())
			took = time.Since(told)
		})).To(Equal(map[string]int{"DELETE": 1, "PATCH": 1}), "the finalizer")
		AddReportEntry("gone after", took)
		Expect(took).To(BeNumerically(">=", slow))
		Expect(took).To(BeNumerically("<", 2*slow))
		Expect(c.all()).To(Equal(wholeLife))
	})

	It("DMN-3 holds no object without on.Finalize, and writes nothing", func(ctx SpecContext) {
		w, c := reported(ctx, "loose"), &calls{}
		on.Daemon(leaves(c), w.widgets, w.in, on.ID("d"))
		w.start(noErrors)
		Expect(w.requests(ctx, func() {
			w.create(ctx, "w1", 1)
			Eventually(c.of("begins")).Should(Equal(1))
			w.remove(ctx, "w1")
			Expect(w.isGone(ctx, "w1")()).To(BeTrue(), "at once")
			Eventually(c.all).Should(Equal(wholeLife))
		})).To(Equal(map[string]int{"POST": 1, "DELETE": 1}))
	})

	It("DMN-2 DMN-13 runs once at a time however often a label is flipped, and as the last flip says", func(ctx SpecContext) {
		const flips = 100
		w, c := reported(ctx, "flipped"), &calls{}
		var running, most [2]atomic.Int32
		names := []string{"stays", "goes"}
		on.Daemon(func(ctx context.Context, d *kopf.Daemon[*Widget]) error {
			i := slices.Index(names, d.Object().Name)
			most[i].Store(max(most[i].Load(), running[i].Add(1)))
			defer running[i].Add(-1)
			c.add("%s begins", names[i])
			<-ctx.Done()
			time.Sleep(7 * time.Millisecond)
			c.add("%s leaves: %v", names[i], context.Cause(ctx))
			return context.Cause(ctx)
		}, w.widgets, w.in, on.ID("d"), on.Label("run", "yes"))
		operator := w.start(noErrors)
		for i, name := range names {
			w.create(ctx, name, 1)
			for flip := range flips + 1 - i { // one ends with yes, one with no
				w.patch(ctx, name, fmt.Sprintf(`{"metadata":{"labels":{"run":%q}}}`, []string{"yes", "no"}[flip%2]))
			}
		}
		begun := func(name string) int { return c.of(name + " begins")() }
		left := func(name string, why error) int { return c.of(fmt.Sprintf("%s leaves: %v", name, why))() }
		Eventually(running[0].Load).Should(BeEquivalentTo(1))
		Eventually(running[1].Load).Should(BeEquivalentTo(0))
		w.quiet(ctx, time.Second)
		Expect(running[0].Load()).To(BeEquivalentTo(1))
		Expect(running[1].Load()).To(BeEquivalentTo(0))
		Expect(begun("stays")).To(Equal(left("stays", kopf.ErrMismatch) + 1))
		Expect(begun("goes")).To(Equal(left("goes", kopf.ErrMismatch)))
		AddReportEntry("instances", begun("stays")+begun("goes"))

		operator.stop()
		Expect(left("stays", kopf.ErrExiting)).To(Equal(1))
		Expect(left("goes", kopf.ErrExiting)).To(BeZero())
		for i := range names {
			Expect(running[i].Load()).To(BeZero(), "the operator waits for it")
			Expect(most[i].Load()).To(BeEquivalentTo(1), "at a time")
		}
	})

	It("DMN-2 runs on for an object that is created anew under the same name, as another one", func(ctx SpecContext) {
		w, c := reported(ctx, "again"), &calls{}
		on.Daemon(func(ctx context.Context, d *kopf.Daemon[*Widget]) error {
			value := d.Object().Spec.Value
			c.add("%d begins", value)
			<-ctx.Done()
			c.add("%d leaves: %v", value, context.Cause(ctx))
			return nil
		}, w.widgets, w.in, on.ID("d"))
		w.start(noErrors)
		const times = 20
		for i := range times {
			w.create(ctx, "w1", int64(i))
			if i%2 == 0 { // every other one lives too short to be seen begin, perhaps
				Eventually(c.of(fmt.Sprintf("%d begins", i))).Should(Equal(1))
			}
			if i < times-1 {
				w.remove(ctx, "w1")
			}
		}
		last := fmt.Sprintf("%d begins", times-1)
		Eventually(c.of(last)).Should(Equal(1))
		w.quiet(ctx, time.Second)
		all := c.all()
		Expect(all).NotTo(HaveKey(HavePrefix(fmt.Sprintf("%d leaves", times-1))))
		delete(all, last)
		for text, n := range all {
			Expect(n).To(Equal(1), text)
			value, _, _ := strings.Cut(text, " ")
			Expect(all).To(HaveKey(value+" begins"), text)
			Expect(all).To(HaveKey(fmt.Sprintf("%s leaves: %v", value, kopf.ErrDeleted)), text)
		}
	})
})

var _ = Describe("a timer", func() {
	It("TMR-7 writes what it wants changed, and nothing when that is there already", func(ctx SpecContext) {
		w, c := reported(ctx, "ticking"), &calls{}
		on.Timer(func(ctx context.Context, t *kopf.Tick[*Widget]) error {
			t.Patch.Apply(func(o *Widget) { o.Status.Observed, o.Status.Phase = t.Object.Spec.Value, "Ticking" })
			c.add("%d", t.Object.Spec.Value)
			return nil
		}, w.widgets, w.in, on.ID("t"), on.Interval(50*time.Millisecond))
		w.start(noErrors)
		Expect(w.requests(ctx, func() {
			w.create(ctx, "w1", 1)
			Eventually(w.observed(ctx, "w1")).Should(BeEquivalentTo(1))
			Eventually(c.of("1")).Should(BeNumerically(">", 20))
		})).To(Equal(map[string]int{"POST": 1, "PATCH/status": 1}))
		Expect(w.requests(ctx, func() {
			w.edit(ctx, "w1", 2)
			Eventually(w.observed(ctx, "w1")).Should(BeEquivalentTo(2))
			Eventually(c.of("2")).Should(BeNumerically(">", 20))
		})).To(Equal(map[string]int{"PATCH": 1 /* the test's */, "PATCH/status": 1}))
		w.remove(ctx, "w1")
		Expect(w.isGone(ctx, "w1")()).To(BeTrue(), "at once")
		Eventually(func() bool {
			before := c.of("2")()
			time.Sleep(200 * time.Millisecond)
			return c.of("2")() == before
		}).Should(BeTrue(), "it ticks on")
	})

	It("TMR-4 spreads its first ticks when the operator starts, and only then", func(ctx SpecContext) {
		const objects, interval = 50, 20 * time.Second // less than a tenth of which each tick is put off
		w := reported(ctx, "spread")
		var mu sync.Mutex
		var ticks map[string]time.Time
		on.Timer(func(ctx context.Context, t *kopf.Tick[*Widget]) error {
			mu.Lock()
			defer mu.Unlock()
			if _, again := ticks[t.Object.Name]; again {
				t.Log.Error("ticks twice")
			}
			ticks[t.Object.Name] = time.Now()
			return nil
		}, w.widgets, w.in, on.ID("t"), on.Interval(interval))
		for i := range objects {
			w.create(ctx, fmt.Sprintf("w%d", i), 1)
		}
		ticked := func(name string) bool {
			mu.Lock()
			defer mu.Unlock()
			_, is := ticks[name]
			return is
		}
		// first returns how long after the first one of them the objects had theirs.
		first := func() (map[string]time.Duration, *operator) {
			mu.Lock()
			ticks = map[string]time.Time{}
			mu.Unlock()
			running := w.start(noErrors)
			Eventually(func() int { mu.Lock(); defer mu.Unlock(); return len(ticks) }).Should(Equal(objects))
			mu.Lock()
			defer mu.Unlock()
			begin := slices.MinFunc(slices.Collect(maps.Values(ticks)), time.Time.Compare)
			after := map[string]time.Duration{}
			for name, at := range ticks {
				after[name] = at.Sub(begin)
			}
			return after, running
		}
		before, running := first()
		running.stop()
		after, _ := first()
		var early, late int
		for name := range after {
			Expect(after[name]).To(BeNumerically("<", interval/10+time.Second))
			Expect(after[name]).To(BeNumerically("~", before[name], time.Second), "%s is put off by the same again", name)
			if after[name] < interval/20 {
				early++
			} else {
				late++
			}
		}
		Expect(min(early, late)).To(BeNumerically(">", objects/6), "halves of the time: %d and %d", early, late)

		created := time.Now()
		w.create(ctx, "new", 1)
		Eventually(ticked).WithArguments("new").Should(BeTrue())
		mu.Lock()
		defer mu.Unlock()
		Expect(ticks["new"].Sub(created)).To(BeNumerically("<", time.Second), "one that is created later is not put off")
	})
})

// requests counts what is requested of the world's group, by whomever, while something
// is done and what follows from it, without what only reads.
func (w *world) requests(ctx context.Context, do func()) map[string]int {
	GinkgoHelper()
	before, err := k8s.Requests(ctx, w.group)
	Expect(err).NotTo(HaveOccurred())
	do()
	w.quiet(ctx, time.Second)
	after, err := k8s.Requests(ctx, w.group)
	Expect(err).NotTo(HaveOccurred())
	counts := map[string]int{}
	for verb, n := range after {
		if n > before[verb] && cluster.Writes(map[string]int{verb: 1}) > 0 {
			counts[verb] = n - before[verb]
		}
	}
	return counts
}
