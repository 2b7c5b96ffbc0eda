package webhook

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/kopf-go/kopf/filters"
)

// beyondFinalizers holds unless the request is an update of an object that is being
// deleted, and changes nothing but finalizers and what the API server itself changes
// with them.
const beyondFinalizers = `request.operation != "UPDATE"` +
	` || !has(oldObject.metadata) || !has(oldObject.metadata.deletionTimestamp) || oldObject.metadata.deletionTimestamp == null` +
	` || !object.all(k, k == "metadata" || k in oldObject && object[k] == oldObject[k])` +
	` || !oldObject.all(k, k in object)` +
	` || !object.metadata.all(k, k in ["finalizers", "generation", "managedFields", "resourceVersion"]` +
	` || k in oldObject.metadata && object.metadata[k] == oldObject.metadata[k])` +
	` || !oldObject.metadata.all(k, k in ["finalizers", "generation", "managedFields", "resourceVersion"] || k in object.metadata)`

// subject is the object that filters look at: the old one if there is no other, as there
// is none in deletions (ADM-5).
const subject = "(object == null ? oldObject : object)"

// fieldCondition says in CEL that a field meets the criterion; false: it cannot be said.
// What it says is exactly what the criterion means. What leads to the field may be
// anything; literals are texts, bools, or integers.
func fieldCondition(path []string, c filters.Criterion) (admissionregistrationv1.MatchCondition, bool) {
	expression, ok := criterion(place(path), c)
	return admissionregistrationv1.MatchCondition{Expression: expression}, ok
}

// located is a field in CEL.
type located struct {
	present string // that it is there; it is never an error
	value   string // its value, if it is there
}

// place finds a field. Anything in its way that is no object means that it is not there.
func place(path []string) located {
	if len(path) == 0 {
		return located{"true", subject}
	}
	var present []string
	value := subject
	for _, name := range path {
		present = append(present, "type("+value+") == map")
		if identifier(name) {
			value += "." + name
			present = append(present, "has("+value+")")
		} else {
			present = append(present, literal(name)+" in "+value)
			value += "[" + literal(name) + "]"
		}
	}
	return located{strings.Join(present, " && "), value}
}

// criterion says in CEL what it means for the field. An error is no possible outcome.
func criterion(at located, c filters.Criterion) (string, bool) {
	shape := filters.ShapeOf(c)
	switch shape.Kind {
	case filters.KindPresent:
		return at.present, true
	case filters.KindAbsent:
		return "!(" + at.present + ")", true
	case filters.KindEqual:
		text, ok := literalOf(shape.Literal)
		return at.present + " && " + at.value + " == " + text, ok
	case filters.KindAny, filters.KindAll, filters.KindNone, filters.KindNot:
		return combined(at, shape)
	}
	return "", false
}

func combined(at located, shape filters.Shape) (string, bool) {
	parts := make([]string, len(shape.Parts))
	for i, part := range shape.Parts {
		text, ok := criterion(at, part)
		if !ok {
			return "", false
		}
		parts[i] = "(" + text + ")"
	}
	switch shape.Kind {
	case filters.KindAny:
		return orElse(strings.Join(parts, " || "), "false"), true
	case filters.KindAll:
		return orElse(strings.Join(parts, " && "), "true"), true
	}
	return "!(" + orElse(strings.Join(parts, " || "), "false") + ")", true
}

func orElse(text, empty string) string {
	if text == "" {
		return empty
	}
	return text
}
