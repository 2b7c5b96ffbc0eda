package engine

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kopf-go/kopf/internal/outcome"
	"github.com/kopf-go/kopf/internal/patching"
)

// deliver writes what a cycle has to say, without what handlers want and cannot have:
// an edit that cannot be applied, or that the API server refuses, is a failure of its
// handler, and must neither keep others from being written nor be repeated for ever.
// compose is asked again after such a failure, for the handler's record is another one
// then.
func (c *cycle) deliver(compose func() patching.Change) (verdict, error) {
	version := c.body.ResourceVersion
	c.edited = len(c.allEdits()) > 0
	for {
		change := compose()
		_, err := c.write(change)
		var wrong *patching.EditError
		switch {
		case errors.As(err, &wrong):
			c.fault(wrong.Handler, wrong)
			continue
		case refused(err) && len(change.Edits)+len(change.Results) > 0:
			if err = c.single(change); err == nil {
				continue // with the rest
			}
		}
		return verdict{again: c.body.ResourceVersion != version}, err
	}
}

// single writes what each handler wants by itself, to find those whose wishes are
// refused.
func (c *cycle) single(change patching.Change) error {
	for _, part := range byHandler(change) {
		id := part.handler
		switch _, err := c.write(part.Change); {
		case refused(err):
			c.fault(id, err)
		case err != nil:
			return err
		default:
			c.done(id)
		}
	}
	return nil
}

// fault makes a failure of its handler of what cannot be written.
func (c *cycle) fault(id string, err error) {
	c.done(id)
	for t := range c.all() {
		if t.handler.ID != id || !t.record.Success {
			continue
		}
		c.mu.Lock()
		r := &t.record
		r.Success, r.Stopped = false, time.Time{}
		r.Retries-- // the attempt is the same
		t.saw, t.result = nil, nil
		c.mu.Unlock()
		c.settle(t, outcome.Of(t.handler, t.record, err, time.Now(), c.kind.engine.settings.DefaultBackoff))
		return
	}
	c.log.Error("what a handler wants changed cannot be written, and is dropped", "handler", id, "error", err)
}

// done notes that nothing of a handler is to be written any more.
func (c *cycle) done(id string) {
	if c.through == nil {
		c.through = map[string]bool{}
	}
	c.through[id] = true
}

// refused tells whether the API server does not want what a request says, and never
// will, as far as can be told: it is invalid, or forbidden by a policy.
func refused(err error) bool {
	var status apierrors.APIStatus
	if err == nil || errors.Is(err, errGone) || !errors.As(err, &status) {
		return false
	}
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot patch resource") {
		return false // the operator's permission is missing, which is no handler's fault
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusGone, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}

// part is what one handler wants written.
type part struct {
	handler string
	patching.Change
}

// byHandler splits what is to be written by who wants it, in order.
func byHandler(change patching.Change) []*part {
	var parts []*part
	of := func(id string) *part {
		for _, p := range parts {
			if p.handler == id {
				return p
			}
		}
		parts = append(parts, &part{handler: id, Change: patching.Change{
			Results: map[string]any{}, Finalizer: change.Finalizer, Owns: change.Owns,
		}})
		return parts[len(parts)-1]
	}
	for _, edit := range change.Edits {
		p := of(edit.Handler)
		p.Edits = append(p.Edits, edit)
	}
	for _, id := range slices.Sorted(maps.Keys(change.Results)) {
		of(id).Results[id] = change.Results[id]
	}
	return parts
}
