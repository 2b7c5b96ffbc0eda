package kopf_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/on"
)

// kubectl returns what users see of a command, that is, of both of its outputs.
type kubectl func(stdin string, args ...string) (string, error)

// kubectl is that of the control plane, in the world's namespace.
func (w *world) kubectl(ctx context.Context) kubectl {
	GinkgoHelper()
	program := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	cache := GinkgoT().TempDir()
	return func(stdin string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, program, append([]string{"--namespace=" + w.namespace, "--cache-dir=" + cache}, args...)...)
		cmd.Env = append(os.Environ(), "TMPDIR="+cache, "KUBE_EDITOR=sed -i s/Ready/Impossible/")
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		GinkgoWriter.Printf("$ kubectl %s\n%s", strings.Join(args, " "), out)
		return string(out), err
	}
}

// scalable gives the world's resource the subresource scale, for spec.value.
func (w *world) scalable(ctx context.Context) {
	GinkgoHelper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	Expect(k8s.Client.Get(ctx, client.ObjectKey{Name: cluster.Plural + "." + w.group}, crd)).To(Succeed())
	crd.Spec.Versions[0].Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{
		SpecReplicasPath: ".spec.value", StatusReplicasPath: ".status.observed",
	}
	Expect(k8s.Client.Update(ctx, crd)).To(Succeed())
}

// manifest is a widget, as users write it.
func (w *world) manifest(name string, value int) string {
	return fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nmetadata: {name: %s}\nspec: {value: %d}\n", w.group, name, value)
}

var _ = Describe("kubectl", func() {
	It("shows users what handlers say of requests for objects", func(ctx SpecContext) {
		w := newWorld(ctx, "kubectl", true)
		on.Validate(func(_ context.Context, a *kopf.Admission[*Widget]) error {
			switch {
			case a.Operation == "DELETE" && a.Old.Spec.Value == 13:
				return kopf.Reject(403, "thirteen stays")
			case a.Operation == "DELETE":
				return nil
			case a.New.Spec.Value < 0:
				return kopf.Reject(422, "value is not valid").Field("spec.value", "must not be negative").Field("spec.text", "is required")
			case a.New.Spec.Value == 7:
				return kopf.Reject(409, "seven is taken, dry-run=%v", a.DryRun)
			}
			a.Warn("value %d is deprecated", a.New.Spec.Value)
			return nil
		}, w.widgets, w.in, on.ID("valid"))
		on.Mutate(func(_ context.Context, a *kopf.Admission[*Widget]) error {
			a.Object.Spec.Text = "as usual"
			return nil
		}, w.widgets, w.in, on.ID("defaults"), on.Operations("CREATE"))
		w.start(w.answering())
		Eventually(func() error { return w.tried(ctx, "tried", -1) }).Should(MatchError(ContainSubstring("not valid")))
		run := w.kubectl(ctx)

		said, err := run(w.manifest("bad", -1), "apply", "-f", "-")
		Expect(err).To(HaveOccurred())
		Expect(said).To(And(ContainSubstring("spec.value: must not be negative"), ContainSubstring("spec.text: is required")))
		said, err = run(w.manifest("bad", 7), "apply", "-f", "-")
		Expect(err).To(HaveOccurred())
		Expect(said).To(And(ContainSubstring(`admission webhook "valid.` + w.group + `" denied the request: seven is taken, dry-run=false`)))
		said, err = run(w.manifest("bad", 7), "apply", "--dry-run=server", "-f", "-")
		Expect(err).To(HaveOccurred())
		Expect(said).To(ContainSubstring("seven is taken, dry-run=true"))

		said, err = run(w.manifest("tried", 13), "apply", "--dry-run=server", "-o=jsonpath={.spec.text}", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		Expect(said).To(And(ContainSubstring("Warning: value 13 is deprecated\n"), ContainSubstring("as usual")))
		Expect(w.isGone(ctx, "tried")()).To(BeTrue(), "a dry run has stored something")

		said, err = run(w.manifest("w1", 13), "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		Expect(said).To(And(ContainSubstring("Warning: value 13 is deprecated\n"), ContainSubstring("w1 created")))
		said, err = run("", "delete", "widget."+w.group, "w1")
		Expect(err).To(HaveOccurred())
		Expect(said).To(ContainSubstring("denied the request: thirteen stays"))
		_, err = run(w.manifest("w1", 1), "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		said, err = run("", "delete", "widget."+w.group, "w1")
		Expect(err).NotTo(HaveOccurred())
		Expect(said).To(ContainSubstring(`"w1" deleted`))
	})

	It("shows users what handlers say of the scale and the status", func(ctx SpecContext) {
		w := newWorld(ctx, "kubectl", true)
		w.scalable(ctx)
		on.Validate(func(_ context.Context, a *kopf.Admission[*autoscalingv1.Scale]) error {
			if a.New.Spec.Replicas > 5 {
				return kopf.Reject(403, "%d replicas instead of %d are too many", a.New.Spec.Replicas, a.Old.Spec.Replicas)
			}
			return nil
		}, w.widgets, w.in, on.ID("scale"), on.Subresource("scale"))
		on.Validate(func(_ context.Context, a *kopf.Admission[*Widget]) error {
			if a.New.Status.Phase == "Impossible" {
				return kopf.Reject(422, "phase is not valid").Field("status.phase", "is impossible")
			}
			return nil
		}, w.widgets, w.in, on.ID("status"), on.Subresource("status"))
		w.start(w.answering())
		w.create(ctx, "w1", 1)
		run := w.kubectl(ctx)
		resource := "widget." + w.group

		Eventually(func() string {
			said, _ := run("", "scale", resource, "w1", "--replicas=6", "--dry-run=server")
			return said
		}).Should(ContainSubstring("denied the request: 6 replicas instead of 1 are too many"))
		said, err := run("", "scale", resource, "w1", "--replicas=7")
		Expect(err).To(HaveOccurred())
		Expect(said).To(ContainSubstring("7 replicas instead of 1 are too many"))
		said, err = run("", "scale", resource, "w1", "--replicas=5")
		Expect(err).NotTo(HaveOccurred())
		Expect(said).To(ContainSubstring("w1 scaled"))
		widget, err := w.get(ctx, "w1")
		Expect(err).NotTo(HaveOccurred())
		Expect(widget.Spec.Value).To(Equal(int64(5)))

		said, err = run("", "patch", resource, "w1", "--subresource=status", "--type=merge", `--patch={"status":{"phase":"Impossible"}}`)
		Expect(err).To(HaveOccurred())
		Expect(said).To(ContainSubstring("status.phase: is impossible"))
		_, err = run("", "patch", resource, "w1", "--subresource=status", "--type=merge", `--patch={"status":{"phase":"Ready"}}`)
		Expect(err).NotTo(HaveOccurred())
		said, err = run("", "edit", resource, "w1", "--subresource=status")
		Expect(err).To(HaveOccurred())
		Expect(said).To(ContainSubstring(`"w1" is invalid`))
		kept := regexp.MustCompile(`stored to "(.*)"`).FindStringSubmatch(said) // what the editor showed when it was opened again
		Expect(kept).To(HaveLen(2), said)
		text, err := os.ReadFile(kept[1])
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).To(ContainSubstring("# * status.phase: is impossible"))
		widget, err = w.get(ctx, "w1")
		Expect(err).NotTo(HaveOccurred())
		Expect(widget.Status.Phase).To(Equal("Ready"))
	})
})
