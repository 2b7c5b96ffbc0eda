package daemons

import "time"

// Cancellation says how work is stopped: it is told to stop, after Backoff its context
// ends, and after Timeout more it is abandoned.
type Cancellation struct {
	Backoff time.Duration // zero: the context ends at once
	Timeout time.Duration // zero: it is waited for without limit
	Polling time.Duration // how often one that does not leave is spoken of; zero: every minute
}
