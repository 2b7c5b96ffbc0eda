package kopf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/kopf-go/kopf/activities"
	"github.com/kopf-go/kopf/internal/access"
	"github.com/kopf-go/kopf/internal/activity"
	"github.com/kopf-go/kopf/internal/decisions"
	"github.com/kopf-go/kopf/internal/engine"
	"github.com/kopf-go/kopf/internal/recording"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/stream"
	"github.com/kopf-go/kopf/settings"
)

// session is one run of an operator.
type session struct {
	operator  *Operator
	setup     // as the startup handlers have left it
	memos     *registry.Memos
	fail      context.CancelCauseFunc // ends the run, with a *stageError
	probes    atomic.Pointer[activity.Probes]
	engine    atomic.Pointer[engine.Engine]
	recorder  *recording.Recorder // of Kubernetes events; they wait until it is connected
	decisions *decisions.Ring     // nil: nobody can ask why
	exit      atomic.Int64        // how long it may take to stop, as a time.Duration; 0: no limit

	duties []duty // of whoever leads

	// From when it is connected:
	vault      *access.Vault // nil: there are no login handlers
	connection *rest.Config
	httpClient *http.Client

	stopPosting func() // and wait until it has
}

func (o *Operator) newSession() *session {
	s := &session{operator: o, setup: o.setup, memos: new(registry.Memos), fail: func(error) {}, stopPosting: func() {}}
	s.config.Memos = s.memos
	s.exit.Store(int64(exitTimeout(s.settings)))
	s.recorder = recording.New(s.recorderConfig())
	return s
}

// Run handles objects until the context ends, then stops in an orderly way: nothing
// new begins, the contexts of running handlers end with ErrExiting as the cause, and
// what was done is written down. Handlers that do not return within
// Settings.Queueing.ExitTimeout are left behind and named in the returned error.
//
// Handlers of on.Startup come before anything else, those of on.Cleanup after everything else. If a part of the operator fails, such as
// the server of webhooks, or there are no credentials any more, all of it stops, and Run
// returns why. Finalizers and the progress of handlers stay on the objects, for the next
// operator to continue (EXT-10).
//
// Run may be called again after it has returned, but not while it runs. The indices of the
// operator's registry are its own while it runs, and empty otherwise: of two operators
// that would fill the same ones at a time, the second one returns an error at once.
func (o *Operator) Run(ctx context.Context) error {
	s := o.newSession()
	if !o.running.CompareAndSwap(nil, s) {
		return errors.New("the operator runs already")
	}
	defer o.running.Store(nil)
	release, err := o.registry.Claim()
	if err != nil {
		return err
	}
	defer release()
	o.config.Log.Info("operator starts", "handlers", len(o.config.Handlers))
	err = s.run(ctx)
	o.config.Log.Info("operator has stopped")
	return err
}

// run is the order in which an operator starts and stops.
func (s *session) run(ctx context.Context) (err error) {
	stopped := ctx.Err() != nil
	ctx, s.fail = context.WithCancelCause(ctx)
	defer s.fail(nil)
	defer func() { err = errors.Join(failure(ctx), err) }()
	if !stopped {
		defer s.limitExit(ctx)()
	}
	ctx = s.recorder.In(ctx)
	endServing, err := s.serveEndpoints(ctx)
	if err != nil {
		return err
	}
	defer endServing()
	started, err := s.startUp(ctx)
	if !started {
		return err
	}
	if err = s.renew(); err == nil {
		err = s.operate(ctx)
	}
	return errors.Join(err, s.cleanUp(ctx))
}

// failure is that of the part which has ended a run; nil: none has.
func failure(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.As(cause, new(*stageError)) {
		return cause
	}
	return nil
}

// startUp calls the startup handlers. Before they have succeeded, nothing else is done (ACT-4).
func (s *session) startUp(ctx context.Context) (started bool, err error) {
	_, err = s.activity(registry.Startup).Run(ctx)
	interrupted := (*activity.InterruptedError)(nil)
	switch {
	case errors.As(err, &interrupted) && interrupted.Left == "":
		s.config.Log.Warn("operator stops before its startup handlers have succeeded, so cleanup handlers are not called") // EXT-6
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}

// operate does what the operator is for, until the context ends.
func (s *session) operate(ctx context.Context) error {
	s.recorder.Configure(s.recorderConfig())
	s.probes.Store(activity.NewProbes(ctx, s.activity(registry.Probe)))
	if s.operator.onStarted != nil {
		s.operator.onStarted()
	}
	if err := s.connect(ctx); err != nil {
		if ctx.Err() != nil { // it was told to stop, or the reason is known
			return nil
		}
		return err
	}
	if err := s.post(ctx); err != nil {
		return err
	}
	s.config.Recorder = s.recorder
	if serving(s.config.Handlers) {
		return s.serveAdmission(ctx)
	}
	run := engine.New(s.config)
	s.engine.Store(run)
	return s.handle(ctx, run)
}

// renew takes the settings as the startup handlers have left them. Nothing else looks at them
// yet.
func (s *session) renew() error {
	if !has(s.operator.activities, registry.Startup) {
		return nil
	}
	renewed, err := setUp(s.settings, s.operator.name, s.operator.config)
	if err != nil {
		return fmt.Errorf("settings, as startup handlers have left them: %w", err)
	}
	s.setup = renewed
	s.config.Memos, s.config.Decisions = s.memos, s.decisions
	s.exit.Store(int64(exitTimeout(s.settings)))
	return nil
}

// cleanUp calls the cleanup handlers, when all else has ended (ACT-5), and closes all
// connections.
func (s *session) cleanUp(ctx context.Context) error {
	var err error
	if probes := s.probes.Load(); probes != nil {
		err = probes.Close(s.config.Settings.WithDefaults().ExitTimeout)
	}
	if s.vault != nil {
		s.vault.Leave()
	}
	ctx = context.WithoutCancel(ctx)
	if limit := cleanupTimeout(s.settings); limit > 0 {
		over := fmt.Errorf("cleanup handlers have had %s, as Settings.Process.CleanupTimeout says", limit)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, over)
		defer cancel()
	}
	_, failed := s.activity(registry.Cleanup).Run(ctx)
	s.stopPosting()
	s.disconnect()
	return errors.Join(err, failed)
}

// activity is one of the operator's, with the settings as they are now. Only startup
// handlers can change them.
func (s *session) activity(kind registry.Kind) activity.Activity {
	tuned := engineSettings(s.settings).WithDefaults()
	facts := func() registry.Activity {
		copied := s.settings
		return registry.Activity{Settings: &copied, Default: func() (any, error) { return s.operator.standardCredentials() }}
	}
	if kind == registry.Startup {
		facts = func() registry.Activity { return registry.Activity{Settings: &s.settings} }
	}
	return activity.Activity{
		Kind: kind, Handlers: s.operator.activities, Facts: facts, Memos: s.memos,
		Backoff: tuned.DefaultBackoff, Patience: tuned.ExitTimeout, Log: s.config.Log,
	}
}

// has tells whether there is a handler of a kind.
func has(handlers []*registry.Handler, kind registry.Kind) bool {
	for _, h := range handlers {
		if h.Kind == kind {
			return true
		}
	}
	return false
}

// standardCredentials are those of operators without login handlers (AUTH-6, AUTH-7).
func (o *Operator) standardCredentials() (*activities.Credentials, error) {
	if o.given != nil {
		return &activities.Credentials{Config: rest.CopyConfig(o.given)}, nil
	}
	found, err := config.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster to connect to: %w", err)
	}
	return &activities.Credentials{Config: found}, nil
}

// connect makes clients, with credentials of the login handlers, if there are any.
func (s *session) connect(ctx context.Context) error {
	agent := cmp.Or(s.operator.name, "kopf") + "/kopf" // it shows in managedFields and audit logs
	if err := s.login(ctx, agent); err != nil {
		return err
	}
	s.connection.UserAgent = cmp.Or(s.connection.UserAgent, agent)
	var err error
	if s.httpClient, err = rest.HTTPClientFor(s.connection); err != nil {
		return fmt.Errorf("cannot connect to the API server with this configuration: %w", err)
	}
	if s.config.Client, err = stream.NewClient(s.connection, s.httpClient); err != nil {
		return err
	}
	if s.config.Discovery, err = discovery.NewDiscoveryClientForConfigAndClient(s.connection, s.httpClient); err != nil {
		return fmt.Errorf("cannot connect to the API server with this configuration: %w", err)
	}
	return nil
}

// login finds the connection to use.
func (s *session) login(ctx context.Context, agent string) error {
	o := s.operator
	if !has(o.activities, registry.Login) {
		standard, err := o.standardCredentials()
		if err == nil {
			s.connection = standard.Config
		}
		return err
	}
	var err error
	s.vault, err = access.New(access.Options{
		Login: s.credentials, First: o.given, UserAgent: agent, Log: s.config.Log,
		Failed: func(err error) { s.fail(&stageError{err}) },
	})
	if err != nil {
		return fmt.Errorf("cannot connect to the API server with this configuration: %w", err)
	}
	s.connection, err = s.vault.Connect(ctx)
	return err
}

// credentials asks the login handlers.
func (s *session) credentials(ctx context.Context) (map[string]*activities.Credentials, error) {
	outcomes, err := s.activity(registry.Login).Run(s.recorder.In(ctx))
	found := map[string]*activities.Credentials{}
	for _, o := range outcomes {
		if c, is := o.Result.(*activities.Credentials); is {
			found[o.ID] = c
		}
	}
	return found, err
}

// disconnect ends the connections that are left.
func (s *session) disconnect() {
	if s.httpClient != nil {
		access.CloseIdle(s.httpClient.Transport)
	}
	if s.vault != nil {
		s.vault.Close()
	}
}

// limitExit has the process exit if it takes too long to stop. Only that of Main does (EXT-7).
func (s *session) limitExit(ctx context.Context) (disarm func()) {
	if s.operator.exit == nil {
		return func() {}
	}
	var watching sync.WaitGroup
	ended := make(chan struct{})
	watching.Go(func() {
		select {
		case <-ctx.Done():
		case <-ended:
			return
		}
		limit := time.Duration(s.exit.Load())
		if limit == 0 {
			return
		}
		late := time.NewTimer(limit)
		defer late.Stop()
		select {
		case <-late.C:
			s.operator.exit(limit)
		case <-ended:
		}
	})
	return func() {
		close(ended)
		watching.Wait()
	}
}

// liveness answers those who ask whether the operator is alive, with what its probes say
// (ACT-6). While it starts, there is nothing to say; when it does not run, or cleans up, it is not
// alive.
func (o *Operator) liveness() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := o.running.Load()
		if s == nil {
			http.Error(w, "the operator does not run", http.StatusServiceUnavailable)
			return
		}
		if probes := s.probes.Load(); probes != nil {
			probes.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write([]byte("{}")); err != nil {
			o.config.Log.Debug("answer of probes was not taken", "error", err)
		}
	})
}

// stage is what runs until it is ended, whatever else ends. If something of it fails, the
// operator does (EXT-2).
type stage struct {
	ctx     context.Context
	cancel  context.CancelFunc
	fail    context.CancelCauseFunc
	running sync.WaitGroup
}

type stageError struct{ error }

func (e *stageError) Unwrap() error { return e.error }

func newStage(ctx context.Context, fail context.CancelCauseFunc) *stage {
	s := &stage{fail: fail}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return s
}

func (s *stage) run(what string, do func(context.Context) error) {
	s.running.Go(func() {
		if err := do(s.ctx); err != nil && s.ctx.Err() == nil {
			s.fail(&stageError{fmt.Errorf("%s: %w", what, err)})
		}
	})
}

func (s *stage) end() {
	s.cancel()
	s.running.Wait()
}

// setup is what follows from settings.
type setup struct {
	settings  settings.Settings
	admission settings.Admission // completed
	election  settings.LeaderElection
	config    engine.Config // without what needs a connection
}

// setUp finds out what follows from settings. It reports all mistakes in them.
func setUp(s settings.Settings, name string, base engine.Config) (setup, error) {
	kept, keptErr := stateConfig(s.Persistence, name, base.Log)
	admission, admissionErr := completeAdmission(s, base.Handlers)
	election := completeElection(s, name)
	base.Naming, base.State, base.Settings, base.Standby = kept.Naming, kept, engineSettings(s), election.Enabled
	return setup{settings: s, admission: admission, election: election, config: base}, errors.Join(s.Validate(), keptErr, admissionErr)
}
