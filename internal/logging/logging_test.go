package logging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"time"
)

// newText returns a logger without times, and what it has written.
func newText(t *testing.T, level slog.Level) (*slog.Logger, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	log, err := New(&out, Options{Level: level})
	if err != nil {
		t.Fatal(err)
	}
	return slog.New(timeless{log.Handler()}), &out
}

type timeless struct{ slog.Handler }

func (h timeless) Handle(ctx context.Context, r slog.Record) error {
	r.Time = time.Time{}
	return h.Handler.Handle(ctx, r)
}

func (h timeless) WithAttrs(attrs []slog.Attr) slog.Handler {
	return timeless{h.Handler.WithAttrs(attrs)}
}
func (h timeless) WithGroup(name string) slog.Handler { return timeless{h.Handler.WithGroup(name)} }

type valuer struct{ v slog.Value }

func (v valuer) LogValue() slog.Value { return v.v }

func TestText(t *testing.T) {
	for _, c := range []struct {
		name string
		log  func(l *slog.Logger)
		want string
	}{
		{"plain", func(l *slog.Logger) { l.Info("hello") }, "INFO  hello"},
		{"levels", func(l *slog.Logger) {
			l.Debug("d")
			l.Warn("w")
			l.Error("e")
			l.Log(t.Context(), slog.LevelInfo+1, "i")
		},
			"DEBUG d\nWARN  w\nERROR e\nINFO+1 i"},
		{"attributes", func(l *slog.Logger) { l.Info("hello", "a", 1, "b", true, "c", 1.5) }, "INFO  hello a=1 b=true c=1.5"},
		{"object", func(l *slog.Logger) { l.Info("hello", "a", 1, "object", "ns/x", "b", 2) }, "INFO  [ns/x] hello a=1 b=2"},
		{"object with", func(l *slog.Logger) { l.With("object", "ns/x", "handler", "h").Info("hello", "a", 1) },
			"INFO  [ns/x] hello handler=h a=1"},
		{"another object", func(l *slog.Logger) { l.With("object", "ns/x").With("object", "ns/y").Info("hello") }, "INFO  [ns/y] hello"},
		{"object of a record", func(l *slog.Logger) { l.With("object", "ns/x").Info("hello", "object", "ns/y") }, "INFO  [ns/y] hello"},
		{"object in a group", func(l *slog.Logger) { l.WithGroup("g").Info("hello", "object", "ns/x") }, "INFO  hello g.object=ns/x"},
		{"group", func(l *slog.Logger) { l.Info("hello", slog.Group("g", "a", 1, slog.Group("h", "b", 2))) }, "INFO  hello g.a=1 g.h.b=2"},
		{"group without name", func(l *slog.Logger) { l.Info("hello", slog.Group("", "a", 1)) }, "INFO  hello a=1"},
		{"empty group", func(l *slog.Logger) { l.Info("hello", slog.Group("g")) }, "INFO  hello"},
		{"groups with", func(l *slog.Logger) { l.With("a", 1).WithGroup("g").With("b", 2).WithGroup("h").Info("hello", "c", 3) },
			"INFO  hello a=1 g.b=2 g.h.c=3"},
		{"group without a name", func(l *slog.Logger) { l.WithGroup("").Info("hello", "a", 1) }, "INFO  hello a=1"},
		{"empty attribute", func(l *slog.Logger) { l.LogAttrs(t.Context(), slog.LevelInfo, "hello", slog.Attr{}, slog.Int("a", 1)) }, "INFO  hello a=1"},
		{"quoted", func(l *slog.Logger) {
			l.Info("hello", "a", "", "b", "x y", "c", `x"y`, "d", "x=y", "e", "x\ny", "f", "x\ty", "g", "xy")
		}, `INFO  hello a="" b="x y" c="x\"y" d="x=y" e="x\ny" f="x\ty" g=xy`},
		{"quoted, not printable", func(l *slog.Logger) {
			l.Info("hello", "a", "\x1b[31m", "b", "x\xff", "c", "wü☺", "d", "a\u200bb", "e", "a\u00a0b")
		},
			`INFO  hello a="\x1b[31m" b="x\xff" c=wü☺ d="a\u200bb" e="a\u00a0b"`},
		{"error", func(l *slog.Logger) { l.Info("hello", "error", errors.New("it: failed")) }, `INFO  hello error="it: failed"`},
		{"nil", func(l *slog.Logger) { l.Info("hello", "a", nil) }, "INFO  hello a=<nil>"},
		{"duration", func(l *slog.Logger) {
			l.Info("hello", "a", 1500*time.Millisecond, "b", 1234567*time.Nanosecond, "c", 999*time.Nanosecond, "d", time.Duration(0), "e", -time.Microsecond)
		}, "INFO  hello a=1.5s b=1ms c=999ns d=0s e=-1µs"},
		{"time", func(l *slog.Logger) { l.Info("hello", "a", time.Unix(1_800_000_000, 5).UTC()) }, "INFO  hello a=2027-01-15T08:00:00Z"},
		{"valuer", func(l *slog.Logger) { l.Info("hello", "a", valuer{slog.StringValue("x")}) }, "INFO  hello a=x"},
		{"valuer of a group", func(l *slog.Logger) { l.Info("hello", "g", valuer{slog.GroupValue(slog.Int("a", 1))}) }, "INFO  hello g.a=1"},
		{"valuer of the object", func(l *slog.Logger) { l.Info("hello", "object", valuer{slog.StringValue("ns/x")}) }, "INFO  [ns/x] hello"},
		{"list", func(l *slog.Logger) { l.Info("hello", "a", []string{"x", "y"}) }, `INFO  hello a="[x y]"`},
		{"map", func(l *slog.Logger) { l.Info("hello", "", map[string]int{"x": 1}) }, `INFO  hello =map[x:1]`},
	} {
		log, out := newText(t, slog.LevelDebug)
		c.log(log)
		if got := out.String(); got != c.want+"\n" {
			t.Errorf("%s:\n got %swant %s", c.name, got, c.want)
		}
	}
}

func TestTextHasTheTime(t *testing.T) {
	var out bytes.Buffer
	log, err := New(&out, Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 30, 12, 30, 1, 250_000_000, time.Local)
	_ = log.Handler().Handle(t.Context(), slog.NewRecord(at, slog.LevelInfo, "hello", 0))
	if out.String() != "12:30:01.250 INFO  hello\n" {
		t.Error(out.String())
	}
}

func TestLevel(t *testing.T) {
	for _, format := range Formats {
		var out bytes.Buffer
		log, err := New(&out, Options{Level: slog.LevelWarn, Format: format})
		if err != nil {
			t.Fatal(err)
		}
		log.Info("quiet")
		if log.Enabled(t.Context(), slog.LevelInfo) || !log.Enabled(t.Context(), slog.LevelWarn) || out.Len() > 0 {
			t.Errorf("%s: %s", format, &out)
		}
		log.With("a", 1).WithGroup("g").Info("quiet")
		if log.Warn("loud"); strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), "loud") {
			t.Errorf("%s: %s", format, &out)
		}
	}
}

func TestUnknownFormat(t *testing.T) {
	if _, err := New(nil, Options{Format: "xml"}); err == nil || err.Error() != `log format "xml" is not known: use one of text, plain, full, logfmt, json` {
		t.Error(err)
	}
}

// A logger does not change when others are derived from it.
func TestWithLeavesTheLoggerAlone(t *testing.T) {
	log, out := newText(t, slog.LevelInfo)
	parent := log.With("a", 1)
	one, two := parent.With("b", "one"), parent.With("b", "two")
	other := parent.WithGroup("g").With("object", "x")
	prefixed := parent.With("object", "ns/x")
	for _, l := range []*slog.Logger{parent, one, two, other, prefixed, one, parent, log} {
		l.Info("m", "c", 1)
	}
	want := `INFO  m a=1 c=1
INFO  m a=1 b=one c=1
INFO  m a=1 b=two c=1
INFO  m a=1 g.object=x g.c=1
INFO  [ns/x] m a=1 c=1
INFO  m a=1 b=one c=1
INFO  m a=1 c=1
INFO  m c=1
`
	if out.String() != want {
		t.Errorf("got\n%s", out)
	}
}

// Lines of several goroutines and derived loggers do not mix.
func TestConcurrentUse(t *testing.T) {
	log, out := newText(t, slog.LevelInfo)
	parent := log.With("parent", "p")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			own := parent.With("object", fmt.Sprint(i))
			for j := range 100 {
				own.Info("message", "j", j, slog.Group("g", "i", i))
			}
		})
	}
	all.Wait()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 800 {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		var i, j, k int
		if n, err := fmt.Sscanf(line, "INFO  [%d] message parent=p j=%d g.i=%d", &i, &j, &k); n != 3 || err != nil || i != k {
			t.Fatalf("%q: %v", line, err)
		}
	}
}

// The contract of slog's handlers.
func TestSlogContract(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(t *testing.T) slog.Handler {
		out.Reset()
		log, err := New(&out, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return log.Handler()
	}, func(*testing.T) map[string]any {
		return parsed(out.String())
	})
}

// parsed reads a line back: keys with dots are groups.
func parsed(line string) map[string]any {
	fields := strings.Fields(line)
	result := map[string]any{}
	if len(fields) > 0 && strings.Contains(fields[0], ":") {
		result[slog.TimeKey], fields = fields[0], fields[1:]
	}
	result[slog.LevelKey], fields = fields[0], fields[1:]
	result[slog.MessageKey], fields = fields[0], fields[1:]
	for _, field := range fields {
		key, value, _ := strings.Cut(field, "=")
		into := result
		path := strings.Split(key, ".")
		for _, group := range path[:len(path)-1] {
			if into[group] == nil {
				into[group] = map[string]any{}
			}
			into = into[group].(map[string]any)
		}
		into[path[len(path)-1]] = value
	}
	return result
}
