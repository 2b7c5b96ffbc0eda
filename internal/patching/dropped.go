package patching

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/internal/body"
)

// Dropped returns the paths of what a request asked for and the response to it does
// not have: what the resource's schema does not keep, or an admission webhook or the
// server has changed (VER-1). What the response has besides does not count, nor does
// the same value in another form, such as 1.0 for 1, 1Gi for 1024Mi, or an instant in
// another zone; nor, in metadata, an empty object or list. There are no values in it.
//
// It looks at those places of the response that the patch is about: some 5 µs for
// bookkeeping, which needs no look at the object, and 20 µs for a status of 4 KB. So
// it can be called after every request.
func Dropped(patch []byte, response *body.Body) []string {
	sent, err := decodeTree(patch)
	if err != nil {
		return nil
	}
	if metadata, ok := sent["metadata"].(map[string]any); ok { // the preconditions
		delete(metadata, "uid")
		delete(metadata, "resourceVersion")
		if len(metadata) == 0 {
			delete(sent, "metadata")
		}
	}
	touched := map[string]any{}
	touch(touched, sent)
	got, err := known(response, touched)
	if err != nil {
		return nil
	}
	var paths []string
	missing(nil, sent, got, func(path diff.Path) {
		paths = append(paths, path.String())
	})
	slices.Sort(paths)
	return paths
}

// missing names what is in sent, and is not in got.
func missing(path diff.Path, sent, got map[string]any, name func(diff.Path)) {
	for key, value := range sent {
		here := append(path[:len(path):len(path)], key)
		has := got[key]
		if inner, ok := value.(map[string]any); ok {
			hasMap, isMap := has.(map[string]any)
			switch {
			case isMap || removes(inner) && has == nil:
				missing(here, inner, hasMap, name)
			case !emptyMetadata(here, value, has):
				name(here)
			}
			continue
		}
		if !arrived(value, has) && !emptyMetadata(here, value, has) {
			name(here)
		}
	}
}

// arrived tells whether a value is there: with more than was sent inside objects.
func arrived(sent, got any) bool {
	switch sent := sent.(type) {
	case map[string]any:
		gotMap, _ := got.(map[string]any)
		for key, value := range sent {
			if !arrived(value, gotMap[key]) {
				return false
			}
		}
		return gotMap != nil
	case []any:
		gotList, isList := got.([]any)
		if !isList || len(sent) != len(gotList) {
			return false
		}
		for i, item := range sent {
			if !arrived(item, gotList[i]) {
				return false
			}
		}
		return true
	}
	return diff.Equal(sent, got) || sameForm(sent, got)
}

// sameForm tells whether two texts mean the same quantity or the same instant. Servers
// keep instants to the second.
func sameForm(sent, got any) bool {
	a, isText := sent.(string)
	b, wasText := got.(string)
	if !isText || !wasText {
		return false
	}
	if strings.Contains(a, ":") {
		at, err1 := time.Parse(time.RFC3339, a)
		was, err2 := time.Parse(time.RFC3339, b)
		return err1 == nil && err2 == nil && at.Truncate(time.Second).Equal(was.Truncate(time.Second))
	}
	x, err1 := resource.ParseQuantity(a)
	y, err2 := resource.ParseQuantity(b)
	return err1 == nil && err2 == nil && x.Cmp(y) == 0
}

// emptyMetadata tells whether it is an empty object or list that the server did not
// keep in the metadata, as it never does.
func emptyMetadata(path diff.Path, sent, got any) bool {
	if len(path) != 2 || path[0] != "metadata" || got != nil {
		return false
	}
	switch sent := sent.(type) {
	case map[string]any:
		return len(sent) == 0
	case []any:
		return len(sent) == 0
	}
	return false
}
