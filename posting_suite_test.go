package kopf_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/owners"
	"github.com/kopf-go/kopf/settings"
)

// events are those in the world's namespace, by reason.
func (w *world) events(ctx context.Context) func() (map[string]corev1.Event, error) {
	return func() (map[string]corev1.Event, error) {
		var list corev1.EventList
		if err := k8s.Client.List(ctx, &list, client.InNamespace(w.namespace)); err != nil {
			return nil, err
		}
		found := map[string]corev1.Event{}
		for _, e := range list.Items {
			found[e.Reason] = e
		}
		return found, nil
	}
}

func posting(p settings.Posting) func(*kopf.Options) {
	return func(o *kopf.Options) { o.Settings.Posting = p }
}

var _ = Describe("events", func() {
	It("KEV-1 KEV-3 KEV-7 KEV-9 come from handlers of each kind, as the API server takes them", func(ctx SpecContext) {
		w := reported(ctx, "posting")
		var told sync.Map // for there is a limit to what an object has
		tell := func(ctx context.Context, reason string, o *Widget) error {
			if _, again := told.LoadOrStore(reason, true); again {
				return nil
			}
			return kopf.Info(ctx, o, reason, "value %d %s", o.Spec.Value, strings.Repeat("ä", 1000))
		}
		on.Create(func(ctx context.Context, c *kopf.Change[*Widget]) error {
			c.Log.Warn("logged", "value", c.New.Spec.Value)
			return errors.Join(tell(ctx, "Create", c.Object), kopf.Post(ctx, c.Object, "Error", "Type", "of another type"),
				kopf.Exception(ctx, c.Object, strings.Repeat("Long", 50), errors.New("with a long reason")))
		}, w.widgets, w.in, on.ID("create"))
		on.Update(func(context.Context, *kopf.Change[*Widget]) error { return kopf.Permanent(errors.New("flop")) }, w.widgets, w.in, on.ID("update"))
		on.Delete(func(ctx context.Context, c *kopf.Change[*Widget]) error { return tell(ctx, "Delete", c.Object) }, w.widgets, w.in, on.ID("delete"))
		on.FieldChange("spec.value", func(ctx context.Context, c *kopf.FieldChange[*Widget, int64]) error {
			return tell(ctx, "Field", c.Object)
		}, w.widgets, w.in, on.ID("field"))
		on.Event(func(ctx context.Context, e *kopf.Event[*Widget]) error { return tell(ctx, "Event", e.Object) }, w.widgets, w.in, on.ID("event"))
		on.Index(func(ctx context.Context, s *kopf.Snapshot[*Widget]) (map[string]int, error) {
			return nil, tell(ctx, "Index", s.Object)
		}, w.widgets, w.in, on.ID("index"))
		on.Timer(func(ctx context.Context, t *kopf.Tick[*Widget]) error { return tell(ctx, "Timer", t.Object) },
			w.widgets, w.in, on.ID("timer"), on.Interval(time.Hour))
		on.Daemon(func(ctx context.Context, d *kopf.Daemon[*Widget]) error {
			<-ctx.Done()
			return tell(ctx, "Daemon", d.Object())
		}, w.widgets, w.in, on.ID("daemon"))
		w.start(posting(settings.Posting{Component: "example.com/op", Instance: "me", Loggers: true, Failures: true}))

		created := w.create(ctx, "w1", 1)
		Eventually(w.events(ctx)).Should(And(HaveKey("Create"), HaveKey("Logging")))
		w.edit(ctx, "w1", 2)
		Eventually(w.events(ctx)).Should(HaveKey("Failed"))
		w.remove(ctx, "w1")
		long := strings.Repeat("Long", 32)
		Eventually(w.events(ctx)).Should(And(HaveKey("Create"), HaveKey("Delete"), HaveKey("Field"), HaveKey("Event"), HaveKey("Index"),
			HaveKey("Timer"), HaveKey("Daemon"), HaveKey("Type"), HaveKey("Logging"), HaveKey("Failed"), HaveKey(long)))
		all, err := w.events(ctx)()
		Expect(err).NotTo(HaveOccurred())
		for reason, e := range all {
			Expect(e.InvolvedObject.Name).To(Equal("w1"), reason)
			Expect(e.InvolvedObject.UID).To(Equal(created.UID), reason)
			Expect(e.ReportingController).To(Equal("example.com/op"), reason)
			Expect(e.ReportingInstance).To(Equal("me"), reason)
			Expect(e.Source.Component).To(Equal("example.com/op"), reason)
			Expect(e.EventTime.Time).To(BeTemporally("~", time.Now(), time.Minute), reason)
			Expect(e.Count).To(BeNumerically(">=", 1), reason)
			Expect(len(e.Message)).To(BeNumerically("<=", 1024), reason)
		}
		Expect(all["Create"].Type).To(Equal(corev1.EventTypeNormal))
		Expect(all["Create"].Message).To(And(HavePrefix("value 1 ä"), ContainSubstring("ä...ä")))
		Expect(all["Type"].Type).To(Equal("Error"))
		Expect(all[long].Type).To(Equal(corev1.EventTypeWarning))
		Expect(all["Failed"].Message).To(Equal("update handler update: flop"))
		Expect(all["Logging"].Message).To(Equal("logged value=1"))
		Expect(all["Logging"].Type).To(Equal(corev1.EventTypeWarning))
	})

	It("KEV-4 KEV-6 B45 are bounded, even those of a handler of everything that posts about each, events too", func(ctx SpecContext) {
		w := reported(ctx, "flooding")
		about := func(ctx context.Context, o kopf.Object) error {
			return errors.Join(kopf.Info(ctx, o, "Seen", "as %s", o.GetResourceVersion()), kopf.Warn(ctx, o, "Same", "text"))
		}
		on.Event(func(ctx context.Context, e *kopf.Event[*Widget]) error { return about(ctx, e.Object) }, w.widgets, w.in, on.ID("widgets"))
		on.Event(func(ctx context.Context, e *kopf.Event[*corev1.Event]) error {
			return errors.Join(about(ctx, e.Object), kopf.Info(ctx, &e.Object.InvolvedObject, "Told", "of %s", e.Object.ResourceVersion))
		}, on.Resource("v1", "events"), w.in, on.ID("events"))
		w.start(noErrors)
		w.create(ctx, "w1", 1)
		Eventually(w.events(ctx)).Should(HaveKey("Same")) // from now on it sees each edit
		for i := range 15 {
			w.edit(ctx, "w1", int64(i+2))
		}
		count := func() (map[string]int, error) {
			var list corev1.EventList
			err := k8s.Client.List(ctx, &list, client.InNamespace(w.namespace))
			counts := map[string]int{}
			for _, e := range list.Items {
				counts[e.InvolvedObject.Kind]++
				counts["all"] += int(e.Count)
			}
			return counts, err
		}
		Eventually(count).Should(HaveKeyWithValue("all", BeNumerically(">=", 40)))
		last := map[string]int{}
		Eventually(func() (bool, error) {
			now, err := count()
			same := fmt.Sprint(now) == fmt.Sprint(last)
			last = now
			return same, err
		}).WithPolling(500 * time.Millisecond).Should(BeTrue())
		Consistently(count).WithTimeout(2 * time.Second).Should(Equal(last))
		AddReportEntry("events", last)
		Expect(last).To(HaveLen(2), "about widgets only")
		Expect(last["Widget"]).To(BeNumerically("<=", 25), "most of them are counted")
		same, err := w.events(ctx)()
		Expect(err).NotTo(HaveOccurred())
		Expect(same["Same"].Count).To(BeEquivalentTo(16), "what is alike is one")
	})
})

var _ = Describe("hierarchies", func() {
	It("HIE-3 HIE-8 are taken by the API server, and what it would remove is refused before", func(ctx SpecContext) {
		w := reported(ctx, "adopting")
		on.Create(func(ctx context.Context, c *kopf.Change[*Widget]) error {
			template := &corev1.PodTemplate{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}
			config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}}
			if err := kopf.Adopt(c.Object, kopf.Objects{template, config}, owners.Nested("template")); err != nil {
				return err
			}
			if err := kopf.Adopt(c.Object, &rbacv1.ClusterRole{}); err == nil {
				return errors.New("a ClusterRole was adopted")
			}
			if err := errors.Join(k8s.Client.Create(ctx, template), k8s.Client.Create(ctx, config)); err != nil {
				return kopf.Permanent(err)
			}
			grandchild := &corev1.ConfigMap{}
			if err := kopf.Adopt(config, grandchild, owners.OwnerKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))); err != nil {
				return kopf.Permanent(err)
			}
			return k8s.Client.Create(ctx, grandchild)
		}, w.widgets, w.in, on.ID("create"))
		w.start(noErrors)
		parent := w.widget("w1", 1)
		parent.Labels = map[string]string{"team": "blue"}
		Expect(w.client.Create(ctx, parent)).To(Succeed())

		var templates corev1.PodTemplateList
		var configs corev1.ConfigMapList
		labelled := []client.ListOption{client.InNamespace(w.namespace), client.MatchingLabels{"team": "blue"}}
		Eventually(func() (int, error) {
			err := errors.Join(k8s.Client.List(ctx, &templates, labelled...), k8s.Client.List(ctx, &configs, labelled...))
			return len(templates.Items) + len(configs.Items), err
		}).Should(Equal(3))
		reference := metav1.OwnerReference{
			APIVersion: w.group + "/v1", Kind: "Widget", Name: "w1", UID: parent.UID, Controller: new(true), BlockOwnerDeletion: new(true),
		}
		template := templates.Items[0]
		Expect(template.Name).To(HavePrefix("w1-"))
		Expect(template.Template.Labels).To(Equal(map[string]string{"team": "blue"}))
		Expect(template.OwnerReferences).To(ConsistOf(reference))
		for _, config := range configs.Items {
			if config.Name == "fixed" {
				Expect(config.OwnerReferences).To(ConsistOf(reference))
			} else {
				Expect(config.Name).To(HavePrefix("fixed-"))
				Expect(config.OwnerReferences).To(ConsistOf(HaveField("Kind", "ConfigMap")))
			}
		}
	})
})
