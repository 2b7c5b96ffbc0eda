package settings

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Peering says how the operator gets along with others that are for the same objects,
// written in Python or Go: each says in a peering object that it is alive, and all but the
// one of the highest priority pause. It is a safety net for hand-overs and for development,
// and no lock (PEER-12). Replicas of one operator take turns by leader election, and only
// their leader takes part in this.
//
// Cluster-wide operators meet in a ClusterKopfPeering, others in a KopfPeering in each
// namespace that they serve.
type Peering struct {
	// Name is that of the peering objects. Operators that meet in others do not see each
	// other. Default: without Mandatory and Priority, there is no peering; with one of them,
	// default.
	Name string
	// Mandatory has nothing handled until there is a peering object. Default: where there
	// is none, the operator minds nobody (PEER-2).
	Mandatory bool
	// Standalone has the operator neither look at other operators nor tell them of itself.
	Standalone bool
	// Priority is the operator's own: it pauses while there is another of a higher one, or
	// of the same. Default: 0.
	Priority int
	// Lifetime is for how long others take the operator for alive after it has last said
	// so, in whole seconds; it says so some seconds before that ends. The longer it is, the longer it takes
	// others to go on when this one was killed. Default: 1 minute.
	Lifetime time.Duration
	// Stealth leaves out of the debug log that the operator has said that it is alive
	// (PEER-10).
	Stealth bool
}

// The defaults of Peering.
const (
	DefaultPeeringName     = "default"
	DefaultPeeringLifetime = time.Minute
)

// Validate reports all mistakes.
func (p Peering) Validate() error {
	var mistakes []error
	mistake := func(format string, args ...any) {
		mistakes = append(mistakes, fmt.Errorf("Settings.Peering: "+format, args...))
	}
	if p.Name != "" {
		if wrong := validation.IsDNS1123Subdomain(p.Name); len(wrong) > 0 {
			mistake("Name %q is no name of an object: %s", p.Name, strings.Join(wrong, ", "))
		}
	}
	if p.Mandatory && p.Standalone {
		mistake("Mandatory and Standalone exclude each other")
	}
	if p.Lifetime < 0 || p.Lifetime%time.Second != 0 {
		mistake("Lifetime is %s, not a whole number of seconds", p.Lifetime)
	}
	return errors.Join(mistakes...)
}
