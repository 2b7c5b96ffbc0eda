package logging

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

var (
	blue = Reference{APIVersion: "example.com/v1", Kind: "Database", Name: "blue", UID: "u-1", Namespace: "team"}
	node = Reference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u-2"}
	noon = time.Date(2026, 11, 30, 12, 30, 1, 250_000_000, time.FixedZone("", 3600))
)

// written is a record in a format.
func written(t *testing.T, o Options, level slog.Level, attrs ...any) string {
	t.Helper()
	var out bytes.Buffer
	o.Level = slog.LevelDebug
	log, err := New(&out, o)
	if err != nil {
		t.Fatal(err)
	}
	r := slog.NewRecord(noon, level, "handler succeeded", 0)
	r.Add(attrs...)
	if err := log.Handler().Handle(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	derived := out.String()
	out.Reset()
	r = slog.NewRecord(noon, level, "handler succeeded", 0)
	if err := log.With(attrs...).Handler().Handle(t.Context(), r); err != nil || out.String() != derived {
		t.Errorf("as attributes of the logger: %s%v", &out, err)
	}
	return derived
}

// LOG-1, LOG-2, T171: each format, with the prefix of namespaced and cluster objects.
func TestFormats_LOG1_LOG2_LOG4_T171(t *testing.T) {
	for _, c := range []struct {
		name    string
		options Options
		level   slog.Level
		attrs   []any
		want    string
	}{
		{"text", Options{}, slog.LevelInfo, []any{"object", blue, "handler", "h"}, "12:30:01.250 INFO  [team/blue] handler succeeded handler=h"},
		{"full", Options{Format: "full"}, slog.LevelInfo, []any{"object", blue, "handler", "h"},
			"[2026-11-30 12:30:01,250] kopf.objects         [INFO    ] [team/blue] handler succeeded handler=h"},
		{"full, of the cluster", Options{Format: "FULL"}, slog.LevelWarn, []any{"object", node},
			"[2026-11-30 12:30:01,250] kopf.objects         [WARNING ] [n1] handler succeeded"},
		{"full, of no object", Options{Format: "full"}, slog.LevelError, nil,
			"[2026-11-30 12:30:01,250] kopf                 [ERROR   ] handler succeeded"},
		{"full, odd level", Options{Format: "full"}, slog.LevelError + 12, nil,
			"[2026-11-30 12:30:01,250] kopf                 [ERROR+12] handler succeeded"},
		{"plain", Options{Format: "plain"}, slog.LevelInfo, []any{"object", blue, "handler", "h"}, "[team/blue] handler succeeded handler=h"},
		{"plain without prefix", Options{Format: "Plain", Prefix: PrefixOff}, slog.LevelInfo, []any{"handler", "h", "object", blue},
			"handler succeeded object=team/blue handler=h"},
		{"text with a key for the object", Options{Prefix: PrefixOff, RefKey: "about"}, slog.LevelInfo, []any{"object", node},
			"12:30:01.250 INFO  handler succeeded about=n1"},
		{"logfmt", Options{Format: "logfmt"}, slog.LevelInfo, []any{"object", blue, "handler", "h"},
			`time=2026-11-30T12:30:01.250+01:00 level=INFO msg="handler succeeded" object=team/blue handler=h`},
		{"logfmt with prefix", Options{Format: "logfmt", Prefix: PrefixOn, RefKey: "about"}, slog.LevelInfo, []any{"object", blue},
			`time=2026-11-30T12:30:01.250+01:00 level=INFO msg="[team/blue] handler succeeded" about=team/blue`},
		{"json", Options{Format: "json"}, slog.LevelInfo, []any{"object", blue, "handler", "h"},
			`{"timestamp":"2026-11-30T11:30:01.250000+00:00","severity":"info","message":"handler succeeded",` +
				`"object":{"apiVersion":"example.com/v1","kind":"Database","name":"blue","uid":"u-1","namespace":"team"},"handler":"h"}`},
		{"json with prefix and key", Options{Format: "JSON", Prefix: PrefixOn, RefKey: "k8s"}, slog.LevelInfo, []any{"object", node},
			`{"timestamp":"2026-11-30T11:30:01.250000+00:00","severity":"info","message":"[n1] handler succeeded",` +
				`"k8s":{"apiVersion":"v1","kind":"Node","name":"n1","uid":"u-2"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := written(t, c.options, c.level, c.attrs...); got != c.want+"\n" {
				t.Errorf("got  %swant %s", got, c.want)
			}
		})
	}
}

func TestSeverities_LOG1_T171(t *testing.T) {
	for level, want := range map[slog.Level]string{
		slog.LevelDebug - 4: "debug", slog.LevelDebug: "debug", -1: "debug", slog.LevelInfo: "info", slog.LevelInfo + 1: "info",
		slog.LevelWarn: "warn", slog.LevelError: "error", slog.LevelError + 3: "error", slog.LevelError + 4: "fatal",
	} {
		var record struct{ Severity string }
		if err := json.Unmarshal([]byte(written(t, Options{Format: "json"}, max(level, slog.LevelDebug))), &record); err != nil {
			t.Fatal(err)
		}
		if severity(level) != want || record.Severity != severity(max(level, slog.LevelDebug)) {
			t.Errorf("%d is %s, and %s in JSON, want %s", level, severity(level), record.Severity, want)
		}
	}
}

// In a group, object is an attribute like any.
func TestObjectInGroups(t *testing.T) {
	for _, format := range []string{"logfmt", "json"} {
		var out bytes.Buffer
		log, err := New(&out, Options{Format: format, Prefix: PrefixOn, RefKey: "about"})
		if err != nil {
			t.Fatal(err)
		}
		log.With("object", blue).WithGroup("").WithGroup("g").Info("hello", "object", "other", "time", "late")
		if text := out.String(); !strings.Contains(text, "[team/blue] hello") || !strings.Contains(text, "other") || strings.Count(text, "about") != 1 {
			t.Error(text)
		}
		out.Reset()
		log.WithGroup("g").With("object", blue).Info("hello")
		if strings.Contains(out.String(), "about") || strings.Contains(out.String(), "[") {
			t.Error(out.String())
		}
	}
}

// Users' own handlers get the object whole in JSON, and its name in text.
func TestReferenceInOtherHandlers(t *testing.T) {
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "object", blue)
	if want := `"object":{"apiVersion":"example.com/v1","kind":"Database","name":"blue","uid":"u-1","namespace":"team"}`; !strings.Contains(out.String(), want) {
		t.Error(out.String())
	}
	out.Reset()
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", "object", blue)
	if !strings.HasSuffix(out.String(), "object=team/blue\n") {
		t.Error(out.String())
	}
}

func BenchmarkObjectLogger(b *testing.B) {
	for _, format := range Formats {
		b.Run(format, func(b *testing.B) {
			log, err := New(io.Discard, Options{Format: format})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				log.With(ObjectKey, Reference{APIVersion: "example.com/v1", Kind: "Database", Name: "blue", UID: "u-1", Namespace: "team"}).Info("m")
			}
		})
	}
}
