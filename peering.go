package kopf

import (
	"context"

	"github.com/kopf-go/kopf/internal/peering"
)

// meets tells whether the operator was told to get along with others, by any setting of
// peering. Else it asks for nothing of it, and needs no permissions (PEER-2).
func (s *session) meets() bool {
	p := s.settings.Peering
	return !p.Standalone && (p.Name != "" || p.Mandatory || p.Priority != 0)
}

// peer has the operator get along with others, of which it pauses for some, until the context
// ends.
func (d *duties) peer(ctx context.Context) error {
	s, p := d.session, d.session.settings.WithDefaults().Peering
	options := peering.Options{
		Client: s.config.Client, Discovery: s.config.Discovery,
		Name: p.Name, Mandatory: p.Mandatory, Priority: p.Priority, Lifetime: p.Lifetime, Stealth: p.Stealth,
		Pause:    func(error) { d.ifGoesOn(ctx, func() { d.Engine.Pause(ErrPaused) }) },
		Continue: func() { d.ifGoesOn(ctx, d.Engine.Continue) },
		Once:     s.config.Settings.DiscoverOnce,
		Interval: s.config.Settings.WithDefaults().DiscoveryInterval, Silence: s.config.Settings.InactivityTimeout, Log: s.config.Log,
	}
	if !s.config.Namespaces.All() {
		options.Namespaces = d.Engine.Served
	}
	return peering.Run(ctx, options)
}

// ifGoesOn does something to the engine if the term of the context still goes on.
func (d *duties) ifGoesOn(ctx context.Context, do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cancel != nil && ctx.Err() == nil {
		do()
	}
}
