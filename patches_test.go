package kopf_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

var _ = Describe("Patches", func() {
	It("PAT-1, PAT-3 of all kinds reach the fields they are for, with and without a status endpoint", func(ctx SpecContext) {
		for _, status := range []bool{true, false} {
			w := newWorld(ctx, "patches", status)
			on.Create(func(ctx context.Context, change *kopf.Change[*Widget]) error {
				change.Patch.Merge(`{"spec":{"unknown":{"a":null,"b":2}},"status":{"phase":"Merged"},"metadata":{"annotations":{"example.com/merged":"yes"}}}`)
				change.Patch.Apply(func(o *Widget) { o.Status.Phase += ",Applied" })
				change.Patch.JSON(
					kopf.PatchOperation{Op: "test", Path: "/status/phase", Value: "Merged,Applied"},
					kopf.PatchOperation{Op: "replace", Path: "/status/phase", Value: "Ready"},
					kopf.PatchOperation{Op: "add", Path: "/spec/items/-", Value: map[string]any{"name": "y"}},
				)
				return nil
			}, w.widgets, w.in, on.ID("create"))
			op := w.start()
			w.patchOrCreate(ctx, `{"spec":{"value":9007199254740993,"unknown":{"a":1,"c":3},"items":[{"name":"x","other":true}]}}`)
			Eventually(func() string { return w.raw(ctx, "raw") }).Should(And(
				ContainSubstring(`"value":9007199254740993`), ContainSubstring(`"unknown":{"b":2,"c":3}`),
				ContainSubstring(`{"name":"x","other":true}`), ContainSubstring(`{"name":"y"}`),
				ContainSubstring(`"phase":"Ready"`), ContainSubstring(`"example.com/merged":"yes"`),
			))
			w.quiet(ctx, time.Second)
			Expect(w.raw(ctx, "raw")).NotTo(MatchRegexp(`"name":"y".*"name":"y"`), "the patch is applied once")
			op.stop()
		}
	})
})
