package kopf_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kopf-go/kopf/internal/peering"
)

var _ = Describe("the command line", func() {
	It("freezes and resumes the operators that meet in a peering object (CLI-6, CLI-7)", func(ctx SpecContext) {
		c := installPeering(ctx)
		object := &unstructured.Unstructured{}
		object.SetAPIVersion("kopf.dev/v1")
		object.SetKind("ClusterKopfPeering")
		object.SetName("commanded")

		code, _, stderr := command("freeze", "-P", "commanded", "-t", "60", "-i", "me")
		Expect(code).To(Equal(1))
		Expect(stderr).To(ContainSubstring("error: there is no clusterkopfpeering"), "an object that is not there is an error")

		Expect(c.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, object)).To(Succeed()) })
		code, stdout, stderr := command("freeze", "-P", "commanded", "-t", "60", "-i", "me", "-m", "deploying")
		Expect(code).To(Equal(0), stderr)
		Expect(stdout).To(ContainSubstring("commanded"))
		Expect(c.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		Expect(object.Object["status"]).To(HaveKeyWithValue("me", And(
			HaveKeyWithValue("priority", int64(100)), HaveKeyWithValue("lifetime", int64(60)), HaveKeyWithValue("message", "deploying"), HaveKey("lastseen"))))

		code, _, stderr = command("resume", "-P", "commanded", "-i", "me")
		Expect(code).To(Equal(0), stderr)
		Expect(c.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		Expect(object.Object["status"]).NotTo(HaveKey("me"))
	})
})

// command calls this test program as an operator that is connected to the API server.
func command(args ...string) (code int, stdout, stderr string) {
	GinkgoHelper()
	var out, err bytes.Buffer
	process := exec.Command(os.Args[0], args...)
	process.Env = append(os.Environ(), programVar+"=connected")
	process.Stdout, process.Stderr = &out, &err
	failed := process.Run()
	if exit := (*exec.ExitError)(nil); errors.As(failed, &exit) {
		return exit.ExitCode(), out.String(), err.String()
	}
	Expect(failed).NotTo(HaveOccurred())
	return 0, out.String(), err.String()
}

// installPeering has the API server know the kinds of peering objects.
func installPeering(ctx context.Context) client.Client {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	c, err := client.New(k8s.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	for _, text := range bytes.Split(peering.CRDs(), []byte("\n---\n")) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		Expect(yaml.Unmarshal(text, crd)).To(Succeed())
		Expect(client.IgnoreAlreadyExists(c.Create(ctx, crd))).To(Succeed())
		Eventually(func() ([]apiextensionsv1.CustomResourceDefinitionCondition, error) {
			err := c.Get(ctx, client.ObjectKey{Name: crd.Name}, crd)
			return crd.Status.Conditions, err
		}).Should(ContainElement(And(HaveField("Type", apiextensionsv1.Established), HaveField("Status", apiextensionsv1.ConditionTrue))))
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(c.Delete(ctx, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}}))).To(Succeed())
		})
	}
	// Discovery follows a moment after.
	Eventually(func() error {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("kopf.dev/v1")
		list.SetKind("ClusterKopfPeeringList")
		return c.List(ctx, list)
	}).Should(Succeed())
	return c
}
