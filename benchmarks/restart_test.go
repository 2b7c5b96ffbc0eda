package benchmarks

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/internal/state"
)

const restartObjects = 10_000

// restartFixture is resources of two groups: one with many handled objects, one with
// none. All benchmarks of a process share it.
var restartFixture = sync.OnceValues(func() (groups [2]string, err error) {
	c, err := connect()
	if err != nil {
		return groups, err
	}
	ctx := context.Background()
	for i, name := range []string{"full", "empty"} {
		if groups[i], err = c.Install(ctx, name, true); err != nil {
			return groups, err
		}
	}
	api, err := newWriter(c, groups[0])
	if err != nil {
		return groups, err
	}
	err = parallel(32, restartObjects, func(n int) error {
		w := newWidget(groups[0], n)
		w.Finalizers = []string{finalizer}
		w.Annotations = map[string]string{lastHandled: essenceOf(&w.Spec, w.Labels)}
		raw, err := api.create(ctx, w)
		if n == 0 && err == nil {
			err = checkHandled(raw)
		}
		return err
	})
	return groups, err
})

// checkHandled makes sure that an object of the fixture is as an operator leaves it.
func checkHandled(raw []byte) error {
	b, err := body.Parse(raw)
	if err != nil {
		return err
	}
	store, err := state.NewStore(state.Config{Naming: state.Default()})
	if err != nil {
		return err
	}
	same, known, err := store.Handled(b)
	if err == nil && !(same && known) {
		err = fmt.Errorf("fixture is not handled: %s", raw)
	}
	return err
}

// BenchmarkRestart starts operators in front of 10,000 objects that were handled
// before, and measures what they need until they know all of them.
func BenchmarkRestart(b *testing.B) {
	c := controlPlane(b)
	groups, err := restartFixture()
	if err != nil {
		b.Fatal(err)
	}
	kinds := []string{"kopf", "typed", "unstructured"}
	runs := map[string][]restart{}
	for b.Loop() {
		for _, kind := range kinds {
			runs[kind] = append(runs[kind], measureRestart(b, c, kind, groups))
		}
	}
	medians := map[string]restart{}
	table := "\n\t\tCPU s\tpeak MB\theap B/object\twall s\twrites"
	for _, kind := range kinds {
		m := medianRestart(runs[kind])
		medians[kind] = m
		table += fmt.Sprintf("\n%-15s\t%.2f\t%.0f\t%.0f\t\t%.2f\t%.0f", kind, m.cpu, m.peak/1e6, m.heap, m.wall, m.writes)
	}
	b.Log(table)
	kopf := medians["kopf"]
	for _, kind := range kinds[1:] {
		peer := medians[kind]
		b.ReportMetric(kopf.cpu/peer.cpu, "cpu/"+kind)
		b.ReportMetric(kopf.peak/peer.peak, "rss/"+kind)
		b.ReportMetric(kopf.heap/peer.heap, "heap/"+kind)
	}
	b.ReportMetric(kopf.heap, "heap-B/object")
	b.ReportMetric(kopf.writes, "writes")
	b.ReportMetric(0, "ns/op")
}

type restart struct{ cpu, peak, heap, wall, writes float64 }

// measureRestart runs an operator without objects, to know what it needs anyway, and
// then with all of them.
func measureRestart(b *testing.B, c *cluster.Cluster, kind string, groups [2]string) restart {
	b.Helper()
	empty := start(b, kind, groups[1], 0)
	baseline := empty.ask(b, "heap")
	empty.stop(b)

	before := requests(b, c, groups[0])
	full := start(b, kind, groups[0], restartObjects)
	time.Sleep(time.Second) // in which a write would come
	after := full.ask(b, "heap")
	full.stop(b)
	writes := cluster.Writes(requests(b, c, groups[0])) - cluster.Writes(before)
	if writes > 0 || after.Handled > 0 {
		b.Errorf("%s: %d writes, %d calls of handlers, none expected", kind, writes, after.Handled)
	}
	return restart{
		cpu: full.ready.CPU.Seconds(), peak: float64(full.ready.Peak), wall: full.wall.Seconds(),
		heap: float64(after.Heap-baseline.Heap) / restartObjects, writes: float64(writes),
	}
}

func medianRestart(runs []restart) restart {
	of := func(field func(restart) float64) float64 { return median(runs, field) }
	return restart{
		cpu:    of(func(r restart) float64 { return r.cpu }),
		peak:   of(func(r restart) float64 { return r.peak }),
		heap:   of(func(r restart) float64 { return r.heap }),
		wall:   of(func(r restart) float64 { return r.wall }),
		writes: of(func(r restart) float64 { return r.writes }),
	}
}

// writer is whoever creates, edits and deletes widgets.
type writer struct {
	rest  rest.Interface
	group string
}

func newWriter(c *cluster.Cluster, group string) (*writer, error) {
	config := rest.CopyConfig(c.Config)
	config.QPS = -1
	config.UserAgent = "writer"
	client, err := rest.UnversionedRESTClientFor(withRaw(config))
	return &writer{client, group}, err
}

func (w *writer) path(name string) []string {
	path := []string{"/apis", w.group, "v1", "namespaces", namespace, cluster.Plural}
	if name != "" {
		path = append(path, name)
	}
	return path
}

func (w *writer) create(ctx context.Context, widget *Widget) ([]byte, error) {
	raw, err := json.Marshal(widget)
	if err != nil {
		return nil, err
	}
	return w.rest.Post().AbsPath(w.path("")...).SetHeader("Content-Type", "application/json").Body(raw).DoRaw(ctx)
}
