package filters_test

import (
	"fmt"
	"testing"

	"github.com/kopf-go/kopf/filters"
)

func ExampleShapeOf() {
	shape := filters.ShapeOf(filters.Any("gold", filters.Absent))
	fmt.Println(shape.Kind, filters.ShapeOf(shape.Parts[0]).Literal, filters.ShapeOf(shape.Parts[1]).Kind)
	// Output: Any gold Absent
}

func TestShapes(t *testing.T) {
	function, err := filters.Of(func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[filters.ShapeKind]filters.Criterion{
		filters.KindPresent: filters.Present, filters.KindAbsent: filters.Absent, filters.KindEqual: filters.Equal(3),
		filters.KindAny: filters.Any(), filters.KindAll: filters.All(), filters.KindNone: filters.None(), filters.KindNot: filters.Not(1),
		filters.KindOther: function,
	} {
		if got := filters.ShapeOf(c); got.Kind != want {
			t.Errorf("%v is %v, want %v", c, got, want)
		}
	}
	if got := filters.ShapeOf(filters.Equal(nil)); got.Kind != filters.KindOther {
		t.Errorf("a mistake is %v", got)
	}
}
