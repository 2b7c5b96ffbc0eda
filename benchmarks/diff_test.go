package benchmarks

import (
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kopf-go/kopf/diff"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// BenchmarkDiff compares two versions of a widget of which five fields differ, on
// several levels, and measures what it takes to know which. All get the same: the
// decoded JSON, or the Go structs where it says so.
func BenchmarkDiff(b *testing.B) {
	before, after := newWidget("diff.kopf.test", 1), newWidget("diff.kopf.test", 1)
	after.Labels["tier"] = "silver"
	after.Spec.Backup.Schedule = "0 4 * * *"
	after.Spec.Components[2].Image = "registry.example.com/shop/checkout:2.15.0"
	after.Spec.Settings["feature.99.mode"] = "new"
	after.Spec.Value++
	oldTree, newTree := before.tree(), after.tree()
	deduced := typed.DeducedParseableType

	ways := []struct {
		name  string
		batch int // of one iteration, which takes about a quarter of a second then
		count func() int
	}{
		{"kopf", 30_000, func() int { return len(diff.Of(oldTree, newTree)) }},
		{"go-cmp", 500, func() int { return reported(oldTree, newTree) }},
		{"go-cmp-structs", 1_000, func() int { return reported(before, after) }},
		{"structured-merge-diff", 2_000, func() int {
			return compared(b, func() (*typed.TypedValue, error) { return deduced.FromUnstructured(oldTree) },
				func() (*typed.TypedValue, error) { return deduced.FromUnstructured(newTree) })
		}},
		{"structured-merge-diff-structs", 2_000, func() int {
			return compared(b, func() (*typed.TypedValue, error) { return deduced.FromStructured(before) },
				func() (*typed.TypedValue, error) { return deduced.FromStructured(after) })
		}},
	}
	var kopf float64
	for _, way := range ways {
		if n := way.count(); n != 5 {
			b.Errorf("%s finds %d changes instead of 5", way.name, n)
		}
		b.Run(way.name, func(b *testing.B) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			diffs := 0
			for b.Loop() {
				for range way.batch {
					way.count()
				}
				diffs += way.batch
			}
			runtime.ReadMemStats(&after)
			each := float64(b.Elapsed().Nanoseconds()) / float64(diffs)
			b.ReportMetric(each/1e3, "µs/diff")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(diffs), "allocs/diff")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(diffs), "B/diff")
			b.ReportMetric(0, "ns/op")
			if way.name == "kopf" {
				kopf = each
			} else if kopf > 0 {
				b.ReportMetric(each/kopf, "times-kopf")
			}
		})
	}
}

// reported counts the differences that go-cmp reports.
func reported(before, after any) int {
	r := &reporter{}
	cmp.Equal(before, after, cmp.Reporter(r))
	return r.different
}

// reporter keeps what a caller needs of each difference: where, and the values.
type reporter struct {
	path      cmp.Path
	different int
}

func (r *reporter) PushStep(step cmp.PathStep) { r.path = append(r.path, step) }
func (r *reporter) PopStep()                   { r.path = r.path[:len(r.path)-1] }
func (r *reporter) Report(result cmp.Result) {
	if !result.Equal() {
		r.different++
	}
}

func compared(b *testing.B, before, after func() (*typed.TypedValue, error)) int {
	x, err := before()
	if err != nil {
		b.Fatal(err)
	}
	y, err := after()
	if err != nil {
		b.Fatal(err)
	}
	c, err := x.Compare(y)
	if err != nil {
		b.Fatal(err)
	}
	return c.Added.Size() + c.Modified.Size() + c.Removed.Size()
}
