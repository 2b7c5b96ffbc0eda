package storage

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/kopf-go/kopf/internal/body"
)

func annotated(t testing.TB) *annotations { return annotatedUnder(t, DefaultPrefix) }

func annotatedUnder(t testing.TB, prefix string) *annotations {
	t.Helper()
	a := newAnnotations(prefix, AnnotationsOptions{})
	if err := a.Validate(); err != nil {
		t.Fatal(err)
	}
	return a
}

func parse(t testing.TB, raw string) *body.Body {
	t.Helper()
	b, err := body.Parse([]byte(raw))
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return b
}

var full = Record{
	Started: time.Date(2026, 11, 30, 1, 32, 58, 834105000, time.UTC),
	Stopped: time.Date(2026, 11, 30, 1, 32, 59, 0, time.UTC),
	Delayed: time.Date(2026, 11, 30, 1, 33, 58, 834161000, time.UTC),
	Purpose: "create", Retries: 3, Success: true, Message: "Not \"ready\" ü.",
	Subrefs: []string{"p/a", "p/b"}, Digest: "0123456789abcdef",
}

func objectWith(annotations map[string]string) *body.Body {
	raw, err := json.Marshal(map[string]any{
		"kind": "Widget", "metadata": map[string]any{"name": "w", "uid": "u-1", "annotations": annotations}, "spec": map[string]any{"a": 1},
	})
	if err != nil {
		panic(err)
	}
	b, err := body.Parse(raw)
	if err != nil {
		panic(err)
	}
	return b
}
