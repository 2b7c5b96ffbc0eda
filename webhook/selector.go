package webhook

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/kopf-go/kopf/filters"
)

// Criterion is a filter on one label or annotation.
type Criterion struct {
	Key   string
	Match filters.Criterion
}

// Restrict says which objects the API server need not ask about, as far as it can be
// said to it: label filters become the selector, filters on annotations and on a field
// match conditions. No value of a field means that it must be there. Filters are to be
// checked on receipt nevertheless, for some cannot be said, and the API server asks about
// an object whose old labels or new ones are selected. An object that meets all filters
// is always asked about.
func (h *Hook) Restrict(labels, annotations []Criterion, field []string, value filters.Criterion) {
	var requirements []metav1.LabelSelectorRequirement
	for _, label := range labels {
		if requirement, ok := labelRequirement(label.Key, label.Match); ok && !h.unlabelled(requirement) {
			requirements = append(requirements, requirement)
		}
	}
	if len(requirements) > 0 {
		h.Selector = &metav1.LabelSelector{MatchExpressions: requirements}
	}
	for _, annotation := range annotations {
		if condition, ok := fieldCondition([]string{"metadata", "annotations", annotation.Key}, annotation.Match); ok {
			h.Conditions = append(h.Conditions, condition)
		}
	}
	if len(field) == 0 {
		return
	}
	if value == nil {
		value = filters.Present
	}
	if condition, ok := fieldCondition(field, value); ok {
		h.Conditions = append(h.Conditions, condition)
	}
}

// unlabelled tells whether the requirement may be met by what cannot have labels, such as
// the options of a connection to a pod. The API server selects no such thing, whatever it
// is selected by.
func (h *Hook) unlabelled(r metav1.LabelSelectorRequirement) bool {
	return h.Subresource != "" && (r.Operator == metav1.LabelSelectorOpDoesNotExist || r.Operator == metav1.LabelSelectorOpNotIn)
}

// labelRequirement says as a part of a label selector that a label meets the criterion
// (B.7); false: it cannot be said. What it says is exactly what the criterion means.
func labelRequirement(key string, c filters.Criterion) (metav1.LabelSelectorRequirement, bool) {
	requirement := metav1.LabelSelectorRequirement{Key: key}
	values, absent, ok := wanted(c)
	switch shape := filters.ShapeOf(c); {
	case shape.Kind == filters.KindPresent:
		requirement.Operator = metav1.LabelSelectorOpExists
	case shape.Kind == filters.KindAbsent:
		requirement.Operator = metav1.LabelSelectorOpDoesNotExist
	case !ok:
		return requirement, false
	case absent:
		requirement.Operator, requirement.Values = metav1.LabelSelectorOpNotIn, values
	default:
		requirement.Operator, requirement.Values = metav1.LabelSelectorOpIn, values
	}
	return requirement, legal(requirement)
}

// wanted are the values that meet the criterion; absent: all values but these do, and an
// absent label too.
func wanted(c filters.Criterion) (values []string, absent, ok bool) {
	shape := filters.ShapeOf(c)
	switch shape.Kind {
	case filters.KindEqual:
		text, isText := shape.Literal.(string)
		return []string{text}, false, isText
	case filters.KindAny, filters.KindNone, filters.KindNot:
		for _, part := range shape.Parts {
			more, absent, ok := wanted(part)
			if !ok || absent {
				return nil, false, false
			}
			values = append(values, more...)
		}
		slices.Sort(values)
		return slices.Compact(values), shape.Kind != filters.KindAny, len(values) > 0
	}
	return nil, false, false
}

// legal tells whether the API server would take it. It does not if a key or a value is
// none that a label can have.
func legal(r metav1.LabelSelectorRequirement) bool {
	operators := map[metav1.LabelSelectorOperator]selection.Operator{
		metav1.LabelSelectorOpIn: selection.In, metav1.LabelSelectorOpNotIn: selection.NotIn,
		metav1.LabelSelectorOpExists: selection.Exists, metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	_, err := labels.NewRequirement(r.Key, operators[r.Operator], r.Values)
	return err == nil
}
