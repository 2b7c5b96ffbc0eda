package decisions

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func object(i int) Object {
	return Object{Kind: "widgets.demo.example", Namespace: "default", Name: fmt.Sprint("w", i), UID: types.UID(fmt.Sprint("u", i))}
}

func decision(i int) Decision {
	return Decision{Time: time.Unix(int64(i), 0), Reason: "update", Version: fmt.Sprint(i), Handlers: []Verdict{{Handler: fmt.Sprint("h", i), Outcome: "succeeded"}}}
}

// The last decisions of each object are kept, and of the objects the last that there were
// decisions for.
func TestRingKeepsTheLast(t *testing.T) {
	r := NewRing()
	for i := range Objects + 10 {
		r.Record(object(i), decision(0))
	}
	for i := range PerObject + 5 {
		r.Record(object(20), decision(i))
	}
	all := r.Histories(Objects+100, func(Object) bool { return true })
	if len(all) != Objects || all[0].Name != "w20" || all[1].Name != fmt.Sprint("w", Objects+9) {
		t.Fatal(len(all), all[0].Object, all[1].Object)
	}
	kept := r.Of("u20")
	if len(kept) != PerObject || kept[0].Version != fmt.Sprint(PerObject+4) || kept[PerObject-1].Version != "5" {
		t.Error(len(kept), kept[0].Version, kept[len(kept)-1].Version)
	}
	if r.Of("u5") != nil {
		t.Error("the oldest object is still there")
	}
	if some := r.Histories(3, func(o Object) bool { return strings.HasSuffix(o.Name, "7") }); len(some) != 3 || some[0].Name != "w1007" {
		t.Error(some)
	}
}

// The same again is counted, and not kept once more; whatever else happens is.
func TestRingCountsRepetitions(t *testing.T) {
	r := NewRing()
	tick := Decision{Reason: "timer", Handlers: []Verdict{{Handler: "t", Outcome: "failed", Error: "no"}}}
	for i := range 5 {
		tick.Time, tick.Handlers[0].Attempt = time.Unix(int64(i), 0), i
		r.Record(object(1), Decision{Time: tick.Time, Reason: tick.Reason, Handlers: []Verdict{tick.Handlers[0]}})
	}
	if kept := r.Of("u1"); len(kept) != 1 || kept[0].Repeated != 4 || kept[0].Time != tick.Time || kept[0].Handlers[0].Attempt != 4 {
		t.Errorf("%+v", kept)
	}
	r.Record(object(1), Decision{Reason: "timer", Handlers: []Verdict{{Handler: "t", Outcome: "failed", Error: "another"}}})
	r.Record(object(1), Decision{Reason: "update", Writes: []Write{{Endpoint: "object", Outcome: "written"}}})
	r.Record(object(1), Decision{Reason: "update", Writes: []Write{{Endpoint: "object", Outcome: "written"}}})
	if kept := r.Of("u1"); len(kept) != 4 {
		t.Errorf("%+v", kept)
	}
}

// One decision cannot be larger than its limits, and texts stay valid UTF-8 in one line.
func TestDecisionIsBounded(t *testing.T) {
	long := strings.Repeat("ü", 1000) + "\nand more"
	d := Decision{Reason: "update", Error: long}
	for range 100 {
		d.Handlers = append(d.Handlers, Verdict{Handler: long, Because: long, Error: long})
		d.Changed, d.Notes = append(d.Changed, long), append(d.Notes, long)
		d.Writes = append(d.Writes, Write{Endpoint: "object"})
	}
	r := NewRing()
	r.Record(object(1), d)
	kept := r.Of("u1")[0]
	if len(kept.Handlers) != maxHandlers || len(kept.Changed) != maxPaths || len(kept.Writes) != maxWrites || len(kept.Notes) != maxNotes {
		t.Error(len(kept.Handlers), len(kept.Changed), len(kept.Writes), len(kept.Notes))
	}
	if want := 400 - maxHandlers - maxPaths - maxWrites - maxNotes; kept.Left != want {
		t.Errorf("%d left out, want %d", kept.Left, want)
	}
	for _, text := range []string{kept.Error, kept.Handlers[0].Error, kept.Changed[0], kept.Notes[0]} {
		if len(text) > maxText || !utf8.ValidString(text) || strings.Contains(text, "\n") || !strings.HasSuffix(text, "…") {
			t.Errorf("%d bytes: %q", len(text), text)
		}
	}
}

// However many objects there are, and however much is decided, the memory is bounded, and
// what the ring believes that it takes is not much less than what it does.
func TestRingMemoryIsBounded(t *testing.T) {
	r := NewRing()
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	for i := range 12_000 {
		d := Decision{Time: time.Now(), Reason: "update", Version: fmt.Sprint(i), Error: strings.Repeat("e", rand.IntN(300))}
		for h := range rand.IntN(40) {
			d.Handlers = append(d.Handlers, Verdict{Handler: fmt.Sprint("handler", h), Error: strings.Repeat("x", rand.IntN(300))})
		}
		r.Record(object(rand.IntN(5000)), d)
		if r.Bytes() > Bytes {
			t.Fatalf("%d bytes after %d decisions", r.Bytes(), i)
		}
	}
	if took := heap() - before; took > 2*Bytes {
		t.Errorf("the heap has grown by %d bytes, the ring believes it takes %d", took, r.Bytes())
	}
	if len(r.Histories(Objects, func(Object) bool { return true })) < 10 {
		t.Error("hardly anything is kept")
	}
	runtime.KeepAlive(r)
}

// Who does not take news in time misses some, and holds nobody up.
func TestSubscription(t *testing.T) {
	r := NewRing()
	slow, quick := r.Subscribe(), r.Subscribe()
	defer slow.Close()
	var got int
	for i := range 1000 {
		r.Record(object(i), decision(i))
		if news := <-quick.C; news.Decision.Version == fmt.Sprint(i) && news.Object == object(i) {
			got++
		}
	}
	if got != 1000 || len(slow.C) == 0 || len(slow.C) > 100 {
		t.Error(got, len(slow.C))
	}
	quick.Close()
	r.Record(object(1), decision(1))
	if len(quick.C) != 0 || r.Subscribers() != 1 {
		t.Error(len(quick.C), r.Subscribers())
	}
}

func TestRingIsSafe(t *testing.T) {
	r := NewRing()
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			s := r.Subscribe()
			defer s.Close()
			for i := range 500 {
				r.Record(object(i%50), decision(i*worker))
				r.Of(object(i % 50).UID)
				r.Histories(10, func(Object) bool { return true })
			}
		})
	}
	all.Wait()
	if r.Subscribers() != 0 || len(r.Of("u1")) == 0 {
		t.Error(r.Subscribers())
	}
}

func TestNilRing(t *testing.T) {
	var r *Ring
	r.Record(object(1), decision(1))
	if r.Of("u1") != nil || r.Histories(1, nil) != nil {
		t.Error("it keeps something")
	}
}

func TestMatch(t *testing.T) {
	o := Object{Kind: "widgets.demo.example", Namespace: "ns", Name: "w"}
	for _, c := range []struct {
		kind, namespace, name string
		want                  bool
	}{
		{"", "", "", true}, {"widgets", "", "w", true}, {"Widgets.demo.example", "ns", "w", true}, {"widget", "", "", true},
		{"gadgets", "", "", false}, {"widgets.demo", "", "", false}, {"widgets", "other", "w", false}, {"widgets", "ns", "v", false},
	} {
		if got := o.Match(c.kind, c.namespace, c.name, "Widget"); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

func BenchmarkRecord(b *testing.B) {
	r := NewRing()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		r.Record(object(i%2000), decision(i))
	}
}
