package cause

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
)

// Subject is an object as filters look at it.
type Subject struct {
	Body     *body.Body
	Old, New *state.Essence // nil in Old: never handled; nil in both: look at the whole body
	// Sensitive tells of which fields the essences have digests instead of values.
	Sensitive func(path []string) bool
	Resource  schema.GroupVersionResource
	Log       *slog.Logger
	Memos     func() *registry.Memos

	whole   diff.Diff // of the essences, once it is known; it is never empty then
	refused Refusal
}

// PreMatches tells whether the object is in the handler's scope: every criterion
// but that its field has changed (FLT-4, FLT-13).
func (s *Subject) PreMatches(ctx context.Context, h *registry.Handler) (ok bool, err error) {
	defer recovered(h, &ok, &err)
	if s.refused = labelled(h, s.Body); s.refused.Filter != NoFilter {
		return false, nil
	}
	if len(h.Field) > 0 {
		s.refused.Filter = Value
		if ok, err := s.valueFits(h); !ok || err != nil {
			return false, err
		}
	}
	if s.refused = (Refusal{}); h.When == nil {
		return true, nil
	}
	defer func() {
		if !ok {
			s.refused.Filter = When
		}
	}()
	return h.When(ctx, &registry.Call{Body: s.Body, Resource: s.Resource, Log: s.Log, Memos: s.Memos})
}

// Matches is PreMatches, and for handlers of changes of a field, that it has
// changed in the way they want (FLT-11).
func (s *Subject) Matches(ctx context.Context, h *registry.Handler) (bool, error) {
	if ok, err := s.PreMatches(ctx, h); !ok || err != nil {
		return false, err
	}
	if len(h.Field) == 0 || !h.UpdateLike() {
		return true, nil
	}
	return s.fieldFits(h)
}

// Diff leads from the old essence to the new one, at the handler's field.
func (s *Subject) Diff(h *registry.Handler) (diff.Diff, error) {
	if s.whole == nil {
		before, after, err := s.trees()
		if err != nil {
			return nil, err
		}
		if s.oldUnknown() {
			s.whole = s.outline(after)
		} else {
			s.whole = diff.Of(untyped(before), untyped(after))
		}
	}
	switch {
	case len(h.Field) == 0:
		return slices.Clone(s.whole), nil
	case !s.oldUnknown():
		return s.whole.At(h.Field), nil
	case !s.mayDiffer(h.Field):
		return diff.Diff{}, nil
	}
	_, _, after, has, err := s.values(h)
	item := diff.Item{Op: diff.Change, New: after}
	if !has {
		item.Op = diff.Remove
	}
	return diff.Diff{item}, err
}

// outline is all that can be said about what has changed if the old essence was too
// large to be kept: which top-level fields (B24).
func (s *Subject) outline(after map[string]any) diff.Diff {
	d := diff.Diff{}
	for _, name := range s.Old.Changed(s.New) {
		item := diff.Item{Op: diff.Change, Path: diff.Path{name}, New: after[name]}
		if _, present := after[name]; !present {
			item.Op = diff.Remove
		}
		d = append(d, item)
	}
	return d
}

func (s *Subject) oldUnknown() bool { return s.Old != nil && !s.Old.Complete() }

// mayDiffer tells whether a field may have changed, by its top-level field.
func (s *Subject) mayDiffer(field diff.Path) bool {
	return slices.Contains(s.Old.Changed(s.New), field[0])
}

// Values returns the values at the handler's field, as far as they are known: of a
// sensitive one the present one only.
func (s *Subject) Values(h *registry.Handler) (before any, had bool, after any, has bool, err error) {
	before, had, after, has, err = s.values(h)
	if err == nil && s.New != nil && s.Sensitive != nil && s.Sensitive(h.Field) {
		before = nil
		after, has, err = s.present(h)
	}
	return before, had, after, has, err
}

// values are those of the essences, with digests in the place of sensitive ones.
func (s *Subject) values(h *registry.Handler) (before any, had bool, after any, has bool, err error) {
	oldTree, newTree, err := s.trees()
	if err != nil {
		return nil, false, nil, false, err
	}
	before, had = diff.Resolve(untyped(oldTree), h.Field)
	after, has = diff.Resolve(untyped(newTree), h.Field)
	return before, had, after, has, nil
}

// present is the value that the object itself has.
func (s *Subject) present(h *registry.Handler) (any, bool, error) {
	tree, err := s.Body.Tree()
	if err != nil {
		return nil, false, err
	}
	value, has := diff.Resolve(tree, h.Field)
	return value, has, nil
}

func (s *Subject) valueFits(h *registry.Handler) (bool, error) {
	before, had, after, has, err := s.Values(h)
	if err != nil {
		return false, err
	}
	criterion := h.Value
	if criterion == nil {
		criterion = filters.Present
	}
	if criterion.Match(after, has) {
		return true, nil
	}
	// What was never handled has no old value, not an absent one (FLT-10 fixed). One that
	// is not known may be any.
	return s.oldUnknown() && s.mayDiffer(h.Field) || s.Old != nil && !s.oldUnknown() && criterion.Match(before, had), nil
}

func (s *Subject) fieldFits(h *registry.Handler) (ok bool, err error) {
	defer recovered(h, &ok, &err)
	before, had, after, has, err := s.values(h)
	if err != nil {
		return false, err
	}
	if s.oldUnknown() {
		if !s.mayDiffer(h.Field) {
			s.refused.Filter = Unchanged
			return false, nil
		}
	} else if had == has && diff.Equal(before, after) { // absent differs from null, too (FLT-11)
		s.refused.Filter = Unchanged
		return false, nil
	}
	if before, had, after, has, err = s.Values(h); err != nil {
		return false, err
	}
	switch {
	case h.Old != nil && !s.oldUnknown() && !h.Old.Match(before, had):
		s.refused.Filter = Old
	case h.New != nil && !h.New.Match(after, has):
		s.refused.Filter = New
	}
	return s.refused.Filter == NoFilter, nil
}

func (s *Subject) trees() (before, after map[string]any, err error) {
	if s.New == nil {
		after, err = s.Body.Tree()
		return nil, after, err
	}
	if s.Old != nil && s.Old.Complete() {
		if before, err = s.Old.Tree(); err != nil {
			return nil, nil, err
		}
	}
	after, err = s.New.Tree()
	return before, after, err
}

// untyped keeps the tree of an object that was never handled from becoming an
// empty one, so that its creation is one addition of the whole (CHG-8).
func untyped(tree map[string]any) any {
	if tree == nil {
		return nil
	}
	return tree
}

// Labelled tells whether the object has the labels and annotations that the handler
// wants.
func Labelled(h *registry.Handler, b *body.Body) (ok bool, err error) {
	defer recovered(h, &ok, &err)
	return labelled(h, b).Filter == NoFilter, nil
}

// recovered turns a panic of a user's function into an error.
func recovered(h *registry.Handler, ok *bool, err *error) {
	if p := recover(); p != nil {
		*ok, *err = false, fmt.Errorf("filter of %s panicked: %v\n%s", h.Name(), p, debug.Stack())
	}
}

// labelled says which label or annotation does not fit.
func labelled(h *registry.Handler, b *body.Body) Refusal {
	if key, fits := fit(h.Labels, b.Labels); !fits {
		return Refusal{Label, key}
	}
	if key, fits := fit(h.Annotations, b.Annotations); !fits {
		return Refusal{Annotation, key}
	}
	return Refusal{}
}

func fit(criteria []registry.Criterion, values map[string]string) (refused string, ok bool) {
	for _, criterion := range criteria {
		value, present := values[criterion.Key]
		if !criterion.Match.Match(value, present) {
			return criterion.Key, false
		}
	}
	return "", true
}
