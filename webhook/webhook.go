// Package webhook is what admission webhooks need beside their handlers: how the API
// server reaches the operator, certificates that look after themselves, and
// configurations that say which requests are to be asked about.
package webhook

import (
	"context"
	"crypto/tls"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Hook is what the API server has to know of a handler.
type Hook struct {
	ID          string
	Kind        Kind
	Resources   []Resource
	Operations  []string // in capitals; none: all
	Subresource string   // empty: the object itself; *: all
	Selector    *metav1.LabelSelector
	Conditions  []admissionregistrationv1.MatchCondition // beside the selector; all must hold

	Persistent     bool // stays when the operator stops
	SideEffects    bool // but not in a dry run
	IgnoreFailures bool // of the way to the handler

	Rule Rule // of policies
}

// Kind is what a hook does.
type Kind string

// The kinds of hooks.
const (
	Validating Kind = "validate"
	Mutating   Kind = "mutate"
	Policy     Kind = "policy" // checked by the API server itself
)

// Resource is a resource that a hook is for.
type Resource struct {
	Group, Version, Plural string
	Namespaced             bool
}

// Rule is a rule in CEL that must hold.
type Rule struct {
	Expression        string
	Message           string
	MessageExpression string

	Warn  bool // the client, instead of denying its request
	Audit bool // also note it in the audit log
}

// Endpoint is where the API server reaches the operator.
type Endpoint interface {
	// ClientConfig says so, for a path below it such as /validate/check, with the
	// certificates that the API server trusts, in PEM.
	ClientConfig(path string, bundle []byte) admissionregistrationv1.WebhookClientConfig
	// Names are the DNS names and IP addresses that the certificate has to be for.
	Names() []string
}

// Certificates are what the operator serves with. Implementations are safe for concurrent use.
type Certificates interface {
	// Run keeps them for these names until the context ends. It calls changed at first,
	// and whenever there is another bundle.
	Run(ctx context.Context, names []string, changed func()) error
	// Certificate is what to serve with now; an error: there is none yet.
	Certificate() (*tls.Certificate, error)
	// Bundle is what clients have to trust now, in PEM.
	Bundle() []byte
	// Applied tells that all clients know this bundle from now on.
	Applied(bundle []byte)
	// NotAfter is when the certificate ends; zero: there is none.
	NotAfter() time.Time
}
