package settings

import "time"

// Process says how the operator ends.
type Process struct {
	// CleanupTimeout limits the handlers of on.Cleanup, all together. Then their context ends,
	// and those that do not return within Queueing.ExitTimeout are left behind, and named.
	// Default: 10 seconds; negative: no limit.
	CleanupTimeout time.Duration
	// ExitTimeout is how long kopf.Main waits for everything to end, from when the operator was
	// told to stop, or has failed; then the process exits with the code 137, whatever is still
	// going on. An operator that another program runs has no such limit. Default: 10 minutes;
	// negative: none (EXT-7).
	ExitTimeout time.Duration
}
