package kopf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/internal/engine"
	"github.com/kopf-go/kopf/internal/manifests"
	"github.com/kopf-go/kopf/internal/permissions"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/schemas"
	"github.com/kopf-go/kopf/webhook"
)

// ManifestOptions say what Operator.Manifests prints, and how it is called.
type ManifestOptions = manifests.Options

// ManifestPart is a part of what Operator.Manifests prints.
type ManifestPart = manifests.Part

// The parts of what is printed.
const (
	ManifestCRDs       = manifests.CRDs       // CustomResourceDefinitions of kopf.Resource types
	ManifestRBAC       = manifests.RBAC       // a ServiceAccount, and roles with their bindings
	ManifestDeployment = manifests.Deployment // and the Service of its webhooks
	ManifestWebhooks   = manifests.Webhooks   // their configurations, and policies
)

// Manifests returns what has to be applied to a cluster for the operator to run in it, as
// YAML, derived from its registrations and settings:
//
//   - definitions of the resources whose Go type is a [Resource], by the types of spec and
//     status, in which the tags doc, enum, default, minimum, maximum, minLength, maxLength,
//     pattern, format, minItems and maxItems say more than the types do;
//   - roles with the verbs that the handlers, and the operator itself, use, and no others:
//     in each namespace if Options.Namespaces are names, else in the whole cluster. Comments
//     say which handlers need what. Whether event handlers, daemons and timers change objects
//     is not known; it is granted, and said so;
//   - a Deployment that fits the pod security standard "restricted", and the Service of a
//     webhook.Service;
//   - configurations of webhooks, and policies, unless the operator keeps them itself
//     (Settings.Admission.Managed) and they are not asked for by name.
//
// It needs no cluster, unless o.Cluster says so. What only a cluster can tell, such as which
// resources a category has, is a comment in what is returned, and part of the error: the rest
// is right even so. The same operator gives the same bytes.
func (o *Operator) Manifests(ctx context.Context, options ManifestOptions) ([]byte, error) {
	s := o.newSession()
	defer s.disconnect()
	options = options.WithDefaults(o.name, s.admission.Namespace)
	if options.Cluster {
		if err := s.connect(ctx); err != nil {
			return nil, err
		}
	}
	found := s.find(ctx, options)
	definitions, notes, err := schemas.Define(found.custom(options))
	found.note(notes...)
	found.problem(err)
	op := manifests.Operator{
		Definitions: definitions, Needs: s.rights(found.served, options.Namespace).Needs(),
		Endpoint: s.admission.Endpoint, Elects: s.election.Enabled, Grace: cmp.Or(s.config.Settings.ExitTimeout, 10*time.Second),
	}
	if asked(s.config.Handlers) {
		op.WebhookPort = s.admission.Port
	}
	if s.admission.Managed == "" || !slices.Equal(options.Parts, manifests.Parts()) {
		op.Webhooks, err = s.webhooks(found, options)
		found.problem(err)
	}
	op.Problems, op.Notes = found.problems, found.notes
	text, err := manifests.Print(options, op)
	if err != nil {
		return nil, err
	}
	return text, found.err()
}

// asked tells whether there are handlers that the API server asks.
func asked(handlers []*registry.Handler) bool {
	return slices.ContainsFunc(handlers, func(h *registry.Handler) bool { return h.Kind == registry.Validate || h.Kind == registry.Mutate })
}

// findings are the handlers with their resources, and what came in the way.
type findings struct {
	served          []permissions.Served
	problems, notes []string
}

func (f *findings) problem(err error) {
	if err != nil {
		f.problems = append(f.problems, strings.Split(err.Error(), "\n")...)
	}
}

// note takes what was guessed, each once.
func (f *findings) note(notes ...string) {
	for _, note := range notes {
		if note != "" && !slices.Contains(f.notes, note) {
			f.notes = append(f.notes, note)
		}
	}
}

func (f *findings) err() error {
	var all []error
	for _, problem := range f.problems {
		all = append(all, errors.New(problem))
	}
	return errors.Join(all...)
}

// find finds the resources of all handlers: with a cluster by what it serves, and by their
// names where it does not serve them yet.
func (s *session) find(ctx context.Context, options ManifestOptions) *findings {
	if !options.Cluster {
		return s.found(nil, nil, options)
	}
	hooks, err := engine.New(s.config).Resolve(ctx)
	return s.found(hooks, err, options)
}

// found adds what is known of handlers' resources without a cluster to what a cluster has said.
func (s *session) found(hooks []engine.Hook, unread error, options ManifestOptions) *findings {
	f := &findings{}
	f.problem(unread)
	offline := permissions.Offline{ClusterScoped: options.ClusterScoped, StatusOf: mayHaveStatus}
	for i, h := range s.config.Handlers {
		served := permissions.Served{Handler: h}
		if i < len(hooks) {
			for _, r := range hooks[i].Resources {
				served.Resources = append(served.Resources, permissions.Resource{
					Group: r.GVR.Group, Version: r.GVR.Version, Plural: r.GVR.Resource, Kind: r.GVK.Kind, Namespaced: r.Namespaced, Status: r.Status,
				})
			}
		}
		if len(served.Resources) == 0 && (len(hooks) == 0 || h.Selector.Specific()) {
			r, note, err := offline.Resolve(h)
			if f.note(note); err != nil {
				f.problem(err)
			} else {
				served.Resources = []permissions.Resource{r}
			}
		}
		f.served = append(f.served, served)
	}
	return f
}

// mayHaveStatus tells of the Go type of a custom resource whether a status can be written:
// of one that is no Resource, nobody knows.
func mayHaveStatus(t reflect.Type) bool { return !isResource(t) || schemas.HasStatus(t) }

// isResource tells whether a Go type is a pointer to a Resource.
func isResource(t reflect.Type) bool {
	if t == nil || t.Kind() != reflect.Pointer {
		return false
	}
	plain := reflect.TypeFor[Resource[struct{}, struct{}]]()
	name, _, generic := strings.Cut(t.Elem().Name(), "[")
	like, _, _ := strings.Cut(plain.Name(), "[")
	return generic && name == like && t.Elem().PkgPath() == plain.PkgPath()
}

// custom are the resources to be defined: those of kopf.Resource types.
func (f *findings) custom(options ManifestOptions) (all []schemas.Resource) {
	for _, s := range f.served {
		if !isResource(s.Handler.Type) {
			continue
		}
		for _, r := range s.Resources {
			if r.Version == "" || r.Plural == "*" {
				f.note(fmt.Sprintf("%s at %s: there is no definition of %s, for it has no version: use on.Resource", s.Handler.Name(), s.Handler.Source, s.Handler.Selector))
				continue
			}
			all = append(all, schemas.Resource{
				Group: r.Group, Version: r.Version, Plural: r.Plural, Kind: cmp.Or(options.Kinds[r.Plural+"."+r.Group], r.Kind),
				ClusterScoped: !r.Namespaced, Type: s.Handler.Type,
			})
		}
	}
	return all
}

// webhooks are the manifests of configurations and policies.
func (s *session) webhooks(f *findings, options ManifestOptions) ([]byte, error) {
	var hooks []webhook.Hook
	var mistakes []error
	for _, found := range f.served {
		if !found.Handler.Admission() {
			continue
		}
		hook := engine.Hook{Handler: found.Handler}
		for _, r := range found.Resources {
			if r.Version == "" || r.Plural == "*" {
				mistakes = append(mistakes, fmt.Errorf("%s at %s is in no configuration: only a cluster knows the version of %s: "+
					"name it with on.Resource, or look at a cluster", found.Handler.Name(), found.Handler.Source, found.Handler.Selector))
				continue
			}
			gv := schema.GroupVersion{Group: r.Group, Version: r.Version}
			hook.Resources = append(hook.Resources, engine.Resource{GVR: gv.WithResource(r.Plural), Namespaced: r.Namespaced, Status: r.Status})
		}
		hooks = append(hooks, hookOf(hook))
	}
	if len(hooks) == 0 {
		return nil, errors.Join(mistakes...)
	}
	like := s.webhookOptions("system:serviceaccount:" + options.Namespace + ":" + options.Name)
	like.Namespace = options.Namespace
	text, err := webhook.Manifests(like, hooks, s.admission.Endpoint, options.Certificate)
	return text, errors.Join(append(mistakes, err)...)
}
