// Package patching turns what a cycle has to say about an object into as few
// requests as possible: one for the object and one for its status, none if nothing
// would change. It composes them; it does not send them.
package patching

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
)

// Change is everything that a cycle has to say.
type Change struct {
	Annotations     map[string]*string // nil removes
	AddFinalizer    string
	RemoveFinalizer string
	Results         map[string]any // by handler id, into the status (RES-1)
	Edits           []registry.Edit
}

// Plan is the change as JSON merge patches; nil where there is nothing to send.
type Plan struct {
	Object []byte
	Status []byte
	// Locked tells that Object, or Status, holds a list, which a merge patch replaces
	// as a whole: it applies to this very version of the object only.
	Locked bool
}

// Compose plans the change of this version of the object. Every request carries the
// UID as a precondition, so that it never reaches another object of the same name.
// The edits run on copies of it. statusApart tells whether the resource has a status
// endpoint, the only way then to write status (PAT-3).
func Compose(b *body.Body, c Change, statusApart bool) (Plan, error) {
	tree, err := b.Tree()
	if err != nil {
		return Plan{}, err
	}
	merge, err := edited(b, tree, c.Edits)
	if err != nil {
		return Plan{}, err
	}
	annotations := map[string]any{}
	for name, value := range c.Annotations {
		annotations[name] = nil
		if value != nil {
			annotations[name] = *value
		}
	}
	if len(annotations) > 0 {
		merge = combined(merge, map[string]any{"metadata": map[string]any{"annotations": annotations}})
	}
	if len(c.Results) > 0 {
		results, err := jsonTree(c.Results)
		if err != nil {
			return Plan{}, fmt.Errorf("result does not encode: %w", err)
		}
		merge = combined(merge, map[string]any{"status": results})
	}
	merge = withFinalizer(merge, b, c)

	var plan Plan
	if status, ok := merge["status"]; ok && statusApart {
		delete(merge, "status")
		plan.Status, err = plan.request(b, tree, map[string]any{"status": status})
		if err != nil {
			return Plan{}, err
		}
	}
	plan.Object, err = plan.request(b, tree, merge)
	return plan, err
}

func (p *Plan) request(b *body.Body, tree, merge map[string]any) ([]byte, error) {
	merge, locked := effective(tree, merge)
	if len(merge) == 0 {
		return nil, nil
	}
	preconditions := map[string]any{"uid": string(b.UID)}
	if locked {
		preconditions["resourceVersion"] = b.ResourceVersion
		p.Locked = true
	}
	return json.Marshal(combined(merge, map[string]any{"metadata": preconditions}))
}

func withFinalizer(merge map[string]any, b *body.Body, c Change) map[string]any {
	finalizers := b.Finalizers
	if metadata, ok := merge["metadata"].(map[string]any); ok {
		if list, ok := metadata["finalizers"]; ok { // a handler's edit
			finalizers = texts(list)
		}
	}
	changed := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f == c.RemoveFinalizer || f == c.AddFinalizer
	})
	if c.AddFinalizer != "" {
		if slices.Contains(finalizers, c.AddFinalizer) {
			return merge
		}
		changed = append(changed, c.AddFinalizer)
	}
	if len(changed) == len(finalizers) {
		return merge
	}
	var list any // null removes an empty list (FIN-8)
	if len(changed) > 0 {
		items := make([]any, len(changed))
		for i, f := range changed {
			items[i] = f
		}
		list = items
	}
	return combined(merge, map[string]any{"metadata": map[string]any{"finalizers": list}})
}

func texts(list any) []string {
	items, _ := list.([]any)
	out := make([]string, 0, len(items))
	for _, item := range items {
		if text, ok := item.(string); ok {
			out = append(out, text)
		}
	}
	return out
}

// combined merges patches: maps into each other, everything else by replacement.
func combined(into, from map[string]any) map[string]any {
	if into == nil {
		into = make(map[string]any, len(from))
	}
	for key, value := range from {
		inner, isMap := value.(map[string]any)
		outer, wasMap := into[key].(map[string]any)
		if isMap && wasMap {
			into[key] = combined(outer, inner)
		} else {
			into[key] = value
		}
	}
	return into
}

// effective drops from a merge patch what would change nothing: no-op patches are
// not sent (PAT-6). It also tells whether a list is among what remains.
func effective(tree, merge map[string]any) (out map[string]any, list bool) {
	out = map[string]any{}
	for key, value := range merge {
		present, exists := tree[key]
		if wanted, ok := value.(map[string]any); ok {
			inner, isMap := present.(map[string]any)
			rest, inList := effective(inner, wanted)
			// An empty object that is wanted is one; one of which only something is to be
			// removed, and which is not there, is nothing to send.
			if len(rest) > 0 || !isMap && (len(wanted) == 0 || present != nil) {
				out[key] = rest
				list = list || inList
			}
			continue
		}
		if !exists && value == nil || exists && value != nil && diff.Equal(present, value) {
			continue
		}
		out[key] = value
		list = list || isList(value) || isList(present)
	}
	return out, list
}

func isList(value any) bool {
	_, ok := value.([]any)
	return ok
}

func jsonTree(value any) (map[string]any, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return decodeTree(raw)
}
