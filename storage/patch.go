package storage

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/kopf-go/kopf/internal/rawjson"
)

// Patch collects changes of one object. What would change nothing is left out, also
// when it undoes an earlier change of the same patch. Not for concurrent use.
type Patch struct {
	object      Object
	annotations map[string]*string
	managed     []string // prefixes that go with a marker
	tree        map[string]any
}

// NewPatch begins an empty patch of the object as it is now.
func NewPatch(o Object) *Patch { return &Patch{object: o} }

// Annotation returns an annotation as it will be: for storages that keep several things
// in one.
func (p *Patch) Annotation(name string) (value string, ok bool) {
	if change, changed := p.annotations[name]; changed {
		if change == nil {
			return "", false
		}
		return *change, true
	}
	value, ok = p.object.GetAnnotations()[name]
	return value, ok
}

// SetAnnotation sets an annotation, unless it has this value.
func (p *Patch) SetAnnotation(name, value string) {
	if now, ok := p.object.GetAnnotations()[name]; ok && now == value {
		delete(p.annotations, name)
		return
	}
	p.annotate(name, &value)
}

// SetManaged sets an annotation that is bookkeeping. With it goes the annotation
// PREFIX/kopf-managed, if it is missing, by which all Kopf operators recognise that
// everything under the prefix is, unless the prefix begins with "kopf." (B.2.5). It is
// never removed.
func (p *Patch) SetManaged(name, value string) {
	p.SetAnnotation(name, value)
	if prefix, _, ok := strings.Cut(name, "/"); ok && !strings.HasPrefix(prefix, "kopf.") && !slices.Contains(p.managed, prefix) {
		p.managed = append(p.managed, prefix)
	}
}

// RemoveAnnotation removes an annotation: from the object if it is there, and from
// this patch.
func (p *Patch) RemoveAnnotation(name string) {
	delete(p.annotations, name)
	if _, ok := p.object.GetAnnotations()[name]; ok {
		p.annotate(name, nil)
	}
}

// KeepAnnotation takes any change of the annotation out of the patch again.
func (p *Patch) KeepAnnotation(name string) { delete(p.annotations, name) }

func (p *Patch) annotate(name string, value *string) {
	if p.annotations == nil {
		p.annotations = map[string]*string{}
	}
	p.annotations[name] = value
}

// Annotations returns the annotations to be set, by full name, and to be removed,
// which are nil. It is nil if there are none.
func (p *Patch) Annotations() map[string]*string {
	if len(p.annotations) == 0 {
		return nil
	}
	changes := maps.Clone(p.annotations)
	for name, value := range p.annotations {
		prefix, _, _ := strings.Cut(name, "/")
		marker := prefix + "/" + markerKey
		if _, marked := p.object.GetAnnotations()[marker]; value != nil && !marked && slices.Contains(p.managed, prefix) {
			yes := markerValue
			changes[marker] = &yes
		}
	}
	return changes
}

// Set sets the field at the path, unless it has this value. The value is made of
// what JSON is made of: map[string]any, []any, strings, bools, numbers and nil. A map
// replaces the one that is there, as everything else does. Annotations have methods
// of their own.
func (p *Patch) Set(value any, path ...string) {
	p.unset(path)
	now := rawjson.Find(p.object.Raw(), path...)
	if now != nil && sameValue(now, value) {
		return
	}
	p.put(replacement(now, value), path)
}

// sameValue tells whether the JSON text has the value.
func sameValue(text []byte, value any) bool {
	wanted, err := json.Marshal(value)
	return err == nil && rawjson.Equal(text, wanted)
}

// Remove removes the field at the path: from the object if it is there, and from
// this patch.
func (p *Patch) Remove(path ...string) {
	p.unset(path)
	if rawjson.Find(p.object.Raw(), path...) != nil {
		p.put(nil, path)
	}
}

// Tree returns all but the annotations as a JSON merge patch. It is nil if there is
// nothing in it.
func (p *Patch) Tree() map[string]any { return p.tree }

func (p *Patch) put(value any, path []string) {
	if len(path) == 0 {
		return
	}
	if p.tree == nil {
		p.tree = map[string]any{}
	}
	at := p.tree
	for _, key := range path[:len(path)-1] {
		inner, ok := at[key].(map[string]any)
		if !ok {
			inner = map[string]any{}
			at[key] = inner
		}
		at = inner
	}
	at[path[len(path)-1]] = value
}

// unset takes what is at the path out of the patch, and what was made around it.
func (p *Patch) unset(path []string) {
	if p.tree = without(p.tree, path); len(p.tree) == 0 {
		p.tree = nil
	}
}

func without(tree map[string]any, path []string) map[string]any {
	if len(tree) == 0 || len(path) == 0 {
		return tree
	}
	key := path[0]
	if len(path) == 1 {
		delete(tree, key)
		return tree
	}
	if inner, ok := tree[key].(map[string]any); ok {
		if len(without(inner, path[1:])) == 0 {
			delete(tree, key)
		}
	}
	return tree
}

// replacement is what has to be in a merge patch for the value to replace what is
// there, a JSON text: maps would merge.
func replacement(now []byte, value any) any {
	wanted, isMap := value.(map[string]any)
	if !isMap || !rawjson.IsObject(now) {
		return value
	}
	merge := make(map[string]any, len(wanted))
	for w := (rawjson.Walker{Src: now}); w.Member(); w.Skip() {
		merge[string(rawjson.Unescape(w.Name))] = nil
	}
	for key, inner := range wanted {
		merge[key] = replacement(rawjson.Find(now, key), inner)
	}
	return merge
}

// keys are the names of what the patch has at the path.
func (p *Patch) keys(path []string) (keys []string) {
	at := p.tree
	for _, key := range path {
		at, _ = at[key].(map[string]any)
	}
	return slices.Collect(maps.Keys(at))
}
