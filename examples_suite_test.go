package kopf_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// example is a program of the folder examples, as users build and run it.
type example struct {
	*world
	binary string
	kubectl
}

func newExample(ctx context.Context, name string) *example {
	GinkgoHelper()
	w := worldOf(ctx, "example", "")
	e := &example{world: w, binary: filepath.Join(GinkgoT().TempDir(), name), kubectl: w.kubectl(ctx)}
	out, err := exec.CommandContext(ctx, "go", "build", "-o", e.binary, "./examples/"+name).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return e
}

// apply applies what the program prints of what it needs, and returns a kubeconfig for who may
// do just that.
func (e *example) apply(ctx context.Context) (kubeconfig string) {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, e.binary, "manifests", "--part", "crds", "--part", "rbac", "-n", e.namespace, "--operator-namespace", e.namespace)
	cmd.Stderr = GinkgoWriter
	text, err := cmd.Output()
	Expect(err).NotTo(HaveOccurred())
	install(ctx, objectsIn(text))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: filepath.Base(e.binary)}}
	request := &authenticationv1.TokenRequest{}
	Expect(k8s.Client.SubResource("token").Create(ctx, account, request)).To(Succeed())
	config := clientcmdapi.NewConfig()
	config.Clusters["it"] = &clientcmdapi.Cluster{Server: k8s.Config.Host, CertificateAuthorityData: k8s.Config.CAData}
	config.AuthInfos["operator"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "operator"}
	config.CurrentContext = "it"
	kubeconfig = filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*config, kubeconfig)).To(Succeed())
	return kubeconfig
}

// run runs the program until it is stopped, and returns its log.
func (e *example) run(ctx context.Context, kubeconfig string) (log *gbytes.Buffer, stop func()) {
	GinkgoHelper()
	log = gbytes.NewBuffer()
	cmd := exec.CommandContext(ctx, e.binary, "-n", e.namespace, "--kubeconfig", kubeconfig, "--log-format", "json", "-v")
	cmd.Env = append(os.Environ(), "KUBECONFIG=")
	cmd.Stderr = log
	Expect(cmd.Start()).To(Succeed())
	return log, func() {
		GinkgoHelper()
		Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
		Expect(cmd.Wait()).To(Succeed(), string(log.Contents()))
	}
}

// succeeded counts how often each handler has, and returns what should not be in the log.
func succeeded(log []byte) (times map[string]int, bad []string) {
	times = map[string]int{}
	for line := range bytes.Lines(log) {
		var record struct{ Message, Severity, Handler string }
		if err := json.Unmarshal(line, &record); err != nil || record.Severity != "info" && record.Severity != "debug" || strings.Contains(string(line), "panic") {
			bad = append(bad, string(line))
		}
		if record.Message == "handler succeeded" {
			times[record.Handler]++
		}
	}
	return times, bad
}

var _ = Describe("the quickstart", func() {
	It("T173: handles its sample, each handler as often as it should, with the permissions that it prints and no others", func(ctx SpecContext) {
		e := newExample(ctx, "quickstart")
		log, stop := e.run(ctx, e.apply(ctx))
		sample, err := os.ReadFile("examples/quickstart/database.yaml")
		Expect(err).NotTo(HaveOccurred())
		kubectl := func(stdin string, args ...string) string {
			GinkgoHelper()
			out, err := e.kubectl(stdin, args...)
			Expect(err).NotTo(HaveOccurred())
			return out
		}
		status := func() string {
			out, _ := e.kubectl("", "get", "database", "blue", "-o", "jsonpath={.status.phase} {.status.replicas}")
			return out
		}
		kubectl(strings.ReplaceAll(string(sample), "namespace: default", "namespace: "+e.namespace), "apply", "-f", "-")
		Eventually(status).Should(Equal("Ready 1"), func() string { return string(log.Contents()) })
		kubectl("", "patch", "database", "blue", "--type=merge", "-p", `{"spec":{"replicas":3}}`)
		Eventually(status).Should(Equal("Ready 3"))
		kubectl("", "delete", "database", "blue", "--timeout=60s")
		stop()
		times, bad := succeeded(log.Contents())
		Expect(bad).To(BeEmpty())
		Expect(times).To(Equal(map[string]int{"provision": 1, "resize/spec.replicas": 2, "release": 1}), fmt.Sprint(times))
	})
})
