package simulated

import (
	"net/url"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// selector is what a list or watch is restricted to. Of fields it knows those that all
// resources have: metadata.name and metadata.namespace.
type selector struct {
	labels labels.Selector
	fields fields.Selector
}

func selectorOf(query url.Values) (s selector, err error) {
	if s.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return s, err
	}
	s.fields, err = fields.ParseSelector(query.Get("fieldSelector"))
	return s, err
}

func (s selector) matches(v *version) bool {
	o := v.peek()
	return (s.labels.Empty() || s.labels.Matches(labels.Set(o.GetLabels()))) && (s.fields.Empty() ||
		s.fields.Matches(fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}))
}
