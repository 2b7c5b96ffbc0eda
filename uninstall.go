package kopf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionregistrationclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kopf-go/kopf/internal/engine"
	"github.com/kopf-go/kopf/internal/leaving"
	"github.com/kopf-go/kopf/internal/permissions"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/webhook"
)

// UninstallOptions say what Operator.Uninstall takes away, and what stays.
type UninstallOptions struct {
	// KeepFinalizers leaves them on the objects: then nobody can delete those without the
	// operator.
	KeepFinalizers bool
	// KeepState leaves what is known of objects: what was handled last, and progress. An
	// operator of the same name goes on from there; without it, all objects are new to it.
	KeepState bool
	// KeepWebhooks leaves configurations of webhooks, policies, and certificates.
	KeepWebhooks bool
	// Abandon takes the finalizers of objects that are being deleted as well: their delete
	// handlers never come to an end then. Default: such objects are left, and reported.
	Abandon bool
	// Force goes on although a replica of the operator seems to run.
	Force bool
	// DryRun only reports what would be done.
	DryRun bool
}

// UninstallReport is what Operator.Uninstall has done, or would do.
type UninstallReport struct {
	// Seen is how many objects were looked at, Released from how many the finalizer was taken,
	// Cleaned from how many the state.
	Seen, Released, Cleaned int
	// Removed are other things that were deleted, as RESOURCE/NAME.
	Removed []string
	// Left says what is still there, and why.
	Left []string
	// DryRun tells that nothing was done.
	DryRun bool
}

// Uninstall takes away what the operator has left in the cluster, for good: its webhooks, for
// nobody would answer them; and from all objects that its handlers are for its finalizer, for
// nobody could delete them, and its state. It looks at the namespaces that are served now.
// CustomResourceDefinitions, and what Manifests prints, are for those who have applied them.
//
// No replica of the operator may run, for it would put everything back: with leader election
// that is checked. Objects whose finalizer has come back at the end are reported as left. Uninstall
// can be called again, and does then what is left to do. The error is about what was not
// possible at all; the report is returned even so.
func (o *Operator) Uninstall(ctx context.Context, options UninstallOptions) (*UninstallReport, error) {
	s := o.newSession()
	defer s.disconnect()
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	report := &UninstallReport{DryRun: options.DryRun}
	if err := s.checkNobodyLeads(ctx); err != nil && !options.Force {
		return nil, err
	}
	var mistakes []error
	if !options.KeepWebhooks {
		mistakes = append(mistakes, s.removeWebhooks(ctx, options, report))
	}
	mistakes = append(mistakes, s.cleanObjects(ctx, options, report))
	return report, errors.Join(mistakes...)
}

// cleanObjects looks twice: what has come back was put there by somebody.
func (s *session) cleanObjects(ctx context.Context, options UninstallOptions, report *UninstallReport) error {
	e := engine.New(s.config)
	kept, err := e.Kept(ctx)
	if err != nil {
		return err
	}
	namespaces, err := e.Spaces(ctx)
	if err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	store, err := state.NewStore(s.config.State)
	if err != nil {
		return err
	}
	var resources []leaving.Resource
	for _, r := range kept {
		resource := leaving.Resource{GVR: r.GVR, Status: r.Status}
		if r.Namespaced {
			resource.Namespaces = namespaces
		}
		resources = append(resources, resource)
	}
	cleaner := leaving.Cleaner{
		Client: s.config.Client, Store: store, Naming: s.config.Naming, Log: s.config.Log,
		Timeout: s.config.Settings.WithDefaults().RequestTimeout,
		Policy: leaving.Policy{
			KeepFinalizers: options.KeepFinalizers, KeepState: options.KeepState, Abandon: options.Abandon, DryRun: options.DryRun,
		},
	}
	done := cleaner.Clean(ctx, resources)
	report.Seen, report.Released, report.Cleaned = done.Seen, done.Released, done.Cleaned
	for _, left := range done.Sorted() {
		report.Left = append(report.Left, left.Object.String()+": "+left.Why)
	}
	if !options.DryRun {
		cleaner.Policy.DryRun = true
		for _, object := range cleaner.Clean(ctx, resources).Pending {
			if !slices.ContainsFunc(done.Left, func(left leaving.Left) bool { return left.Object == object }) {
				report.Left = append(report.Left, object.String()+": it has a finalizer or state again: a replica of the operator runs")
			}
		}
	}
	return errors.Join(done.Failed...)
}

// removeWebhooks takes away what asks the operator, and what it is trusted by.
func (s *session) removeWebhooks(ctx context.Context, options UninstallOptions, report *UninstallReport) error {
	if !serving(s.config.Handlers) || s.admission.Managed == "" {
		return nil
	}
	client, err := admissionregistrationclient.NewForConfigAndClient(s.connection, s.httpClient)
	if err != nil {
		return err
	}
	there, err := webhook.Remove(ctx, client, s.webhookOptions(""), options.DryRun)
	report.Removed = append(report.Removed, there...)
	secret := s.certificatesSecret(s.admission.Namespace)
	if secret == (permissions.Object{}) || secret.Namespace == "" {
		return err
	}
	core, coreErr := coreclient.NewForConfigAndClient(s.connection, s.httpClient)
	if coreErr != nil {
		return errors.Join(err, coreErr)
	}
	secrets := core.Secrets(secret.Namespace)
	switch _, found := secrets.Get(ctx, secret.Name, metav1.GetOptions{}); {
	case apierrors.IsNotFound(found):
		return err
	case found != nil:
		return errors.Join(err, found)
	}
	report.Removed = append(report.Removed, "secrets/"+secret.Name)
	if options.DryRun {
		return err
	}
	if gone := secrets.Delete(ctx, secret.Name, metav1.DeleteOptions{}); gone != nil && !apierrors.IsNotFound(gone) {
		err = errors.Join(err, gone)
	}
	return err
}

// checkNobodyLeads returns an error if a replica holds the lease.
func (s *session) checkNobodyLeads(ctx context.Context) error {
	name, namespace := s.election.Lease, s.election.Namespace
	if !s.election.Enabled || namespace == "" {
		return nil
	}
	client, err := coordinationclient.NewForConfigAndClient(s.connection, s.httpClient)
	if err != nil {
		return err
	}
	lease, err := client.Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	holder, renewed, seconds := lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds
	if holder == nil || *holder == "" || renewed == nil || seconds == nil || time.Since(renewed.Time) > time.Duration(*seconds)*time.Second {
		return nil
	}
	return fmt.Errorf("%s holds the lease %s in %s: stop all replicas of the operator first, for they would put everything back", *holder, name, namespace)
}

// Print writes the report for people to read.
func (r *UninstallReport) Print(out io.Writer) error {
	verb := "has been"
	if r.DryRun {
		verb = "would be"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d objects looked at: the finalizer %s taken off %d, state off %d\n", r.Seen, verb, r.Released, r.Cleaned)
	for _, removed := range r.Removed {
		fmt.Fprintf(&text, "%s %s deleted\n", removed, verb)
	}
	for _, left := range r.Left {
		fmt.Fprintf(&text, "left: %s\n", left)
	}
	_, err := io.WriteString(out, text.String())
	return err
}
