package kopf_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

var _ = Describe("many handlers of one object", func() {
	It("needs as many requests for 100 handlers as for one", func(ctx SpecContext) {
		w := newWorld(ctx, "hundred", true)
		c := &calls{}
		for i := range 100 {
			handler := func(ctx context.Context, change *kopf.Change[*Widget]) error {
				c.add("%s %d", change.Reason, i)
				change.Patch.Apply(func(o *Widget) { o.Status.Observed += int64(i) })
				return nil
			}
			id := on.ID(fmt.Sprintf("handler-%d", i))
			on.Create(handler, w.widgets, w.in, id)
			on.Update(handler, w.widgets, w.in, id)
			on.Delete(handler, w.widgets, w.in, id)
		}
		w.start()
		requests := func(action func()) map[string]int {
			before, err := k8s.Requests(ctx, w.group)
			Expect(err).NotTo(HaveOccurred())
			action()
			w.quiet(ctx, time.Second)
			after, err := k8s.Requests(ctx, w.group)
			Expect(err).NotTo(HaveOccurred())
			counts := map[string]int{}
			for verb, n := range after {
				if n > before[verb] && verb != "LIST" && verb != "WATCH" {
					counts[verb] = n - before[verb]
				}
			}
			return counts
		}
		Expect(requests(func() {
			w.create(ctx, "w1", 1)
			Eventually(func() int { return len(c.all()) }).Should(Equal(100))
		})).To(Equal(map[string]int{"POST": 1, "PATCH": 2, "PATCH/status": 1}))
		Expect(requests(func() {
			w.edit(ctx, "w1", 2)
			Eventually(func() int { return len(c.all()) }).Should(Equal(200))
		})).To(Equal(map[string]int{"PATCH": 1 + 1, "PATCH/status": 1}), "one of them is the test's")
		Expect(requests(func() {
			w.remove(ctx, "w1")
			Eventually(w.isGone(ctx, "w1")).Should(BeTrue())
		})).To(HaveKeyWithValue("PATCH", 1))
		for call, n := range c.all() {
			Expect(n).To(Equal(1), call)
		}
	})

	It("SUB-4 SUB-5 gives each sub-handler a life of its own, and SUB-8 its result a place", func(ctx SpecContext) {
		w := newWorld(ctx, "nested", true)
		c := &calls{}
		on.Create(func(ctx context.Context, change *kopf.Change[*Widget]) error {
			c.add("parent %d", change.Retry)
			for _, item := range change.New.Spec.Items {
				on.Subhandler(change, "item-"+item.Name, func(ctx context.Context, sub *kopf.Change[*Widget]) error {
					c.add("%s %d", item.Name, sub.Retry)
					if item.Name == "b" && sub.Retry < 2 {
						return kopf.Retry(300*time.Millisecond, errors.New("not yet"))
					}
					return nil
				}, on.Retries(5))
			}
			return nil
		}, w.widgets, w.in, on.ID("items"))
		w.start()
		object := w.widget("w1", 1)
		object.Spec.Items = []Item{{Name: "a"}, {Name: "b"}, {Name: "c"}}
		Expect(w.client.Create(ctx, object)).To(Succeed())
		Eventually(c.of("parent 2")).Should(Equal(1))
		w.quiet(ctx, time.Second)
		Expect(c.all()).To(Equal(map[string]int{
			"parent 0": 1, "parent 1": 1, "parent 2": 1, "a 0": 1, "b 0": 1, "b 1": 1, "b 2": 1, "c 0": 1,
		}))
		Expect(w.annotations(ctx, "w1")).To(HaveLen(2), "last-handled and its UID")
	})
})

var _ = Describe("what is written on an object", func() {
	It("has the form of Kopf's, byte for byte (B.1, B.2, B.3, B.4)", func(ctx SpecContext) {
		w := newWorld(ctx, "wire", true)
		long := "create_fn_with_a_really_long_name/sub_handler_with_a_long_name/and_more_of_it"
		waits := func(context.Context, *kopf.Change[*Widget]) error {
			return kopf.Retry(time.Hour, errors.New("Not \"ready\" ü."))
		}
		succeeds := func(context.Context, *kopf.Change[*Widget]) error { return nil }
		on.Create(succeeds, w.widgets, w.in, on.ID("create_fn"))
		on.Create(waits, w.widgets, w.in, on.ID("create_fn2"))
		on.Create(waits, w.widgets, w.in, on.ID(long))
		on.Create(waits, w.widgets, w.in, on.ID("limited"), on.Field("spec.text"), on.Retries(1))
		on.Create(func(ctx context.Context, c *kopf.Change[*Widget]) error {
			on.Subhandler(c, "b", waits)
			on.Subhandler(c, "a", succeeds)
			return nil
		}, w.widgets, w.in, on.ID("p"))
		on.Delete(waits, w.widgets, w.in, on.ID("deleting"))
		w.start()
		object := w.widget("w1", 1)
		object.Spec.Text = "ü<&>"
		object.Labels = map[string]string{"a": "b"}
		Expect(w.client.Create(ctx, object)).To(Succeed())

		const instant = `"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00"`
		const waiting = `{"started":` + instant + `,"delayed":` + instant + `,"purpose":"create","retries":1,"success":false,"failure":false,"message":"Not \\"ready\\" \\u00fc."}`
		const succeeded = `{"started":` + instant + `,"stopped":` + instant + `,"purpose":"create","retries":1,"success":true,"failure":false,"digest":"[0-9a-f]+"}`
		const failed = `{"started":` + instant + `,"stopped":` + instant + `,"purpose":"create","retries":1,"success":false,"failure":true,` +
			`"message":"did not succeed in 1 attempts: Not \\"ready\\" \\u00fc.","digest":"[0-9a-f]+"}`
		const parent = `{"started":` + instant + `,"delayed":` + instant + `,"purpose":"create","retries":1,"success":false,"failure":false,` +
			`"message":"None","subrefs":\["p/a","p/b"\]}`
		want := map[string]string{
			"create_fn":  succeeded,
			"create_fn2": waiting,
			"create_fn_with_a_really_long_name.sub_handler_with_a_lon-8bX4Rg": waiting, // V2
			"create_fn_with_a_really_long_name.sub_h-sstDVQ":                  waiting, // V1
			"limited.spec.text": failed,
			"p":                 parent,
			"p.a":               succeeded,
			"p.b":               waiting,
		}
		Eventually(func() (map[string]string, error) { return w.annotations(ctx, "w1") }).Should(HaveKey("kopf.zalando.org/p"))
		annotations, err := w.annotations(ctx, "w1")
		Expect(err).NotTo(HaveOccurred())
		for name, record := range want {
			Expect(annotations["kopf.zalando.org/"+name]).To(MatchRegexp("^"+record+"$"), name)
		}
		stored, err := w.get(ctx, "w1")
		Expect(err).NotTo(HaveOccurred())
		Expect(stored.Finalizers).To(Equal([]string{"kopf.zalando.org/KopfFinalizerMarker"}))
	})

	It("B.4 is the essence as Kopf writes it", func(ctx SpecContext) {
		w := newWorld(ctx, "handled", true)
		on.Create(func(context.Context, *kopf.Change[*Widget]) error { return nil }, w.widgets, w.in, on.ID("create"))
		w.start()
		object := w.widget("w1", 1<<53)
		object.Spec.Text, object.Spec.Items = "ü<&>", []Item{{Name: "a"}}
		object.Labels = map[string]string{"a": "b"}
		object.Annotations = map[string]string{"keep": "me", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
		Expect(w.client.Create(ctx, object)).To(Succeed())
		Eventually(func() (map[string]string, error) { return w.annotations(ctx, "w1") }).Should(HaveKeyWithValue(
			"kopf.zalando.org/last-handled-configuration",
			`{"spec":{"items":[{"name":"a"}],"text":"\u00fc<&>","value":9007199254740992},"metadata":{"labels":{"a":"b"},"annotations":{"keep":"me"}}}`+"\n"))
	})
})
