package kopf

import (
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
)

// PEER-2, PEER-3: an operator that is told nothing of peering asks for nothing of it; any
// setting of it, but for Standalone, has it look for kinds of peering objects.
func TestWhoMeetsOthers_PEER2_PEER3(t *testing.T) {
	for name, c := range map[string]struct {
		peering settings.Peering
		looks   bool
	}{
		"nothing is said":      {settings.Peering{}, false},
		"a lifetime":           {settings.Peering{Lifetime: time.Minute}, false},
		"a name":               {settings.Peering{Name: "here"}, true},
		"a priority":           {settings.Peering{Priority: 666}, true},
		"it is mandatory":      {settings.Peering{Mandatory: true}, true},
		"it wants to be alone": {settings.Peering{Name: "here", Priority: 1, Standalone: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				on.Update(handled[*widget], widgets, b.in)
				b.takes("config")
				b.start(b.operator(func(o *Options) { o.Settings.Peering = c.peering }))
				b.pass(time.Minute)
				looks := false
				for _, r := range b.server.Requests(simulated.On{Verb: "discover"}) {
					looks = looks || strings.Contains(r.Resource, "kopf.dev")
				}
				if looks != c.looks {
					b.Errorf("looks: %t", looks)
				}
			})
		})
	}
}
