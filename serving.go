package kopf

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	admissionregistrationclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	crwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/kopf-go/kopf/internal/admission"
	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/engine"
	"github.com/kopf-go/kopf/internal/recording"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/webhook"
)

// leaveTimeout limits what is told to the API server at the end.
const leaveTimeout = 5 * time.Second

// admissions serve requests for an operator that runs.
type admissions struct {
	settings   settings.Admission
	endpoint   webhook.Endpoint
	name       string // of the configurations
	namespaces engine.Namespaces
	log        *slog.Logger
	recorder   *recording.Recorder
	engine     *engine.Engine
	keeper     *webhook.Keeper // nil: nothing is managed
	keeping    atomic.Bool     // it is this replica that keeps the configurations
	essence    func(*body.Body) *state.Essence
	reviewer   atomic.Pointer[admission.Reviewer]

	mu    sync.Mutex
	hooks []webhook.Hook
	known bool          // hooks are
	news  chan struct{} // there is something for the keeper
}

// serving tells whether there are handlers for requests, or policies.
func serving(handlers []*registry.Handler) bool {
	return slices.ContainsFunc(handlers, (*registry.Handler).Admission)
}

// serveAdmission runs an operator together with what serves its requests.
func (s *session) serveAdmission(ctx context.Context) error {
	a := &admissions{
		settings: s.admission, endpoint: s.admission.Endpoint, name: s.webhookOptions("").Name,
		namespaces: s.config.Namespaces, log: s.config.Log, recorder: s.config.Recorder, news: make(chan struct{}, 1),
	}
	config := s.config
	config.OnHooks = a.learn
	a.engine = engine.New(config)
	store, err := state.NewStore(config.State)
	if err != nil {
		return err
	}
	a.essence = store.Essence
	s.engine.Store(a.engine)
	if err := a.prepare(ctx, s); err != nil {
		return err
	}
	if a.settings.Tunnel != nil {
		endpoint, closeTunnel, err := webhook.Open(ctx, a.settings.Tunnel, a.endpoint.(webhook.URL))
		if err != nil {
			return fmt.Errorf("tunnel to webhooks: %w", err)
		}
		defer closeTunnel()
		a.endpoint = endpoint
	}
	answering := newStage(ctx, s.fail)
	if a.endpoint != nil {
		answering.run("certificates of webhooks", func(ctx context.Context) error {
			return a.settings.Certificates.Run(ctx, s.admission.Endpoint.Names(), a.trust)
		})
		answering.run("webhook server", a.serve)
	}
	if a.keeper != nil {
		s.duties = append(s.duties, duty{"configurations of webhooks", a.configure})
	}
	err = s.handle(ctx, a.engine)
	answering.end() // those that have come are answered
	return err
}

// webhookOptions are what configurations are like.
func (s *session) webhookOptions(user string) webhook.Options {
	return webhook.Options{
		Name: cmp.Or(s.admission.Managed, strings.ToLower(s.operator.name), "kopf"), Namespace: s.admission.Namespace, Namespaces: s.config.Namespaces.Only(), NamespaceSelector: s.config.Namespaces.Selector(), User: user,
		Timeout: s.admission.Timeout, Finalizers: s.admission.ValidateTerminating,
	}
}

// prepare makes what needs a connection.
func (a *admissions) prepare(ctx context.Context, s *session) error {
	if in, is := a.settings.Certificates.(webhook.InSecret); is {
		secrets, err := webhook.SecretsOf(s.connection, s.httpClient)
		if err != nil {
			return err
		}
		name := cmp.Or(a.settings.Managed, s.operator.name, "kopf") + "-webhook"
		in.Connect(secrets, types.NamespacedName{Namespace: a.settings.Namespace, Name: strings.ToLower(name)}, a.log)
	}
	if a.settings.Managed == "" {
		return nil
	}
	client, err := admissionregistrationclient.NewForConfigAndClient(s.connection, s.httpClient)
	if err != nil {
		return err
	}
	options := s.webhookOptions(ownUser(ctx, s.connection, s.httpClient, a.log))
	a.keeper = webhook.NewKeeper(client, options, a.log, a.settings.Certificates.Applied)
	return nil
}

// ownUser is who the operator is for the API server; empty: nobody knows.
func ownUser(ctx context.Context, connection *rest.Config, httpClient *http.Client, log *slog.Logger) string {
	client, err := authenticationclient.NewForConfigAndClient(connection, httpClient)
	if err == nil {
		var user string
		if user, err = webhook.OwnUser(ctx, client); err == nil {
			return user
		}
	}
	log.Debug("it is not known who the operator is for the API server, so its webhooks are asked about its own writes", "error", err)
	return ""
}

// learn takes the handlers with the resources that they are for.
func (a *admissions) learn(found []engine.Hook) {
	hooks := make([]webhook.Hook, len(found))
	for i, h := range found {
		hooks[i] = hookOf(h)
	}
	a.mu.Lock()
	a.hooks, a.known = hooks, true
	a.mu.Unlock()
	a.reviewer.Store(a.newReviewer(found, hooks))
	a.tell()
}

func (a *admissions) newReviewer(found []engine.Hook, hooks []webhook.Hook) *admission.Reviewer {
	groups := groupsOf(a.name, hooks)
	reviewer := &admission.Reviewer{
		Memos: func(resource schema.GroupVersionResource, uid types.UID, create bool) *registry.Memos {
			if create {
				return a.engine.MemosOfNone()
			}
			return a.engine.MemosOf(resource.GroupResource(), uid)
		},
		Essence: a.essence, Ready: a.engine.Ready, Observe: a.engine.CountReview, Serves: a.namespaces.Named, ValidateTerminating: a.settings.ValidateTerminating, Log: a.log,
	}
	for i, h := range found {
		handler := admission.Handler{Handler: h.Handler, Group: groups[keyOf(hooks[i])]}
		for _, r := range h.Resources {
			handler.Resources = append(handler.Resources, r.GVR)
		}
		reviewer.Handlers = append(reviewer.Handlers, handler)
	}
	return reviewer
}

// groupsOf are the last parts of the paths that hooks are asked by.
func groupsOf(name string, hooks []webhook.Hook) map[string]string {
	groups := map[string]string{}
	for _, entry := range webhook.Entries(name, hooks) {
		for _, hook := range entry.Hooks {
			groups[keyOf(hook)] = strings.TrimPrefix(entry.Path, "/"+string(entry.Kind)+"/")
		}
	}
	return groups
}

// keyOf tells hooks apart: on one resource, ids of one kind are different.
func keyOf(hook webhook.Hook) string { return fmt.Sprint(hook.Kind, " ", hook.ID, hook.Resources) }

func hookOf(found engine.Hook) webhook.Hook {
	h := found.Handler
	hook := webhook.Hook{
		ID: h.ID, Kind: webhook.Kind(h.Kind), Operations: h.Operations, Subresource: h.Subresource,
		Persistent: h.Persistent, SideEffects: h.SideEffects, IgnoreFailures: h.IgnoreFailures,
		Rule: webhook.Rule{Expression: h.Rule.Expression, Message: h.Rule.Message, MessageExpression: h.Rule.MessageExpression},
	}
	for _, r := range found.Resources {
		hook.Resources = append(hook.Resources, webhook.Resource{
			Group: r.GVR.Group, Version: r.GVR.Version, Plural: r.GVR.Resource, Namespaced: r.Namespaced,
		})
	}
	hook.Restrict(criteria(h.Labels), criteria(h.Annotations), h.Field, h.Value)
	return hook
}

func criteria(of []registry.Criterion) (all []webhook.Criterion) {
	for _, c := range of {
		all = append(all, webhook.Criterion{Key: c.Key, Match: c.Match})
	}
	return all
}

// configure keeps the configurations while this replica leads. When the operator stops, it
// tells the API server not to ask any more.
func (a *admissions) configure(ctx context.Context) error {
	a.keeping.Store(true)
	defer a.keeping.Store(false)
	a.tell()
	parts, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	var running sync.WaitGroup
	for _, part := range []func(context.Context) error{a.keeper.Run, a.keep} {
		running.Go(func() {
			if err := part(parts); err != nil && parts.Err() == nil {
				failed(err)
			}
		})
	}
	running.Wait()
	if ctx.Err() == nil {
		return context.Cause(parts)
	}
	if errors.Is(context.Cause(ctx), ErrExiting) {
		a.leave(ctx)
	}
	return nil
}

// trust is told that there is another bundle. Whoever keeps the configurations, if we do
// not, has to be quick: he has as long as certificates settle.
func (a *admissions) trust() {
	if !a.keeping.Load() {
		a.settings.Certificates.Applied(a.settings.Certificates.Bundle())
	}
	a.tell()
}

// tell has the keeper look at what there is.
func (a *admissions) tell() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// keep has the configurations say what is there, whenever that changes.
func (a *admissions) keep(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.news:
		}
		a.mu.Lock()
		hooks, known := slices.Clone(a.hooks), a.known
		a.mu.Unlock()
		bundle := a.settings.Certificates.Bundle()
		if !known || bundle == nil && a.endpoint != nil {
			continue
		}
		if err := a.keeper.Apply(ctx, hooks, a.endpoint, bundle); err != nil && ctx.Err() == nil {
			a.log.Error("webhooks are not configured, which is tried again", "error", err)
		}
	}
}

// serve answers requests until the context ends, and then those that have come.
func (a *admissions) serve(ctx context.Context) error {
	server := crwebhook.NewServer(crwebhook.Options{
		Host: a.settings.Host, Port: a.settings.Port,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.settings.Certificates.Certificate() }
			if a.settings.ClientCAs != nil {
				c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, a.settings.ClientCAs
			}
		}},
	})
	server.Register("/", http.HandlerFunc(a.answer))
	return server.Start(ctx)
}

// leave tells the API server not to ask any more.
func (a *admissions) leave(ctx context.Context) {
	if a.keeper == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := a.keeper.Leave(ctx); err != nil {
		a.log.Error("webhooks are still configured, though nobody answers them", "error", err)
	}
}

// answer is a request of the API server.
func (a *admissions) answer(w http.ResponseWriter, r *http.Request) {
	raw, err := a.review(r)
	if err != nil {
		code := http.StatusInternalServerError
		if known := (*admission.Error)(nil); errors.As(err, &known) {
			code = known.Code
		}
		a.log.Warn("request for admission cannot be answered", "path", r.URL.Path, "code", code, "error", err)
		http.Error(w, err.Error(), code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(raw); err != nil {
		a.log.Debug("answer for admission was not taken", "path", r.URL.Path, "error", err)
	}
}

func (a *admissions) review(r *http.Request) ([]byte, error) {
	reviewer := a.reviewer.Load()
	if reviewer == nil {
		return nil, &admission.Error{Code: http.StatusServiceUnavailable, Err: errors.New("the operator does not know the cluster's resources yet")}
	}
	if r.Method != http.MethodPost {
		return nil, &admission.Error{Code: http.StatusMethodNotAllowed, Err: errors.New("reviews are posted")}
	}
	prefix := ""
	switch endpoint := a.settings.Endpoint.(type) {
	case webhook.URL:
		prefix = endpoint.Path
	case webhook.Service:
		prefix = endpoint.Path
	}
	path, below := strings.CutPrefix(r.URL.EscapedPath(), strings.TrimSuffix("/"+strings.Trim(prefix, "/"), "/"))
	hint, known := reviewer.Route(path)
	if !below || !known {
		return nil, &admission.Error{Code: http.StatusNotFound, Err: fmt.Errorf("no handler is at %s", r.URL.Path)}
	}
	facts := admission.Facts{Hint: hint, Headers: r.Header}
	facts.Timeout, _ = time.ParseDuration(r.URL.Query().Get("timeout"))
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		facts.Peer = r.TLS.PeerCertificates[0]
	}
	return reviewer.Answer(a.recorder.In(r.Context()), r.Body, facts)
}
