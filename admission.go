package kopf

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/webhook"
)

// AdmissionSettings say how requests come to the handlers of on.Validate and on.Mutate, and
// what the API server is told of them. Operators without such handlers need none.
type AdmissionSettings struct {
	// Endpoint is where the API server reaches this process: a webhook.Service in a cluster,
	// a webhook.URL during development. Required if there are handlers (ADM-2).
	Endpoint webhook.Endpoint
	// Tunnel, if there is one, leads to Endpoint, which is a webhook.URL then, from elsewhere.
	Tunnel webhook.Tunnel
	// Certificates are what is served with. Default: webhook.OwnCertificates, in the Secret
	// NAME-webhook of Namespace, NAME being that of Managed, or of the operator, or kopf;
	// outside of a cluster in memory.
	Certificates webhook.Certificates
	// Managed is the name of the configurations that are kept on the API server; it has to
	// be a DNS name. When the operator stops, only webhooks of handlers with on.Persistent
	// stay (ADM-15): with several replicas, make all of them persistent, or the one that stops
	// takes away what another puts back a moment later. Default: none are kept;
	// Operator.WebhookManifests makes them for others to apply (ADM-14).
	Managed string
	// Namespace is where the operator runs. Default: that of its pod, if it runs in one.
	Namespace string
	// Host and Port are where is listened. Defaults: all addresses; 9443, or the port of
	// an Endpoint that is a webhook.URL.
	Host string
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

const defaultWebhookPort = 9443

// complete fills in what was left open. It reports mistakes.
func (s AdmissionSettings) complete(handlers []*registry.Handler) (AdmissionSettings, error) {
	if s.Namespace == "" {
		s.Namespace = podNamespace()
	}
	var mistakes []error
	first := slices.IndexFunc(handlers, func(h *registry.Handler) bool { return h.Kind == registry.Validate || h.Kind == registry.Mutate })
	if first >= 0 && s.Endpoint == nil {
		mistakes = append(mistakes, handlers[first].Mistake(errors.New("nobody knows how the API server reaches it: "+
			"set Settings.Admission.Endpoint to a webhook.Service, or, during development, to a webhook.URL")))
	}
	if url, is := s.Endpoint.(webhook.URL); is {
		s.Port = cmp.Or(s.Port, url.Port, defaultWebhookPort)
		url.Port = cmp.Or(url.Port, s.Port)
		s.Endpoint = url
	} else if s.Tunnel != nil {
		mistakes = append(mistakes, errors.New("Settings.Admission: a Tunnel needs an Endpoint that is a webhook.URL"))
	}
	s.Port = cmp.Or(s.Port, defaultWebhookPort)
	if s.Timeout < 0 || s.Timeout > 30*time.Second || s.Timeout%time.Second != 0 {
		mistakes = append(mistakes, fmt.Errorf("Settings.Admission: Timeout is %s, not 1 to 30 whole seconds", s.Timeout))
	}
	if s.Certificates == nil {
		s.Certificates = &webhook.OwnCertificates{}
	}
	return s, errors.Join(mistakes...)
}

// podNamespace is that of the pod that the process runs in; empty: in none.
func podNamespace() string {
	raw, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}
