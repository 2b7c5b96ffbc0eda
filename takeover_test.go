package kopf_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/on"
)

// testdata/kopf-state holds objects as a Python operator with Kopf 1.44.6 left them
// on a real API server, in the middle of its work.
var _ = Describe("an operator that takes over from Python", func() {
	It("goes on where Python stopped (X05, X06)", func(ctx SpecContext) {
		w := newWorld(ctx, "takeover", true)
		c := &calls{}
		is := func(label string) on.AnyOption { return on.Label("case", label) }
		note := func(result error) func(context.Context, *kopf.Change[*unstructured.Unstructured]) error {
			return func(ctx context.Context, change *kopf.Change[*unstructured.Unstructured]) error {
				c.add("%s: %s, retry %d, started %s", change.Object.GetName(), change.Reason, change.Retry, change.Started.UTC().Format("15:04:05.000000"))
				return result
			}
		}
		unexpected := note(errors.New("must not be called"))
		on.Create(unexpected, w.widgets, w.in, is("handled"), on.ID("create_ok"))
		on.Update(unexpected, w.widgets, w.in, is("handled"), on.ID("update_ok"))
		on.Create(unexpected, w.widgets, w.in, is("failed"), on.ID("create_failed"))
		on.Create(unexpected, w.widgets, w.in, is("retrying"), on.ID("create_done"))
		on.Update(unexpected, w.widgets, w.in, is("statusfield"), on.ID("phase_changed"), on.Field("status.phase"))
		on.Create(note(nil), w.widgets, w.in, is("retrying"), on.ID("create_retrying"))
		on.Create(note(nil), w.widgets, w.in, is("longname"),
			on.ID("create_fn_with_a_really_long_name/sub_handler_with_a_long_name/and_more_of_it"))
		on.Update(func(ctx context.Context, change *kopf.Change[*unstructured.Unstructured]) error {
			before, _, _ := unstructured.NestedInt64(change.Old.Object, "spec", "replicas")
			after, _, _ := unstructured.NestedInt64(change.New.Object, "spec", "replicas")
			c.add("updating: %d -> %d, retry %d, %s", before, after, change.Retry, change.Diff)
			return nil
		}, w.widgets, w.in, is("updating"), on.ID("scaled"), on.Field("spec.replicas"))
		on.Delete(note(nil), w.widgets, w.in, is("deleting"), on.ID("deleting"))
		on.Create(func(ctx context.Context, change *kopf.Change[*unstructured.Unstructured]) error {
			on.Subhandler(change, "a", unexpected)
			on.Subhandler(change, "b", note(nil), on.Retries(2))
			on.Subhandler(change, "c", unexpected)
			return note(nil)(ctx, change)
		}, w.widgets, w.in, is("subs"), on.ID("parent"))

		// What waits in them waits for a little while yet.
		due := time.Now().Add(3 * time.Second)
		for _, name := range []string{"handled", "failed", "retrying", "longname", "updating", "deleting", "statusfield", "subs"} {
			w.restore(ctx, name, due)
		}
		before, err := k8s.Requests(ctx, w.group)
		Expect(err).NotTo(HaveOccurred())
		w.start()
		Consistently(c.all, time.Until(due)-100*time.Millisecond).Should(BeEmpty())
		Eventually(c.all).Should(Equal(map[string]int{
			"wire-retrying: create, retry 1, started 01:48:27.256327": 1,
			"wire-longname: create, retry 1, started 01:48:27.255021": 1,
			"wire-deleting: delete, retry 1, started 01:48:42.577344": 1,
			"updating: 1 -> 5, retry 1, change .: 1 -> 5":             1,
			"wire-subs: create, retry 3, started 01:48:27.259511":     1,
			"wire-subs: create, retry 1, started 01:48:27.262309":     1,
		}))
		Eventually(w.isGone(ctx, "wire-deleting")).Should(BeTrue())
		w.quiet(ctx, time.Second)
		after, err := k8s.Requests(ctx, w.group)
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.Writes(after)-cluster.Writes(before)).To(Equal(5), "one for each that was not through, none for the others")
		for _, name := range []string{"wire-retrying", "wire-longname", "wire-updating", "wire-subs"} {
			object := &unstructured.Unstructured{}
			Expect(object.UnmarshalJSON([]byte(w.raw(ctx, name)))).To(Succeed())
			annotations := object.GetAnnotations()
			Expect(annotations).To(HaveLen(2), "last-handled and its UID, no progress: %v", annotations)
			Expect(annotations["kopf.zalando.org/last-handled-configuration"]).To(And(
				ContainSubstring(`"text":"\u00fc<&>"`), ContainSubstring(`"big":9007199254740993`), HaveSuffix("}\n")))
		}
	})
})

// restore creates the object of a file, as far as an API server lets one.
func (w *world) restore(ctx context.Context, name string, due time.Time) {
	GinkgoHelper()
	raw, err := os.ReadFile("testdata/kopf-state/" + name + ".json")
	Expect(err).NotTo(HaveOccurred())
	text := regexp.MustCompile(`(delayed\\":\\")[^\\]*`).ReplaceAllString(string(raw), "${1}"+due.UTC().Format("2006-01-02T15:04:05.000000+00:00"))
	object := &unstructured.Unstructured{}
	Expect(object.UnmarshalJSON([]byte(text))).To(Succeed())
	object.SetAPIVersion(w.group + "/v1")
	object.SetKind(cluster.Kind)
	object.SetNamespace(w.namespace)
	object.SetResourceVersion("")
	object.SetUID("")
	deleting := object.GetDeletionTimestamp() != nil
	object.SetDeletionTimestamp(nil)
	status, hasStatus := object.Object["status"]
	Expect(w.client.Create(ctx, object)).To(Succeed())
	if hasStatus {
		patch, err := json.Marshal(map[string]any{"status": status})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.client.Status().Patch(ctx, object, client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
	}
	if deleting {
		Expect(w.client.Delete(ctx, object)).To(Succeed())
	}
	Expect(strings.Contains(fmt.Sprint(object.GetAnnotations()), "kopf.zalando.org")).To(BeTrue())
}
