package kopf

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/kopf-go/kopf/internal/engine"
	"github.com/kopf-go/kopf/internal/leading"
	"github.com/kopf-go/kopf/settings"
)

// completeElection fills in what was left open. Where there is no pod, the namespace may be
// missing.
func completeElection(s settings.Settings, operator string) settings.LeaderElection {
	l := s.WithDefaults().LeaderElection
	l.Lease = cmp.Or(l.Lease, strings.ToLower(operator), "kopf")
	l.Namespace = cmp.Or(l.Namespace, podNamespace())
	return l
}

// follow runs an engine until the context ends; it handles while this replica leads, if
// there is an election.
func (s *session) follow(ctx context.Context, e *engine.Engine) error {
	if !s.election.Enabled {
		return e.Run(ctx)
	}
	if s.election.Namespace == "" {
		return errors.New("Settings.LeaderElection: Namespace is not set, and the operator runs in no pod, so nobody knows where the Lease is to be")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	led := make(chan error, 1)
	go func() {
		defer cancel() // what goes on although the lease was lost must end
		led <- s.lead(ctx, e)
	}()
	err := e.Run(ctx)
	return errors.Join(<-led, err)
}

// lead has an engine handle while this replica holds the lease, until the context ends. It
// returns when nothing runs and writes any more, or with an error when something goes on after
// the lease was lost: then the process must end.
func (s *session) lead(ctx context.Context, e *engine.Engine) error {
	l := s.election
	return leading.Run(ctx, leading.Options{
		Config: s.connection, Name: l.Lease, Namespace: l.Namespace, Identity: l.Identity,
		LeaseDuration: l.LeaseDuration, RenewDeadline: l.RenewDeadline, RetryPeriod: l.RetryPeriod,
		ExitTimeout: s.config.Settings.WithDefaults().ExitTimeout, Warm: e.Warm(), Log: s.config.Log,
	}, e)
}
