package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
)

// What permissions are derived from: what an engine follows, without running it.

// FollowsNamespaces tells whether namespaces are watched, as they are known by patterns or labels.
func (c Config) FollowsNamespaces() bool { return c.Namespaces.dynamic() }

// FollowsCRDs tells whether CustomResourceDefinitions are watched.
func (c Config) FollowsCRDs() bool {
	return !c.Settings.DiscoverOnce && slices.ContainsFunc(slices.Collect(maps.Keys(interestIn(c.Handlers).groups)), extendable)
}

// Resolve looks once at what the API serves, and returns all handlers, in order, with the
// resources that they are for, which may be none. It is for an engine that does not run. The
// error says what could not be read; what is returned beside it holds.
func (e *Engine) Resolve(ctx context.Context) ([]Hook, error) {
	config := e.Config
	config.Log = slog.New(slog.NewTextHandler(io.Discard, nil)) // the caller sees what there is
	d := newDirector(New(config))
	d.readEverything(ctx)
	if err := errors.Join(ctx.Err(), d.unread); err != nil {
		return nil, err
	}
	return d.resolved()
}

// Resolved returns the same of an engine that runs, as it was when that had read for the first
// time what the API serves, for which it waits.
func (e *Engine) Resolved(ctx context.Context) ([]Hook, error) {
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-e.looked:
		return e.firstLook()
	}
}

// resolved are all handlers with their resources, and what could not be read.
func (d *director) resolved() (all []Hook, err error) {
	served := d.served()
	for _, h := range d.Handlers {
		all = append(all, Hook{Handler: h, Resources: resourcesOf(d.resolve(h, served))})
	}
	var unread []error
	for gv, err := range d.catalogue.failures() {
		unread = append(unread, fmt.Errorf("cannot read which resources %s has: %w", gv, err))
	}
	return all, errors.Join(unread...)
}

// Serving are the namespaces that are served by name at the moment, sorted.
func (e *Engine) Serving() []string {
	d := e.director.Load()
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.namespaces))
}
