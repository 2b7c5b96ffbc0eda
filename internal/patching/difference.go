package patching

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/internal/body"
)

// difference returns the merge patch that makes to the object what leads from one
// encoding of it to another. Both may lack what the object has. What is the same
// text in both is not decoded; most is.
func difference(object, before, after []byte) (map[string]any, error) {
	return (&comparison{object: object, decode: decodeValue}).between(before, after)
}

type comparison struct {
	object []byte
	decode func([]byte) (any, error)
	path   []string
}

type member struct {
	name  string
	value jsontext.Value
}

func (c *comparison) between(before, after []byte) (map[string]any, error) {
	olds, err := members(before)
	if err != nil {
		return nil, err
	}
	news, err := members(after)
	if err != nil {
		return nil, err
	}
	merge := map[string]any{}
	for i, m := range news {
		old := find(olds, i, m.name)
		if bytes.Equal(old, m.value) {
			continue
		}
		c.path = append(c.path, m.name)
		err := c.member(merge, old, m)
		c.path = c.path[:len(c.path)-1]
		if err != nil {
			return nil, err
		}
	}
	for i, m := range olds {
		if m.value.Kind() != 'n' && find(news, i, m.name) == nil {
			merge[m.name] = nil
		}
	}
	return merge, nil
}

func (c *comparison) member(merge map[string]any, old jsontext.Value, m member) error {
	if len(old) > 0 && old.Kind() == '{' && m.value.Kind() == '{' {
		inner, err := c.between(old, m.value)
		if len(inner) > 0 {
			merge[m.name] = inner
		}
		return err
	}
	value, err := c.decode(m.value)
	if err != nil {
		return err
	}
	var was any
	if len(old) > 0 {
		if was, err = c.decode(old); err != nil {
			return err
		}
	}
	if diff.Equal(was, value) { // an absent field is as good as null
		return nil
	}
	switch value := value.(type) {
	case map[string]any:
		merge[m.name] = withoutNulls(value)
	case []any:
		present, err := c.present()
		if err != nil {
			return err
		}
		merge[m.name] = laid(present, was, value)
	default:
		merge[m.name] = value
	}
	return nil
}

// present decodes what the object has at the path.
func (c *comparison) present() (any, error) {
	value := jsontext.Value(c.object)
	for _, name := range c.path {
		if value.Kind() != '{' {
			return nil, nil
		}
		var inner jsontext.Value
		err := body.Members(value, func(n string, v jsontext.Value) error {
			if n == name {
				inner = v
			}
			return nil
		})
		if err != nil || inner == nil {
			return nil, err
		}
		value = inner
	}
	return c.decode(value)
}

func members(raw []byte) ([]member, error) {
	out := make([]member, 0, 16)
	err := body.Members(raw, func(name string, value jsontext.Value) error {
		out = append(out, member{name, value})
		return nil
	})
	return out, err
}

// find returns a member's value, most likely the one about this place; nil if there
// is none.
func find(list []member, near int, name string) jsontext.Value {
	for i := max(0, near-1); i < len(list) && i <= near+1; i++ {
		if list[i].name == name {
			return list[i].value
		}
	}
	for i := range list {
		if list[i].name == name {
			return list[i].value
		}
	}
	return nil
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
