package engine_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

const canary = "CANARY-7f3a"

// nowhere expects that neither canary nor its base64 has got out of the object's own
// fields: into annotations, logs, events, or any request of the operator's.
func (w *world) nowhere() {
	w.Helper()
	for _, text := range []string{canary, base64.StdEncoding.EncodeToString([]byte(canary)), strings.Trim(base64.StdEncoding.EncodeToString([]byte(canary)), "=")} {
		for _, line := range w.logs {
			if strings.Contains(line, text) {
				w.Errorf("in the log: %s", line)
			}
		}
		for _, r := range w.server.Requests(simulated.On{}) {
			if r.Verb != "create" || r.Resource == "events" {
				if strings.Contains(string(r.Body), text) {
					w.Errorf("in a %s request for %s: %s", r.Verb, r.Resource, r.Body)
				}
			}
		}
	}
}

// B25: data of secrets leave the secret nowhere; their changes are seen, by path.
func TestSecrets_B25(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("event handler failed", "failed for good")
		secrets := w.server.Serve(simulated.Kind{GroupVersion: "v1", Kind: "Secret", Plural: "secrets", Namespaced: true})
		note := func(id string) func(context.Context, *kopf.Change[*corev1.Secret]) error {
			return func(_ context.Context, c *kopf.Change[*corev1.Secret]) error {
				paths := ""
				for _, item := range c.Diff {
					paths += fmt.Sprintf(" %s %s", item.Op, item.Path)
				}
				w.note(fmt.Sprintf("%s%s now %t", id, paths, string(c.New.Data["password"]) == canary))
				c.Log.Info("changed", "diff", c.Diff, "old", c.Old)
				return fmt.Errorf("failed: %v", c.Diff)
			}
		}
		w.start(func(h handlers) {
			in := on.In(h.r)
			on.Create(note("create"), in, on.ID("create"), on.Errors(on.Ignored))
			on.Update(note("update"), in, on.ID("update"), on.Errors(on.Permanent))
			on.Delete(note("delete"), in, on.ID("delete"), on.Errors(on.Permanent))
			on.Event(func(_ context.Context, e *kopf.Event[*corev1.Secret]) error {
				e.Patch.Apply(func(s *corev1.Secret) { s.Immutable = nil })
				return errors.New("event handler failed")
			}, in, on.ID("event"))
			on.FieldChange("data", func(_ context.Context, c *kopf.FieldChange[*corev1.Secret, map[string][]byte]) error {
				w.note(fmt.Sprintf("field %t → %t", len(c.Old) > 0, string(c.New["password"]) == canary))
				c.Log.Info("field", "diff", c.Diff)
				return nil
			}, in, on.ID("field"))
		})
		password := func(text string) func(widgetObj) {
			return func(o widgetObj) { set(o, base64.StdEncoding.EncodeToString([]byte(text)), "data", "password") }
		}
		o := simulated.Object(ns, "s1", map[string]any{"data": map[string]any{"user": "bWU="}})
		password("harmless")(o)
		if _, err := secrets.Create(o); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if _, err := secrets.Update(ns, "s1", password(canary)); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if err := secrets.Delete(ns, "s1"); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.expectAnyTime("create add . now false", "field false → false",
			"update change data.password now true", "field false → true", "delete now true")
		w.nowhere()
		if secrets.Get(ns, "s1") != nil {
			t.Error("it is still there")
		}
	})
}

// B25 for fields that the user marks: filters and field handlers get the present value,
// the former one is not known.
func TestSensitiveFields_B25(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) {
			h.create("create", nil, on.Sensitive("spec.color"))
			h.update("to-canary", nil, on.Field("spec.color"), on.New(canary))
			h.update("from-present", nil, on.Field("spec.color"), on.Old(filters.Present), on.New(filters.Absent))
			on.FieldChange("spec.color", func(_ context.Context, c *kopf.FieldChange[*widget, string]) error {
				w.note(fmt.Sprintf("color %q(%t) → %t(%t)", c.Old, c.HadOld, c.New == canary, c.HasNew))
				c.Log.Info("field", "diff", c.Diff)
				return kopf.Retry(time.Second, fmt.Errorf("retry %d", c.Retry)) // so that it is remembered
			}, on.ID("color"), on.In(h.r), forWidgets, on.Retries(2))
		}
		w.allow("failed for good")
		o := w.start(register)
		w.create("w1", 1, func(o widgetObj) { set(o, "red", "spec", "color") })
		w.sleep(5 * time.Second)
		w.mark()
		w.update("w1", func(o widgetObj) { set(o, canary, "spec", "color") })
		w.sleep(500 * time.Millisecond)
		o.kill()
		w.start(register)
		w.sleep(5 * time.Second)
		w.update("w1", func(o widgetObj) { delete(o.Object["spec"].(map[string]any), "color") })
		w.sleep(5 * time.Second)
		w.expectAnyTime("to-canary w1 #0 1→1", `color ""(true) → true(true)`, `color ""(true) → true(true)`,
			"from-present w1 #0 1→1", `color ""(true) → false(false)`, `color ""(true) → false(false)`)
		w.nowhere()
		w.noProgress("w1")
	})
}

// B24, X26: an object whose former state does not fit is handled once for each change.
// Which of its fields have changed is known, and not from what.
func TestTooLarge_B24_X26(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) {
			h.create("create", nil)
			h.resume("resume", nil)
			on.Update(func(_ context.Context, c *change) error {
				w.note(fmt.Sprintf("update known %t, old %t, %v", c.OldKnown(), c.Old != nil, c.Diff[0].Path))
				return nil
			}, on.ID("update"), on.In(h.r), forWidgets)
			h.update("size", func(_ context.Context, c *change) error { return nil }, on.Field("spec.size"), on.Old(1), on.New(2))
			h.update("label", nil, on.Field("metadata.labels"))
			h.delete("delete", nil)
		}
		noise := incompressible(300 << 10)
		o := w.start(register)
		w.create("w1", 1, func(o widgetObj) { set(o, noise, "spec", "blob") }, annotation("others", strings.Repeat("x", 100<<10)))
		w.settle()
		w.writes("patch widgets", "patch widgets")
		_ = o.stop()
		w.start(register)
		w.expectAnyTime("create w1 #0 →1", "resume w1 #0 →1")
		w.mark()
		w.resize("w1", 2)
		w.settle()
		w.expectAnyTime("update known false, old false, spec", "size w1 #0 →2")
		w.mark()
		w.update("w1", label("a", "b"))
		w.settle()
		w.expectAnyTime("update known false, old false, metadata", "label w1 #0 →2")
		w.quiet(time.Hour)
		w.delete("w1")
		w.settle()
		w.gone("w1")
	})
}

// B24: what can be compressed is, and then everything is as usual.
func TestLarge_B24(t *testing.T) {
	scenario(t, func(w *world) {
		register := func(h handlers) { h.create("create", nil); h.update("update", nil) }
		o := w.start(register)
		w.create("w1", 1, func(o widgetObj) { set(o, strings.Repeat("large ", 50<<10), "spec", "blob") })
		w.settle()
		_ = o.stop()
		w.start(register)
		w.resize("w1", 2)
		w.settle()
		w.expectAnyTime("create w1 #0 →1", "update w1 #0 1→2")
		if n := len(w.get("w1").GetAnnotations()[lastHandledName]); n == 0 || n > 10<<10 {
			t.Errorf("the state takes %d bytes", n)
		}
		w.quiet(time.Hour)
	})
}

// incompressible is a text that cannot be made shorter.
func incompressible(n int) string {
	var text strings.Builder
	x := uint64(88172645463325252)
	for text.Len() < n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		fmt.Fprintf(&text, "%016x", x)
	}
	return text.String()
}
