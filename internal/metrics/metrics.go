// Package metrics counts what the operators of a process do, on controller-runtime's
// registry, which is served where its users expect it. Labels are kind, handler and
// outcome only: nothing of an object, so that the number of series does not grow with
// theirs.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Attempts counts calls of handlers by their outcome: succeeded, waiting for
// sub-handlers, ignored, retried or failed; of admission handlers: allowed, denied or failed.
var Attempts = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kopf_handler_attempts_total",
	Help: "Attempts of handlers, by kind of resource, handler and outcome.",
}, []string{"kind", "handler", "outcome"})

// Complaints counts objects that cannot be handled as they should be, by the reason
// that the Warning event on the object has: Undecodable, Looping, Pruned.
var Complaints = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kopf_object_complaints_total",
	Help: "Objects that cannot be handled as they should be, by kind of resource and reason.",
}, []string{"kind", "outcome"})

// IndicesReady is how long it took after the start until all indices held what was there.
var IndicesReady = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "kopf_indices_ready_seconds",
	Help: "Time from the start until all indices held what was there at the start.",
})

// Background counts the daemons and ticks of timers that run.
var Background = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "kopf_background_running",
	Help: "Daemons and ticks of timers that run, by kind of resource and handler.",
}, []string{"kind", "handler"})

// Abandoned counts daemons and ticks of timers that did not leave when they had to, and
// were left behind.
var Abandoned = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kopf_background_abandoned_total",
	Help: "Daemons and ticks of timers that were left behind, by kind of resource and handler.",
}, []string{"kind", "handler"})

// CertificateExpiry is when the certificate that webhooks are served with ends.
var CertificateExpiry = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "kopf_webhook_certificate_expiry_seconds",
	Help: "When the certificate that webhooks are served with ends, as Unix time.",
})

func init() {
	metrics.Registry.MustRegister(Attempts, Complaints, IndicesReady, Background, Abandoned, CertificateExpiry)
}
