package settings

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// LeaderElection says which of several replicas leads: the one that holds a Lease. Change
// handlers, daemons and timers run on that one only. Event handlers, index functions and
// webhooks do on all of them; what event handlers want changed is written by the leader.
// A replica that does not lead follows all objects, so that it can take over at once when the
// leader stops, and after LeaseDuration when it has died.
//
// Resume handlers are called in each process that leads, once for each object that it has not
// handled the creation of.
type LeaderElection struct {
	// Enabled has replicas elect a leader. Needed are the verbs get, create and update of leases
	// in the group coordination.k8s.io. Default: there is no election, and each process handles
	// everything.
	Enabled bool
	// Lease is the name of the Lease; all replicas need the same. Default: the operator's name,
	// or kopf.
	Lease string
	// Namespace is where the Lease is. Default: that of the operator's pod, if it runs in one;
	// else it is required.
	Namespace string
	// Identity is who holds the Lease, for people; something is added that makes it unique.
	// Default: the name of the host, which is that of the pod.
	Identity string
	// LeaseDuration is after how long without renewal other replicas take the Lease. In whole
	// seconds. Default: 15 seconds.
	LeaseDuration time.Duration
	// RenewDeadline is after how long without renewal the leader begins nothing any more. What
	// runs is told to end then, by the end of its context with kopf.ErrPaused as the cause, and
	// has until the end of LeaseDuration for that; what goes on even so ends the process. It
	// must be shorter than LeaseDuration. Default: 10 seconds.
	RenewDeadline time.Duration
	// RetryPeriod is the pause between renewals, and between attempts to get the Lease. It must
	// be shorter than RenewDeadline, by a fifth of it at least. Default: 2 seconds.
	RetryPeriod time.Duration
}

func (l LeaderElection) withDefaults() LeaderElection {
	fill(&l.LeaseDuration, 15*time.Second)
	fill(&l.RenewDeadline, 10*time.Second)
	fill(&l.RetryPeriod, 2*time.Second)
	return l
}

// jitter is by how much client-go may prolong a RetryPeriod.
const jitter = 1.2

// Validate reports all mistakes but that a Namespace is missing, which is one only outside of
// a cluster.
func (l LeaderElection) Validate() error {
	m := &mistakes{group: "LeaderElection"}
	negative(m, "LeaseDuration", l.LeaseDuration)
	negative(m, "RenewDeadline", l.RenewDeadline)
	negative(m, "RetryPeriod", l.RetryPeriod)
	if l.Lease != "" {
		if wrong := validation.IsDNS1123Subdomain(l.Lease); len(wrong) > 0 {
			m.add("Lease is %q, which a Lease cannot be named: %s", l.Lease, strings.Join(wrong, ", "))
		}
	}
	if l.Namespace != "" && len(validation.IsDNS1123Label(l.Namespace)) > 0 {
		m.add("Namespace is %q, which no namespace is named", l.Namespace)
	}
	if m.all != nil {
		return m.err()
	}
	l = l.withDefaults()
	if l.LeaseDuration%time.Second != 0 {
		m.add("LeaseDuration is %s, but a Lease counts it in whole seconds", l.LeaseDuration)
	}
	if l.RenewDeadline >= l.LeaseDuration {
		m.add("RenewDeadline is %s, but must be shorter than the LeaseDuration of %s, so that what runs can end in between", l.RenewDeadline, l.LeaseDuration)
	}
	if time.Duration(jitter*float64(l.RetryPeriod)) >= l.RenewDeadline {
		m.add("RetryPeriod is %s, but must fit into the RenewDeadline of %s with a fifth of it to spare", l.RetryPeriod, l.RenewDeadline)
	}
	return m.err()
}
