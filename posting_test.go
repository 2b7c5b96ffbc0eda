package kopf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// KEV-1, KEV-4: activities post, too. What they tell waits for a connection; after startup it goes
// by the settings that startup handlers have left; and at the end it comes through before the
// connection goes.
func TestEventsOfActivities_KEV1_KEV4(t *testing.T) {
	onBench(t, func(b *bench) {
		node := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n1"}
		tell := func(ctx context.Context, who string) error { return Info(ctx, node, who, "text") }
		on.Startup(func(ctx context.Context, a *Activity) error {
			a.Settings.Posting.Component = "other"
			return errors.Join(tell(ctx, "Startup"), onceMore(a.Retry))
		}, b.in)
		on.Login(func(ctx context.Context, _ *Login) (*Credentials, error) {
			return &Credentials{Config: b.config("a")}, tell(ctx, "Login")
		}, b.in)
		on.Probe(func(ctx context.Context, _ *Probe) (int, error) { return 1, tell(ctx, "Probe") }, b.in)
		on.Create(func(ctx context.Context, c *Change[*widget]) error { return tell(ctx, "Create") }, widgets, b.in)
		on.Cleanup(func(ctx context.Context, _ *Activity) error { return tell(ctx, "Cleanup") }, b.in)
		b.create("w", 1)
		r := b.start(b.operator(func(o *Options) { o.Config = nil }))
		b.pass(time.Minute)
		if n := b.server.Count(simulated.On{}); n > 0 {
			b.Errorf("%d requests before the end of startup", n)
		}
		b.pass(time.Hour)
		b.alive(r.Operator)
		r.ends(b)
		var got []string
		for _, e := range b.server.Events() {
			got = append(got, fmt.Sprintf("%s x%d by %s", e.Reason, e.Count, e.ReportingController))
		}
		want := []string{"Startup x2 by kopf", "Login x1 by other", "Create x1 by other", "Probe x1 by other", "Cleanup x1 by other"}
		if !slices.Equal(got, want) {
			b.Errorf("got %q", got)
		}
	})
}

// onceMore has a handler called once more, in an hour.
func onceMore(retry int) error {
	if retry == 0 {
		return Retry(time.Hour, errBroken)
	}
	return nil
}
