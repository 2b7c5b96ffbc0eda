package diff

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"testing"
)

func TestPathString(t *testing.T) {
	for want, path := range map[string]Path{
		".":                                     nil,
		"spec":                                  {"spec"},
		"spec.replicas":                         {"spec", "replicas"},
		`metadata.annotations["example.com/x"]`: {"metadata", "annotations", "example.com/x"},
		`["a.b"].c`:                             {"a.b", "c"},
		`a[""].b`:                               {"a", "", "b"},
		`[""]`:                                  {""},
		`["."]`:                                 {"."},
		`a["[\"b\"]"]`:                          {"a", `["b"]`},
		`a["b c"]["\n"]`:                        {"a", "b c", "\n"},
		"größe.x-y_z/1":                         {"größe", "x-y_z/1"},
		`["\xff"]`:                              {"\xff"},
	} {
		if got := path.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestValuesAreCut(t *testing.T) {
	item := Item{Op: Add, Path: Path{"a"}, New: "<" + strings.Repeat("ü", 500)}
	got := item.String()
	if len(got) > printed+20 || !strings.HasPrefix(got, `add a: "<üü`) || !strings.HasSuffix(got, "ü…") {
		t.Error(got)
	}
	if got := (Item{Op: Change, Path: Path{"a"}, Old: math.NaN(), New: 1}).String(); got != "change a: NaN -> 1" {
		t.Error(got)
	}
}

func TestLogValues(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
			return slog.Attr{}
		}
		return a
	}}))
	d := Of(obj{"a": 1, "b": 1, "c": 1}, obj{"a": 2, "c": 1, "d": "x"})
	log.Info("", "diff", d)
	for _, item := range d {
		log.Info("", "op", item.Op, "path", item.Path, "item", item)
	}
	const want = `{"diff":"add d: \"x\"; remove b: 1; change a: 1 -> 2"}
{"op":"add","path":"d","item":{"op":"add","path":"d","new":"\"x\""}}
{"op":"remove","path":"b","item":{"op":"remove","path":"b","old":"1"}}
{"op":"change","path":"a","item":{"op":"change","path":"a","old":"1","new":"2"}}
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}
