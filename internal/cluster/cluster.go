// Package cluster is what tests need of a real API server: resources of their own,
// counts of what was requested, and ways to disturb it. It is for tests only.
package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// controlVar holds the socket of the devcluster command, which speaks HTTP on it.
const controlVar = "KOPF_DEVCLUSTER_CONTROL"

// Cluster is the control plane that the tests run under.
type Cluster struct {
	Config *rest.Config
	Client client.Client

	clientset *kubernetes.Clientset
	control   http.Client
}

// Connect finds the control plane. It never takes one that was not made for tests.
func Connect() (*Cluster, error) {
	socket := os.Getenv(controlVar)
	if socket == "" {
		return nil, errors.New("this test needs a control plane of its own: run it with make test, or under the devcluster command")
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Cluster{
		Config: config, Client: c, clientset: clientset,
		control: http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			},
		}},
	}, nil
}

// Disturb asks the devcluster command to restart, compact, pause or resume.
func (c *Cluster) Disturb(ctx context.Context, how string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://devcluster/"+how, nil)
	if err != nil {
		return err
	}
	response, err := c.control.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("%s: %s", how, text)
	}
	return nil
}

// Names of the resource that Install makes.
const (
	Plural = "widgets"
	Kind   = "Widget"
)

// Install makes a custom resource, widgets, in a group of its own, and returns the
// group. It has spec and status with whatever fields.
func (c *Cluster) Install(ctx context.Context, name string, status bool) (group string, err error) {
	group = NewGroup(name)
	return group, c.InstallIn(ctx, group, status)
}

// NewGroup returns the name of a group that does not exist.
func NewGroup(name string) string { return name + "-" + rand.String(5) + ".kopf.test" }

// InstallIn is Install for a group that was named before.
func (c *Cluster) InstallIn(ctx context.Context, group string, status bool) error {
	keep := true
	open := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}
	version := apiextensionsv1.CustomResourceDefinitionVersion{
		Name: "v1", Served: true, Storage: true,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": open, "status": open},
		}},
	}
	if status {
		version.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	}
	_, err := envtest.InstallCRDs(c.Config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{{
		ObjectMeta: metav1.ObjectMeta{Name: Plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: Plural, Singular: strings.ToLower(Kind), Kind: Kind, ListKind: Kind + "List", ShortNames: []string{"wd"},
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version},
		},
	}}})
	return err
}

// Uninstall removes what Install made.
func (c *Cluster) Uninstall(ctx context.Context, group string) error {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: Plural + "." + group}}
	return client.IgnoreNotFound(c.Client.Delete(ctx, crd))
}

// Requests counts the requests that the API server has answered so far for a group,
// by verb and, after a slash, subresource: PATCH, PATCH/status, LIST, WATCH, …
func (c *Cluster) Requests(ctx context.Context, group string) (map[string]int, error) {
	raw, err := c.clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	lines := bufio.NewScanner(strings.NewReader(string(raw)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `group="`+group+`"`) {
			continue
		}
		labels, value, ok := strings.Cut(strings.TrimPrefix(line, "apiserver_request_total"), "} ")
		if !ok {
			continue
		}
		count, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, err
		}
		verb := label(labels, "verb")
		if sub := label(labels, "subresource"); sub != "" {
			verb += "/" + sub
		}
		counts[verb] += int(count)
	}
	return counts, lines.Err()
}

// Writes are the requests among those counted that change something.
func Writes(counts map[string]int) (n int) {
	for verb, count := range counts {
		switch name, _, _ := strings.Cut(verb, "/"); name {
		case "PATCH", "PUT", "POST", "DELETE", "APPLY", "DELETECOLLECTION":
			n += count
		}
	}
	return n
}

func label(labels, name string) string {
	_, rest, ok := strings.Cut(labels, name+`="`)
	if !ok {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// Ready waits until the API server answers again.
func (c *Cluster) Ready(ctx context.Context) error {
	for {
		if _, err := c.clientset.Discovery().ServerVersion(); err == nil || apierrors.IsForbidden(err) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Raw makes a request for the resource that Install made, and returns the answer's
// bytes: to see what no Go type shows.
func (c *Cluster) Raw(ctx context.Context, verb, group, namespace, name string, content []byte) (string, error) {
	request := c.clientset.RESTClient().Verb(verb).AbsPath("/apis", group, "v1", "namespaces", namespace, Plural, name)
	if content != nil {
		request = request.SetHeader("Content-Type", "application/json").Body(content)
	}
	raw, err := request.DoRaw(ctx)
	return string(raw), err
}
