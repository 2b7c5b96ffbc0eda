package settings_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kopf-go/kopf/settings"
)

// The times have to go together, and a Lease counts whole seconds: client-go would cut off the
// rest, and others would take the Lease too early.
func TestLeaderElectionIsValidated(t *testing.T) {
	for _, c := range []struct {
		l    settings.LeaderElection
		want string
	}{
		{settings.LeaderElection{}, "<nil>"},
		{settings.LeaderElection{LeaseDuration: 2 * time.Second, RenewDeadline: 1300 * time.Millisecond, RetryPeriod: 300 * time.Millisecond}, "<nil>"},
		{settings.LeaderElection{LeaseDuration: 15500 * time.Millisecond}, "Settings.LeaderElection: LeaseDuration is 15.5s, but a Lease counts it in whole seconds"},
		{settings.LeaderElection{LeaseDuration: 10 * time.Second}, "Settings.LeaderElection: RenewDeadline is 10s, but must be shorter than the LeaseDuration of 10s, so that what runs can end in between"},
		{settings.LeaderElection{RetryPeriod: 9 * time.Second}, "Settings.LeaderElection: RetryPeriod is 9s, but must fit into the RenewDeadline of 10s with a fifth of it to spare"},
		{settings.LeaderElection{Namespace: "a.b"}, `Settings.LeaderElection: Namespace is "a.b", which no namespace is named`},
	} {
		if got := fmt.Sprint(settings.Settings{LeaderElection: c.l}.Validate()); got != c.want {
			t.Errorf("%+v:\n got %s\nwant %s", c.l, got, c.want)
		}
	}
	l := settings.Settings{}.WithDefaults().LeaderElection
	if l.LeaseDuration != 15*time.Second || l.RenewDeadline != 10*time.Second || l.RetryPeriod != 2*time.Second {
		t.Errorf("%+v", l)
	}
}
