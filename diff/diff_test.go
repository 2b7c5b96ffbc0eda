package diff

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
)

type (
	obj = map[string]any
	arr = []any
)

// tree decodes JSON as a Kubernetes client does: integers to int64.
func tree(t testing.TB, text string) any {
	t.Helper()
	v, err := parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func parse(text string) (any, error) {
	var v any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		return nil, err
	}
	return native(v)
}

func native(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i, nil
		}
		return v.Float64()
	case obj:
		for key := range v {
			if v[key], err = native(v[key]); err != nil {
				return nil, err
			}
		}
	case arr:
		for i := range v {
			if v[i], err = native(v[i]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func TestOf(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"T045 equal scalars", `1`, `1`, ``},
		{"T045 different scalars", `1`, `2`, `change .: 1 -> 2`},
		{"T045 equal texts", `"a"`, `"a"`, ``},
		{"T045 different texts", `"a"`, `"b"`, `change .: "a" -> "b"`},
		{"T045 equal lists", `[1,2]`, `[1,2]`, ``},
		{"T045 different lists", `[1,2]`, `[2,1]`, `change .: [1,2] -> [2,1]`},
		{"T045 nothing and nothing", `null`, `null`, ``},
		{"T045 value appears", `null`, `1`, `add .: 1`},
		{"T045 value disappears", `1`, `null`, `remove .: 1`},
		{"T046 key added", `{"a":1}`, `{"a":1,"b":2}`, `add b: 2`},
		{"T046 key removed", `{"a":1,"b":2}`, `{"a":1}`, `remove b: 2`},
		{"T046 key changed", `{"a":1}`, `{"a":2}`, `change a: 1 -> 2`},
		{"T046 nested", `{"a":{"b":{"c":1,"d":0}}}`, `{"a":{"b":{"c":2,"d":0}}}`, `change a.b.c: 1 -> 2`},
		{"T046 lists are atomic", `{"a":[{"b":1}]}`, `{"a":[{"b":2}]}`, `change a: [{"b":1}] -> [{"b":2}]`},
		{"DIF-1 null to absent", `{"a":null}`, `{}`, ``},
		{"DIF-1 absent to null", `{}`, `{"a":null,"b":null}`, ``},
		{"DIF-1 null on both sides", `{"a":null}`, `{"a":null}`, ``},
		{"DIF-1 null to value", `{"a":null}`, `{"a":1}`, `add a: 1`},
		{"DIF-1 value to null", `{"a":1}`, `{"a":null}`, `remove a: 1`},
		{"DIF-1 null below", `{"a":{"b":null}}`, `{"a":{"c":null}}`, ``},
		{"DIF-1 zero values are values", `{}`, `{"a":0,"b":"","c":{},"d":[],"e":false}`,
			"add a: 0\nadd b: \"\"\nadd c: {}\nadd d: []\nadd e: false"},
		{"DIF-2 whole value is added", `{}`, `{"metadata":{"labels":{"a":"b"}}}`, `add metadata: {"labels":{"a":"b"}}`},
		{"DIF-2 whole value is removed", `{"a":{"b":{"c":1}}}`, `{"a":{}}`, `remove a.b: {"c":1}`},
		{"DIF-2 object to scalar", `{"a":{"b":1}}`, `{"a":1}`, `change a: {"b":1} -> 1`},
		{"DIF-2 scalar to object", `{"a":1}`, `{"a":{"b":1}}`, `change a: 1 -> {"b":1}`},
		{"DIF-2 object to list", `{"a":{}}`, `{"a":[]}`, `change a: {} -> []`},
		{"DIF-3 order", `{"z":1,"y":1,"c":{"b":1,"c":1},"a":1,"k":1}`, `{"c":{"a":1,"c":2},"a":2,"x":1,"b":1,"k":1}`,
			"add b: 1\nadd x: 1\nremove y: 1\nremove z: 1\nchange a: 1 -> 2\nadd c.a: 1\nremove c.b: 1\nchange c.c: 1 -> 2"},
		{"DIF-4 integer and fraction", `{"a":1,"b":10}`, `{"a":1.0,"b":1e1}`, ``},
		{"DIF-4 bool is no number", `{"a":1,"b":0}`, `{"a":true,"b":false}`, "change a: 1 -> true\nchange b: 0 -> false"},
		{"X25 all digits count", `{"a":9007199254740993}`, `{"a":9007199254740992}`,
			`change a: 9007199254740993 -> 9007199254740992`},
		{"X25 integer against float", `{"a":9007199254740993}`, `{"a":9007199254740992.0}`,
			`change a: 9007199254740993 -> 9007199254740992`},
	} {
		t.Run(c.name, func(t *testing.T) {
			old, new := tree(t, c.old), tree(t, c.new)
			for range 5 { // the order must not depend on the map's
				if got := Of(old, new).String(); got != c.want {
					t.Errorf("got\n%s\nwant\n%s", got, c.want)
				}
			}
			if got := Equal(old, new); got != (c.want == "") {
				t.Errorf("equal is %v", got)
			}
			if got := Apply(Of(old, new), old); !Equal(got, new) {
				t.Errorf("applied it is %v", got)
			}
		})
	}
}

// A nil map or slice of a Go program is null in JSON.
func TestNilCollectionsAreNull(t *testing.T) {
	for _, c := range []struct {
		old, new any
		want     string
	}{
		{obj(nil), nil, ``},
		{obj(nil), arr(nil), ``},
		{obj(nil), obj{}, `add .: {}`},
		{arr{}, arr(nil), `remove .: []`},
		{obj{"a": obj(nil)}, obj{}, ``},
		{obj(nil), obj{"a": 1}, `add .: {"a":1}`},
		{obj(nil), "x", `add .: "x"`},
		{arr(nil), false, `add .: false`},
	} {
		if got := Of(c.old, c.new).String(); got != c.want {
			t.Errorf("%#v, %#v: got %s", c.old, c.new, got)
		}
		if got := Equal(c.old, c.new); got != (c.want == "") {
			t.Errorf("%#v, %#v: equal is %v", c.old, c.new, got)
		}
		if got := Equal(c.new, c.old); got != (c.want == "") {
			t.Errorf("%#v, %#v: equal is %v", c.new, c.old, got)
		}
	}
}

// X25, DIF-4.
func TestEqualNumbers(t *testing.T) {
	type named int16
	classes := [][]any{ // equal within a class, different between them
		{0, int64(0), 0.0, math.Copysign(0, -1), uint8(0), json.Number("0"), json.Number("-0.0"), json.Number("0e9"),
			json.Number("0e2170000000"), json.Number("-0.0E-99999999999999999999")},
		{1, int32(1), int64(1), 1.0, float32(1), uint64(1), named(1), json.Number("1"), json.Number("1.0"), json.Number("0.1e1")},
		{true}, {false}, {"1"}, {""},
		{-1, int8(-1), -1.0, json.Number("-1"), json.Number("-100e-2")},
		{10, 10.0, json.Number("1e1"), json.Number("1E+1")},
		{0.1, float32(0.1), json.Number("0.1"), json.Number("0.10"), json.Number("1e-1")},
		{json.Number("0.10000000000000000001")},
		{1.5, json.Number("1.5")},
		{int64(9007199254740992), 9007199254740992.0},
		{int64(9007199254740993), json.Number("9007199254740993")},
		{int64(math.MaxInt64), uint64(math.MaxInt64), json.Number("9223372036854775807")},
		{uint64(1 << 63), float64(1 << 63), json.Number("9223372036854775808")},
		{uint64(math.MaxUint64), json.Number("18446744073709551615")},
		{int64(math.MinInt64), -float64(1 << 63)},
		{1e300, json.Number("1e300"), json.Number("10e299")},
		{1e-300, json.Number("1e-300")},
		{math.NaN(), float32(math.NaN())},
		{math.Inf(1)}, {math.Inf(-1)},
		{json.Number("x")}, {json.Number("1e99999999999999999999")}, {json.Number("")}, {json.Number("-")},
		{json.Number("1e")}, {json.Number("0e")}, {json.Number("0ex")}, {json.Number("1.2.3")},
		{nil}, {obj{}}, {arr{}}, {"x"},
	}
	for i, class := range classes {
		for j, other := range classes {
			for _, a := range class {
				for _, b := range other {
					if got := Equal(a, b); got != (i == j) {
						t.Errorf("%T %#v, %T %#v: equal is %v", a, a, b, b, got)
					}
				}
			}
		}
	}
}

func TestEqualOtherTypes(t *testing.T) {
	type text string
	type flag bool
	for _, c := range []struct {
		a, b any
		want bool
	}{
		{text("a"), "a", true},
		{"a", text("b"), false},
		{flag(true), true, true},
		{flag(true), 1, false},
		{[]string{"a"}, []string{"a"}, true},
		{[]string{"a"}, arr{"a"}, false}, // not a tree
		{arr{nil}, arr{}, false},
		{arr{obj{"a": nil}}, arr{obj{}}, true},
		{obj{"a": 1, "b": nil}, obj{"a": 1, "c": nil}, true},
		{obj{"a": 1, "b": nil}, obj{"a": 1, "c": 2}, false},
		{obj{"a": 1, "b": 2}, obj{"a": 1}, false},
	} {
		if Equal(c.a, c.b) != c.want || Equal(c.b, c.a) != c.want {
			t.Errorf("%#v, %#v: equal is not %v", c.a, c.b, c.want)
		}
	}
}

// T048, DIF-5, T023.
func TestAt_DIF5_T048(t *testing.T) {
	old := tree(t, `{"spec":{"a":{"x":1,"y":1},"gone":{"x":1},"same":1},"text":"t"}`)
	new := tree(t, `{"spec":{"a":{"x":2,"z":1},"came":{"x":1},"same":1},"text":{"x":1}}`)
	d := Of(old, new)
	for _, c := range []struct {
		path Path
		want string
	}{
		{nil, d.String()},
		{Path{}, d.String()},
		{Path{"spec", "a"}, "add z: 1\nremove y: 1\nchange x: 1 -> 2"},
		{Path{"spec", "a", "x"}, "change .: 1 -> 2"},
		{Path{"spec", "a", "x", "deeper"}, ""},
		{Path{"spec", "came"}, `add .: {"x":1}`},
		{Path{"spec", "came", "x"}, `add .: 1`},
		{Path{"spec", "came", "y"}, ``},
		{Path{"spec", "gone", "x"}, `remove .: 1`},
		{Path{"spec", "same"}, ``},
		{Path{"text", "x"}, `add .: 1`},
		{Path{"text"}, `change .: "t" -> {"x":1}`},
		{Path{"unknown"}, ``},
		{Path{"spec", "unknown", "x"}, ``},
	} {
		if got := d.At(c.path).String(); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.path, got, c.want)
		}
		before, _ := Resolve(old, c.path)
		after, _ := Resolve(new, c.path)
		if got, want := d.At(c.path).String(), Of(before, after).String(); got != want {
			t.Errorf("%s: got\n%s\nthe diff of the values is\n%s", c.path, got, want)
		}
	}
	whole := Of(nil, new).At(Path{"spec", "a"}) // CHG-1: a creation adds the root
	if got := whole.String(); got != `add .: {"x":2,"z":1}` {
		t.Error(got)
	}
}

// FLT-8: a missing key, or something in the way.
func TestResolve(t *testing.T) {
	tree := obj{"a": obj{"b": nil, "c.d/e": "x"}, "l": arr{obj{"b": 1}}, "n": obj(nil)}
	for _, c := range []struct {
		path Path
		want any
		ok   bool
	}{
		{nil, tree, true},
		{Path{"a", "b"}, nil, true},
		{Path{"a", "c.d/e"}, "x", true},
		{Path{"a", "c", "d/e"}, nil, false},
		{Path{"a", "b", "c"}, nil, false},
		{Path{"l", "0"}, nil, false},
		{Path{"n", "x"}, nil, false},
		{Path{"x"}, nil, false},
	} {
		got, ok := Resolve(tree, c.path)
		if ok != c.ok || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v, %v", c.path, got, ok)
		}
	}
}

func TestApplyLeavesItsArgumentsAlone(t *testing.T) {
	const before, after = `{"a":{"b":{"c":1},"x":1},"k":[1]}`, `{"a":{"b":{"c":2,"d":{"e":1}}},"k":[2]}`
	old, new := tree(t, before), tree(t, after)
	d := Of(old, new)
	got := Apply(d, old)
	got.(obj)["a"].(obj)["b"].(obj)["c"] = "scribble"
	if !reflect.DeepEqual(old, tree(t, before)) || !reflect.DeepEqual(new, tree(t, after)) {
		t.Error("an argument has changed")
	}
}

func TestApplyForeignDiffs(t *testing.T) {
	for _, c := range []struct {
		name string
		diff Diff
		to   any
		want any
	}{
		{"nothing", nil, obj{"a": 1}, obj{"a": 1}},
		{"missing parents", Diff{{Op: Add, Path: Path{"a", "b"}, New: 1}}, nil, obj{"a": obj{"b": 1}}},
		{"removal of nothing", Diff{{Op: Remove, Path: Path{"a", "b"}, Old: 1}}, obj{}, obj{}},
		{"scalar in the way", Diff{{Op: Add, Path: Path{"a", "b"}, New: 1}}, obj{"a": 5}, obj{"a": obj{"b": 1}}},
		{"one after another", Diff{
			{Op: Add, Path: Path{"a"}, New: obj{"b": 1}},
			{Op: Change, Path: Path{"a", "b"}, Old: 1, New: 2},
			{Op: Add, Path: Path{"c"}, New: 3},
			{Op: Add, Path: Path{"a", "d"}, New: 4},
		}, obj{}, obj{"a": obj{"b": 2, "d": 4}, "c": 3}},
		{"root, then below", Diff{{Op: Add, New: obj{"a": 1}}, {Op: Remove, Path: Path{"a"}, Old: 1}}, nil, obj{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Apply(c.diff, c.to); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestPathsDoNotOverlap(t *testing.T) {
	d := Of(obj{}, obj{"a": 1, "b": 2, "c": 3})
	_ = append(d[0].Path, "x", "y")
	_ = append(Diff{}, d...).At(Path{"a"})
	if got := d.String(); got != "add a: 1\nadd b: 2\nadd c: 3" {
		t.Error(got)
	}
}
