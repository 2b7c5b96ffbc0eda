package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/logging"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/on"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	widget     = kopf.Resource[widgetSpec, widgetStatus]
	widgetSpec struct {
		Size  int    `json:"size,omitempty"`
		Rev   int    `json:"rev,omitempty"`
		Color string `json:"color,omitempty"`
		Blob  string `json:"blob,omitempty"`
	}
	widgetStatus struct {
		Phase string `json:"phase,omitempty"`
	}
	change    = kopf.Change[*widget]
	changeFn  = func(context.Context, *change) error
	widgetObj = *unstructured.Unstructured
)

const (
	ns              = "default"
	finalizer       = "kopf.zalando.org/KopfFinalizerMarker"
	lastHandledName = "kopf.zalando.org/last-handled-configuration"
)

// world is a scenario in virtual time: a server, what handlers were called, and what
// operators have said.
type world struct {
	*testing.T
	server   *simulated.Server
	widgets  *simulated.Collection
	settings kopf.Settings
	spaces   []string // the operators' namespaces; none: all
	selector string   // of their namespaces; none: all

	mu        sync.Mutex
	begun     time.Time
	calls     []string
	errors    []string // logged at level error
	logs      []string
	allowed   []string
	operators []*operator
}

// scenario runs a test in a bubble. Whatever is still running at the end is stopped;
// goroutines that are left then fail the test, and so do error logs that nobody
// allowed.
func scenario(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := simulated.New()
		w := &world{T: t, server: server, widgets: server.Serve(simulated.Kind{
			GroupVersion: "demo.example/v1", Kind: "Widget", Plural: "widgets", Namespaced: true, Status: true,
		})}
		time.Sleep(time.Hour) // zero durations and times would hide mistakes
		w.mark()
		defer w.end()
		test(w)
	})
}

func (w *world) end() {
	for _, o := range w.operators {
		o.cancel()
		err := <-o.done
		o.done <- err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.errors {
		if !slices.ContainsFunc(w.allowed, func(text string) bool { return strings.Contains(e, text) }) {
			w.Errorf("error log: %s", e)
		}
	}
	if w.Failed() {
		w.Logf("calls: %s", strings.Join(w.calls, "\n       "))
		logs := w.logs[max(0, len(w.logs)-60000):]
		w.Logf("logs:\n%s", strings.Join(logs, "\n"))
	}
}

// allow expects error logs that contain one of the texts.
func (w *world) allow(texts ...string) { w.allowed = append(w.allowed, texts...) }

// mark begins the lists of calls and requests, and the time, anew.
func (w *world) mark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun, w.calls = time.Now(), nil
	w.server.Forget()
}

// sleep lets time pass, and everything settle.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// settle lets everything come to rest that needs no time. Ten milliseconds pass.
func (w *world) settle() { w.sleep(10 * time.Millisecond) }

func (w *world) note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, text)
}

func (w *world) called() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

func (w *world) since() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.begun).Round(time.Millisecond)
}

// expect compares the calls since the mark, such as "update w1 #0 1→2 +5s".
func (w *world) expect(calls ...string) {
	w.Helper()
	if got := w.called(); !slices.Equal(got, calls) {
		w.Errorf("calls:\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(calls, "\n     "))
	}
}

// expectAnyTime is expect without the times.
func (w *world) expectAnyTime(calls ...string) {
	w.Helper()
	got := w.called()
	for i, call := range got {
		got[i], _, _ = strings.Cut(call, " +")
	}
	if !slices.Equal(got, calls) {
		w.Errorf("calls:\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(calls, "\n     "))
	}
}

// expectSet is expectAnyTime in any order: lanes and objects do not wait for each other.
func (w *world) expectSet(calls ...string) {
	w.Helper()
	got := w.called()
	for i, call := range got {
		got[i], _, _ = strings.Cut(call, " +")
	}
	slices.Sort(got)
	slices.Sort(calls)
	if !slices.Equal(got, calls) {
		w.Errorf("calls:\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(calls, "\n     "))
	}
}

// writes compares the write requests since the mark, such as "patch widgets" and
// "patch widgets/status 409".
func (w *world) writes(want ...string) {
	w.Helper()
	var got []string
	for _, r := range w.server.Writes() {
		text := r.Verb + " " + r.Resource
		if r.Code != http.StatusOK {
			text += fmt.Sprintf(" %d", r.Code)
		}
		got = append(got, text)
	}
	if !slices.Equal(got, want) {
		bodies := ""
		for _, r := range w.server.Writes() {
			bodies += "\n     " + string(r.Body)
		}
		w.Errorf("writes:\n got %q\nwant %q%s", got, want, bodies)
	}
}

// quiet expects that nothing is written while time passes.
func (w *world) quiet(d time.Duration) {
	w.Helper()
	before := len(w.server.Writes())
	w.sleep(d)
	if writes := w.server.Writes(); len(writes) != before {
		w.Errorf("%d writes in %s of quiet time: %s", len(writes)-before, d, writes[before].Body)
	}
}

// create makes a widget of a size.
func (w *world) create(name string, size int, more ...func(widgetObj)) widgetObj {
	w.Helper()
	o := simulated.Object(ns, name, map[string]any{"spec": map[string]any{"size": int64(size)}})
	for _, m := range more {
		m(o)
	}
	o, err := w.widgets.Create(o)
	if err != nil {
		w.Fatal(err)
	}
	return o
}

func (w *world) update(name string, edit func(widgetObj)) widgetObj {
	w.Helper()
	o, err := w.widgets.Update(ns, name, edit)
	if err != nil {
		w.Fatal(err)
	}
	return o
}

func (w *world) resize(name string, size int) widgetObj {
	w.Helper()
	return w.update(name, func(o widgetObj) { set(o, int64(size), "spec", "size") })
}

func (w *world) touchStatus(name, phase string) {
	w.Helper()
	if _, err := w.widgets.UpdateStatus(ns, name, func(o widgetObj) { set(o, phase, "status", "phase") }); err != nil {
		w.Fatal(err)
	}
}

func (w *world) delete(name string) {
	w.Helper()
	if err := w.widgets.Delete(ns, name); err != nil {
		w.Fatal(err)
	}
}

func (w *world) get(name string) widgetObj {
	w.Helper()
	o := w.widgets.Get(ns, name)
	if o == nil {
		w.Fatalf("%s is not there", name)
	}
	return o
}

func (w *world) gone(name string) {
	w.Helper()
	if o := w.widgets.Get(ns, name); o != nil {
		w.Errorf("%s is still there: %v", name, o.Object)
	}
}

// handledSize is the size in the last-handled record; -1: there is none.
func (w *world) handledSize(name string) int {
	w.Helper()
	text := w.get(name).GetAnnotations()[lastHandledName]
	if text == "" {
		return -1
	}
	var record struct{ Spec widgetSpec }
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		w.Fatal(err)
	}
	return record.Spec.Size
}

// record reads a handler's progress; nil: there is none.
func (w *world) record(name, id string) *state.Record {
	w.Helper()
	text := w.get(name).GetAnnotations()["kopf.zalando.org/"+id]
	if text == "" {
		return nil
	}
	r, err := state.DecodeRecord(text)
	if err != nil {
		w.Fatal(err)
	}
	return &r
}

// noProgress expects that no records are on the object.
func (w *world) noProgress(name string) {
	w.Helper()
	for key := range w.get(name).GetAnnotations() {
		if strings.HasPrefix(key, "kopf.zalando.org/") && !strings.HasPrefix(key, "kopf.zalando.org/last-handled") {
			w.Errorf("%s has a leftover: %s", name, key)
		}
	}
}

func (w *world) finalizers(name string, want ...string) {
	w.Helper()
	if got := w.get(name).GetFinalizers(); !slices.Equal(got, want) {
		w.Errorf("finalizers of %s: %q, want %q", name, got, want)
	}
}

func set(o widgetObj, value any, path ...string) {
	if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
		panic(err)
	}
}

func label(key, value string) func(widgetObj) {
	return func(o widgetObj) { o.SetLabels(map[string]string{key: value}) }
}

func annotation(key, value string) func(widgetObj) {
	return func(o widgetObj) {
		all := o.GetAnnotations()
		if all == nil {
			all = map[string]string{}
		}
		all[key] = value
		o.SetAnnotations(all)
	}
}

func finalizedBy(names ...string) func(widgetObj) {
	return func(o widgetObj) { o.SetFinalizers(names) }
}

// handlers registers handlers that note their calls.
type handlers struct {
	w *world
	r *kopf.Registry
}

var forWidgets = on.Resource("demo.example/v1", "widgets")

func (h handlers) change(id string, fn changeFn) changeFn {
	return func(ctx context.Context, c *change) error {
		sizes := fmt.Sprintf("→%d", c.New.Spec.Size)
		if c.Old != nil {
			sizes = fmt.Sprint(c.Old.Spec.Size) + sizes
		}
		h.w.note(fmt.Sprintf("%s %s #%d %s +%s", id, c.Object.Name, c.Retry, sizes, h.w.since()))
		if fn == nil {
			return nil
		}
		return fn(ctx, c)
	}
}

func (h handlers) create(id string, fn changeFn, opts ...on.CreateOption) {
	on.Create(h.change(id, fn), append(opts, on.ID(id), on.In(h.r), forWidgets)...)
}

func (h handlers) update(id string, fn changeFn, opts ...on.UpdateOption) {
	on.Update(h.change(id, fn), append(opts, on.ID(id), on.In(h.r), forWidgets)...)
}

func (h handlers) delete(id string, fn changeFn, opts ...on.DeleteOption) {
	on.Delete(h.change(id, fn), append(opts, on.ID(id), on.In(h.r), forWidgets)...)
}

func (h handlers) resume(id string, fn changeFn, opts ...on.ResumeOption) {
	on.Resume(h.change(id, fn), append(opts, on.ID(id), on.In(h.r), forWidgets)...)
}

// events notes every event, such as "event w1 MODIFIED 2".
func (h handlers) events() {
	on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
		h.w.note(fmt.Sprintf("event %s %s %d +%s", e.Object.Name, e.Type, e.Object.Spec.Size, h.w.since()))
		return nil
	}, on.ID("event"), on.In(h.r), forWidgets)
}

// all are one handler of each kind.
func (h handlers) all() {
	h.create("create", nil)
	h.update("update", nil)
	h.delete("delete", nil)
	h.resume("resume", nil)
}

// operator is one process.
type operator struct {
	w      *world
	cancel context.CancelFunc
	done   chan error
	link   *link
}

// start runs an operator and lets it settle.
func (w *world) start(register func(handlers)) *operator {
	w.Helper()
	o := w.launch(register)
	w.settle()
	return o
}

// startAs is start for an operator with a name.
func (w *world) startAs(name string, register func(handlers)) *operator {
	w.Helper()
	o := w.launchAs(name, register)
	w.settle()
	return o
}

// launch is start without settling.
func (w *world) launch(register func(handlers)) *operator {
	w.Helper()
	return w.launchAs("", register)
}

func (w *world) launchAs(name string, register func(handlers)) *operator {
	w.Helper()
	r := kopf.NewRegistry()
	register(handlers{w, r})
	o := &operator{w: w, done: make(chan error, 1), link: &link{to: w.server}}
	o.link.dead, o.link.die = context.WithCancel(context.Background())
	op, err := kopf.New(kopf.Options{
		Name: name, Registry: r, Settings: w.settings, Namespaces: w.spaces, NamespaceSelector: w.selector, Logger: slog.New(logbook{w: w, of: o}),
		Config: &rest.Config{Host: "http://simulated.invalid", Transport: o.link},
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	go func() { o.done <- op.Run(ctx) }()
	w.operators = append(w.operators, o)
	return o
}

// stop ends the operator in an orderly way.
func (o *operator) stop() error {
	o.cancel()
	err := <-o.done
	o.done <- err
	synctest.Wait()
	return err
}

// kill is the end of a process as far as the cluster can see: nothing that it does
// from now on comes through. Its handlers' contexts end.
func (o *operator) kill() {
	o.link.die()
	o.cancel()
	synctest.Wait()
}

// link is an operator's own connection, which can be cut, also for good.
type link struct {
	to   http.RoundTripper
	dead context.Context
	die  context.CancelFunc

	mu    sync.Mutex
	whole context.Context // ends when it is cut; nil: it never was
	part  context.CancelFunc
}

// cut has everything lost that is under way, and all that comes until it is mended.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.part == nil {
		l.whole, l.part = context.WithCancel(context.Background())
	}
	l.part()
}

func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole, l.part = context.WithCancel(context.Background())
}

func (l *link) present() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.part == nil {
		l.whole, l.part = context.WithCancel(context.Background())
	}
	return l.whole
}

func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	whole := l.present()
	if l.dead.Err() != nil || whole.Err() != nil {
		return nil, syscall.ECONNREFUSED
	}
	ctx, cancel := context.WithCancel(r.Context())
	stopDead := context.AfterFunc(l.dead, cancel)
	stopCut := context.AfterFunc(whole, cancel)
	stop := func() { stopDead(); stopCut() }
	response, err := l.to.RoundTrip(r.WithContext(ctx))
	if err == nil && (l.dead.Err() != nil || whole.Err() != nil) {
		_ = response.Body.Close()
		err = syscall.ECONNRESET
	}
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	response.Body = &linked{response.Body, func() { stop(); cancel() }}
	return response, nil
}

type linked struct {
	io.ReadCloser
	release func()
}

func (l *linked) Close() error {
	l.release()
	return l.ReadCloser.Close()
}

// logbook keeps what operators log.
type logbook struct {
	w     *world
	of    *operator
	attrs []slog.Attr
}

func (l logbook) Enabled(context.Context, slog.Level) bool { return true }

func (l logbook) Handle(_ context.Context, r slog.Record) error {
	text := fmt.Sprintf("%s %s %s", r.Time.Format("15:04:05.000"), r.Level, r.Message)
	add := func(a slog.Attr) bool {
		if about, is := a.Value.Any().(logging.Reference); a.Key == logging.ObjectKey && (!is || about.APIVersion == "" || about.Kind == "" || about.Name == "" || about.UID == "") {
			l.w.Errorf("does not say which object is meant (LOG-1): %s %#v", r.Message, a.Value.Any())
		}
		text += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	}
	for _, a := range l.attrs {
		add(a)
	}
	r.Attrs(add)
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.w.logs = append(l.w.logs, text)
	if r.Level >= slog.LevelError && l.of.link.dead.Err() == nil {
		l.w.errors = append(l.w.errors, text)
	}
	return nil
}

func (l logbook) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logbook{l.w, l.of, append(slices.Clone(l.attrs), attrs...)}
}

func (l logbook) WithGroup(string) slog.Handler { return l }

// errorLogs are the error logs that contain a text.
func (w *world) errorLogs(text string) (found []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.errors {
		if strings.Contains(e, text) {
			found = append(found, e)
		}
	}
	return found
}

var errFlop = errors.New("flop")

// failing returns a handler that returns the errors in turn, then nil.
func failing(errs ...error) changeFn {
	var mu sync.Mutex
	return func(context.Context, *change) error {
		mu.Lock()
		defer mu.Unlock()
		if len(errs) == 0 {
			return nil
		}
		err := errs[0]
		errs = errs[1:]
		return err
	}
}
