package patching

import "slices"

// identity is what says which object it is, or what only the server writes. An edit
// that changes it is an edit of the rest.
var (
	identity     = []string{"apiVersion", "kind"}
	identityMeta = []string{"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
		"deletionTimestamp", "deletionGracePeriodSeconds"}
)

// keepIdentity takes out of a merge patch what no edit may change.
func keepIdentity(merge map[string]any) {
	for _, key := range identity {
		delete(merge, key)
	}
	metadata, isMap := merge["metadata"].(map[string]any)
	for _, key := range identityMeta {
		delete(metadata, key)
	}
	if !isMap || len(metadata) == 0 {
		delete(merge, "metadata")
	}
}

// restoration undoes what edits did to annotations that are the framework's own.
func (c *Change) restoration(base, current map[string]any) map[string]any {
	before, after := annotations(base), annotations(current)
	undo := map[string]any{}
	for name := range after {
		if _, had := before[name]; !had && c.Owns(name) {
			undo[name] = nil
		}
	}
	for name, value := range before {
		if c.Owns(name) {
			undo[name] = value
		}
	}
	if len(undo) == 0 {
		return nil
	}
	return map[string]any{"metadata": map[string]any{"annotations": undo}}
}

func annotations(tree map[string]any) map[string]any {
	metadata, _ := tree["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	return annotations
}

// finalizers returns what the list is to be: the one that edits made, with the
// framework's own entry as it was, or as the change has it; nil for none, which
// removes the list (FIN-8). Foreign entries keep their order.
func (c *Change) finalizers(before, after []string) any {
	if own := c.Finalizer; own != "" {
		at := slices.Index(before, own)
		switch others := without(after, own); {
		case slices.Equal(others, without(before, own)):
			after = before
		case at < 0:
			after = others
		default:
			after = slices.Insert(others, min(at, len(others)), own)
		}
	}
	if c.RemoveFinalizer != "" {
		after = without(after, c.RemoveFinalizer)
	}
	if c.AddFinalizer != "" && !slices.Contains(after, c.AddFinalizer) {
		after = append(slices.Clone(after), c.AddFinalizer)
	}
	if len(after) == 0 {
		return nil
	}
	items := make([]any, len(after))
	for i, f := range after {
		items[i] = f
	}
	return items
}

func without(list []string, entry string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(f string) bool { return f == entry })
}

// listed returns the finalizers of a tree, and whether there are any or none: an edit
// may have put something else in their place.
func listed(tree map[string]any) (list []string, readable bool) {
	metadata, _ := tree["metadata"].(map[string]any)
	items, isList := metadata["finalizers"].([]any)
	list = make([]string, len(items))
	for i, item := range items {
		if list[i], readable = item.(string); !readable {
			return nil, false
		}
	}
	return list, isList || metadata["finalizers"] == nil
}
