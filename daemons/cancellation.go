package daemons

import "time"

// DefaultPolling is how often a run that does not leave is spoken of by default.
const DefaultPolling = time.Minute

// Cancellation says how work is stopped: it is told to stop, after Backoff its context
// ends, and after Timeout more it is abandoned (DMN-10). Unlike in Kopf, the context
// ends also where there is no timeout. What is negative counts as zero.
type Cancellation struct {
	Backoff time.Duration // zero: the context ends at once
	Timeout time.Duration // zero: it is waited for without limit
	Polling time.Duration // without a timeout, how often one that does not leave is spoken of; zero: DefaultPolling
}

// valid is the cancellation without negative times, and with the default.
func (c Cancellation) valid() Cancellation {
	c.Backoff, c.Timeout = max(c.Backoff, 0), max(c.Timeout, 0)
	if c.Polling <= 0 {
		c.Polling = DefaultPolling
	}
	return c
}
