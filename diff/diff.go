// Package diff tells what changed between two JSON trees, field by field, with
// the semantics of Kopf: objects are compared key by key, lists and scalars as a
// whole, and a key whose value is null counts as a key that is not there.
//
// A tree is what a JSON text decodes to: map[string]any, []any, string, bool, nil
// and numbers of any Go type. Numbers are compared by their exact value, so that
// 1 equals 1.0 and no digit of a 64-bit integer is lost. Structs are not looked
// into: decode the JSON instead.
//
// Nothing here changes its arguments, so all functions are safe for concurrent
// use as long as nobody else changes them. Values in a result are shared with
// the trees they came from: treat them as read-only.
package diff

import (
	"cmp"
	"maps"
	"slices"
)

// Op is what happened to a field.
type Op string

// The operations (DIF-1).
const (
	Add    Op = "add"    // the field was absent or null, and has a value now
	Change Op = "change" // the field had another value
	Remove Op = "remove" // the field had a value, and is absent or null now
)

// Path leads from the root of a tree to a field, key by key. The empty path is
// the root. Keys are kept as they are: a key with dots is one element.
type Path []string

// Item is one change. Old is nil for an addition, New is nil for a removal; both
// are shared with the compared trees and must not be changed.
type Item struct {
	Op       Op
	Path     Path
	Old, New any
}

// Diff is a sequence of changes in a fixed order: on each level additions, then
// removals, then what is on both sides, each sorted by key. Nil if nothing
// changed. It is not to be changed in place, for reductions share its items.
type Diff []Item

// Of returns the changes that lead from old to new (DIF-1 to DIF-4).
//
// It descends only where both sides have an object. A field that one side lacks
// is one item with the whole value, as is a list, or a field that turned from an
// object into something else: the first label ever set on an object without
// metadata adds "metadata", not the label.
//
// Cost: one pass over both trees, about 7 µs for objects of 4 KB; nothing is
// allocated when they are equal, and a handful of blocks when they are not.
func Of(old, new any) Diff {
	var stack [16]string // deeper than any manifest
	var d differ
	d.compare(stack[:0], old, new)
	return d.items
}

// At returns the changes at or below path, with paths relative to it (DIF-5):
// items below it keep the rest of their path, an item above it is split into the
// changes of the value at path, all others are dropped. The result is the same as
// that of Of for the two values at path. The empty path returns d itself.
func (d Diff) At(path Path) Diff {
	if len(path) == 0 {
		return d
	}
	var reduced Diff
	for _, item := range d {
		common := min(len(item.Path), len(path))
		if !slices.Equal(item.Path[:common], path[:common]) {
			continue
		}
		if len(item.Path) >= len(path) {
			item.Path = item.Path[common:]
			reduced = append(reduced, item)
			continue
		}
		before, _ := Resolve(item.Old, path[common:])
		after, _ := Resolve(item.New, path[common:])
		reduced = append(reduced, Of(before, after)...)
	}
	return reduced
}

// Resolve returns the value at path. It reports false if a key is missing or
// something that is not an object is in the way. A null that is there is nil and
// true: absent and null differ here, though not in a diff. It never allocates.
func Resolve(tree any, path Path) (value any, ok bool) {
	for _, key := range path {
		object, _ := tree.(map[string]any)
		if tree, ok = object[key]; !ok {
			return nil, false
		}
	}
	return tree, true
}

// Apply returns the tree after the changes: for any two trees, the result of
// Apply(Of(a, b), a) equals b by [Equal]. Old values are not checked, parents that
// are missing are created, and the removal of what is not there does nothing.
//
// The argument stays as it is; the result shares with it, and with the diff,
// whatever did not have to be copied.
func Apply(d Diff, to any) any { return apply(d, 0, to) }

func apply(d Diff, depth int, to any) any {
	var own map[string]any // to, once it is a copy
	for len(d) > 0 {
		item := d[0]
		if len(item.Path) == depth {
			to, own, d = item.New, nil, d[1:]
			continue
		}
		object, _ := to.(map[string]any)
		if object == nil && item.Op == Remove {
			d = d[1:]
			continue
		}
		if own == nil {
			if own = maps.Clone(object); own == nil {
				own = map[string]any{}
			}
			to = own
		}
		key, run := item.Path[depth], 1
		for run < len(d) && len(d[run].Path) > depth && d[run].Path[depth] == key {
			run++
		}
		if value := apply(d[:run], depth+1, own[key]); null(value) {
			delete(own, key)
		} else {
			own[key] = value
		}
		d = d[run:]
	}
	return to
}

// differ collects the items of one comparison. Where the comparison is now goes
// beside it as a parameter, so that it can stay on the stack.
type differ struct {
	items Diff
	paths []string // what the paths of items are cut from
}

func (d *differ) compare(at []string, old, new any) {
	switch {
	case null(old):
		if !null(new) {
			d.emit(at, Add, nil, new)
		}
		return
	case null(new):
		d.emit(at, Remove, old, nil)
		return
	}
	before, ok := old.(map[string]any)
	after, both := new.(map[string]any)
	if ok && both {
		d.compareObjects(at, before, after)
	} else if !Equal(old, new) {
		d.emit(at, Change, old, new)
	}
}

func (d *differ) compareObjects(at []string, old, new map[string]any) {
	first, depth, common := len(d.items), len(at), 0
	at = append(at, "")
	for key, after := range new {
		before, ok := old[key]
		if ok {
			common++
		}
		at[depth] = key
		d.compare(at, before, after)
	}
	if common < len(old) {
		for key, before := range old {
			if _, ok := new[key]; !ok {
				at[depth] = key
				d.compare(at, before, nil)
			}
		}
	}
	// Keys came in the map's order. Items of the same key are neighbours and in
	// order already, which a stable sort keeps.
	if level := d.items[first:]; len(level) > 1 {
		slices.SortStableFunc(level, func(a, b Item) int {
			return cmp.Or(
				cmp.Compare(rank(a, depth), rank(b, depth)),
				cmp.Compare(a.Path[depth], b.Path[depth]),
			)
		})
	}
}

// rank is the group of an item on the level at depth (DIF-3).
func rank(item Item, depth int) int {
	switch {
	case len(item.Path) > depth+1:
		return 2 // somewhere below a common key
	case item.Op == Add:
		return 0
	case item.Op == Remove:
		return 1
	}
	return 2
}

func (d *differ) emit(at []string, op Op, old, new any) {
	if d.items == nil {
		d.items = make(Diff, 0, 4)
	}
	if free := cap(d.paths) - len(d.paths); free < len(at) {
		d.paths = make([]string, 0, max(16, 2*cap(d.paths), len(at)))
	}
	start := len(d.paths)
	d.paths = append(d.paths, at...)
	// The capacity ends with the path, so that a user's append cannot run into
	// the next one.
	path := Path(d.paths[start:len(d.paths):len(d.paths)])
	d.items = append(d.items, Item{Op: op, Path: path, Old: old, New: new})
}

// null tells whether a value is written as null: nil, or a nil object or list.
func null(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return v == nil
	case []any:
		return v == nil
	}
	return false
}
