package metrics

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var description = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "([^"]*)", (?:unit: "[^"]*", )?constLabels: \{\}, variableLabels: \{([^}]*)\}`)

// docs/metrics.md lists what there is, and nothing else.
func TestMetricsAreDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "| `kopf_") {
			documented = append(documented, strings.TrimSpace(line))
		}
	}
	var want []string
	for _, c := range All {
		kind := "gauge"
		switch c.(type) {
		case *prometheus.CounterVec:
			kind = "counter"
		case *prometheus.HistogramVec:
			kind = "histogram"
		}
		descs := make(chan *prometheus.Desc, 20)
		c.Describe(descs)
		close(descs)
		for desc := range descs {
			parts := description.FindStringSubmatch(desc.String())
			if parts == nil {
				t.Fatal(desc)
			}
			labels := strings.ReplaceAll(parts[3], ",", ", ")
			for label := range strings.SplitSeq(labels, ", ") {
				if label != "" && label != "kind" && label != "handler" && label != "outcome" {
					t.Errorf("%s has the label %s", parts[1], label)
				}
			}
			want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s |", parts[1], kind, labels, parts[2]))
		}
	}
	if got, want := strings.Join(documented, "\n"), strings.Join(want, "\n"); got != want {
		t.Errorf("docs/metrics.md has\n%s\nand should have\n%s", got, want)
	}
}

// series counts those of a kind.
func series(t *testing.T, kind string) (n int) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "kind" && l.GetValue() == kind {
					n++
				}
			}
		}
	}
	return n
}

// values are those of gauges and counters, as they are served.
func values(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			all[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return all
}

// A kind that goes takes its series along, and what still comes of it is not counted; of two
// that count for one kind, the last one does.
func TestSeriesGoWithTheirKind(t *testing.T) {
	const kind = "gone.example"
	use := func(k *Kind) {
		k.Attempt("h", "succeeded", true)
		k.Complain("Looping")
		k.Abandon("h")
		k.Write(true, "written")
		k.Write(false, "conflict")
		k.Converge(time.Second)
		k.Review("h", time.Second)
	}
	a, b := Follow(kind), Follow(kind)
	h := a.Handler("h", true)
	begun := h.Begin()
	use(a)
	use(b)
	if n := series(t, kind); n != len(byKind) {
		t.Errorf("%d series, want one of each of %d", n, len(byKind))
	}
	if got := values(t)[`kopf_handler_attempts_total handler=h kind=gone.example outcome=succeeded`]; got != 2 {
		t.Error(got)
	}
	a.Release()
	a.Release()
	use(a)
	if n := series(t, kind); n != len(byKind) {
		t.Errorf("%d series, though one still counts", n)
	}
	b.Release()
	use(b)
	h.End(begun)
	if n := series(t, kind); n != 0 {
		t.Errorf("%d series are left", n)
	}
	if counts := b.Counts(); counts["h"]["succeeded"] != 1 {
		t.Error(counts)
	}
}

// Several operators of a process are added up; of the ages of their streams the oldest counts.
func TestOperatorsAreAddedUp(t *testing.T) {
	one := Watch(func() State {
		return State{Queued: 2, Kinds: map[string]KindState{"a": {Objects: 3, Streams: 1, StreamAge: time.Minute, Waiting: map[string]int{"h": 1}}}}
	})
	two := Watch(func() State {
		return State{Queued: 1, Kinds: map[string]KindState{"a": {Objects: 4, Stuck: 1, Streams: 1, StreamAge: time.Second, Waiting: map[string]int{"h": 2}}, "b": {Objects: 1}}}
	})
	all := values(t)
	for name, want := range map[string]float64{
		"kopf_deletions_stuck kind=a": 1, "kopf_deletions_stuck kind=b": 0, "kopf_handlers_waiting handler=h kind=a": 3,
		"kopf_objects kind=a": 7, "kopf_objects kind=b": 1, "kopf_queue_waiting": 3, "kopf_stream_age_seconds kind=a": 60,
	} {
		if got, is := all[name]; !is || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if _, is := all["kopf_stream_age_seconds kind=b"]; is {
		t.Error("a kind without a stream has an age")
	}
	one()
	two()
	for name := range values(t) {
		if strings.HasPrefix(name, "kopf_objects") {
			t.Error(name, "is left")
		}
	}
}

func TestCountingIsSafe(t *testing.T) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				k := Follow("safe.example")
				h := k.Handler("h", false)
				begun := h.Begin()
				k.Attempt("h", "failed", false)
				h.End(begun)
				k.Release()
			}
		})
	}
	all.Wait()
	if n := series(t, "safe.example"); n != 0 {
		t.Errorf("%d series are left", n)
	}
	for _, kind := range Followed() {
		if kind == "safe.example" {
			t.Error("it is still followed")
		}
	}
}

func BenchmarkAttempt(b *testing.B) {
	k := Follow("bench.example")
	defer k.Release()
	b.ReportAllocs()
	for b.Loop() {
		k.Attempt("h", "succeeded", false)
	}
}

func BenchmarkCall(b *testing.B) {
	k := Follow("bench.example")
	defer k.Release()
	h := k.Handler("h", false)
	b.ReportAllocs()
	for b.Loop() {
		h.End(h.Begin())
	}
}
