// Package storagetest checks storages of one's own: whether they do what package
// storage asks for. Call it in a test:
//
//	func TestMyProgress(t *testing.T) {
//		storagetest.Progress(t, func() storage.Progress { return MyProgress{} })
//	}
package storagetest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/storage"
)

// Object makes an object of its JSON, for tests of one's own.
func Object(t testing.TB, text string) storage.Object {
	t.Helper()
	b, err := body.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return b
}

// Patched returns the object as it is when the patch was applied.
func Patched(t testing.TB, o storage.Object, p *storage.Patch) storage.Object {
	t.Helper()
	tree := decoded(t, o)
	merge := map[string]any{}
	if annotations := p.Annotations(); annotations != nil {
		changes := map[string]any{}
		for name, value := range annotations {
			if changes[name] = nil; value != nil {
				changes[name] = *value
			}
			if problems := validation.IsQualifiedName(strings.ToLower(name)); len(problems) > 0 {
				t.Errorf("the API server would refuse the annotation %q: %v", name, problems)
			}
		}
		merge["metadata"] = map[string]any{"annotations": changes}
	}
	text, err := json.Marshal(merged(merged(tree, p.Tree()), merge))
	if err != nil {
		t.Fatalf("the patch does not encode: %v", err)
	}
	return Object(t, string(text))
}

func decoded(t testing.TB, o storage.Object) (tree map[string]any) {
	t.Helper()
	if err := json.Unmarshal(o.Raw(), &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

// merged applies a JSON merge patch (RFC 7386).
func merged(tree, patch map[string]any) map[string]any {
	out := maps.Clone(tree)
	if out == nil {
		out = map[string]any{}
	}
	for key, value := range patch {
		if inner, ok := value.(map[string]any); ok {
			now, _ := out[key].(map[string]any)
			out[key] = merged(now, inner)
		} else if value == nil {
			delete(out, key)
		} else {
			out[key] = value
		}
	}
	return out
}

// objects are those that storages have to get along with.
func objects(t testing.TB) map[string]storage.Object {
	t.Helper()
	objects := map[string]storage.Object{}
	for name, text := range map[string]string{
		"bare": `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","uid":"u-1"}}`,
		"full": `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"n","uid":"u-1",
			"labels":{"app":"w"},"annotations":{"note":"kept","example.com/note":"kept"},"finalizers":["example.com/f"]},
			"spec":{"size":1},"status":{"phase":"Ready","kopf":{"result":1}}}`,
		"of a Deployment": `{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"name":"w","uid":"u-1",
			"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"d","uid":"u-2"}]},"spec":{"replicas":1}}`,
	} {
		objects[name] = Object(t, text)
	}
	return objects
}

// check is a test of one storage.
type check struct {
	testing.TB
	what string
	own  storage.Fields
}

func (c *check) errorf(format string, args ...any) {
	c.Helper()
	c.Errorf(c.what+": "+format, args...)
}

// patched applies what was done, and looks at what was touched.
func (c *check) patched(o storage.Object, do func(p *storage.Patch)) storage.Object {
	c.Helper()
	p := storage.NewPatch(o)
	do(p)
	for name := range p.Annotations() {
		prefix, _, _ := strings.Cut(name, "/")
		if !slices.Contains(c.own.Prefixes, prefix) && !c.owns("metadata", "annotations", name) {
			c.errorf("annotation %s was changed, and Own does not say that it is the storage's: "+
				"the operator would take that for a change of the object", name)
		}
	}
	c.leaves(p.Tree(), nil)
	return Patched(c, o, p)
}

func (c *check) leaves(tree map[string]any, at []string) {
	for key, value := range tree {
		path := append(slices.Clone(at), key)
		if inner, ok := value.(map[string]any); ok && !c.owns(path...) {
			c.leaves(inner, path)
		} else if !c.owns(path...) {
			c.errorf("field %s was changed, and Own does not say that it is the storage's: "+
				"the operator would take that for a change of the object", strings.Join(path, "."))
		}
	}
}

func (c *check) owns(path ...string) bool {
	return slices.ContainsFunc(c.own.Paths, func(own []string) bool {
		return len(own) <= len(path) && slices.Equal(own, path[:len(own)])
	})
}

// unchanged tells whether nothing is to be done.
func (c *check) unchanged(o storage.Object, what string, do func(p *storage.Patch)) {
	c.Helper()
	p := storage.NewPatch(o)
	do(p)
	if annotations, tree := p.Annotations(), p.Tree(); annotations != nil || !noop(decoded(c, o), tree) {
		c.errorf("%s is to change nothing, but patches %v and %v", what, slices.Sorted(maps.Keys(annotations)), tree)
	}
}

// noop tells whether a merge patch changes nothing: nulls for what is not there.
func noop(tree, patch map[string]any) bool {
	before, err := json.Marshal(withoutEmpty(tree))
	after, err2 := json.Marshal(withoutEmpty(merged(tree, patch)))
	return err == nil && err2 == nil && string(before) == string(after)
}

func withoutEmpty(tree map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range tree {
		if inner, ok := value.(map[string]any); ok {
			if inner = withoutEmpty(inner); len(inner) == 0 {
				continue
			}
			value = inner
		}
		out[key] = value
	}
	return out
}

// clean tells whether only what the storage never removes is left of it: the marker.
func (c *check) clean(before, after storage.Object) {
	c.Helper()
	was, is := decoded(c, before), decoded(c, after)
	if metadata, ok := is["metadata"].(map[string]any); ok {
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			maps.DeleteFunc(annotations, func(name string, _ any) bool { return strings.HasSuffix(name, "/kopf-managed") })
		}
	}
	a, _ := json.Marshal(withoutEmpty(was))
	b, _ := json.Marshal(withoutEmpty(is))
	if string(a) != string(b) {
		c.errorf("what remains is not what was there before:\n got %s\nwant %s", b, a)
	}
}
