package daemons

import "errors"

// Why work is stopped. These are the causes of the end of its context, so a run tells
// them apart by errors.Is(context.Cause(ctx), daemons.ErrDeleted). While a run is told
// to stop and its context has not ended yet (Cancellation.Backoff), there is none.
var (
	// ErrMismatch stops the work of an object that has been changed so that it is not for
	// the work any more. When it is again, a new instance begins (DMN-7).
	ErrMismatch = errors.New("object does not match the filters of the daemon any more")
	// ErrDeleted stops the work of an object whose deletion was requested, or that is gone.
	// For this object, nothing begins again (DMN-15).
	ErrDeleted = errors.New("deletion of the object was requested")
	// ErrPaused stops all work, since another operator is in charge. New instances begin
	// when that is over (DMN-14).
	ErrPaused = errors.New("operator is paused")
	// ErrExiting stops all work because the process is about to end. The next process
	// begins new instances (DMN-13).
	ErrExiting = errors.New("operator is exiting")
)
