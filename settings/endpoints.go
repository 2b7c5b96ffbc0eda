package settings

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Endpoints say what the operator serves over HTTP to those who look after it:
//
//	/healthz            whether it is alive: nothing is stuck
//	/readyz             whether it is ready: resources are known, streams alive, indices
//	                    complete, certificates of webhooks valid; ?verbose lists the checks
//	/metrics            metrics, as in docs/metrics.md
//	/debug/kopf         what it is about, and why: a page; also as /debug/kopf.json
//	/debug/kopf/events  decisions as they are made, as server-sent events
//
// They are served from before the startup handlers until after the cleanup handlers, so what
// startup handlers change in them has no effect. There is neither encryption nor a question
// who asks; see docs/observability.md.
type Endpoints struct {
	// Address is where is listened, such as ":8080" or "127.0.0.1:8080". Default: nowhere.
	Address string
	// Liveness is a URL, such as "http://0.0.0.0:8080/alive", under which the probes of
	// on.Probe answer, as Kopf's --liveness has it: with 200 and their results as JSON. The
	// host is localhost and the port 80 unless it says otherwise. All of the above is served
	// there, too; where a path is the same, the probes answer. Default: none (ACT-6).
	Liveness string
	// Debug shows /debug/kopf to everybody who can connect. It has names of objects, paths of
	// fields, and what handlers say of their errors, and no values of objects. Default: only
	// clients on the same machine see it, such as kubectl port-forward.
	Debug bool
}

// Validate reports all mistakes.
func (e Endpoints) Validate() error {
	m := &mistakes{group: "Endpoints"}
	if e.Address != "" {
		if _, _, err := net.SplitHostPort(e.Address); err != nil {
			m.add("Address is %q, not HOST:PORT or :PORT", e.Address)
		}
	}
	if _, _, err := e.LivenessAt(); err != nil {
		m.add("Liveness: %w", err)
	}
	return m.err()
}

// LivenessAt takes Liveness apart, into an address and a path; both are empty if there is
// none.
func (e Endpoints) LivenessAt() (address, path string, err error) {
	if e.Liveness == "" {
		return "", "", nil
	}
	u, err := url.Parse(e.Liveness)
	switch {
	case err != nil || u.Scheme != "http":
		return "", "", fmt.Errorf("%q is no URL of http://HOST:PORT/PATH", e.Liveness)
	case strings.ContainsAny(u.Path, "{} ") || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "", "", fmt.Errorf("%q is more than a host, a port and a plain path", e.Liveness)
	}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		host = "localhost"
	}
	if port == "" {
		port = "80"
	}
	return net.JoinHostPort(host, port), "/" + strings.Trim(u.Path, "/"), nil
}

// Listen are the addresses where is listened; none: nowhere.
func (e Endpoints) Listen() (addresses []string) {
	if e.Address != "" {
		addresses = append(addresses, e.Address)
	}
	address, _, err := e.LivenessAt()
	if err != nil || address == "" || samePlace(address, e.Address) {
		return addresses
	}
	return append(addresses, address)
}

// samePlace tells whether what listens at the second address listens at the first one, too.
func samePlace(one, other string) bool {
	host, port, err := net.SplitHostPort(one)
	if err != nil {
		return false
	}
	otherHost, otherPort, err := net.SplitHostPort(other)
	everywhere := otherHost == "" || otherHost == "0.0.0.0" || otherHost == "::"
	return err == nil && port == otherPort && (everywhere || host == otherHost)
}
