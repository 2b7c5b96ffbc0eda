package registry

import (
	"context"
	"errors"
	"slices"
)

// Subhandlers are what a change handler declares while it runs. They belong to one
// call, as everything in it does.
type Subhandlers struct {
	// Parent is the handler that runs.
	Parent *Handler
	// Run executes handlers that were declared, and returns what each has come to.
	Run func(context.Context, []*Handler) ([]SubOutcome, error)

	waiting  []*Handler // declared and not yet executed
	ids      []string
	mistakes []error
}

// SubOutcome is what a sub-handler has come to.
type SubOutcome struct {
	ID       string // as it was declared, without its parent's
	Finished bool
	Err      error
	Result   any
}

// Declare takes a sub-handler, or the mistakes that were found in it. Its id, which
// is relative to the parent's so far, becomes a full one (HID-3).
func (s *Subhandlers) Declare(h *Handler, mistakes ...error) {
	id := h.ID
	h.ID, h.Kind, h.Selector, h.Parent = s.Parent.ID+"/"+id, s.Parent.Kind, s.Parent.Selector, s.Parent
	if (h.Old != nil || h.New != nil) && !h.UpdateLike() {
		mistakes = append(mistakes, errors.New("on.Old and on.New are for sub-handlers of update and field handlers")) // FLT-2
	}
	if slices.Contains(s.ids, id) {
		mistakes = append(mistakes, errors.New("its id is declared twice in one call"))
	}
	for _, err := range mistakes {
		s.mistakes = append(s.mistakes, h.Mistake(err))
	}
	s.ids = append(s.ids, id)
	s.waiting = append(s.waiting, h)
}

// Execute runs what was declared since the last time.
func (s *Subhandlers) Execute(ctx context.Context) ([]SubOutcome, error) {
	if err := errors.Join(s.mistakes...); err != nil {
		return nil, err
	}
	if len(s.waiting) == 0 {
		return nil, nil
	}
	declared := s.waiting
	s.waiting = nil
	return s.Run(ctx, declared)
}
