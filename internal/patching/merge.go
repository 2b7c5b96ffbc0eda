package patching

import (
	"encoding/json"
	"maps"

	"github.com/go-json-experiment/json/jsontext"
	utiljson "sigs.k8s.io/json"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/internal/body"
)

// merged applies a merge patch to a copy of tree. It differs from RFC 7396 in one
// thing: nothing is made just to hold a removal. To remove an annotation of an
// object without annotations changes nothing.
func merged(tree, merge map[string]any) map[string]any {
	out := maps.Clone(tree)
	if out == nil {
		out = make(map[string]any, len(merge))
	}
	for key, value := range merge {
		switch value := value.(type) {
		case nil:
			delete(out, key)
		case map[string]any:
			inner, isMap := out[key].(map[string]any)
			if !isMap && out[key] == nil && removes(value) {
				continue
			}
			out[key] = merged(inner, value)
		default:
			out[key] = value
		}
	}
	return out
}

// removes tells whether a merge patch has nothing but removals.
func removes(merge map[string]any) bool {
	for _, value := range merge {
		inner, isMap := value.(map[string]any)
		if value != nil && (!isMap || !removes(inner)) {
			return false
		}
	}
	return len(merge) > 0
}

// changes returns the merge patch that leads from one tree to another, without what
// would change nothing: no-op patches are not sent (PAT-6). It also tells whether a
// list is in it, or is replaced by it.
func changes(before, after map[string]any) (merge map[string]any, lists bool) {
	merge = map[string]any{}
	for key, old := range before {
		if _, kept := after[key]; !kept && old != nil {
			merge[key] = nil
			lists = lists || isList(old)
		}
	}
	for key, value := range after {
		old, existed := before[key]
		if existed && diff.Equal(old, value) {
			continue
		}
		newMap, isMap := value.(map[string]any)
		if oldMap, wasMap := old.(map[string]any); isMap && wasMap {
			if inner, innerLists := changes(oldMap, newMap); len(inner) > 0 {
				merge[key] = inner
				lists = lists || innerLists
			}
			continue
		}
		merge[key] = value
		lists = lists || hasList(value) || isList(old)
	}
	return merge, lists
}

func isList(value any) bool {
	_, ok := value.([]any)
	return ok
}

func hasList(value any) bool {
	if tree, ok := value.(map[string]any); ok {
		for _, inner := range tree {
			if hasList(inner) {
				return true
			}
		}
	}
	return isList(value)
}

// touch notes which places a merge patch touches: a map where it goes on, and nil
// where the whole value is concerned.
func touch(touched, merge map[string]any) {
	for key, value := range merge {
		inner, isMap := value.(map[string]any)
		noted, seen := touched[key]
		notedMap, goesOn := noted.(map[string]any)
		if !isMap || len(inner) == 0 || seen && !goesOn {
			touched[key] = nil
			continue
		}
		if !seen {
			notedMap = make(map[string]any, len(inner))
			touched[key] = notedMap
		}
		touch(notedMap, inner)
	}
}

// known decodes the touched places of an object, and nothing else. Annotations,
// labels and finalizers are known already.
func known(b *body.Body, touched map[string]any) (map[string]any, error) {
	metadata, parsed := parsedMetadata(b, touched["metadata"])
	if parsed && len(touched) == 1 {
		return map[string]any{"metadata": metadata}, nil
	}
	if !parsed {
		return decodePlaces(b.Raw(), touched)
	}
	rest := maps.Clone(touched)
	delete(rest, "metadata")
	out, err := decodePlaces(b.Raw(), rest)
	if err == nil {
		out["metadata"] = metadata
	}
	return out, err
}

// parsedMetadata answers from the metadata that every body has parsed.
func parsedMetadata(b *body.Body, touched any) (map[string]any, bool) {
	places, ok := touched.(map[string]any)
	if !ok {
		return nil, false
	}
	out := make(map[string]any, len(places))
	for key, inner := range places {
		switch key {
		case "annotations":
			put(out, key, b.Annotations, inner)
		case "labels":
			put(out, key, b.Labels, inner)
		case "finalizers":
			if len(b.Finalizers) > 0 {
				list := make([]any, len(b.Finalizers))
				for i, f := range b.Finalizers {
					list[i] = f
				}
				out[key] = list
			}
		default:
			return nil, false
		}
	}
	return out, true
}

func put(out map[string]any, key string, texts map[string]string, touched any) {
	if texts == nil {
		return
	}
	values := map[string]any{}
	if places, ok := touched.(map[string]any); ok {
		for name := range places {
			if value, exists := texts[name]; exists {
				values[name] = value
			}
		}
	} else {
		for name, value := range texts {
			values[name] = value
		}
	}
	out[key] = values
}

func decodePlaces(raw []byte, touched map[string]any) (map[string]any, error) {
	out := make(map[string]any, len(touched))
	if len(touched) == 0 {
		return out, nil
	}
	err := body.Members(raw, func(name string, value jsontext.Value) error {
		place, wanted := touched[name]
		if !wanted {
			return nil
		}
		var err error
		if places, goesOn := place.(map[string]any); goesOn && value.Kind() == '{' {
			out[name], err = decodePlaces(value, places)
		} else {
			out[name], err = decodeValue(value)
		}
		return err
	})
	return out, err
}

func decodeTree(raw []byte) (map[string]any, error) {
	tree := map[string]any{}
	err := utiljson.UnmarshalCaseSensitivePreserveInts(raw, &tree)
	return tree, err
}

func decodeValue(raw []byte) (any, error) {
	var value any
	err := utiljson.UnmarshalCaseSensitivePreserveInts(raw, &value)
	return value, err
}

// reencoded returns any value in the form that decoding gives it.
func reencoded(value any) (any, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return decodeValue(raw)
}
