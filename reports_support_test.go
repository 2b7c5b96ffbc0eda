package kopf_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/internal/faulty"
	"github.com/kopf-go/kopf/internal/logging"
	"github.com/kopf-go/kopf/on"
)

// The specs in files reports_*_test.go are public bug reports of operator frameworks,
// as scenarios: each begins with the number that its comments elsewhere refer to.

const (
	lastHandled  = "kopf.zalando.org/last-handled-configuration"
	ourFinalizer = "kopf.zalando.org/KopfFinalizerMarker"
)

// The words for faults.
type (
	requests = faulty.On
	request  = faulty.Request
	fault    = faulty.Fault
)

var (
	widgetWatches = requests{Verb: "watch", Resource: cluster.Plural}
	widgetLists   = requests{Verb: "list", Resource: cluster.Plural}
	widgetPatches = requests{Verb: "patch", Resource: cluster.Plural}
)

// reportsGroup is the group that the worlds of reports share: the API server takes
// two seconds for the first object of each new resource.
var reportsGroup string

// reported is a world of its own for one spec but for the group, with a status
// endpoint. Requests are counted for the group.
func reported(ctx context.Context, name string) *world {
	GinkgoHelper()
	if reportsGroup == "" {
		var err error
		reportsGroup, err = k8s.Install(ctx, "reports", true)
		Expect(err).NotTo(HaveOccurred())
	}
	return worldOf(ctx, name, reportsGroup)
}

var _ = AfterSuite(func(ctx context.Context) {
	if reportsGroup != "" {
		Expect(k8s.Uninstall(ctx, reportsGroup)).To(Succeed())
	}
})

// newProxy starts a proxy for one spec.
func newProxy() *faulty.Proxy {
	GinkgoHelper()
	proxy, err := faulty.New(k8s.Config)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Close)
	return proxy
}

// through has the operator go through a proxy.
func through(proxy *faulty.Proxy) func(*kopf.Options) {
	return func(o *kopf.Options) { o.Config = proxy.Config() }
}

// journal is what an operator has logged.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _ = GinkgoWriter.Write(p)
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// errors are the lines of errors.
func (j *journal) errors() (lines []string) {
	for line := range strings.Lines(j.String()) {
		if strings.Contains(line, " ERROR ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// into has the operator log into the journal, from debug level on.
func (j *journal) into(o *kopf.Options) {
	log, err := logging.New(j, logging.Options{Level: slog.LevelDebug})
	Expect(err).NotTo(HaveOccurred())
	o.Logger = log
}

// noErrors expects that the operator logs no error until the spec ends.
func noErrors(o *kopf.Options) {
	j := &journal{}
	j.into(o)
	DeferCleanup(func() { Expect(j.errors()).To(BeEmpty(), "errors in the log") })
}

// handled returns the value with which an object was handled last; 0: never.
func (w *world) handled(ctx context.Context, name string) func() (int64, error) {
	return func() (int64, error) {
		widget, err := w.get(ctx, name)
		if err != nil || widget.Annotations[lastHandled] == "" {
			return 0, err
		}
		var essence struct{ Spec WidgetSpec }
		err = json.Unmarshal([]byte(widget.Annotations[lastHandled]), &essence)
		return essence.Spec.Value, err
	}
}

func (w *world) finalizers(ctx context.Context, name string) func() ([]string, error) {
	return func() ([]string, error) {
		widget, err := w.get(ctx, name)
		return widget.Finalizers, err
	}
}

// post creates an object from JSON, for what does not fit the Go type.
func (w *world) post(ctx context.Context, text string) {
	GinkgoHelper()
	Expect(k8s.Raw(ctx, "POST", w.group, w.namespace, "", []byte(text))).Error().NotTo(HaveOccurred())
}

// apiObject is the JSON of an object: its name, and the rest of its top level.
func (w *world) apiObject(name, rest string) string {
	return `{"apiVersion":"` + w.group + `/v1","kind":"` + cluster.Kind + `","metadata":{"name":"` + name + `"},` + rest + `}`
}

// writes are the requests so far that were to change an object of the world, by
// whomever.
func (w *world) writes(ctx context.Context) int {
	GinkgoHelper()
	counts, err := k8s.Requests(ctx, w.group)
	Expect(err).NotTo(HaveOccurred())
	return cluster.Writes(counts)
}

// newNamespace creates a namespace that is gone after the spec, contents or not, for
// there is no controller that would look after that.
func newNamespace(ctx context.Context, name string) *corev1.Namespace {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(k8s.Client.Create(ctx, namespace)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { removeNamespace(ctx, name) })
	return namespace
}

// removeNamespace plays the namespace controller, which does this last.
func removeNamespace(ctx context.Context, name string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if k8s.Client.Delete(ctx, namespace) != nil {
		return // it has been removed before
	}
	Eventually(func() error { return k8s.Client.SubResource("finalize").Update(ctx, namespace) }).Should(Succeed())
}

// note registers handlers that count, for reasons.
func (w *world) note(c *calls, reasons ...kopf.Reason) {
	fn := func(_ context.Context, change *kopf.Change[*Widget]) error {
		c.add("%s %s", change.Reason, change.Object.Name)
		return nil
	}
	for _, reason := range reasons {
		switch reason {
		case kopf.ReasonCreate:
			on.Create(fn, w.widgets, w.in, on.ID("note-create"))
		case kopf.ReasonUpdate:
			on.Update(func(ctx context.Context, change *kopf.Change[*Widget]) error {
				c.add("update %s %d -> %d", change.Object.Name, change.Old.Spec.Value, change.New.Spec.Value)
				return nil
			}, w.widgets, w.in, on.ID("note-update"))
		case kopf.ReasonDelete:
			on.Delete(fn, w.widgets, w.in, on.ID("note-delete"))
		case kopf.ReasonResume:
			on.Resume(func(_ context.Context, change *kopf.Change[*Widget]) error {
				c.add("resume %s", change.Object.Name)
				return nil
			}, w.widgets, w.in, on.ID("note-resume"))
		}
	}
}

// moments are when something happened.
type moments struct {
	mu   sync.Mutex
	when []time.Time
}

func (m *moments) add() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.when = append(m.when, time.Now())
	return len(m.when)
}

// gaps are the pauses in between.
func (m *moments) gaps() (gaps []time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := 1; i < len(m.when); i++ {
		gaps = append(gaps, m.when[i].Sub(m.when[i-1]))
	}
	return gaps
}
