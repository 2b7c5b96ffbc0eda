// Package decisions remembers why: what was decided for objects lately, which handlers
// ran, which filter of the others said no, what was written, and what comes next. It keeps
// names, paths and times, and never values of objects.
package decisions

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
)

// Object says which one.
type Object struct {
	Kind      string    `json:"kind"` // the resource, such as deployments.apps
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// Title is how people name the object.
func (o Object) Title() string {
	if o.Namespace == "" {
		return o.Kind + "/" + o.Name
	}
	return o.Kind + "/" + o.Namespace + "/" + o.Name
}

// Decision is one look at an object, and what came of it.
type Decision struct {
	Time time.Time `json:"time"`
	// Took is how long it lasted, handlers included.
	Took time.Duration `json:"tookNanoseconds,omitempty"`
	// Reason is why handlers were called: create, update, delete, resume; or noop, free,
	// release, daemon, timer, event.
	Reason string `json:"reason"`
	// Version is the object's resource version that was looked at.
	Version string `json:"version,omitempty"`
	// Changed are the paths of what has changed, without values.
	Changed  []string  `json:"changed,omitempty"`
	Handlers []Verdict `json:"handlers,omitempty"`
	Writes   []Write   `json:"writes,omitempty"`
	// Notes are what else was decided or found: pauses, complaints, conflicts.
	Notes []string `json:"notes,omitempty"`
	// Error is what went wrong, other than in handlers.
	Error string `json:"error,omitempty"`
	// Next is when the object is looked at again, if nothing happens before.
	Next *time.Time `json:"next,omitempty"`
	// Repeated is how often the same was decided in a row before, with nothing else.
	Repeated int `json:"repeated,omitempty"`
	// Left is how many handlers, paths, writes and notes were too many to be kept.
	Left int `json:"left,omitempty"`
}

// Verdict is what was decided about a handler.
type Verdict struct {
	Handler string `json:"handler"`
	// Outcome is that of an attempt: succeeded, ignored, retried, failed, waiting (for
	// sub-handlers), interrupted; or skipped, if a filter said no; or pending, if it was not
	// its turn.
	Outcome string        `json:"outcome"`
	Attempt int           `json:"attempt,omitempty"`
	Took    time.Duration `json:"tookNanoseconds,omitempty"`
	// Because says which filter said no.
	Because string `json:"because,omitempty"`
	// Error is what the handler said of its failure, shortened.
	Error string     `json:"error,omitempty"`
	Next  *time.Time `json:"next,omitempty"`
}

// The outcomes that are none of an attempt.
const (
	Skipped     = "skipped"
	Pending     = "pending"
	Interrupted = "interrupted"
)

// Write is a request.
type Write struct {
	Endpoint string `json:"endpoint"` // object or status
	Outcome  string `json:"outcome"`  // written, conflict, gone, refused, forbidden, fenced, failed
	Version  string `json:"version,omitempty"`
}

// Limits of one decision.
const (
	maxHandlers = 24
	maxPaths    = 24
	maxWrites   = 8
	maxNotes    = 4
	maxText     = 200 // bytes of each text
)

// bound cuts a decision to its limits.
func (d *Decision) bound() {
	d.Handlers = cut(d.Handlers, maxHandlers, &d.Left)
	d.Changed = cut(d.Changed, maxPaths, &d.Left)
	d.Writes = cut(d.Writes, maxWrites, &d.Left)
	d.Notes = cut(d.Notes, maxNotes, &d.Left)
	for i := range d.Handlers {
		h := &d.Handlers[i]
		h.Handler, h.Because, h.Error = Shorten(h.Handler), Shorten(h.Because), Shorten(h.Error)
	}
	for _, texts := range [][]string{d.Changed, d.Notes} {
		for i := range texts {
			texts[i] = Shorten(texts[i])
		}
	}
	d.Error = Shorten(d.Error)
}

func cut[T any](all []T, most int, left *int) []T {
	if len(all) <= most {
		return all
	}
	*left += len(all) - most
	return append([]T(nil), all[:most]...)
}

// Shorten makes one line of a text, of a bounded length.
func Shorten(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	if len(text) <= maxText {
		return text
	}
	end := maxText - len("…")
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// size is about how many bytes of memory a decision takes.
func (d *Decision) size() int {
	const fixed, verdict, write, text = 256, 120, 64, 16
	n := fixed + len(d.Version) + len(d.Error)
	for _, h := range d.Handlers {
		n += verdict + len(h.Handler) + len(h.Because) + len(h.Error)
	}
	for _, w := range d.Writes {
		n += write + len(w.Version)
	}
	for _, texts := range [][]string{d.Changed, d.Notes} {
		for _, t := range texts {
			n += text + len(t)
		}
	}
	return n
}

// same tells whether two decisions differ in nothing but their times, versions and
// attempts.
func (d *Decision) same(other *Decision) bool {
	if d.Reason != other.Reason || d.Error != other.Error || len(d.Handlers) != len(other.Handlers) ||
		len(d.Writes)+len(d.Changed)+len(d.Notes)+len(other.Writes)+len(other.Changed)+len(other.Notes) > 0 {
		return false
	}
	for i, h := range d.Handlers {
		o := other.Handlers[i]
		if h.Handler != o.Handler || h.Outcome != o.Outcome || h.Because != o.Because || h.Error != o.Error {
			return false
		}
	}
	return true
}

// Summary is one line about a decision.
func (d *Decision) Summary() string {
	var parts []string
	for _, h := range d.Handlers {
		text := h.Handler + " " + h.Outcome
		if h.Because != "" {
			text += fmt.Sprintf(" (%s)", h.Because)
		}
		parts = append(parts, text)
	}
	if d.Error != "" {
		parts = append(parts, "error: "+d.Error)
	}
	return strings.Join(append(parts, d.Notes...), ", ")
}
