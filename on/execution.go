package on

import (
	"time"

	"github.com/kopf-go/kopf/internal/registry"
)

// Retries is how many attempts the handler has at most; the last failure is final. A
// timer has as many for each tick (TMR-2). Default: no limit. 0 never calls it (OUT-4).
func Retries(attempts int) AttemptOption {
	return setting(func(d *draft) {
		if attempts < 0 {
			d.mistake("on.Retries(%d) is negative", attempts)
		}
		d.Retries = attempts
	})
}

// Timeout is how long all attempts may take together, from the start of the first
// one, downtime of the operator included. The handler's context ends then, and no
// other attempt begins. For daemons and timers, of whose attempts no operator but their
// own knows, it is from the first attempt in this operator, and of this tick. Default:
// no limit.
func Timeout(limit time.Duration) AttemptOption {
	return setting(func(d *draft) {
		if limit <= 0 {
			d.mistake("on.Timeout(%s) is not positive", limit)
		}
		d.Timeout = limit
	})
}

// Backoff is the pause before the next attempt after an error that does not say
// one itself. Default: Settings.Execution.DefaultBackoff, a minute.
func Backoff(pause time.Duration) AttemptOption {
	return setting(func(d *draft) {
		if pause < 0 {
			d.mistake("on.Backoff(%s) is negative", pause)
		}
		d.Backoff = pause
	})
}

// Errors says what an error means that is neither kopf.Retry nor kopf.Permanent:
// Temporary (the default), Permanent or Ignored, which is the default of Index (OUT-2,
// IDX-8).
func Errors(mode ErrorMode) AttemptOption {
	return setting(func(d *draft) {
		if mode < Ignored || mode > Permanent {
			d.mistake("on.Errors takes on.Ignored, on.Temporary or on.Permanent")
		}
		d.Errors = mode
	})
}

// ErrorMode is the argument of Errors.
type ErrorMode = registry.ErrorMode

// The modes for Errors.
const (
	Ignored   = registry.ErrorsIgnored   // as if the handler had succeeded, but logged
	Temporary = registry.ErrorsTemporary // tried again after the back-off
	Permanent = registry.ErrorsPermanent // failed for good
)
