package diff_test

import (
	"encoding/json"
	"fmt"

	"github.com/kopf-go/kopf/diff"
)

func decode(text string) (tree map[string]any) {
	if err := json.Unmarshal([]byte(text), &tree); err != nil {
		panic(err)
	}
	return tree
}

func ExampleOf() {
	before := decode(`{"spec": {"replicas": 1, "paused": true, "args": ["a"]}}`)
	after := decode(`{"spec": {"replicas": 3, "image": "app:2", "args": ["a", "b"]}}`)
	for _, item := range diff.Of(before, after) {
		fmt.Println(item.Op, item.Path, item.Old, item.New)
	}
	// Output:
	// add spec.image <nil> app:2
	// remove spec.paused true <nil>
	// change spec.args [a] [a b]
	// change spec.replicas 1 3
}

func ExampleDiff_At() {
	before := decode(`{"metadata": {"name": "x"}}`)
	after := decode(`{"metadata": {"name": "x", "labels": {"tier": "gold", "team": "blue"}}}`)
	d := diff.Of(before, after)
	fmt.Println(d)
	fmt.Println(d.At(diff.Path{"metadata", "labels", "tier"}))
	// Output:
	// add metadata.labels: {"team":"blue","tier":"gold"}
	// add .: "gold"
}

func ExampleApply() {
	before := decode(`{"spec": {"replicas": 1}}`)
	after := decode(`{"spec": {"replicas": 3}}`)
	result := diff.Apply(diff.Of(before, after), before)
	fmt.Println(result, before)
	// Output: map[spec:map[replicas:3]] map[spec:map[replicas:1]]
}

func ExampleEqual() {
	fmt.Println(diff.Equal(map[string]any{"a": 1, "b": nil}, map[string]any{"a": 1.0}))
	// Output: true
}

func ExamplePath_String() {
	fmt.Println(diff.Path{"metadata", "annotations", "example.com/size"})
	// Output: metadata.annotations["example.com/size"]
}

func ExampleResolve() {
	tree := decode(`{"spec": {"replicas": 1}}`)
	fmt.Println(diff.Resolve(tree, diff.Path{"spec", "replicas"}))
	fmt.Println(diff.Resolve(tree, diff.Path{"spec", "paused"}))
	// Output:
	// 1 true
	// <nil> false
}
