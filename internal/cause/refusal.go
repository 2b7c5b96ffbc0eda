package cause

import (
	"fmt"

	"github.com/kopf-go/kopf/internal/registry"
)

// Filter is a filter of a handler, when it says no.
type Filter uint8

// The filters, in the order in which they are asked.
const (
	NoFilter   Filter = iota
	Label             // Refusal.Key says which
	Annotation        // too
	Value             // of the field
	When              // a function
	Unchanged         // the field has not changed
	Old               // value of the field
	New               // too
	Seen              // no filter: there is nothing that the handler was not told
)

// Refusal says which filter of a handler has said no. Noting it costs nothing.
type Refusal struct {
	Filter Filter
	Key    string
}

// Text says it to people, without values.
func (r Refusal) Text(h *registry.Handler) string {
	switch r.Filter {
	case Label:
		return fmt.Sprintf("label %s does not match", r.Key)
	case Annotation:
		return fmt.Sprintf("annotation %s does not match", r.Key)
	case Value:
		return fmt.Sprintf("value of %s does not match", h.Field)
	case When:
		return "the function of on.When says no"
	case Unchanged:
		return fmt.Sprintf("%s has not changed", h.Field)
	case Old:
		return fmt.Sprintf("old value of %s does not match", h.Field)
	case New:
		return fmt.Sprintf("new value of %s does not match", h.Field)
	}
	if r.Filter == Seen {
		return "there is nothing that it was not told"
	}
	return ""
}

// Refused is what the filter was that has said no last; its Filter is NoFilter if all
// that were asked last have said yes.
func (s *Subject) Refused() Refusal { return s.refused }
