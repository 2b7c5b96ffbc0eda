package decisions

import "time"

// State is what an operator is about at a moment.
type State struct {
	Time    time.Time `json:"time"`
	Running bool      `json:"running"`
	// Ready tells whether the resources of handlers are known and indices complete; why not,
	// if it is not.
	Ready   bool     `json:"ready"`
	Notes   []string `json:"notes,omitempty"` // leadership, pauses
	Queued  int      `json:"queued"`          // objects that wait for a place to be worked on
	Waiting int      `json:"waiting"`         // objects that wait for their time
	Kinds   []Kind   `json:"kinds"`
}

// Kind is a kind of resource that is followed.
type Kind struct {
	Name     string    `json:"name"` // such as deployments.apps
	Version  string    `json:"version"`
	Kind     string    `json:"kind"`
	Objects  int       `json:"objects"`
	Busy     int       `json:"busy"`  // objects that are worked on, or wait
	Stuck    int       `json:"stuck"` // deletions that we have been holding up for long
	Streams  []Stream  `json:"streams"`
	Handlers []Handler `json:"handlers"`
}

// Stream follows a kind, in a namespace or everywhere.
type Stream struct {
	Namespace string `json:"namespace,omitempty"`
	// Age is the time since the last sign of life; after Limit, something is wrong.
	Age    time.Duration `json:"ageNanoseconds"`
	Limit  time.Duration `json:"limitNanoseconds"`
	Listed bool          `json:"listed"`
}

// Late tells whether nothing has been heard for too long.
func (s Stream) Late() bool { return s.Age > s.Limit }

// Handler is a handler of a kind.
type Handler struct {
	ID      string            `json:"id"`
	Cause   string            `json:"cause"`
	Filters []string          `json:"filters,omitempty"`
	Source  string            `json:"source,omitempty"`
	Running int               `json:"running"`
	Waiting int               `json:"waiting"`
	Counts  map[string]uint64 `json:"counts,omitempty"` // of attempts, by outcome
}

// Standing is how an object stands now.
type Standing struct {
	Object
	// State is a sentence about it.
	State string `json:"state"`
	// Next is when it is looked at again.
	Next *time.Time `json:"next,omitempty"`
	// Running are the daemons and other handlers that run on it, such as "daemon watch".
	Running []string `json:"running,omitempty"`
	// Waiting are the handlers that wait for their next attempt.
	Waiting []Verdict `json:"waiting,omitempty"`
}

// Account is all that is known of an object.
type Account struct {
	Standing
	Decisions []Decision `json:"decisions,omitempty"`
}
