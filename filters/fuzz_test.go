package filters

import (
	"encoding/json"
	"testing"

	"github.com/kopf-go/kopf/diff"
)

// FuzzLiterals holds that any JSON value but null is a literal that fits itself, that
// combinations agree about it, and that functions get it undamaged or not at all.
func FuzzLiterals(f *testing.F) {
	for _, seed := range []string{`"gold"`, `"0"`, `""`, `0`, `9007199254740993`, `-1.5e-3`, `1e400`, `true`, `[1,{"a":null}]`, `{"a":{"b":[]}}`, `null`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var value any
		if decode(text, &value) != nil {
			t.Skip()
		}
		criterion, err := Of(value)
		if value == nil {
			if err == nil {
				t.Fatal("null is a literal")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if !criterion.Match(value, true) || criterion.Match(nil, false) {
			t.Fatalf("%s does not fit itself, or what is absent", criterion)
		}
		if !All(value, Present).Match(value, true) || !Any(Absent, value).Match(value, true) ||
			None(Absent, value).Match(value, true) || Not(value).Match(value, true) {
			t.Fatalf("combinations disagree about %s", criterion)
		}
		for _, function := range []any{
			func(got any) bool { return undamaged(t, value, got) }, func(got string) bool { return undamaged(t, value, got) },
			func(got bool) bool { return undamaged(t, value, got) }, func(got int64) bool { return undamaged(t, value, got) },
			func(got uint64) bool { return undamaged(t, value, got) }, func(got int8) bool { return undamaged(t, value, got) },
			func(got json.Number) bool { return undamaged(t, value, got) },
			func(got []any) bool { return undamaged(t, value, got) }, func(got map[string]any) bool { return undamaged(t, value, got) },
			func(float64) bool { return true }, // the nearest one
		} {
			of, err := Of(function)
			if err != nil {
				t.Fatal(err)
			}
			of.Match(value, true)
		}
	})
}

func undamaged(t *testing.T, want, got any) bool {
	if !diff.Equal(want, got) {
		t.Errorf("a function got the %T %v for %v", got, got, want)
	}
	return true
}
