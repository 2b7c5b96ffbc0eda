// Package patching turns what a cycle has to say about an object into as few
// requests as possible: one for the object and one for its status, none if nothing
// would change. It composes them; it does not send them.
//
// Of the object only that is decoded which is about to change. Bookkeeping is
// composed from the metadata alone.
package patching

import (
	"encoding/json"
	"maps"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
)

// Change is everything that a cycle has to say. What the framework says prevails
// over what handlers ask for.
type Change struct {
	Edits []registry.Edit // of the handlers, in order

	Annotations     map[string]*string // nil removes
	AddFinalizer    string
	RemoveFinalizer string
	Results         map[string]any // by handler id, into the status (RES-1)
	// Merge is a merge patch of the framework's own, for state that is not kept in
	// annotations.
	Merge map[string]any

	// Finalizer is the framework's own, which no edit adds or removes; "" protects
	// none.
	Finalizer string
	// Owns tells which annotations are the framework's own, which no edit changes; nil
	// protects none.
	Owns func(annotation string) bool
}

// Plan is the change as JSON merge patches; nil where there is nothing to send. The
// status is sent first, and then what Next makes of the rest.
type Plan struct {
	Object []byte
	Status []byte
	// Locked tells that Object, or Status, applies to this very version of the object
	// only: it holds a list, which a merge patch replaces as a whole, or what came of a
	// JSON patch.
	Locked bool

	object                     map[string]any // Object, without its preconditions
	objectLocked, statusLocked bool
	body                       *body.Body
	change                     Change
}

// Compose plans the change of this version of the object. Every request carries the
// UID as a precondition, so that it never reaches another object of the same name.
// statusApart tells whether the resource has a status endpoint, the only way then to
// write status (PAT-3).
//
// An edit that cannot be applied, and a result that does not encode, is an
// *EditError. The caller blames the handler, leaves that edit out and composes again.
//
// It takes some 6 µs for bookkeeping, 10 more for a status of any kind, and with typed
// edits the time to decode the object into their type and to encode it twice.
func Compose(b *body.Body, c Change, statusApart bool) (Plan, error) {
	steps, err := run(b.Raw(), c.Edits)
	if err != nil {
		return Plan{}, err
	}
	own, err := c.own()
	if err != nil {
		return Plan{}, err
	}
	base, current, err := c.apply(b, steps, own)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{body: b, change: c}
	byJSON, byJSONInStatus := locking(steps, statusApart)
	var status map[string]any
	var statusLists bool
	if statusApart {
		status, statusLists = changes(only(base, "status"), only(current, "status"))
		delete(base, "status")
		delete(current, "status")
	}
	var lists bool
	p.object, lists = changes(base, current)
	p.objectLocked = len(p.object) > 0 && (lists || byJSON)
	// Edits that change both, one of them under a lock, see the same version in both
	// places, so that they need not run again on a half-written object.
	p.statusLocked = len(status) > 0 && (statusLists || byJSONInStatus || p.objectLocked && len(steps) > 0)
	p.Locked = p.objectLocked || p.statusLocked
	if p.Status, err = request(b, status, p.statusLocked); err != nil {
		return Plan{}, err
	}
	p.Object, err = request(b, p.object, p.objectLocked)
	return p, err
}

// Next returns what remains to be sent after the status was, given the response to
// that.
func (p *Plan) Next(response *body.Body) (Plan, error) {
	rest := Plan{Object: p.Object, Locked: p.objectLocked}
	if !p.objectLocked {
		return rest, nil
	}
	if p.statusLocked { // the response differs by our own write only
		var err error
		rest.Object, err = request(response, p.object, true)
		return rest, err
	}
	again, err := Compose(response, p.change, true)
	rest.Object, rest.Locked = again.Object, again.objectLocked
	return rest, err
}

// own returns the steps of the framework itself.
func (c *Change) own() ([]map[string]any, error) {
	var own []map[string]any
	if len(c.Results) > 0 {
		results := make(map[string]any, len(c.Results))
		for id, result := range c.Results {
			value, err := reencoded(result)
			if err != nil {
				return nil, &EditError{Handler: id, Index: -1, Err: &encodingError{"result", err}}
			}
			if value != nil {
				results[id] = value
			}
		}
		own = append(own, map[string]any{"status": results})
	}
	if len(c.Merge) > 0 {
		own = append(own, c.Merge)
	}
	if len(c.Annotations) > 0 {
		annotations := make(map[string]any, len(c.Annotations))
		for name, value := range c.Annotations {
			annotations[name] = nil
			if value != nil {
				annotations[name] = *value
			}
		}
		own = append(own, map[string]any{"metadata": map[string]any{"annotations": annotations}})
	}
	return own, nil
}

// apply returns the part of the object that is touched, as it is and as it is to be.
func (c *Change) apply(b *body.Body, steps []step, own []map[string]any) (base, current map[string]any, err error) {
	touched := map[string]any{}
	for _, s := range steps {
		touch(touched, s.merge)
	}
	edited, _ := touched["metadata"].(map[string]any)
	_, annotationsEdited := edited["annotations"]
	_, finalizersEdited := edited["finalizers"]
	for _, merge := range own {
		touch(touched, merge)
	}
	if c.AddFinalizer != "" || c.RemoveFinalizer != "" {
		touch(touched, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	}
	if base, err = known(b, touched); err != nil {
		return nil, nil, err
	}
	current = base
	for _, s := range steps {
		current = merged(current, s.merge)
	}
	if annotationsEdited && c.Owns != nil {
		current = merged(current, c.restoration(base, current))
	}
	for _, merge := range own {
		current = merged(current, merge)
	}
	if ours := c.AddFinalizer != "" || c.RemoveFinalizer != ""; ours || finalizersEdited && c.Finalizer != "" {
		before, _ := listed(base)
		after, readable := listed(current)
		if !readable && ours {
			after = before
		}
		if readable || ours { // else the server tells what is wrong with it
			list := c.finalizers(before, after)
			current = merged(current, map[string]any{"metadata": map[string]any{"finalizers": list}})
		}
	}
	return base, current, nil
}

// only returns the part of a tree at one key.
func only(tree map[string]any, key string) map[string]any {
	if value, ok := tree[key]; ok {
		return map[string]any{key: value}
	}
	return nil
}

// locking tells whether what came of JSON patches is in the object's request, and in
// the status's.
func locking(steps []step, statusApart bool) (object, status bool) {
	for _, s := range steps {
		if !s.locked {
			continue
		}
		for key := range s.merge {
			if key == "status" && statusApart {
				status = true
			} else {
				object = true
			}
		}
	}
	return object, status
}

// request encodes a merge patch with its preconditions; nil if it is empty.
func request(b *body.Body, merge map[string]any, locked bool) ([]byte, error) {
	if len(merge) == 0 {
		return nil, nil
	}
	out := maps.Clone(merge)
	metadata := map[string]any{}
	if changed, ok := merge["metadata"].(map[string]any); ok {
		metadata = maps.Clone(changed)
	}
	metadata["uid"] = string(b.UID)
	if locked {
		metadata["resourceVersion"] = b.ResourceVersion
	}
	out["metadata"] = metadata
	return json.Marshal(out)
}
