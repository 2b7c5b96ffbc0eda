package settings

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kopf-go/kopf/webhook"
)

// Validate reports all mistakes together, each with the name of the group and of the field.
// kopf.New does that, and once more does the operator when its startup handlers are through.
func (s Settings) Validate() error {
	return errors.Join(
		s.Execution.Validate(),
		s.Queueing.Validate(),
		s.Persistence.Validate(),
		s.Networking.Validate(),
		s.Watching.Validate(),
		s.Scanning.Validate(),
		s.Admission.Validate(),
		s.Posting.Validate(),
		s.Peering.Validate(),
		s.LeaderElection.Validate(),
		s.Endpoints.Validate(),
	)
}

// mistakes are those of one group.
type mistakes struct {
	group string
	all   []error
}

func (m *mistakes) add(format string, args ...any) {
	m.all = append(m.all, fmt.Errorf("Settings."+m.group+": "+format, args...))
}

// negative complains of what is below zero.
func negative[V cmp.Ordered](m *mistakes, field string, value V) {
	var zero V
	if value < zero {
		m.add("%s is %v: it cannot be negative, and 0 stands for its default", field, value)
	}
}

func (m *mistakes) err() error { return errors.Join(m.all...) }

// Validate reports all mistakes.
func (e Execution) Validate() error {
	m := &mistakes{group: "Execution"}
	negative(m, "DefaultBackoff", e.DefaultBackoff)
	negative(m, "CheckpointInterval", e.CheckpointInterval)
	return m.err()
}

// Validate reports all mistakes.
func (q Queueing) Validate() error {
	m := &mistakes{group: "Queueing"}
	negative(m, "WorkerLimit", q.WorkerLimit)
	if i := slices.IndexFunc(q.ErrorDelays, func(d time.Duration) bool { return d < 0 }); i >= 0 {
		m.add("ErrorDelays has %s, which is negative", q.ErrorDelays[i])
	}
	negative(m, "LoopLimit", q.LoopLimit)
	negative(m, "LoopWindow", q.LoopWindow)
	negative(m, "ExitTimeout", q.ExitTimeout)
	return m.err()
}

// Validate reports mistakes but those in names and storages, which kopf.New finds when it
// puts them together.
func (p Persistence) Validate() error {
	m := &mistakes{group: "Persistence"}
	negative(m, "RecordLimit", p.RecordLimit)
	negative(m, "ConsistencyTimeout", p.ConsistencyTimeout)
	return m.err()
}

// Validate reports all mistakes.
func (n Networking) Validate() error {
	m := &mistakes{group: "Networking"}
	negative(m, "RequestTimeout", n.RequestTimeout)
	return m.err()
}

// Validate reports all mistakes.
func (w Watching) Validate() error {
	m := &mistakes{group: "Watching"}
	negative(m, "InactivityTimeout", w.InactivityTimeout)
	return m.err()
}

// Validate reports all mistakes.
func (s Scanning) Validate() error {
	m := &mistakes{group: "Scanning"}
	negative(m, "Interval", s.Interval)
	return m.err()
}

// Validate reports all mistakes but that an Endpoint is missing, which is one only if there
// are handlers.
func (a Admission) Validate() error {
	m := &mistakes{group: "Admission"}
	if _, is := a.Endpoint.(webhook.URL); !is && a.Tunnel != nil {
		m.add("a Tunnel needs an Endpoint that is a webhook.URL")
	}
	if a.Managed != "" {
		if wrong := validation.IsDNS1123Subdomain(a.Managed); len(wrong) > 0 {
			m.add("Managed is %q, which configurations cannot be named: %s", a.Managed, strings.Join(wrong, ", "))
		}
	}
	if a.Namespace != "" && len(validation.IsDNS1123Label(a.Namespace)) > 0 {
		m.add("Namespace is %q, which no namespace is named", a.Namespace)
	}
	if a.Port < 0 || a.Port > 65535 {
		m.add("Port is %d, not 1 to 65535", a.Port)
	}
	if a.Timeout < 0 || a.Timeout > maxAdmissionTimeout || a.Timeout%time.Second != 0 {
		m.add("Timeout is %s, not 1 to %.0f whole seconds", a.Timeout, maxAdmissionTimeout.Seconds())
	}
	return m.err()
}

// maxAdmissionTimeout is the API server's limit.
const maxAdmissionTimeout = 30 * time.Second
