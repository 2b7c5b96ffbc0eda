package kopf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/decisions"
	"github.com/kopf-go/kopf/internal/endpoints"
	"github.com/kopf-go/kopf/internal/engine"
)

// serveEndpoints begins to serve what Settings.Endpoints says, until the returned function
// is called. If it cannot be served any more, the operator ends.
func (s *session) serveEndpoints(ctx context.Context) (end func(), err error) {
	chosen := s.settings.Endpoints
	addresses := chosen.Listen()
	if len(addresses) == 0 {
		return func() {}, nil
	}
	s.decisions = decisions.NewRing()
	s.config.Decisions = s.decisions
	o := endpoints.Options{
		Name: s.operator.name, Addresses: addresses, Alive: s.aliveChecks(), Ready: s.readyChecks(ctx),
		Exposed: chosen.Debug, Log: s.config.Log, Ring: s.decisions,
		Report: s.report, Find: s.standings, Standing: s.standing,
	}
	if _, path, _ := chosen.LivenessAt(); path != "" {
		o.LivenessPath, o.Liveness = path, s.operator.liveness()
	}
	server, err := endpoints.Listen(o)
	if err != nil {
		return nil, err
	}
	serving := newStage(ctx, s.fail)
	serving.run("endpoints for health and metrics", server.Run)
	return serving.end, nil
}

// aliveChecks are what a restart may mend.
func (s *session) aliveChecks() []endpoints.Check {
	return []endpoints.Check{{Name: "loops", Ask: func() error {
		if run := s.engine.Load(); run != nil {
			return run.Alive()
		}
		return nil
	}}}
}

// readyChecks are what users of the operator need. A replica that does not lead is ready.
func (s *session) readyChecks(ctx context.Context) []endpoints.Check {
	running := func(ask func(*engine.Engine) error) func() error {
		return func() error {
			run := s.engine.Load()
			if run == nil {
				return errors.New("operator is starting, or has no credentials yet")
			}
			return ask(run)
		}
	}
	return []endpoints.Check{
		{Name: "operator", Ask: func() error {
			if ctx.Err() != nil {
				return errors.New("operator stops")
			}
			return nil
		}},
		{Name: "indices", Ask: running(func(run *engine.Engine) error {
			if !run.IsReady() {
				return errors.New("resources are not known, or indices not complete, yet")
			}
			return nil
		})},
		{Name: "streams", Ask: running((*engine.Engine).StreamsAlive)},
		{Name: "webhooks", Ask: running(func(*engine.Engine) error { return s.certified() })},
	}
}

// certified tells whether webhooks, if there are any, have a certificate that is valid.
func (s *session) certified() error {
	if s.admission.Endpoint == nil || !serving(s.config.Handlers) {
		return nil
	}
	if _, err := s.admission.Certificates.Certificate(); err != nil {
		return err
	}
	if end := s.admission.Certificates.NotAfter(); time.Now().After(end) {
		return fmt.Errorf("the certificate for webhooks has ended at %s", end)
	}
	return nil
}

func (s *session) report() decisions.State {
	if run := s.engine.Load(); run != nil {
		return run.Report()
	}
	return decisions.State{Time: time.Now()}
}

func (s *session) standings(kind, namespace, name string, most int) []decisions.Standing {
	if run := s.engine.Load(); run != nil {
		return run.Find(kind, namespace, name, most)
	}
	return nil
}

func (s *session) standing(uid types.UID) (decisions.Standing, bool) {
	if run := s.engine.Load(); run != nil {
		return run.Standing(uid)
	}
	return decisions.Standing{}, false
}

// WhyOptions say which object Why is about, and which operator is asked.
type WhyOptions = endpoints.WhyOptions

// Why asks a running operator, over its Settings.Endpoints, what it has decided for an object
// lately, and prints that: which handlers ran and how that went, which filter said no to
// others, what was written, and what comes next. It is the command why of Main.
func Why(ctx context.Context, out io.Writer, o WhyOptions) error { return endpoints.Why(ctx, out, o) }
