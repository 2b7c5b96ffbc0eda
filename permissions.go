package kopf

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/internal/engine"
	"github.com/kopf-go/kopf/internal/permissions"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/webhook"
)

// handle runs an engine, and finds out meanwhile whether it is permitted what it needs.
func (s *session) handle(ctx context.Context, run *engine.Engine) error {
	checking, stop := context.WithCancel(ctx)
	var check sync.WaitGroup
	check.Go(func() { s.checkPermissions(checking, run) })
	defer check.Wait()
	defer stop()
	return s.follow(ctx, run)
}

// rights are what the operator does that needs permissions, when it runs in a namespace.
func (s *session) rights(served []permissions.Served, namespace string) permissions.Operator {
	has := func(kind registry.Kind) bool {
		return slices.ContainsFunc(s.config.Handlers, func(h *registry.Handler) bool { return h.Kind == kind })
	}
	r := permissions.Operator{
		Served: served, Namespaces: s.config.Namespaces.Only(), Events: !s.settings.Posting.Disabled,
		FollowNamespaces: s.config.FollowsNamespaces(), FollowCRDs: s.config.FollowsCRDs(),
	}
	if s.election.Enabled {
		r.Lease = permissions.Object{Namespace: cmp.Or(s.election.Namespace, namespace), Name: s.election.Lease}
	}
	if p := s.settings.WithDefaults().Peering; s.meets() {
		r.Peering = permissions.Peering{
			Name: p.Name, Groups: []string{"kopf.dev", "zalando.org"}, ClusterWide: s.config.Namespaces.All(), Mandatory: p.Mandatory,
		}
	}
	if serving(s.config.Handlers) {
		r.Webhooks = permissions.Webhooks{
			Managed: s.admission.Managed, Secret: s.certificatesSecret(namespace),
			Validate: has(registry.Validate), Mutate: has(registry.Mutate), Policies: has(registry.Policy),
		}
	}
	return r
}

// certificatesSecret is where certificates of webhooks are kept; no name: in none.
func (s *session) certificatesSecret(namespace string) permissions.Object {
	own, is := s.admission.Certificates.(*webhook.OwnCertificates)
	if !is {
		return permissions.Object{}
	}
	name := strings.ToLower(cmp.Or(s.admission.Managed, s.operator.name, "kopf")) + "-webhook"
	return permissions.Object{
		Namespace: cmp.Or(own.Secret.Namespace, s.admission.Namespace, namespace), Name: cmp.Or(own.Secret.Name, name),
	}
}

// lacking are permissions that the operator needs, and that the API server does not grant.
// An error says what could not be found out. With namespaces that come and go, those that
// are served at the moment count, if the whole cluster is not permitted.
func (s *session) lacking(ctx context.Context, run *engine.Engine) ([]permissions.Need, error) {
	unlimited := rest.CopyConfig(s.connection)
	unlimited.QPS = -1 // client-go's default is 5 a second; not many are made at a time
	client, err := authorizationclient.NewForConfigAndClient(unlimited, s.httpClient)
	if err != nil {
		return nil, err
	}
	hooks, unread := run.Resolved(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	found := s.found(hooks, unread, ManifestOptions{})
	missing, err := permissions.Missing(ctx, client, s.rights(found.served, s.admission.Namespace).Needs())
	if len(missing) == 0 || !s.config.FollowsNamespaces() {
		return missing, err
	}
	if err := run.Ready(ctx); err != nil { // the namespaces are known then
		return missing, err
	}
	if serving := run.Serving(); len(serving) > 0 {
		return permissions.Missing(ctx, client, permissions.In(serving, missing))
	}
	return missing, err
}

// checkPermissions says once each which permissions are missing: what handlers cannot do
// without is an error, what they can is a warning. Nothing is said where everything is granted.
func (s *session) checkPermissions(ctx context.Context, run *engine.Engine) {
	missing, err := s.lacking(ctx, run)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.config.Log.Debug("it cannot be found out whether all permissions are there", "error", err)
	}
	for _, n := range missing {
		level, about := slog.LevelError, []any{"verb", n.Verb, "resource", n.Target(), "for", strings.Join(n.For, ",")}
		if n.Namespace != "" {
			about = append(about, "namespace", n.Namespace)
		}
		if len(n.Names) > 0 {
			about = append(about, "names", strings.Join(n.Names, ","))
		}
		if n.Without != "" {
			level, about = slog.LevelWarn, append(about, "without it", n.Without)
		}
		s.config.Log.Log(ctx, level, "permission is missing: the command \"manifests\" prints roles that grant it", about...)
	}
}
