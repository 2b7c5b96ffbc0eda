package patching

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "sigs.k8s.io/json"

	"github.com/kopf-go/kopf/internal/registry"
)

// step is what some edits change, as a merge patch of the object after the steps
// before it.
type step struct {
	merge  map[string]any
	locked bool // it is right for this version of the object only
}

// run applies edits to copies of an object, one after the other, and returns what
// each changes.
func run(raw []byte, edits []registry.Edit) ([]step, error) {
	var steps []step
	applied := 0   // steps that are in raw
	oneByOne := -1 // up to where edits are applied singly, to find a bad one among several
	for i := 0; i < len(edits); {
		edit := &edits[i]
		n := 1
		for edit.Apply != nil && i > oneByOne && i+n < len(edits) && edits[i+n].Apply != nil && edits[i+n].Type == edit.Type {
			n++ // edits of one type share a copy
		}
		if edit.Merge == nil && edit.Err == nil {
			var err error
			if raw, err = advanced(raw, steps[applied:]); err != nil {
				return nil, err
			}
			applied = len(steps)
		}
		s, err := take(raw, edits[i:i+n])
		switch {
		case err != nil && n > 1:
			oneByOne = i + n - 1
			continue
		case err != nil:
			return nil, &EditError{Handler: edit.Handler, Index: i, Err: err}
		}
		if keepIdentity(s.merge); len(s.merge) > 0 {
			steps = append(steps, s)
		}
		i += n
	}
	return steps, nil
}

// Preview fills object with how raw is once the edits are applied.
func Preview(raw []byte, edits []registry.Edit, object any) error {
	steps, err := run(raw, edits)
	if err != nil {
		return err
	}
	if raw, err = advanced(raw, steps); err != nil {
		return err
	}
	return decodeObject(raw, object)
}

// advanced returns the object after some steps.
func advanced(raw []byte, steps []step) ([]byte, error) {
	if len(steps) == 0 {
		return raw, nil
	}
	tree, err := decodeTree(raw)
	if err != nil {
		return nil, fmt.Errorf("object is not readable: %w", err)
	}
	for _, s := range steps {
		tree = merged(tree, s.merge)
	}
	return json.Marshal(tree)
}

func take(raw []byte, edits []registry.Edit) (step, error) {
	edit := &edits[0]
	var s step
	var err error
	switch {
	case edit.Err != nil:
		err = edit.Err
	case edit.Merge != nil:
		if s.merge, err = decodeTree(edit.Merge); err != nil {
			err = fmt.Errorf("merge patch is not a JSON object: %w", err)
		}
	case edit.Operations != nil:
		s.locked = true
		s.merge, err = operate(raw, edit.Operations)
	default:
		s.merge, err = call(raw, edits)
	}
	return s, err
}

// operate returns what a JSON patch changes.
func operate(raw, operations []byte) (merge map[string]any, err error) {
	defer recovered(&err)
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		return nil, fmt.Errorf("JSON patch is not readable: %w", err)
	}
	after, err := strict(patch).Apply(raw)
	if err != nil {
		return nil, fmt.Errorf("JSON patch does not apply: %w", err)
	}
	return difference(raw, raw, after)
}

// strict makes a replacement of what does not exist fail, as RFC 6902 demands and the
// library does not: it becomes a removal and an addition.
func strict(patch jsonpatch.Patch) jsonpatch.Patch {
	out := make(jsonpatch.Patch, 0, len(patch))
	remove, add := json.RawMessage(`"remove"`), json.RawMessage(`"add"`)
	for _, operation := range patch {
		if operation.Kind() != "replace" {
			out = append(out, operation)
			continue
		}
		removal, addition := maps.Clone(operation), maps.Clone(operation)
		removal["op"], addition["op"] = &remove, &add
		out = append(out, removal, addition)
	}
	return out
}

// call returns what functions change. They see a typed copy, which lacks the fields
// that its Go type does not know. So what they changed is the difference between the
// typed object before and after, and only that is laid over the real one.
func call(raw []byte, edits []registry.Edit) (merge map[string]any, err error) {
	defer recovered(&err)
	object := reflect.New(edits[0].Type.Elem()).Interface()
	if err := decodeObject(raw, object); err != nil {
		return nil, err
	}
	before := raw
	if _, untyped := object.(runtime.Unstructured); !untyped {
		if before, err = encodeObject(object); err != nil {
			return nil, err
		}
	}
	for _, edit := range edits {
		edit.Apply(object)
	}
	after, err := encodeObject(object)
	if err != nil {
		return nil, &encodingError{"object", err}
	}
	if bytes.Equal(before, after) {
		return nil, nil
	}
	return difference(raw, before, after)
}

func recovered(err *error) {
	if p := recover(); p != nil {
		*err = &PanicError{Value: p, Stack: debug.Stack()}
	}
}

func decodeObject(raw []byte, object any) error {
	var err error
	if u, ok := object.(runtime.Unstructured); ok {
		var tree map[string]any
		tree, err = decodeTree(raw)
		u.SetUnstructuredContent(tree)
	} else {
		err = utiljson.UnmarshalCaseSensitivePreserveInts(raw, object)
	}
	if err != nil {
		return &registry.DecodeError{Type: reflect.TypeOf(object), Err: err}
	}
	return nil
}

func encodeObject(object any) ([]byte, error) {
	if u, ok := object.(runtime.Unstructured); ok {
		tree := u.UnstructuredContent()
		if len(tree) == 0 {
			return nil, errors.New("nothing is left of it")
		}
		return json.Marshal(tree)
	}
	return json.Marshal(object)
}
