package patching

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "sigs.k8s.io/json"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
)

// edited returns what the edits change, as a merge patch of the untyped object.
//
// An edit sees a typed copy, which lacks the fields that its Go type does not know.
// So what it changed is the difference between the typed object before and after,
// and only that is laid over the untyped one; in lists, item by item.
func edited(b *body.Body, tree map[string]any, edits []registry.Edit) (map[string]any, error) {
	if len(edits) == 0 {
		return nil, nil
	}
	current, raw := tree, b.Raw()
	for first := true; len(edits) > 0; first = false {
		same := 1 // edits of one type share the copy
		for same < len(edits) && edits[same].Type == edits[0].Type {
			same++
		}
		before, after, err := apply(raw, edits[:same])
		if err != nil {
			return nil, err
		}
		step := overlay(current, before, after)
		if edits = edits[same:]; first && len(edits) == 0 {
			return step, nil
		}
		current = merged(current, step)
		if raw, err = json.Marshal(current); err != nil {
			return nil, err
		}
	}
	return overlay(tree, tree, current), nil
}

func apply(raw []byte, edits []registry.Edit) (before, after map[string]any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("patch function panicked: %v\n%s", p, debug.Stack())
		}
	}()
	object := reflect.New(edits[0].Type.Elem()).Interface()
	if before, err = view(raw, object); err != nil {
		return nil, nil, err
	}
	for _, edit := range edits {
		edit.Apply(object)
	}
	if u, ok := object.(runtime.Unstructured); ok {
		after, err = jsonTree(u.UnstructuredContent())
	} else {
		after, err = jsonTree(object)
	}
	return before, after, err
}

// view decodes raw into object and returns how object encodes.
func view(raw []byte, object any) (map[string]any, error) {
	if u, ok := object.(runtime.Unstructured); ok {
		tree, err := decodeTree(raw)
		if err != nil {
			return nil, err
		}
		u.SetUnstructuredContent(tree)
		return decodeTree(raw)
	}
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(raw, object); err != nil {
		return nil, fmt.Errorf("object does not decode into %T: %w", object, err)
	}
	return jsonTree(object)
}

// overlay returns the merge patch that makes to present what leads from before to
// after. before knows a part of present only.
func overlay(present, before, after map[string]any) map[string]any {
	merge := map[string]any{}
	for key := range before {
		if _, kept := after[key]; !kept {
			merge[key] = nil
		}
	}
	for key, value := range after {
		old, existed := before[key]
		if existed && diff.Equal(old, value) {
			continue
		}
		oldMap, wasMap := old.(map[string]any)
		newMap, isMap := value.(map[string]any)
		if wasMap && isMap {
			inner, _ := present[key].(map[string]any)
			if step := overlay(inner, oldMap, newMap); len(step) > 0 {
				merge[key] = step
			}
			continue
		}
		if isMap {
			merge[key] = withoutNulls(newMap)
			continue
		}
		merge[key] = laid(present[key], old, value)
	}
	return merge
}

// withoutNulls returns an object that is added as a whole without the nulls in it:
// in a merge patch they would say that something is removed.
func withoutNulls(tree map[string]any) map[string]any {
	out := make(map[string]any, len(tree))
	for key, value := range tree {
		switch value := value.(type) {
		case nil:
		case map[string]any:
			out[key] = withoutNulls(value)
		default:
			out[key] = value
		}
	}
	return out
}

// laid returns the value that replaces present: after, with what present knows
// more than before kept inside list items.
func laid(present, before, after any) any {
	switch after := after.(type) {
	case map[string]any:
		presentMap, ok1 := present.(map[string]any)
		beforeMap, ok2 := before.(map[string]any)
		if ok1 && ok2 {
			return merged(presentMap, overlay(presentMap, beforeMap, after))
		}
	case []any:
		presentList, ok1 := present.([]any)
		beforeList, ok2 := before.([]any)
		if ok1 && ok2 && len(presentList) == len(beforeList) {
			list := make([]any, len(after))
			for i, j := range origins(beforeList, after) {
				list[i] = after[i]
				if j >= 0 {
					list[i] = laid(presentList[j], beforeList[j], after[i])
				}
			}
			return list
		}
	}
	return after
}

// origins finds for each item the one that it was before, or -1: the equal one, else
// one of the same name, else the one in the same place. No two items come from one.
func origins(before, after []any) []int {
	from := make([]int, len(after))
	taken := make([]bool, len(before))
	for i := range from {
		from[i] = -1
	}
	claim := func(fits func(i, j int) bool) {
		for i := range after {
			for j := 0; j < len(before) && from[i] < 0; j++ {
				if !taken[j] && fits(i, j) {
					from[i], taken[j] = j, true
				}
			}
		}
	}
	claim(func(i, j int) bool { return i == j && diff.Equal(before[j], after[i]) })
	claim(func(i, j int) bool { return diff.Equal(before[j], after[i]) })
	claim(func(i, j int) bool { n := nameOf(after[i]); return n != nil && diff.Equal(nameOf(before[j]), n) })
	claim(func(i, j int) bool { return i == j && nameOf(after[i]) == nil })
	return from
}

func nameOf(item any) any {
	if m, ok := item.(map[string]any); ok {
		return m["name"]
	}
	return nil
}

// merged applies a merge patch to a copy of tree.
func merged(tree, merge map[string]any) map[string]any {
	out := maps.Clone(tree)
	if out == nil {
		out = map[string]any{}
	}
	for key, value := range merge {
		switch value := value.(type) {
		case nil:
			delete(out, key)
		case map[string]any:
			inner, _ := out[key].(map[string]any)
			out[key] = merged(inner, value)
		default:
			out[key] = value
		}
	}
	return out
}

func decodeTree(raw []byte) (map[string]any, error) {
	tree := map[string]any{}
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(raw, &tree); err != nil {
		return nil, err
	}
	return tree, nil
}
