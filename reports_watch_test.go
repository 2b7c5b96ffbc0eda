package kopf_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

var _ = Describe("reports on watches and lost events", func() {
	It("B01 goes on after an expired version, and handles what happened meanwhile once", func(ctx SpecContext) {
		w, proxy, c := reported(ctx, "expired"), newProxy(), &calls{}
		w.note(c, kopf.ReasonCreate, kopf.ReasonUpdate)
		w.noteEvents(c)
		w.start(through(proxy), noErrors)
		for _, name := range []string{"w1", "w2", "w3"} {
			w.create(ctx, name, 1)
			Eventually(w.handled(ctx, name)).Should(BeEquivalentTo(1))
		}
		connected := make(chan struct{})
		reconnect := sync.OnceFunc(func() { close(connected) })
		defer reconnect()
		wait := func(request) *fault { <-connected; return nil }
		proxy.Before(widgetWatches, wait)
		proxy.Before(widgetLists, wait)
		Eventually(func() int { return proxy.Expire(widgetWatches) }).Should(Equal(1))
		w.edit(ctx, "w1", 2)
		w.remove(ctx, "w3") // nothing holds it
		Eventually(w.isGone(ctx, "w3")).Should(BeTrue())
		reconnect()
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(2))
		Eventually(c.of("DELETED w3 missed")).Should(Equal(1))
		w.quiet(ctx, 2*time.Second)
		for text, n := range c.all() {
			if !strings.HasPrefix(text, "MODIFIED") {
				Expect(n).To(Equal(1), text)
			}
		}
		for _, text := range []string{"create w1", "create w2", "create w3", "update w1 1 -> 2"} {
			Expect(c.of(text)()).To(Equal(1), text)
		}
		for text := range c.all() {
			Expect(text).NotTo(Or(HavePrefix("update w2"), HavePrefix("update w3")))
			Expect(text).NotTo(And(HavePrefix("DELETED"), Not(Equal("DELETED w3 missed"))))
		}
	})

	It("B02 notices a watch that is half dead, and misses nothing by it", func(ctx SpecContext) {
		const limit = 2 * time.Second
		w, proxy, c := reported(ctx, "halfdead"), newProxy(), &calls{}
		w.note(c, kopf.ReasonCreate, kopf.ReasonUpdate, kopf.ReasonResume)
		w.start(through(proxy), noErrors, func(o *kopf.Options) { o.Settings.Watching.InactivityTimeout = limit })
		w.create(ctx, "w1", 1)
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(1))
		Eventually(func() int { return proxy.Mute(widgetWatches) }).Should(Equal(1))
		before := len(proxy.Requests(widgetWatches))
		muted := time.Now()
		w.edit(ctx, "w1", 2)
		Eventually(c.of("update w1 1 -> 2")).Should(Equal(1))
		Expect(time.Since(muted)).To(BeNumerically("<", limit+8*time.Second), "the limit, and the reflector's pause before another watch")
		reopened := proxy.Requests(widgetWatches)[before:]
		Expect(reopened).NotTo(BeEmpty())
		for _, r := range append(reopened, proxy.Requests(widgetLists)...) {
			Expect(r.Verb).To(Equal("watch"), "it goes on from the last seen version, without a list")
			Expect(r.Query).NotTo(ContainSubstring("sendInitialEvents=true"))
		}
		w.quiet(ctx, time.Second)
		Expect(c.all()).To(Equal(map[string]int{"create w1": 1, "update w1 1 -> 2": 1}))
	})

	It("B03 keeps on watching after 429, as slowly as the server asks, and serves other resources meanwhile", func(ctx SpecContext) {
		w, proxy, c := reported(ctx, "throttled"), newProxy(), &calls{}
		w.note(c, kopf.ReasonCreate)
		on.Create(func(_ context.Context, change *kopf.Change[*corev1.ConfigMap]) error {
			c.add("create %s", change.Object.Name)
			return nil
		}, w.in, on.ID("other"))
		var refused atomic.Int32
		proxy.Before(widgetWatches, func(request) *fault {
			if refused.Add(1) > 2 && c.of("create g1")() > 0 {
				return nil
			}
			return &fault{Code: http.StatusTooManyRequests, RetryAfter: time.Second}
		})
		w.start(through(proxy), noErrors)
		Eventually(refused.Load).Should(BeNumerically(">=", 1))
		g1 := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "g1"}}
		Expect(k8s.Client.Create(ctx, g1)).To(Succeed())
		Eventually(c.of("create g1")).Should(Equal(1), "while widgets are refused")
		w.create(ctx, "w1", 1)
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(1))
		attempts := proxy.Requests(widgetWatches)
		Expect(len(attempts)).To(BeNumerically(">=", 3))
		for i, r := range attempts[1:] {
			Expect(r.At.Sub(attempts[i].At)).To(BeNumerically(">=", time.Second), "attempt %d", i+2)
		}
		w.quiet(ctx, time.Second)
		Expect(c.all()).To(Equal(map[string]int{"create g1": 1, "create w1": 1}))
	})

	It("B04 handles what is readable next to an object that is not, and that as soon as it is", func(ctx SpecContext) {
		w, c := reported(ctx, "misfit"), &calls{}
		on.Create(func(_ context.Context, change *kopf.Change[*Widget]) error {
			c.add("create %s %d", change.Object.Name, change.Object.Spec.Value)
			return nil
		}, w.widgets, w.in, on.ID("create"))
		w.note(c, kopf.ReasonDelete)
		w.create(ctx, "good", 1)
		w.post(ctx, w.apiObject("bad", `"spec":{"value":"large"}`))
		w.post(ctx, w.apiObject("removed", `"spec":{"value":"large"}`))
		w.start()
		warnings := func(name string) func() (n int, err error) {
			return func() (n int, err error) {
				list := &corev1.EventList{}
				err = k8s.Client.List(ctx, list, client.InNamespace(w.namespace))
				for _, item := range list.Items {
					if item.InvolvedObject.Name == name && item.Type == corev1.EventTypeWarning {
						n++
					}
				}
				return n, err
			}
		}
		Eventually(w.handled(ctx, "good")).Should(BeEquivalentTo(1))
		Eventually(warnings("bad")).Should(Equal(1))
		Eventually(warnings("removed")).Should(Equal(1))
		Expect(k8s.Raw(ctx, "DELETE", w.group, w.namespace, "removed", nil)).Error().NotTo(HaveOccurred())
		Eventually(w.isGone(ctx, "removed")).Should(BeTrue(), "it can be deleted all the same")
		w.patch(ctx, "bad", `{"spec":{"value":3}}`)
		Eventually(c.of("create bad 3")).Should(Equal(1))
		w.quiet(ctx, 2*time.Second)
		Expect(c.all()).To(Equal(map[string]int{"create good 1": 1, "create bad 3": 1}))
		Expect(warnings("bad")()).To(Equal(1))
	})

	It("B06 handles the last one of a burst of edits, whatever the pauses in between", func(ctx SpecContext) {
		const edits = 100
		seed := uint64(time.Now().UnixNano())
		AddReportEntry("seed", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		w := reported(ctx, "burst")
		var mu sync.Mutex
		var recorded []int64
		on.Update(func(_ context.Context, change *kopf.Change[*Widget]) error {
			mu.Lock()
			defer mu.Unlock()
			recorded = append(recorded, change.New.Spec.Value)
			time.Sleep(rand.N(5 * time.Millisecond)) // work
			return nil
		}, w.widgets, w.in, on.ID("update"))
		w.start(noErrors)
		w.create(ctx, "w1", 1)
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(1))
		for value := range int64(edits) {
			w.edit(ctx, "w1", value+2)
			if random.IntN(3) == 0 {
				time.Sleep(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
			}
		}
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(edits + 1))
		w.quiet(ctx, time.Second)
		mu.Lock()
		defer mu.Unlock()
		Expect(recorded[len(recorded)-1]).To(BeEquivalentTo(edits + 1))
		Expect(slices.IsSortedFunc(recorded, func(a, b int64) int {
			if a < b {
				return -1
			}
			return 1 // nor are two the same
		})).To(BeTrue(), "%v", recorded)
	})

	// That it bites: without the comparison of versions in object.admit of the engine,
	// creation ran two more times here.
	It("B13 does not run a handler twice when a foreign write echoes before our own", func(ctx SpecContext) {
		w, proxy, c := reported(ctx, "echo"), newProxy(), &calls{}
		proxy.Latency(widgetWatches, time.Second)
		seen := make(chan struct{}, 1000)
		on.Event(func(_ context.Context, e *kopf.Event[*Widget]) error {
			c.add("event %s", e.Object.ResourceVersion)
			seen <- struct{}{}
			return nil
		}, w.widgets, w.in, on.ID("event"))
		on.Create(func(ctx context.Context, _ *kopf.Change[*Widget]) error {
			c.add("create")
			for range 5 { // events do not wait for it, however late they are
				select {
				case <-seen:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}, w.widgets, w.in, on.ID("create"))
		w.note(c, kopf.ReasonDelete) // for one more own write, the finalizer
		w.start(through(proxy), noErrors)
		w.create(ctx, "w1", 1)
		versions := 1
		for i := 0; ; i++ { // the third party
			w.patch(ctx, "w1", fmt.Sprintf(`{"metadata":{"labels":{"foreign":"%d"}}}`, i))
			versions++
			handled, err := w.handled(ctx, "w1")()
			Expect(err).NotTo(HaveOccurred())
			if handled != 0 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		w.patch(ctx, "w1", `{"metadata":{"labels":{"foreign":"last"}}}`)
		last, err := w.get(ctx, "w1")
		Expect(err).NotTo(HaveOccurred())
		Eventually(c.of("event " + last.ResourceVersion)).ShouldNot(BeZero())
		w.quiet(ctx, time.Second)
		Expect(c.of("create")()).To(Equal(1))
		events := 0
		for text, n := range c.all() {
			if strings.HasPrefix(text, "event ") {
				events++
				Expect(n).To(Equal(1), text)
			}
		}
		Expect(events).To(BeNumerically(">=", versions+2), "each version, those of the own writes too")
	})

	It("B41 calls resume handlers once for each object, not at every reconnect", func(ctx SpecContext) {
		w, proxy, c := reported(ctx, "resumed"), newProxy(), &calls{}
		w.note(c, kopf.ReasonCreate, kopf.ReasonUpdate)
		before := w.start()
		for _, name := range []string{"w1", "w2", "terminating"} {
			w.create(ctx, name, 1)
			Eventually(w.handled(ctx, name)).Should(BeEquivalentTo(1))
		}
		before.stop()
		w.edit(ctx, "w2", 2)
		w.patch(ctx, "terminating", `{"metadata":{"finalizers":["x.test/a"]}}`)
		w.remove(ctx, "terminating")
		DeferCleanup(func(ctx context.Context) { w.patch(ctx, "terminating", `{"metadata":{"finalizers":[]}}`) })

		on.Resume(func(_ context.Context, change *kopf.Change[*Widget]) error {
			c.add("resume %s, attempt %d", change.Object.Name, change.Retry)
			if change.Object.Name == "w1" && change.Retry == 0 {
				return kopf.Retry(time.Second, errors.New("not ready"))
			}
			return nil
		}, w.widgets, w.in, on.ID("resume"))
		w.noteEvents(c)
		w.start(through(proxy), noErrors)
		for i := range 10 {
			w.patch(ctx, "w2", fmt.Sprintf(`{"status":{"round":%d}}`, i)) // ignored: the status is elsewhere
			Eventually(func() int { return proxy.Expire(widgetWatches) }).Should(Equal(1), "relist %d", i)
			mark := fmt.Sprintf("mark%d", i)
			w.create(ctx, mark, 1) // to see that the watch works again
			Eventually(c.of("create " + mark)).Should(Equal(1))
		}
		w.create(ctx, "w4", 1)
		Eventually(w.handled(ctx, "w4")).Should(BeEquivalentTo(1))
		Eventually(c.of("resume w1, attempt 1")).Should(Equal(1))
		w.quiet(ctx, 2*time.Second)
		resumed := map[string]int{}
		for text, n := range c.all() {
			if strings.HasPrefix(text, "resume") {
				resumed[text] = n
			}
		}
		Expect(resumed).To(Equal(map[string]int{"resume w1, attempt 0": 1, "resume w1, attempt 1": 1, "resume w2, attempt 0": 1}))
		Expect(c.of("update w2 1 -> 2")()).To(Equal(1))
		Expect(c.of("create w4")()).To(Equal(1))
		Expect(proxy.Count(widgetWatches)).To(BeNumerically(">=", 11))
	})

	It("B50 handles what is in a namespace when it begins to match, and again when it comes back", func(ctx SpecContext) {
		w, proxy, c := reported(ctx, "matching"), newProxy(), &calls{}
		w.note(c, kopf.ReasonCreate, kopf.ReasonUpdate, kopf.ReasonResume)
		name := w.namespace + "-one"
		watching := widgetWatches
		watching.Namespace = name
		// appear creates the namespace, and does something in it before the operator looks.
		appear := func(meanwhile func()) {
			GinkgoHelper()
			waiting, looking := make(chan struct{}, 10), make(chan struct{})
			defer proxy.Before(watching, func(request) *fault {
				waiting <- struct{}{}
				<-looking
				return nil
			})()
			look := sync.OnceFunc(func() { close(looking) })
			defer look()
			before := c.inOrder()
			newNamespace(ctx, name)
			Eventually(waiting).Should(Receive())
			meanwhile()
			Expect(c.inOrder()).To(Equal(before))
		}
		w.start(through(proxy), noErrors, func(o *kopf.Options) { o.Namespaces = []string{w.namespace + "-*"} })
		w.namespace = name
		appear(func() {
			w.create(ctx, "w1", 1)
			w.create(ctx, "w2", 1)
		})
		Eventually(c.all).Should(Equal(map[string]int{"create w1": 1, "create w2": 1}))
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(1))
		w.edit(ctx, "w1", 2)
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(2))
		Eventually(w.handled(ctx, "w2")).Should(BeEquivalentTo(1))

		removeNamespace(ctx, name) // but not what is in it
		Eventually(func() int { return proxy.Watching(watching) }).Should(BeZero())
		appear(func() { w.edit(ctx, "w1", 3) })
		Eventually(w.handled(ctx, "w1")).Should(BeEquivalentTo(3))
		Eventually(c.of("resume w2")).Should(Equal(1))
		w.quiet(ctx, time.Second)
		Expect(c.all()).To(Equal(map[string]int{
			"create w1": 1, "create w2": 1, "update w1 1 -> 2": 1, "update w1 2 -> 3": 1, "resume w1": 1, "resume w2": 1,
		}))
	})
})

// noteEvents registers an event handler that counts.
func (w *world) noteEvents(c *calls) {
	on.Event(func(_ context.Context, e *kopf.Event[*Widget]) error {
		missed := ""
		if e.IdentityOnly {
			missed = " missed"
		}
		c.add("%s %s%s", e.Type, e.Object.Name, missed)
		return nil
	}, w.widgets, w.in, on.ID("note-event"))
}
