package simulated

import (
	"context"
	"net/http"
)

// What else speaks of requests and faults in the same words: package faulty.

// Parse says what a request of the API is. It reads no body.
func Parse(request *http.Request) Request { return parse(request).Request }

// Matches tells whether a request is meant. Skip and Times are the caller's business.
func (o On) Matches(r Request) bool { return o.matches(&r) }

// Happen lets the fault happen to a request: an answer, or an error that stands for a
// lost connection, or neither if the fault was a delay.
func (f *Fault) Happen(ctx context.Context) (*http.Response, error) { return f.happen(ctx) }
