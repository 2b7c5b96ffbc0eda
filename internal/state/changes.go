package state

import (
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"github.com/kopf-go/kopf/internal/body"
)

// Changes collects what is to be written to an object's annotations in one patch.
// What would change nothing is left out, also when it undoes an earlier change of
// the same collection. Not for concurrent use.
type Changes struct {
	body   *body.Body
	naming Naming
	set    map[string]*string
}

// NewChanges begins an empty collection for the object as it is now.
func NewChanges(b *body.Body, n Naming) *Changes {
	return &Changes{body: b, naming: n}
}

// Annotations returns the changes by full name, nil standing for removal, as in a
// merge patch. It is nil if there are none. With anything stored goes the marker
// by which other Kopf operators recognise our annotations, unless the prefix tells
// them (B.2.5); it is never removed.
func (c *Changes) Annotations() map[string]*string {
	if len(c.set) == 0 {
		return nil
	}
	changes := maps.Clone(c.set)
	marker := c.naming.names().marker
	if _, marked := c.body.Annotations[marker]; marker == "" || marked {
		return changes
	}
	for _, value := range c.set {
		if value != nil {
			yes := markerValue
			changes[marker] = &yes
			break
		}
	}
	return changes
}

// StoreRecord writes the progress of a handler, under both of its names (B.2.4),
// unless an equal record is there already (B.3.6). A record that is there but can't
// be read is overwritten.
func (c *Changes) StoreRecord(k *Keys, r Record) {
	names := k.Names(c.body)
	if old, ok, err := recordOf(c.body, k); ok && err == nil && old.Equal(&r) {
		for _, name := range names {
			delete(c.set, name)
		}
		return
	}
	value := r.Encode()
	for _, name := range names {
		c.put(name, value)
	}
}

// PurgeRecord removes the progress of a handler: from the object if it is there,
// and from these changes (PRG-5, T064).
func (c *Changes) PurgeRecord(k *Keys) {
	for _, name := range k.Names(c.body) {
		c.Remove(name)
	}
}

// StoreLastHandled writes what counts as handled from now on, and the UID of the
// object that it counts for, unless it counts already.
func (c *Changes) StoreLastHandled(e *Essence) {
	names, mark := c.naming.names(), markOf(c.body)
	if last, known, err := LastHandled(c.body, c.naming); known && err == nil && last.Equal(e) {
		for _, name := range names.lastHandled[mark] {
			delete(c.set, name)
		}
		delete(c.set, names.uid[mark])
		return
	}
	value := string(e.text) + "\n" // B.4
	for _, name := range names.lastHandled[mark] {
		c.put(name, value)
	}
	c.put(names.uid[mark], string(c.body.UID))
}

// RemoveTouch removes the annotation by which a Python operator wakes itself, if
// one was left over (B.5). We never write it.
func (c *Changes) RemoveTouch() {
	for _, name := range c.naming.names().touch[markOf(c.body)] {
		c.Remove(name)
	}
}

// Remove removes an annotation, such as one of [Stray], by its full name.
func (c *Changes) Remove(name string) {
	delete(c.set, name)
	if _, ok := c.body.Annotations[name]; ok {
		c.change(name, nil)
	}
}

// Disown removes everything of ours that came along from another object (see
// [Foreign]): the last handled configuration and all records. The object is a new one.
func (c *Changes) Disown() {
	names, mark := c.naming.names(), markOf(c.body)
	for _, name := range names.lastHandled[mark] {
		c.Remove(name)
	}
	c.Remove(names.uid[mark])
	for _, name := range Stray(c.body, c.naming) {
		c.Remove(name)
	}
}

// put sets an annotation, unless it has this value.
func (c *Changes) put(name, value string) {
	if now, ok := c.body.Annotations[name]; ok && now == value {
		delete(c.set, name)
		return
	}
	c.change(name, &value)
}

func (c *Changes) change(name string, value *string) {
	if c.set == nil {
		c.set = map[string]*string{}
	}
	c.set[name] = value
}

// Stray returns the names of progress records on the object that belong to none
// of the handlers: handlers renamed or removed since, or created for another
// object. They are candidates for removal when the object is released. That is to
// say, everything under our prefix, sorted, but what is no record: the last
// handled configuration, its UID, the marker, the touch.
//
// On a ReplicaSet, the names which a handler has for its Deployment count as known:
// Kubernetes would copy the annotations again as long as they are on the Deployment.
func Stray(b *body.Body, n Naming, known ...*Keys) []string {
	var strays []string
	names := n.names()
	for name := range b.Annotations {
		prefix, _, ok := strings.Cut(name, "/")
		if ok && prefix == n.Prefix && !names.has(name) && !slices.ContainsFunc(known, func(k *Keys) bool {
			return slices.Contains(k.names[0], name) || slices.Contains(k.names[1], name)
		}) {
			strays = append(strays, name)
		}
	}
	slices.Sort(strays)
	return strays
}

// has tells whether the annotation is one of bookkeeping other than records.
func (f *fixedNames) has(name string) bool {
	if strings.HasSuffix(name, "/"+markerKey) {
		return true
	}
	for i := range marks {
		if name == f.uid[i] || slices.Contains(f.lastHandled[i], name) || slices.Contains(f.touch[i], name) {
			return true
		}
	}
	return false
}

// Oversize returns how large all annotations of the object together will be, keys
// and values, when the changes are made, and whether that is over what Kubernetes
// accepts (256 KiB): the API server would refuse the whole patch (X26).
func Oversize(b *body.Body, changes map[string]*string) (size int, over bool) {
	for name, value := range b.Annotations {
		if _, changed := changes[name]; !changed {
			size += len(name) + len(value)
		}
	}
	for name, value := range changes {
		if value != nil {
			size += len(name) + len(*value)
		}
	}
	return size, size > apivalidation.TotalAnnotationSizeLimitB
}
