package kopf_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/internal/logging"
	"github.com/kopf-go/kopf/on"
)

// The suite runs operators against a real API server: make test starts one.

var k8s *cluster.Cluster

func TestMain(m *testing.M) {
	if os.Getenv(crashVar) != "" {
		runCrashingOperator()
		return
	}
	if kind := os.Getenv(programVar); kind != "" {
		runProgram(kind)
		return
	}
	os.Exit(m.Run())
}

func TestSuite(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	RunSpecs(t, "kopf on a real API server")
}

var _ = BeforeSuite(func() {
	ctrllog.SetLogger(logr.Discard())
	var err error
	k8s, err = cluster.Connect()
	Expect(err).NotTo(HaveOccurred())
})

// WidgetSpec and WidgetStatus are those of the suite's own resource.
type WidgetSpec struct {
	Value int64  `json:"value,omitempty"`
	Text  string `json:"text,omitempty"`
	Items []Item `json:"items,omitempty"`
}

type Item struct {
	Name string `json:"name"`
	Size int    `json:"size,omitempty"`
}

type WidgetStatus struct {
	Observed int64  `json:"observed,omitempty"`
	Phase    string `json:"phase,omitempty"`
}

type Widget = kopf.Resource[WidgetSpec, WidgetStatus]

// world is a resource and a namespace of its own for one spec.
type world struct {
	group     string
	namespace string
	client    client.Client
	widgets   on.AnyOption
	reg       *kopf.Registry
	in        on.AnyOption
}

func newWorld(ctx context.Context, name string, status bool) *world {
	GinkgoHelper()
	group, err := k8s.Install(ctx, name, status)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { Expect(k8s.Uninstall(ctx, group)).To(Succeed()) })
	return worldOf(ctx, name, group)
}

// worldOf is a namespace of its own for one spec, in a group that exists.
func worldOf(ctx context.Context, name, group string) *world {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"}}
	Expect(k8s.Client.Create(ctx, namespace)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(k8s.Client.Delete(ctx, namespace)).To(Succeed()) })

	scheme := runtime.NewScheme()
	gvk := schema.GroupVersionKind{Group: group, Version: "v1", Kind: cluster.Kind}
	scheme.AddKnownTypeWithName(gvk, &Widget{})
	scheme.AddKnownTypeWithName(gvk.GroupVersion().WithKind(cluster.Kind+"List"), &WidgetList{})
	metav1.AddToGroupVersion(scheme, gvk.GroupVersion())
	c, err := client.New(k8s.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	reg := kopf.NewRegistry()
	return &world{
		group: group, namespace: namespace.Name, client: c, reg: reg,
		widgets: on.Resource(group+"/v1", cluster.Plural), in: on.In(reg),
	}
}

// WidgetList is what the test's client lists.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Widget `json:"items"`
}

func (l *WidgetList) DeepCopyObject() runtime.Object {
	out := &WidgetList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return out
}

func (w *world) widget(name string, value int64) *Widget {
	return &Widget{
		TypeMeta:   metav1.TypeMeta{APIVersion: w.group + "/v1", Kind: cluster.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       WidgetSpec{Value: value},
	}
}

func (w *world) create(ctx context.Context, name string, value int64) *Widget {
	GinkgoHelper()
	widget := w.widget(name, value)
	Expect(w.client.Create(ctx, widget)).To(Succeed())
	return widget
}

func (w *world) get(ctx context.Context, name string) (*Widget, error) {
	widget := &Widget{}
	err := w.client.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, widget)
	return widget, err
}

// observed is the status that the usual handlers of the suite leave.
func (w *world) annotations(ctx context.Context, name string) (map[string]string, error) {
	object, err := w.get(ctx, name)
	if err != nil {
		return nil, err
	}
	return object.Annotations, nil
}

func (w *world) observed(ctx context.Context, name string) func() (int64, error) {
	return func() (int64, error) {
		widget, err := w.get(ctx, name)
		return widget.Status.Observed, err
	}
}

func (w *world) patch(ctx context.Context, name, merge string) {
	GinkgoHelper()
	Expect(w.client.Patch(ctx, w.widget(name, 0), client.RawPatch("application/merge-patch+json", []byte(merge)))).To(Succeed())
}

func (w *world) edit(ctx context.Context, name string, value int64) {
	GinkgoHelper()
	w.patch(ctx, name, fmt.Sprintf(`{"spec":{"value":%d}}`, value))
}

func (w *world) remove(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(w.client.Delete(ctx, w.widget(name, 0))).To(Succeed())
}

func (w *world) isGone(ctx context.Context, name string) func() bool {
	return func() bool {
		_, err := w.get(ctx, name)
		return client.IgnoreNotFound(err) == nil && err != nil
	}
}

// quiet expects no write to the resource for a time, from the moment on when what is
// under way has been counted.
func (w *world) quiet(ctx context.Context, during time.Duration) {
	GinkgoHelper()
	last := -1
	Eventually(func() (bool, error) {
		now, err := k8s.Requests(ctx, w.group)
		settled := cluster.Writes(now) == last
		last = cluster.Writes(now)
		return settled, err
	}, 10*time.Second, 300*time.Millisecond).Should(BeTrue(), "writes do not end")
	Consistently(func() (int, error) {
		now, err := k8s.Requests(ctx, w.group)
		return cluster.Writes(now) - last, err
	}, during, time.Second).Should(BeZero(), "writes in the steady state")
}

// operator is a running operator.
type operator struct {
	*kopf.Operator
	cancel context.CancelFunc
	stop   func() // and wait
}

// start runs an operator with the world's handlers until the spec ends. No
// goroutine may be left of it.
func (w *world) start(options ...func(*kopf.Options)) *operator {
	GinkgoHelper()
	before := goleak.IgnoreCurrent()
	log, err := logging.New(GinkgoWriter, logging.Options{Level: slog.LevelDebug})
	Expect(err).NotTo(HaveOccurred())
	o := kopf.Options{Registry: w.reg, Namespaces: []string{w.namespace}, Config: k8s.Config, Logger: log}
	for _, option := range options {
		option(&o)
	}
	op, err := kopf.New(o)
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- op.Run(ctx) }()
	running := &operator{Operator: op, cancel: cancel, stop: sync.OnceFunc(func() {
		cancel()
		var err error
		Eventually(done).Should(Receive(&err))
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error {
			return goleak.Find(before, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
				goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
				goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"),
				goleak.IgnoreAnyFunction("net/http.(*http2clientConnReadLoop).run"))
		}).Should(Succeed())
	})}
	DeferCleanup(running.stop)
	return running
}

// calls counts the calls of handlers, by a text of the test's choice.
type calls struct {
	mu    sync.Mutex
	count map[string]int
	order []string
}

func (c *calls) add(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == nil {
		c.count = map[string]int{}
	}
	text := fmt.Sprintf(format, args...)
	c.count[text]++
	c.order = append(c.order, text)
}

func (c *calls) of(text string) func() int {
	return func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.count[text]
	}
}

func (c *calls) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]int, len(c.count))
	for text, n := range c.count {
		out[text] = n
	}
	return out
}

// total is how many calls there were.
func (c *calls) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.order)
}

// forget has the count begin anew.
func (c *calls) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count, c.order = nil, nil
}

func (c *calls) inOrder() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.order...)
}

// listOptions continue a watch where it ended.
func listOptions(version string) *metav1.ListOptions {
	return &metav1.ListOptions{ResourceVersion: version}
}
