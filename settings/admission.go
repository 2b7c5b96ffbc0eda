package settings

import (
	"crypto/x509"
	"time"

	"github.com/kopf-go/kopf/webhook"
)

// Admission says how requests come to the handlers of on.Validate and on.Mutate, and
// what the API server is told of them. Operators without such handlers need none.
type Admission struct {
	// Endpoint is where the API server reaches this process: a webhook.Service in a cluster,
	// a webhook.URL during development. Required if there are handlers (ADM-2).
	Endpoint webhook.Endpoint
	// Tunnel, if there is one, leads to Endpoint, which is a webhook.URL then, from elsewhere.
	Tunnel webhook.Tunnel
	// Certificates are what is served with. Default: webhook.OwnCertificates, in the Secret
	// NAME-webhook of Namespace, NAME being that of Managed, or of the operator, or kopf;
	// outside of a cluster in memory.
	Certificates webhook.Certificates
	// Managed is the name of the configurations that are kept on the API server, by the leader if
	// there is an election; it has to be a DNS name. When the operator stops, only webhooks of
	// handlers with on.Persistent stay (ADM-15): with several replicas, make all of them
	// persistent, or they are away for a moment whenever the leader stops. Default: none are
	// kept; Operator.Manifests makes them for others to apply (ADM-14).
	Managed string
	// Namespace is where the operator runs. Default: that of its pod, if it runs in one.
	Namespace string
	// Host is the address at which the operator listens for requests. Default: all addresses.
	Host string
	// Port is the one at which the operator listens for requests. Default: 9443, or the port
	// of an Endpoint that is a webhook.URL.
	Port int
	// Timeout is how long the API server waits for an answer, in whole seconds, 30 at most.
	// Default: 10 seconds.
	Timeout time.Duration
	// ClientCAs check the certificates of clients that show one. Default: none are asked for.
	ClientCAs *x509.CertPool
	// ValidateTerminating has handlers asked also about updates of objects that are being
	// deleted if nothing but metadata changes, such as finalizers. Default: they are not, so
	// that no deletion is held up.
	ValidateTerminating bool
}
