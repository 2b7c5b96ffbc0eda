package benchmarks

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/cluster"
)

const (
	lifecycleObjects = 500
	lifecycleWriters = 8
)

var phases = []string{"create", "update", "delete"}

// BenchmarkLifecycle has 500 objects created, then changed, then deleted by eight
// writers, as fast as they can, and measures what the operators need to handle it.
func BenchmarkLifecycle(b *testing.B) {
	c := controlPlane(b)
	kinds := []string{"kopf", "typed"}
	runs := map[string][]phase{} // by kind and name of the phase
	for round := 0; b.Loop(); round++ {
		for turn := range kinds {
			kind := kinds[(round+turn)%len(kinds)] // who comes first finds a colder API server
			for i, p := range measureLifecycle(b, c, kind) {
				key := kind + phases[i]
				runs[key] = append(runs[key], p)
			}
		}
	}
	table := "\n\t\tCPU ms/object\tp50 s\tp99 s\trequests/object"
	for _, name := range phases {
		kopf, peer := medianPhase(runs["kopf"+name]), medianPhase(runs["typed"+name])
		for i, m := range []phase{kopf, peer} {
			table += fmt.Sprintf("\n%-6s %-7s\t%.2f\t\t%.3f\t%.3f\t%s", name, kinds[i], 1e3*m.cpu, m.p50, m.p99, m.perObject())
		}
		b.ReportMetric(kopf.cpu/peer.cpu, name+"-cpu-ratio")
		b.ReportMetric(kopf.p50/peer.p50, name+"-p50-ratio")
		b.ReportMetric(kopf.p99/peer.p99, name+"-p99-ratio")
		b.ReportMetric(kopf.writes(), name+"-writes/object")
	}
	b.Log(table)
	b.ReportMetric(0, "ns/op")
}

// phase is what one kind of change needed, per object.
type phase struct {
	cpu, p50, p99 float64            // seconds
	requests      map[string]float64 // of the operator, by verb
}

func (p phase) writes() (n float64) {
	for _, count := range p.requests {
		n += count
	}
	return n
}

func (p phase) perObject() string {
	var texts []string
	for _, verb := range slices.Sorted(maps.Keys(p.requests)) {
		texts = append(texts, fmt.Sprintf("%.2f %s", p.requests[verb], verb))
	}
	return strings.Join(texts, " + ")
}

// measureLifecycle runs an operator through all phases.
func measureLifecycle(b *testing.B, c *cluster.Cluster, kind string) []phase {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	group, err := c.Install(ctx, "life", true)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Uninstall(context.Background(), group) }()
	api, err := newWriter(c, group)
	if err != nil {
		b.Fatal(err)
	}
	watcher, err := watchHandled(ctx, c, group)
	if err != nil {
		b.Fatal(err)
	}
	operator := start(b, kind, group, 0)
	defer operator.stop(b)

	// A writer's verbs, as the API server counts them, must not count as the operator's.
	verbs := []string{"POST", "PATCH", "DELETE"}
	changes := []func(n int) error{
		func(n int) error { _, err := api.create(ctx, newWidget(group, n)); return err },
		func(n int) error { return api.edit(ctx, widgetName(n), valueOf("update", n)) },
		func(n int) error { return api.remove(ctx, widgetName(n)) },
	}
	var results []phase
	for i, name := range phases {
		counts, spent := requests(b, c, group), operator.ask(b, "usage").CPU
		begin := make([]time.Time, lifecycleObjects)
		err := parallel(lifecycleWriters, lifecycleObjects, func(n int) error {
			begin[n] = time.Now()
			return changes[i](n)
		})
		if err != nil {
			b.Fatal(err)
		}
		took := make([]time.Duration, lifecycleObjects)
		for n := range took {
			took[n] = watcher.wait(widgetName(n), valueOf(name, n)).Sub(begin[n])
		}
		time.Sleep(time.Second) // what comes after the status, and belongs to it
		p := phase{cpu: (operator.ask(b, "usage").CPU - spent).Seconds() / lifecycleObjects, requests: map[string]float64{}}
		slices.Sort(took)
		p.p50, p.p99 = took[len(took)/2].Seconds(), took[len(took)*99/100].Seconds()
		for verb, count := range requests(b, c, group) {
			if count -= counts[verb]; verb == verbs[i] {
				count -= lifecycleObjects
			}
			if cluster.Writes(map[string]int{verb: count}) > 0 || count > 0 && verb == "GET" {
				p.requests[verb] = float64(count) / lifecycleObjects
			}
		}
		results = append(results, p)
	}
	if calls := operator.ask(b, "usage").Handled; calls != int64(len(phases)*lifecycleObjects) {
		b.Errorf("%s: %d calls of handlers instead of %d", kind, calls, len(phases)*lifecycleObjects)
	}
	return results
}

// valueOf is what status.observed says when the phase is over; deleted: it is gone.
func valueOf(phase string, n int) int64 {
	switch phase {
	case "create":
		return newWidget("", n).Spec.Value
	case "update":
		return int64(1_000_000 + n)
	}
	return deleted
}

const deleted = -1

func medianPhase(runs []phase) phase {
	out := phase{
		cpu:      median(runs, func(p phase) float64 { return p.cpu }),
		p50:      median(runs, func(p phase) float64 { return p.p50 }),
		p99:      median(runs, func(p phase) float64 { return p.p99 }),
		requests: map[string]float64{},
	}
	for _, run := range runs {
		for verb := range run.requests {
			out.requests[verb] = median(runs, func(p phase) float64 { return p.requests[verb] })
		}
	}
	return out
}

func (w *writer) edit(ctx context.Context, name string, value int64) error {
	patch := fmt.Appendf(nil, `{"spec":{"value":%d}}`, value)
	return w.rest.Patch(types.MergePatchType).AbsPath(w.path(name)...).Body(patch).Do(ctx).Error()
}

func (w *writer) remove(ctx context.Context, name string) error {
	return w.rest.Delete().AbsPath(w.path(name)...).Do(ctx).Error()
}

// handledWatch knows when which value was first seen in the status of each object.
type handledWatch struct {
	api *writer

	mu      sync.Mutex
	news    *sync.Cond
	seen    map[string]map[int64]time.Time
	version string
}

func watchHandled(ctx context.Context, c *cluster.Cluster, group string) (*handledWatch, error) {
	api, err := newWriter(c, group)
	w := &handledWatch{api: api, seen: map[string]map[int64]time.Time{}}
	w.news = sync.NewCond(&w.mu)
	go func() {
		for ctx.Err() == nil { // the API server ends watches of a new resource once or twice
			w.follow(ctx)
		}
	}()
	return w, err
}

// follow watches until the connection ends, from where the last one did.
func (w *handledWatch) follow(ctx context.Context) {
	request := w.api.rest.Get().AbsPath(w.api.path("")...).Param("watch", "true")
	if w.version != "" {
		request = request.Param("resourceVersion", w.version)
	}
	stream, err := request.Stream(ctx)
	if err != nil {
		time.Sleep(10 * time.Millisecond)
		return
	}
	defer func() { _ = stream.Close() }()
	for decoder := json.NewDecoder(stream); ; {
		var event struct {
			Type   string
			Object struct {
				Metadata struct{ Name, ResourceVersion string }
				Status   WidgetStatus
			}
		}
		if err := decoder.Decode(&event); err != nil || event.Type == "ERROR" {
			return
		}
		w.version = event.Object.Metadata.ResourceVersion
		value := event.Object.Status.Observed
		if event.Type == "DELETED" {
			value = deleted
		}
		w.note(event.Object.Metadata.Name, value)
	}
}

func (w *handledWatch) note(name string, value int64) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[name] == nil {
		w.seen[name] = map[int64]time.Time{}
	}
	if w.seen[name][value].IsZero() {
		w.seen[name][value] = now
	}
	w.news.Broadcast()
}

func (w *handledWatch) wait(name string, value int64) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.seen[name][value].IsZero() {
		w.news.Wait()
	}
	return w.seen[name][value]
}
