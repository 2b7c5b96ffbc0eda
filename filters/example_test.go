package filters_test

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/kopf-go/kopf/filters"
)

func ExampleAny() {
	c := filters.Any(filters.Equal("gold"), filters.Not(filters.Present))
	fmt.Println(c, c.Match("gold", true), c.Match("silver", true), c.Match(nil, false))
	// Output: Any("gold", Not(Present)) true false true
}

func ExampleAll() {
	c := filters.All(filters.Not("kube-system"), func(name string) bool { return strings.HasPrefix(name, "kube-") })
	fmt.Println(c.Match("kube-public", true), c.Match("kube-system", true), c.Match("default", true))
	// Output: true false false
}

func ExampleNone() {
	c := filters.None("a", "b")
	fmt.Println(c.Match("a", true), c.Match("c", true))
	// Output: false true
}

// A literal, a function or a criterion: whatever a user may pass.
func ExampleOf() {
	large, err := filters.Of(func(replicas int32, present bool) bool { return !present || replicas > 3 })
	fmt.Println(large.Match(int64(5), true), large.Match(int64(1), true), large.Match(nil, false), err)

	_, err = filters.Of(nil)
	fmt.Println(err)
	// Output:
	// true false true <nil>
	// a criterion cannot be nil: say filters.Absent if there must be no value, filters.Present if there must be one
}

func ExampleCheck() {
	fmt.Println(filters.Check(filters.Equal(3), reflect.TypeFor[int32]()))
	fmt.Println(filters.Check(filters.Equal("3"), reflect.TypeFor[int32]()))
	// Output:
	// <nil>
	// "3", a string, can never equal an int32
}
