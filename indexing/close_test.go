package indexing_test

import (
	"context"
	"testing"

	"github.com/kopf-go/kopf/indexing"
)

// A closed reader is not woken, whatever was read through it before or is read afterwards.
func TestClose(t *testing.T) {
	w := indexing.NewWriter[string, int]()
	woken := 0
	reader := indexing.NewReader(func() { woken++ })
	view := w.Index().Tracked(indexing.WithReader(context.Background(), reader))
	w.Replace("o", map[string]int{"a": 1})
	view.First("a")
	reader.Close()
	reader.Close()
	if value, ok := view.First("a"); value != 1 || !ok || reader.Read() {
		t.Error(value, ok, reader.Read())
	}
	w.Replace("o", map[string]int{"a": 2})
	if woken != 0 {
		t.Errorf("woken %d times", woken)
	}
}
