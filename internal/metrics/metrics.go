// Package metrics counts what the operators of a process do, on controller-runtime's
// registry, which is served where its users expect it. Labels are kind, handler and
// outcome only: nothing of an object, so that the number of series does not grow with
// theirs. docs/metrics.md lists them.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Attempts counts calls of handlers by their outcome: succeeded, waiting for
// sub-handlers, ignored, retried or failed; of admission handlers: allowed, denied or failed.
var Attempts = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kopf_handler_attempts_total",
	Help: "Attempts of handlers, by kind of resource, handler and outcome: succeeded, waiting (for sub-handlers), ignored, retried, failed; of admission: allowed, denied, failed.",
}, []string{"kind", "handler", "outcome"})

// Retries counts the attempts that were not the first ones.
var Retries = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kopf_handler_retries_total",
	Help: "Attempts of handlers that were not the first ones.",
}, []string{"kind", "handler"})

// Duration is how long calls of handlers last.
var Duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "kopf_handler_duration_seconds",
	Help:    "How long calls of handlers last. Those of daemons are their lives.",
	Buckets: []float64{.001, .01, .1, .5, 1, 5, 10, 30, 60, 300, 1800},
}, []string{"kind", "handler"})

// Running is how many calls of handlers are going on.
var Running = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "kopf_handlers_running",
	Help: "Calls of handlers that are going on, daemons among them.",
}, []string{"kind", "handler"})

// Complaints counts objects that cannot be handled as they should be, by the reason
// that the Warning event on the object has: Undecodable, Looping, Pruned.
var Complaints = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kopf_object_complaints_total",
	Help: "Objects that cannot be handled as they should be, by kind of resource and reason: Undecodable, Looping, Pruned.",
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

// Writes counts requests to objects' own endpoints; a conflict is an outcome.
var Writes = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kopf_object_writes_total",
	Help: "Patches of objects, by outcome: written, conflict, gone, refused, forbidden, fenced (this replica does not lead any more), failed.",
}, []string{"kind", "outcome"})

// StatusWrites counts requests to the endpoints of objects' statuses.
var StatusWrites = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kopf_status_writes_total",
	Help: "Patches of the /status of objects, by outcome: written, conflict, gone, refused, forbidden, fenced (this replica does not lead any more), failed.",
}, []string{"kind", "outcome"})

// Convergence is how long it takes until a change is handled.
var Convergence = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "kopf_convergence_seconds",
	Help:    "Time from the event of a change until all its handlers were through and that was written, retries and waiting included.",
	Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200},
}, []string{"kind"})

// CertificateExpiry is when the certificate that webhooks are served with ends.
var CertificateExpiry = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "kopf_webhook_certificate_expiry_seconds",
	Help: "When the certificate that webhooks are served with ends, as Unix time.",
})

// All are the collectors of this package, in the order of the documentation.
var All = []prometheus.Collector{
	Attempts, Retries, Duration, Running, present{}, Convergence, Writes, StatusWrites, Complaints,
	Background, Abandoned, IndicesReady, CertificateExpiry,
}

func init() { metrics.Registry.MustRegister(All...) }
