package engine_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// refuse answers patches that contain a text as the API server answers invalid ones.
func (w *world) refuse(code int, text string) {
	w.server.Before(simulated.On{Verb: "patch"}, func(r simulated.Request) *simulated.Fault {
		if bytes.Contains(r.Body, []byte(text)) {
			return simulated.Fail(code)
		}
		return nil
	})
}

func setPhase(text string) changeFn {
	return func(_ context.Context, c *change) error {
		c.Patch.Apply(func(o *widget) { o.Status.Phase = text })
		return nil
	}
}

// PAT-4, design §4: a patch that the API server refuses is a failure of the handler that
// asked for it, which is tried again after its back-off, and fails for good when its
// attempts are used up. What others asked for is written, once.
func TestRefusedPatch_PAT4(t *testing.T) {
	for name, code := range map[string]int{"invalid": 422, "malformed": 400, "forbidden by a policy": 403} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("failed for good")
				w.refuse(code, "bad phase")
				w.start(func(h handlers) {
					h.create("bad", setPhase("bad phase"), on.Retries(3), on.Backoff(time.Minute))
					h.create("good", func(_ context.Context, c *change) error {
						c.Patch.Apply(func(o *widget) { o.Spec.Color = "green" })
						c.SetResult("fine")
						return nil
					})
					h.create("plain", nil)
				})
				w.create("w1", 1)
				w.settle()
				r := w.record("w1", "bad")
				if r == nil || r.Finished() || r.Retries != 1 || !strings.Contains(r.Message, "simulated failure") {
					t.Fatalf("%+v", r)
				}
				if o := w.get("w1"); o.Object["spec"].(map[string]any)["color"] != "green" || o.Object["status"].(map[string]any)["good"] != "fine" {
					t.Error(o.Object)
				}
				w.sleep(10 * time.Minute)
				w.expectAnyTime("bad w1 #0 →1", "good w1 #0 →1", "plain w1 #0 →1", "bad w1 #1 →1", "bad w1 #2 →1")
				w.noProgress("w1")
				w.quiet(time.Hour)
			})
		})
	}
}

// The same for results, which a schema may want to have in another form.
func TestRefusedResult_RES3(t *testing.T) {
	scenario(t, func(w *world) {
		w.refuse(http.StatusUnprocessableEntity, `"bad":`)
		w.start(func(h handlers) {
			h.create("bad", func(_ context.Context, c *change) error {
				if c.Retry == 0 {
					c.SetResult("refused")
				}
				return nil
			})
			h.create("good", setPhase("Ready"))
		})
		w.create("w1", 1)
		w.sleep(2 * time.Minute)
		w.expectAnyTime("bad w1 #0 →1", "good w1 #0 →1", "bad w1 #1 →1")
		w.noProgress("w1")
	})
}

// What stands in the way of everything is no fault of the handlers.
func TestRefusedBookkeeping(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("handling failed")
		w.refuse(http.StatusForbidden, "last-handled")
		w.start(func(h handlers) { h.create("create", setPhase("Ready")) })
		w.create("w1", 1)
		w.sleep(time.Hour)
		w.expectAnyTime("create w1 #0 →1")
		if w.record("w1", "create") != nil {
			t.Error("it has failed")
		}
	})
}

// API-1: a missing permission is the operator's fault, and no handler is repeated for it.
func TestForbiddenPatchOfHandler_API1(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("permission is missing")
		remove := w.server.Before(simulated.On{Verb: "patch", Resource: "widgets/status"}, simulated.Always(&simulated.Fault{
			Code: http.StatusForbidden, Message: `widgets.demo.example "w1" is forbidden: User "me" cannot patch resource "widgets/status" in API group "demo.example"`,
		}))
		w.start(func(h handlers) { h.create("create", setPhase("Ready")) })
		w.create("w1", 1)
		w.sleep(time.Hour)
		w.expectAnyTime("create w1 #0 →1")
		remove()
		w.sleep(time.Hour)
		w.expectAnyTime("create w1 #0 →1")
		w.noProgress("w1")
	})
}

// A finalizer is taken off although a delete handler wants what cannot be.
func TestRefusedPatchOfDeletion(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("failed for good")
		w.refuse(http.StatusUnprocessableEntity, "bad phase")
		w.start(func(h handlers) {
			h.create("create", nil)
			h.delete("delete", setPhase("bad phase"), on.Retries(2), on.Backoff(time.Minute))
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.delete("w1")
		w.sleep(5 * time.Minute)
		w.expectAnyTime("delete w1 #0 1→1", "delete w1 #1 1→1")
		w.gone("w1")
	})
}

// EVT-5: of event handlers, each is refused for itself.
func TestRefusedPatchOfEventHandler_EVT5(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("are dropped")
		w.refuse(http.StatusUnprocessableEntity, "bad phase")
		w.start(func(h handlers) {
			on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
				e.Patch.Apply(func(o *widget) { o.Status.Phase = "bad phase" })
				return nil
			}, on.ID("bad"), on.In(h.r), forWidgets)
			on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
				e.Patch.Apply(func(o *widget) { o.Spec.Color = "green" })
				return nil
			}, on.ID("good"), on.In(h.r), forWidgets)
		})
		w.create("w1", 1)
		w.settle()
		if color := w.get("w1").Object["spec"].(map[string]any)["color"]; color != "green" {
			t.Error(color)
		}
	})
}

// PAT-5, contract of Preview: what earlier handlers of the cycle have asked for is seen
// by later ones, and by sub-handlers.
func TestPatchIsShared_PAT5(t *testing.T) {
	scenario(t, func(w *world) {
		look := func(_ context.Context, c *change) error {
			o, err := c.Patch.Preview()
			w.note(c.Object.Status.Phase + "/" + o.Status.Phase + o.Spec.Color)
			return err
		}
		w.start(func(h handlers) {
			h.create("a", setPhase("A"))
			h.create("b", func(ctx context.Context, c *change) error {
				c.Patch.Merge(map[string]any{"spec": map[string]any{"color": "red"}})
				h.sub(c, "look", look)
				return look(ctx, c)
			})
			h.create("c", look)
		})
		w.create("w1", 1)
		w.settle()
		w.expectAnyTime("a w1 #0 →1", "b w1 #0 →1", "/Ared", "  look w1 #0 →1", "/Ared", "c w1 #0 →1", "/Ared")
	})
}
