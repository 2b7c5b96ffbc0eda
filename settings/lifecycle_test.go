package settings_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kopf-go/kopf/settings"
)

// Those that have waited longest come first, two at a time.
func ExampleLifecycle() {
	oldest := func(due []settings.Due) []settings.Due {
		due = slices.Clone(due)
		slices.SortStableFunc(due, func(a, b settings.Due) int { return a.Started.Compare(b.Started) })
		return due[:min(2, len(due))]
	}
	tuned := settings.Settings{Execution: settings.Execution{Lifecycle: oldest}}

	now := time.Now()
	for _, d := range tuned.Execution.Lifecycle([]settings.Due{
		{ID: "new", Started: now}, {ID: "old", Started: now.Add(-time.Hour)}, {ID: "older", Started: now.Add(-time.Minute)},
	}) {
		fmt.Println(d.ID)
	}
	// Output:
	// old
	// older
}

// LIF-1, T100: what each of them picks.
func TestLifecycle_LIF1_LIF2_T100(t *testing.T) {
	due := []settings.Due{{ID: "a", Retry: 2}, {ID: "b", Retry: 1}, {ID: "c", Retry: 1}}
	for name, c := range map[string]struct {
		lifecycle settings.Lifecycle
		want      string
	}{
		"all at once, in order": {settings.AllAtOnce, "abc"},
		"the first":             {settings.OneByOne, "a"},
		"fewest attempts first": {settings.ASAP, "b"},
		"one by chance":         {settings.Randomized, "?"},
		"all, shuffled":         {settings.Shuffled, "???"},
	} {
		t.Run("T100 "+name, func(t *testing.T) {
			if got := c.lifecycle(nil); len(got) != 0 {
				t.Error("picks of nothing", got)
			}
			picks := map[string]bool{}
			for range 200 {
				ids := ""
				for _, d := range c.lifecycle(due) {
					ids += d.ID
				}
				if c.want[0] != '?' && ids != c.want || len(ids) != len(c.want) {
					t.Fatalf("picks %q", ids)
				}
				picks[ids] = true
			}
			if (c.want[0] == '?') != (len(picks) > 1) {
				t.Error(picks)
			}
			if !slices.IsSortedFunc(due, func(a, b settings.Due) int { return cmp.Compare(a.ID, b.ID) }) {
				t.Error("the candidates were changed")
			}
		})
	}
}
