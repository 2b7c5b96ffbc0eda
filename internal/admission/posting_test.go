package admission_test

import (
	"context"
	"testing"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/admission"
	"github.com/kopf-go/kopf/internal/recording"
)

// KEV-5, ADM-13: admission handlers post events, about what they are asked as well; in a dry run
// they can, too, but nothing comes of it.
func TestEventsOfAdmissionHandlers_KEV5_ADM13(t *testing.T) {
	var recorders []*recording.Recorder
	r := validating(t, func(ctx context.Context, a *A) error {
		found, err := recording.From(ctx)
		recorders = append(recorders, found)
		if err == nil {
			err = kopf.Warn(ctx, a.Object, "Asked", "by %s", a.User.Username)
		}
		return err
	})
	own := recording.New(recording.Config{Log: silent})
	for _, dryRun := range []bool{false, true} {
		q := create(`{}`)
		q.DryRun = &dryRun
		response, err := r.Review(own.In(t.Context()), q, admission.Facts{})
		if err != nil || !response.Allowed {
			t.Errorf("dry run %t: %v, %+v", dryRun, err, response)
		}
	}
	if len(recorders) != 2 || recorders[0] != own || recorders[1] == own || recorders[1].Wants(recording.Always) {
		t.Errorf("got %v", recorders)
	}
}
