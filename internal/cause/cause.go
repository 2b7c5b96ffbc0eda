// Package cause decides why the handlers of an object are called, and which of
// them: the pure part of change detection.
package cause

import (
	"github.com/kopf-go/kopf/internal/registry"
)

// Reason is what happened to an object since it was last handled (CHG-1).
type Reason string

// The reasons. Handlers are called for the first four.
const (
	Create Reason = "create"
	Update Reason = "update"
	Delete Reason = "delete"
	Resume Reason = "resume"
	Noop   Reason = "noop"
	Free   Reason = "free" // being deleted, and not held by us
	// Index is no reason of the object's: what a handler has read from an index is
	// another one now. Handlers see it; their records say resume.
	Index Reason = "index"
)

// Facts are what the reason follows from.
type Facts struct {
	Deleting  bool // deletion was requested
	Held      bool // our finalizer is on the object
	Handled   bool // there is a last-handled record
	Unchanged bool // and the essence equals it
	Initial   bool // noticed by the first listing, and not handled since
}

// Detect returns the reason; the first rule that fits decides (CHG-2).
func Detect(f Facts) Reason {
	switch {
	case f.Deleting && !f.Held:
		return Free
	case f.Deleting:
		return Delete
	case !f.Handled:
		return Create
	case f.Unchanged && f.Initial:
		return Resume
	case f.Unchanged:
		return Noop
	}
	return Update
}

// Candidate tells whether a handler is declared for the reason (CHG-4, CHG-5,
// CHG-6); its filters are a question of their own.
func Candidate(h *registry.Handler, r Reason, initial bool) bool {
	if r == Noop || r == Free {
		return r == Free && h.Kind == registry.Delete && h.Optional
	}
	switch h.Kind {
	case registry.Create:
		return r == Create
	case registry.Update:
		return r == Update
	case registry.Delete:
		return r == Delete
	case registry.Field:
		return r != Resume // nothing has changed then
	case registry.Resume:
		return initial && (r == Resume || r == Update || r == Delete && h.Deleted)
	}
	return false
}

// Continues tells whether a record with this purpose belongs to what the handler
// does now. A handler goes on with what it began for the same reason; a resume
// handler also when an update came in between. In particular a delete handler
// never takes the record of a create handler of the same id for its own (HID-6).
func Continues(h *registry.Handler, purpose string, now Reason) bool {
	if purpose == "" || purpose == string(now) {
		return true // very old records have no purpose
	}
	if now == Free {
		return purpose == string(Delete)
	}
	return h.Kind == registry.Resume && (purpose == string(Resume) || purpose == string(Update))
}

// Unique drops handlers that are the same function under the same id as one before,
// as when one function is registered for resuming and for updates (CHG-4).
func Unique(handlers []*registry.Handler) []*registry.Handler {
	type key struct {
		code uintptr
		id   string
	}
	seen := make(map[key]bool, len(handlers))
	unique := handlers[:0]
	for _, h := range handlers {
		if k := (key{h.Func, h.ID}); !seen[k] {
			seen[k] = true
			unique = append(unique, h)
		}
	}
	return unique
}
