package admission

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/internal/patching"
)

// operation is one of a JSON patch (RFC 6902). There is no "test": the API server has
// the object that it has sent (ADM-12).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value *any   `json:"value,omitempty"` // nil: none, which is not null
}

// Patch returns the JSON patch that leads from one object to another, with as few operations
// as it takes, and numbers as they are written; nil if there is nothing to change.
func Patch(before, after []byte) ([]byte, error) {
	a, err := patching.DecodeExactly(before)
	if err != nil {
		return nil, err
	}
	b, err := patching.DecodeExactly(after)
	if err != nil {
		return nil, err
	}
	c := &comparison{budget: comparisons}
	c.objects("", a, b)
	if len(c.operations) == 0 {
		return nil, nil
	}
	return json.Marshal(c.operations)
}

// comparisons is how many pairs of items of lists are compared to find the shortest way
// between the lists. Beyond that items are what they are by their place.
const comparisons = 1 << 14

type comparison struct {
	operations []operation
	budget     int
}

func (c *comparison) emit(op, path string, value *any) {
	c.operations = append(c.operations, operation{op, path, value})
}

var escaped = strings.NewReplacer("~", "~0", "/", "~1")

func (c *comparison) objects(path string, before, after map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(before)) {
		here := path + "/" + escaped.Replace(key)
		if value, kept := after[key]; kept {
			c.values(here, before[key], value)
		} else {
			c.emit("remove", here, nil)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if _, there := before[key]; !there {
			value := after[key]
			c.emit("add", path+"/"+escaped.Replace(key), &value)
		}
	}
}

// same tells whether there is nothing to be done. Unlike diff.Equal it tells null from what
// is absent.
func same(before, after any) bool {
	switch before := before.(type) {
	case map[string]any:
		object, ok := after.(map[string]any)
		if !ok || len(before) != len(object) {
			return false
		}
		for key, value := range before {
			if other, there := object[key]; !there || !same(value, other) {
				return false
			}
		}
		return true
	case []any:
		list, ok := after.([]any)
		return ok && slices.EqualFunc(before, list, same)
	}
	return diff.Equal(before, after)
}

func (c *comparison) values(path string, before, after any) {
	if same(before, after) {
		return
	}
	oldObject, wasObject := before.(map[string]any)
	newObject, isObject := after.(map[string]any)
	if wasObject && isObject {
		c.objects(path, oldObject, newObject)
		return
	}
	oldList, wasList := before.([]any)
	newList, isList := after.([]any)
	if wasList && isList {
		c.lists(path, oldList, newList)
		return
	}
	c.emit("replace", path, &after)
}

// lists leaves alone what the lists have in common at both ends, and finds the shortest way
// between the rest.
func (c *comparison) lists(path string, before, after []any) {
	start := 0
	for start < min(len(before), len(after)) && same(before[start], after[start]) {
		start++
	}
	end := 0
	for end < min(len(before), len(after))-start && same(before[len(before)-1-end], after[len(after)-1-end]) {
		end++
	}
	before, after = before[start:len(before)-end], after[start:len(after)-end]
	for _, s := range c.way(before, after) {
		switch at := path + "/" + strconv.Itoa(start+s.before); s.step {
		case keep:
			c.values(at, before[s.before], after[s.after])
		case remove:
			c.emit("remove", at, nil)
		case add:
			value := after[s.after]
			c.emit("add", at, &value)
		}
	}
}

type step int

const (
	keep step = iota // with what is different inside
	remove
	add
)

type stop struct {
	step
	before, after int
}

// way returns the steps between two lists, from the end to the start, so that none changes
// the places of those that come after it.
func (c *comparison) way(before, after []any) (steps []stop) {
	n, m := len(before), len(after)
	if n*m > c.budget {
		for i := max(n, m) - 1; i >= 0; i-- {
			switch {
			case i >= m:
				steps = append(steps, stop{remove, i, 0})
			case i >= n:
				// Each comes to stand where the list ends, before the one that was added first.
				steps = append(steps, stop{add, n, i})
			default:
				steps = append(steps, stop{keep, i, i})
			}
		}
		return steps
	}
	c.budget -= n * m
	costs := c.costs(before, after)
	for i, j := n, m; i > 0 || j > 0; {
		switch {
		case i > 0 && j > 0 && costs[i][j].step == keep:
			i, j = i-1, j-1
			steps = append(steps, stop{keep, i, j})
		case i > 0 && (j == 0 || costs[i][j].step == remove):
			i--
			steps = append(steps, stop{remove, i, 0})
		default:
			j--
			steps = append(steps, stop{add, i, j})
		}
	}
	return steps
}

type cost struct {
	operations int
	step       step // the last one
}

// costs says how many operations lead from the first i items to the first j.
func (c *comparison) costs(before, after []any) [][]cost {
	costs := make([][]cost, len(before)+1)
	for i := range costs {
		costs[i] = make([]cost, len(after)+1)
		for j := range costs[i] {
			switch {
			case i == 0:
				costs[i][j] = cost{j, add}
			case j == 0:
				costs[i][j] = cost{i, remove}
			default:
				inside := &comparison{budget: c.budget}
				inside.values("", before[i-1], after[j-1])
				c.budget = inside.budget
				best := cost{costs[i-1][j-1].operations + len(inside.operations), keep}
				if other := costs[i-1][j].operations + 1; other < best.operations {
					best = cost{other, remove}
				}
				if other := costs[i][j-1].operations + 1; other < best.operations {
					best = cost{other, add}
				}
				costs[i][j] = best
			}
		}
	}
	return costs
}
