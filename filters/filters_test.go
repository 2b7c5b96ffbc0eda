package filters

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

type (
	tier string
	size struct {
		Width  int32          `json:"width"`
		Height *int32         `json:"height,omitempty"`
		More   map[string]any `json:"more,omitempty"`
	}
	// amount reads and writes itself, a text or a number.
	amount struct{ digits string }
)

func (a *amount) UnmarshalJSON(text []byte) error {
	if a.digits = strings.Trim(string(text), `"`); strings.Trim(a.digits, "0123456789") != "" {
		return fmt.Errorf("not an amount: %s", text)
	}
	return nil
}

func (a amount) MarshalJSON() ([]byte, error) { return json.Marshal(a.digits) }

// input is a value and whether it is there.
type input struct {
	value   any
	present bool
}

func is(v any) input { return input{v, true} }

var absent = input{}

func criterionOf(t *testing.T, v any) Criterion {
	t.Helper()
	c, err := Of(v)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// FLT-6, FLT-8, T013, T014, T019: literals and presence.
func TestMatch(t *testing.T) {
	three := int32(3)
	for _, c := range []struct {
		name      string
		criterion any
		match     []input
		mismatch  []input
	}{
		{"T014 present", Present, []input{is("x"), is(""), is(int64(0)), is(false), is(nil)}, []input{absent}},
		{"T014 absent", Absent, []input{absent}, []input{is("x"), is(""), is(nil)}},
		{"T013 text", "gold", []input{is("gold")}, []input{is("silver"), is(""), is(int64(1)), is(nil), absent}},
		{"FLT-6 empty text", "", []input{is("")}, []input{is("x"), is(nil), absent}},
		{"named text", tier("gold"), []input{is("gold")}, []input{is("silver"), absent}},
		{"T019 int", 3, []input{is(int64(3)), is(3.0), is(json.Number("3"))}, []input{is("3"), is(int64(4)), is(3.5), absent}},
		{"zero", 0, []input{is(int64(0)), is(0.0)}, []input{is(false), is(""), is(nil), absent}},
		{"uint8", uint8(3), []input{is(int64(3))}, []input{is(int64(4))}},
		{"X25 int64", int64(9007199254740993), []input{is(int64(9007199254740993))}, []input{is(int64(9007199254740992))}},
		{"uint64", uint64(math.MaxUint64), []input{is(json.Number("18446744073709551615"))}, []input{is(int64(-1))}},
		{"float", 1.5, []input{is(1.5)}, []input{is(int64(1))}},
		{"float without fraction", 2.0, []input{is(int64(2))}, []input{is("2")}},
		{"bool", true, []input{is(true)}, []input{is(false), is(int64(1)), is("true"), absent}},
		{"false", false, []input{is(false)}, []input{is(true), is(int64(0)), is(nil), absent}},
		{"pointer", &three, []input{is(int64(3))}, []input{absent}},
		{"list", []string{"a", "b"}, []input{is([]any{"a", "b"})}, []input{is([]any{"b", "a"}), is([]any{}), absent}},
		{"empty list", []string{}, []input{is([]any{})}, []input{is(nil), is(map[string]any{}), absent}},
		{"struct", size{Width: 3}, []input{is(map[string]any{"width": int64(3)}), is(map[string]any{"width": 3.0, "height": nil})},
			[]input{is(map[string]any{"width": int64(3), "height": int64(1)}), absent}},
		{"self-writing", amount{"5"}, []input{is("5")}, []input{is(int64(5)), absent}},
		{"equal", Equal("gold"), []input{is("gold")}, []input{is("silver"), absent}},

		{"FLT-19 no any", Any(), nil, []input{is("x"), absent}},
		{"FLT-19 no all", All(), []input{is("x"), absent}, nil},
		{"FLT-19 no none", None(), []input{is("x"), absent}, nil},
		{"T025 any", Any("a", Equal("b"), Absent), []input{is("a"), is("b"), absent}, []input{is("c"), is(nil)}},
		{"T025 all", All(Present, Not("a")), []input{is("b"), is(nil)}, []input{is("a"), absent}},
		{"T025 none", None("a", Absent), []input{is("b")}, []input{is("a"), absent}},
		{"T025 not", Not("a"), []input{is("b"), absent}, []input{is("a")}},
		{"T025 nested", Not(Any(All(Present, None("a", "b")), func(string, bool) bool { return false })),
			[]input{is("a"), is("b"), absent}, []input{is("c")}},
		{"contract", Any(Equal("gold"), Not(Present)), []input{is("gold"), absent}, []input{is("silver"), is("")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			criterion := criterionOf(t, c.criterion)
			for _, in := range c.match {
				if !criterion.Match(in.value, in.present) {
					t.Errorf("%s does not match %#v", criterion, in)
				}
			}
			for _, in := range c.mismatch {
				if criterion.Match(in.value, in.present) {
					t.Errorf("%s matches %#v", criterion, in)
				}
			}
		})
	}
}

// FLT-19: parts are tried in order, and only as far as needed.
func TestCombinationsStopEarly(t *testing.T) {
	never := func(any) bool { panic("must not be called") }
	for _, c := range []Criterion{Any("a", never), Not(All("b", never)), Not(None("a", never))} {
		if !criterionOf(t, c).Match("a", true) {
			t.Errorf("%s does not match", c)
		}
	}
}

// T015, FLT-9: what functions are called with.
func TestFunctions(t *testing.T) {
	const uncalled = "not called"
	var got string
	show := func(v any) bool { got = fmt.Sprintf("%T %+v", v, v); return true }
	with := func(v any, present bool) bool { got = fmt.Sprintf("%T %+v %v", v, v, present); return true }
	pointer := func(p *int32) bool {
		if p == nil {
			return show(nil)
		}
		return show(*p)
	}
	type truth bool
	for _, c := range []struct {
		name     string
		function any
		in       input
		want     string
	}{
		{"text", func(v string) bool { return show(v) }, is("x"), "string x"},
		{"text from number", func(v string) bool { return show(v) }, is(int64(1)), uncalled},
		{"text absent", func(v string) bool { return show(v) }, absent, uncalled},
		{"text null", func(v string) bool { return show(v) }, is(nil), uncalled},
		{"text with presence", func(v string, p bool) bool { return with(v, p) }, is("x"), "string x true"},
		{"text with presence, absent", func(v string, p bool) bool { return with(v, p) }, absent, "string  false"},
		{"text with presence, null", func(v string, p bool) bool { return with(v, p) }, is(nil), "string  true"},
		{"text with presence, number", func(v string, p bool) bool { return with(v, p) }, is(int64(1)), uncalled},
		{"any", show, is(int64(1)), "int64 1"},
		{"any absent", show, absent, "<nil> <nil>"},
		{"any with presence", with, is("x"), "string x true"},
		{"any with presence, absent", with, absent, "<nil> <nil> false"},
		{"FLT-9 no leftovers of the engine", with, input{"marker", false}, "<nil> <nil> false"},
		{"named text", func(v tier) bool { return show(v) }, is("gold"), "filters.tier gold"},
		{"named bool", func(v truth) truth { return truth(show(v)) }, is(true), "filters.truth true"},
		{"bool", func(v bool) bool { return show(v) }, is(false), "bool false"},
		{"bool from number", func(v bool) bool { return show(v) }, is(int64(1)), uncalled},
		{"int32", func(v int32) bool { return show(v) }, is(int64(3)), "int32 3"},
		{"int32 absent", func(v int32) bool { return show(v) }, absent, uncalled},
		{"int32 null", func(v int32) bool { return show(v) }, is(nil), uncalled},
		{"int32 with presence, absent", func(v int32, p bool) bool { return with(v, p) }, absent, "int32 0 false"},
		{"int32 from text", func(v int32) bool { return show(v) }, is("3"), uncalled},
		{"int32 from integral float", func(v int32) bool { return show(v) }, is(3.0), "int32 3"},
		{"int32 from fraction", func(v int32) bool { return show(v) }, is(3.5), uncalled},
		{"int8 overflow", func(v int8) bool { return show(v) }, is(int64(300)), uncalled},
		{"int64 all digits", func(v int64) bool { return show(v) }, is(int64(9007199254740993)), "int64 9007199254740993"},
		{"int64 overflow", func(v int64) bool { return show(v) }, is(1e19), uncalled},
		{"int64 from huge", func(v int64) bool { return show(v) }, is(1e30), uncalled},
		{"int64 from json.Number", func(v int64) bool { return show(v) }, is(json.Number("-7")), "int64 -7"},
		{"int64 from json.Number, rounded", func(v int64) bool { return show(v) }, is(json.Number("10000000000000000.1")), uncalled},
		{"int64 from integral json.Number", func(v int64) bool { return show(v) }, is(json.Number("1.5e1")), "int64 15"},
		{"int64 from broken json.Number", func(v int64) bool { return show(v) }, is(json.Number("x")), uncalled},
		{"uint8", func(v uint8) bool { return show(v) }, is(int64(255)), "uint8 255"},
		{"uint8 overflow", func(v uint8) bool { return show(v) }, is(int64(256)), uncalled},
		{"uint8 negative", func(v uint8) bool { return show(v) }, is(int64(-1)), uncalled},
		{"uint64", func(v uint64) bool { return show(v) }, is(uint64(math.MaxUint64)), "uint64 18446744073709551615"},
		{"uint64 from float", func(v uint64) bool { return show(v) }, is(1e19), "uint64 10000000000000000000"},
		{"int64 from uint64", func(v int64) bool { return show(v) }, is(uint64(7)), "int64 7"},
		{"int64 from large uint64", func(v int64) bool { return show(v) }, is(uint64(math.MaxUint64)), uncalled},
		{"float64 from int", func(v float64) bool { return show(v) }, is(int64(3)), "float64 3"},
		{"float64 from uint", func(v float64) bool { return show(v) }, is(uint64(3)), "float64 3"},
		{"float32", func(v float32) bool { return show(v) }, is(0.5), "float32 0.5"},
		{"float32 overflow", func(v float32) bool { return show(v) }, is(1e300), uncalled},
		{"json.Number", func(v json.Number) bool { return show(v) }, is(int64(3)), "json.Number 3"},
		{"json.Number from text", func(v json.Number) bool { return show(v) }, is("3"), uncalled},
		{"pointer", pointer, is(int64(3)), "int32 3"},
		{"pointer absent", pointer, absent, "<nil> <nil>"},
		{"pointer null", pointer, is(nil), "<nil> <nil>"},
		{"pointer overflow", pointer, is(int64(math.MaxInt64)), uncalled},
		{"pointer with presence, null", func(p *string, present bool) bool { return with(p == nil, present) }, is(nil), "bool true true"},
		{"struct", func(v size) bool { return show(v.Width) }, is(map[string]any{"width": int64(3), "unknown": 1}), "int32 3"},
		{"struct keeps digits", func(v size) bool { return show(v.More["n"]) },
			is(map[string]any{"more": map[string]any{"n": int64(9007199254740993)}}), "json.Number 9007199254740993"},
		{"struct from text", func(v size) bool { return show(v) }, is("x"), uncalled},
		{"struct overflow", func(v size) bool { return show(v) }, is(map[string]any{"width": int64(1 << 40)}), uncalled},
		{"struct pointer absent", func(v *size) bool { return show(v == nil) }, absent, "bool true"},
		{"map", func(v map[string]string) bool { return show(v) }, is(map[string]any{"a": "b"}), "map[string]string map[a:b]"},
		{"map absent", func(v map[string]string) bool { return show(v) }, absent, uncalled},
		{"map as it is", func(v map[string]any) bool { return show(v) }, is(map[string]any{"a": int64(1)}), "map[string]interface {} map[a:1]"},
		{"list", func(v []string) bool { return show(v) }, is([]any{"a"}), "[]string [a]"},
		{"list as it is", func(v []any) bool { return show(v) }, is([]any{int64(1)}), "[]interface {} [1]"},
		{"bytes", func(v []byte) bool { return show(string(v)) }, is("aGk="), "string hi"},
		{"self-reading", func(v amount) bool { return show(v.digits) }, is(int64(5)), "string 5"},
		{"self-reading from rubbish", func(v amount) bool { return show(v.digits) }, is("x"), uncalled},
		{"self-reading pointer", func(v *amount) bool { return show(v.digits) }, is("5"), "string 5"},
		{"time", func(v time.Time) bool { return show(v.Year()) }, is("2026-01-02T03:04:05Z"), "int 2026"},
		{"duration", func(v time.Duration) bool { return show(v) }, is(int64(5)), "time.Duration 5ns"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got = uncalled
			matched := criterionOf(t, c.function).Match(c.in.value, c.in.present)
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if matched != (got != uncalled) {
				t.Errorf("it matched: %v", matched)
			}
		})
	}
	if criterionOf(t, func(int) bool { return false }).Match(int64(1), true) {
		t.Error("the function's answer is ignored")
	}
}

// FLT-2, T024: what is no criterion is an error that says what to do.
func TestOfErrors_FLT2(t *testing.T) {
	for _, c := range []struct {
		name string
		v    any
		want string
	}{
		{"T024 nil", nil, "say filters.Absent"},
		{"nil pointer", (*string)(nil), "say filters.Absent"},
		{"nil map", map[string]any(nil), "say filters.Absent"},
		{"nil criterion", Criterion(nil), "say filters.Absent"},
		{"equal to nil", Equal(nil), "say filters.Absent"},
		{"nil inside", Any("a", All(nil)), "say filters.Absent"},
		{"equal to a criterion", Equal(Present), "pass that as it is"},
		{"equal to a function", Equal(func() {}), "pass the function as it is"},
		{"nil function", (func(string) bool)(nil), "cannot be nil"},
		{"function without result", func(string) {}, "must be func(V) bool or func(V, bool) bool"},
		{"function with an error", func(string) (bool, error) { return true, nil }, "must be func(V) bool"},
		{"function of nothing", func() bool { return true }, "must be func(V) bool"},
		{"function of three", func(a, b, c string) bool { return true }, "must be func(V) bool"},
		{"function of two texts", func(a, b string) bool { return true }, "must be func(V) bool"},
		{"variadic function", func(...string) bool { return true }, "must be func(V) bool"},
		{"function of an interface", func(fmt.Stringer) bool { return true }, "cannot take a fmt.Stringer"},
		{"channel", make(chan int), "no JSON form"},
		{"NaN", math.NaN(), "no JSON form"},
	} {
		t.Run(c.name, func(t *testing.T) {
			criterion, err := Of(c.v)
			if err == nil || !strings.Contains(err.Error(), c.want) || criterion != nil {
				t.Errorf("got %v, %v", criterion, err)
			}
		})
	}
	_, err := Of(Any(nil, "a", func() {}))
	if err == nil || !strings.Contains(err.Error(), "filters.Absent") || !strings.Contains(err.Error(), "must be func") {
		t.Errorf("one of two mistakes is missing: %v", err)
	}
	if Equal(nil).Match(nil, false) {
		t.Error("an invalid criterion matches")
	}
	if err := Check(nil, nil); err == nil {
		t.Error("no criterion at all passes the check")
	}
}

func TestCheck(t *testing.T) {
	type mine map[string]tier
	for _, c := range []struct {
		v    any
		t    reflect.Type
		want string // "" = fine
	}{
		{"3", reflect.TypeFor[int32](), `"3", a string, can never equal an int32`},
		{"3", reflect.TypeFor[*int32](), `"3", a string, can never equal an int32`},
		{3, reflect.TypeFor[int32](), ""},
		{3, reflect.TypeFor[int64](), ""},
		{3, reflect.TypeFor[float64](), ""},
		{3, reflect.TypeFor[*int32](), ""},
		{3, reflect.TypeFor[uint8](), ""},
		{3, reflect.TypeFor[amount](), ""},
		{3, reflect.TypeFor[*amount](), ""},
		{3.0, reflect.TypeFor[int32](), ""},
		{3.5, reflect.TypeFor[int32](), `3.5, a number, can never equal an int32`},
		{3.5, reflect.TypeFor[float32](), ""},
		{1e300, reflect.TypeFor[float32](), `1e+300, a number, can never equal a float32`},
		{json.Number("3.0"), reflect.TypeFor[int32](), ""},
		{300, reflect.TypeFor[int8](), `300, a number, can never equal an int8`},
		{-1, reflect.TypeFor[uint8](), `-1, a number, can never equal a uint8`},
		{3, reflect.TypeFor[string](), `3, a number, can never equal a string`},
		{true, reflect.TypeFor[string](), `true, a bool, can never equal a string`},
		{true, reflect.TypeFor[*bool](), ""},
		{1, reflect.TypeFor[bool](), `1, a number, can never equal a bool`},
		{"gold", reflect.TypeFor[tier](), ""},
		{tier("gold"), reflect.TypeFor[string](), ""},
		{"x", reflect.TypeFor[amount](), `"x", a string, can never equal a filters.amount`},
		{"x", reflect.TypeFor[any](), ""},
		{"x", reflect.TypeFor[fmt.Stringer](), ""},
		{"2026-01-02T03:04:05Z", reflect.TypeFor[time.Time](), ""},
		{"today", reflect.TypeFor[time.Time](), `"today", a string, can never equal a time.Time`},
		{[]string{"a"}, reflect.TypeFor[[]tier](), ""},
		{[]string{"a"}, reflect.TypeFor[[]int](), `["a"], a list, can never equal a []int`},
		{map[string]string{"a": "b"}, reflect.TypeFor[mine](), ""},
		{size{Width: 1}, reflect.TypeFor[size](), ""},
		{size{Width: 1}, reflect.TypeFor[string](), `{"width":1}, an object, can never equal a string`},
		{"x", nil, ""},
		{Present, reflect.TypeFor[int32](), ""},
		{Absent, reflect.TypeFor[int32](), ""},
		{Any(3, Not("x")), reflect.TypeFor[int32](), `"x", a string, can never equal an int32`},
		{All(3, None(4)), reflect.TypeFor[int32](), ""},

		{func(int32) bool { return true }, reflect.TypeFor[int32](), ""},
		{func(int64) bool { return true }, reflect.TypeFor[*int32](), ""},
		{func(*int64) bool { return true }, reflect.TypeFor[int32](), ""},
		{func(float64, bool) bool { return true }, reflect.TypeFor[int32](), ""},
		{func(any) bool { return true }, reflect.TypeFor[int32](), ""},
		{func(string) bool { return true }, reflect.TypeFor[int32](), `func(string) bool can never be called with an int32`},
		{func(string) bool { return true }, reflect.TypeFor[any](), ""},
		{func(string) bool { return true }, reflect.TypeFor[amount](), ""},
		{func(string) bool { return true }, nil, ""},
		{func(string) bool { return true }, reflect.TypeFor[tier](), ""},
		{func(tier) bool { return true }, reflect.TypeFor[string](), ""},
		{func(bool) bool { return true }, reflect.TypeFor[string](), `func(bool) bool can never be called with a string`},
		{func([]string) bool { return true }, reflect.TypeFor[[]tier](), ""},
		{func([]string) bool { return true }, reflect.TypeFor[[]int](), `func([]string) bool can never be called with a []int`},
		{func([]string) bool { return true }, reflect.TypeFor[map[string]int](), `func([]string) bool can never be called with a map[string]int`},
		{func([]byte) bool { return true }, reflect.TypeFor[string](), ""},
		{func(map[string]int) bool { return true }, reflect.TypeFor[mine](), `func(map[string]int) bool can never be called with a filters.mine`},
		{func(size) bool { return true }, reflect.TypeFor[map[string]int](), ""},
		{func([1]string) bool { return true }, reflect.TypeFor[[]string](), ""},
		{func(json.Number) bool { return true }, reflect.TypeFor[int](), ""},
	} {
		criterion := criterionOf(t, c.v)
		got := ""
		if err := Check(criterion, c.t); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s against %v: got %q, want %q", criterion, c.t, got, c.want)
		}
	}
}

func TestString(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{"gold", `"gold"`},
		{3, `3`},
		{size{Width: 1}, `{"width":1}`},
		{"<a>", `"<a>"`},
		{Present, `Present`},
		{Any(Equal("gold"), Not(Present), All(), None(Absent)), `Any("gold", Not(Present), All(), None(Absent))`},
		{func(string, bool) bool { return true }, `func(string, bool) bool`},
	} {
		if got := criterionOf(t, c.v).String(); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	if got := Equal(nil).String(); !strings.HasPrefix(got, "invalid(a criterion cannot be nil") {
		t.Error(got)
	}
}

// FLT-5: the engine recovers, and must see the user's panic.
func TestPanicsGoThrough(t *testing.T) {
	for _, f := range []any{func(string) bool { panic("mine") }, func(tier) bool { panic("mine") }} {
		func() {
			defer func() {
				if r := recover(); r != "mine" {
					t.Errorf("recovered %v", r)
				}
			}()
			criterionOf(t, f).Match("x", true)
		}()
	}
}

func TestLiteralsAreMatchedWithoutAllocation(t *testing.T) {
	for _, c := range []struct {
		criterion any
		value     any
	}{
		{"gold", "gold"},
		{3, any(int64(3))},
		{1.5, any(1.5)},
		{Any("a", "b", Not(Present), func(v string) bool { return v == "x" }), "x"},
	} {
		criterion := criterionOf(t, c.criterion)
		if got := testing.AllocsPerRun(100, func() { criterion.Match(c.value, true) }); got > 0 {
			t.Errorf("%s: %v allocations", criterion, got)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	for name, v := range map[string]any{
		"literal":     "gold",
		"function":    func(v string) bool { return v == "gold" },
		"reflected":   func(v tier) bool { return v == "gold" },
		"combination": Any("silver", Not(Present), All("gold", Present)),
	} {
		criterion, err := Of(v)
		if err != nil {
			b.Fatal(err)
		}
		value := any("gold")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				criterion.Match(value, true)
			}
		})
	}
}
