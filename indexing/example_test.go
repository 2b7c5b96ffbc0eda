package indexing_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/kopf-go/kopf/indexing"
)

func Example() {
	w := indexing.NewWriter[string, string]()
	w.Replace("pod-1", map[string]string{"node-1": "10.0.0.1"})
	w.Replace("pod-2", map[string]string{"node-1": "10.0.0.2", "node-2": "10.0.0.2"})

	addresses := w.Index() // for those who only read
	fmt.Println(slices.Sorted(addresses.Get("node-1")))

	w.Replace("pod-2", map[string]string{"node-2": "10.0.0.3"})
	first, ok := addresses.First("node-1")
	fmt.Println(first, ok)

	w.Remove("pod-1")
	fmt.Println(addresses.Has("node-1"), addresses.Len())
	// Output:
	// [10.0.0.1 10.0.0.2]
	// 10.0.0.1 true
	// false 1
}

func ExampleIndex_Tracked() {
	w := indexing.NewWriter[string, string]()
	reader := indexing.NewReader(func() { fmt.Println("something has changed") })
	ctx := indexing.WithReader(context.Background(), reader)

	handle := func(ctx context.Context) {
		address, ok := w.Index().Tracked(ctx).First("node-1")
		fmt.Printf("%q %v\n", address, ok)
	}
	handle(ctx)
	w.Replace("pod-2", map[string]string{"node-2": "10.0.0.2"}) // of another key
	w.Replace("pod-1", map[string]string{"node-1": "10.0.0.1"})
	w.Replace("pod-1", map[string]string{"node-1": "10.0.0.3"}) // nothing was read since
	handle(ctx)
	// Output:
	// "" false
	// something has changed
	// "10.0.0.3" true
}

func ExampleReader_Forget() {
	w := indexing.NewWriter[string, int]()
	reader := indexing.NewReader(func() { fmt.Println("woken") }, w)
	ctx := indexing.WithReader(context.Background(), reader)

	w.Index().Tracked(ctx).Len()
	fmt.Println(reader.Read())
	reader.Forget()
	fmt.Println(reader.Read())
	w.Replace("owner", map[string]int{"a": 1}) // wakes nobody
	// Output:
	// true
	// false
}

// A flat collection has one key.
func ExampleWriter_Replace() {
	w := indexing.NewWriter[struct{}, string]()
	w.Replace("owner-1", map[struct{}]string{{}: "a"})
	w.Replace("owner-2", map[struct{}]string{{}: "b"})
	w.Replace("owner-1", nil)
	for value := range w.Index().Get(struct{}{}) {
		fmt.Println(value)
	}
	// Output: b
}
