package peering_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/discovery"

	"github.com/kopf-go/kopf/daemons"
	"github.com/kopf-go/kopf/internal/peering"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/internal/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a scenario in virtual time.
type world struct {
	*testing.T
	server  *simulated.Server
	objects *simulated.Collection // cluster-wide ones in kopf.dev; nil: not served
	begun   time.Time

	mu   sync.Mutex
	logs []string
	all  []*operator
}

func scenario(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: simulated.New()}
		time.Sleep(time.Hour)
		w.begun = time.Now()
		defer func() {
			for _, o := range w.all {
				o.stop()
			}
			if t.Failed() {
				w.mu.Lock()
				defer w.mu.Unlock()
				t.Logf("logs:\n%s", strings.Join(w.logs, "\n"))
			}
		}()
		test(w)
	})
}

// serve adds a kind of peering objects.
func (w *world) serve(group string, clusterWide bool, options ...func(*simulated.Kind)) *simulated.Collection {
	k := simulated.Kind{GroupVersion: group + "/v1", Kind: "KopfPeering", Plural: "kopfpeerings", Namespaced: true}
	if clusterWide {
		k = simulated.Kind{GroupVersion: group + "/v1", Kind: "ClusterKopfPeering", Plural: "clusterkopfpeerings"}
	}
	for _, option := range options {
		option(&k)
	}
	return w.server.Serve(k)
}

// with has a cluster-wide peering object with records.
func (w *world) with(records map[string]any) *world {
	w.Helper()
	w.objects = w.serve("kopf.dev", true)
	w.create(w.objects, "", "default", records)
	return w
}

func (w *world) create(in *simulated.Collection, namespace, name string, records map[string]any) {
	w.Helper()
	if _, err := in.Create(simulated.Object(namespace, name, map[string]any{"status": records})); err != nil {
		w.Fatal(err)
	}
}

// put writes or, with nil, removes a record, as another operator does.
func (w *world) put(identity string, value any) {
	w.Helper()
	w.putIn(w.objects, "", "default", identity, value)
}

func (w *world) putIn(in *simulated.Collection, namespace, name, identity string, value any) {
	w.Helper()
	_, err := in.Update(namespace, name, func(o *unstructuredObject) {
		status, _ := o.Object["status"].(map[string]any)
		if status == nil {
			status = map[string]any{}
		}
		if value == nil {
			delete(status, identity)
		} else {
			status[identity] = value
		}
		o.Object["status"] = status
	})
	if err != nil {
		w.Fatal(err)
	}
}

// record is what a Python operator writes now.
func record(priority, lifetime int, ago time.Duration) map[string]any {
	return map[string]any{
		"priority": priority, "lifetime": lifetime,
		"lastseen": time.Now().Add(-ago).UTC().Format("2006-01-02T15:04:05.000000+00:00"),
	}
}

// records are those in an object, by identity.
func (w *world) records() map[string]any { return w.recordsIn(w.objects, "", "default") }

func (w *world) recordsIn(in *simulated.Collection, namespace, name string) map[string]any {
	w.Helper()
	o := in.Get(namespace, name)
	if o == nil {
		w.Fatalf("there is no object %s/%s", namespace, name)
	}
	status, _ := o.Object["status"].(map[string]any)
	return status
}

// identities are those of all records, sorted.
func (w *world) identities(want ...string) {
	w.Helper()
	var got []string
	for identity := range w.records() {
		got = append(got, identity)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.Errorf("records of %q, want %q", got, want)
	}
}

func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// settle lets everything come to rest that needs no time.
func (w *world) settle() { w.sleep(10 * time.Millisecond) }

// operator is one that takes part.
type operator struct {
	w      *world
	name   string
	cancel context.CancelFunc
	done   chan error
	ended  bool

	mu     sync.Mutex
	states []string
}

func (w *world) options(name string) peering.Options {
	w.Helper()
	client, err := stream.NewClient(w.server.Config(), nil)
	if err != nil {
		w.Fatal(err)
	}
	discoverer, err := discovery.NewDiscoveryClientForConfig(w.server.Config())
	if err != nil {
		w.Fatal(err)
	}
	return peering.Options{Client: client, Discovery: discoverer, Identity: name, Log: slog.New(logbook{w: w, name: name})}
}

// start has an operator take part, and lets it settle.
func (w *world) start(name string, options ...func(*peering.Options)) *operator {
	w.Helper()
	op := w.launch(name, options...)
	w.settle()
	return op
}

func (w *world) launch(name string, options ...func(*peering.Options)) *operator {
	w.Helper()
	op := &operator{w: w, name: name, done: make(chan error, 1)}
	o := w.options(name)
	o.Pause = func(why error) {
		if !errors.Is(why, daemons.ErrPaused) {
			w.Errorf("%v is no pause", why)
		}
		op.note("pause: " + strings.TrimPrefix(why.Error(), daemons.ErrPaused.Error()+" "))
	}
	o.Continue = func() { op.note("continue") }
	for _, option := range options {
		option(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	op.cancel = cancel
	go func() { op.done <- peering.Run(ctx, o) }()
	w.all = append(w.all, op)
	return op
}

func (op *operator) note(state string) {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.ended {
		op.w.Errorf("%s: %s comes too late", op.name, state)
	}
	op.states = append(op.states, fmt.Sprintf("+%s %s", time.Since(op.w.begun).Truncate(100*time.Millisecond), state))
}

// expect compares what the operator was told since the last time, such as "+2s continue";
// of a reason the beginning.
func (op *operator) expect(want ...string) {
	op.w.Helper()
	op.mu.Lock()
	defer op.mu.Unlock()
	same := slices.EqualFunc(op.states, want, func(got, want string) bool { return strings.HasPrefix(got, want) })
	if !same {
		op.w.Errorf("%s was told\n     %s\nwant %s", op.name, strings.Join(op.states, "\n     "), strings.Join(want, "\n     "))
	}
	op.states = nil
}

// active tells what the operator was told last.
func (op *operator) active() bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	return len(op.states) > 0 && strings.HasSuffix(op.states[len(op.states)-1], " continue")
}

func (op *operator) stop() {
	op.w.Helper()
	op.mu.Lock()
	was := op.ended
	op.mu.Unlock()
	if was {
		return
	}
	op.cancel()
	if err := <-op.done; err != nil {
		op.w.Error(err)
	}
	op.mu.Lock()
	op.ended = true
	op.mu.Unlock()
	synctest.Wait()
}

// keepAlives are the operator's own records that were written, in order.
func (w *world) keepAlives(name string) (records []map[string]any, at []time.Time) {
	w.Helper()
	for _, r := range w.server.Requests(simulated.On{Verb: "patch"}) {
		var patch struct{ Status map[string]map[string]any }
		if err := json.Unmarshal(r.Body, &patch); err != nil {
			w.Fatal(err)
		}
		if own, is := patch.Status[name]; is && r.Code == http.StatusOK {
			records, at = append(records, own), append(at, r.At)
		}
	}
	return records, at
}

// said are the logs with a text, at a level or above.
func (w *world) said(level slog.Level, text string) (found []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.logs {
		var at slog.Level
		name, rest, _ := strings.Cut(line, " ")
		if err := at.UnmarshalText([]byte(name)); err != nil {
			w.Fatal(err)
		}
		if at >= level && strings.Contains(rest, text) {
			found = append(found, line)
		}
	}
	return found
}

// logbook keeps logs as lines.
type logbook struct {
	w     *world
	name  string
	attrs []slog.Attr
}

func (l logbook) Enabled(context.Context, slog.Level) bool { return true }

func (l logbook) Handle(_ context.Context, r slog.Record) error {
	text := fmt.Sprintf("%s %s +%s %s", r.Level, l.name, time.Since(l.w.begun), r.Message)
	add := func(a slog.Attr) bool {
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
	return nil
}

func (l logbook) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logbook{l.w, l.name, append(slices.Clone(l.attrs), attrs...)}
}

func (l logbook) WithGroup(string) slog.Handler { return l }
