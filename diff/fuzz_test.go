package diff

import (
	"reflect"
	"slices"
	"testing"
)

// FuzzDiff holds the properties that everything else builds on: a diff is empty
// when the trees are equal, leads from one to the other, comes in one order only,
// and is at each path what the diff of the values there is.
func FuzzDiff(f *testing.F) {
	for _, seed := range [][2]string{
		{`null`, `{"a":1}`},
		{`{"a":{"b":1,"c":null},"l":[1,{"x":null}]}`, `{"a":{"b":1.0,"d":{}},"l":[1,{}]}`},
		{`{"a":{"b":{"c":1}},"":{"":0}}`, `{"a":"b","":{"":false}}`},
		{`{"n":9007199254740993}`, `{"n":9007199254740992.0}`},
		{`{"n":1e400}`, `{"n":-0.0}`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		old, err := parse(before)
		if err != nil {
			t.Skip()
		}
		new, err := parse(after)
		if err != nil {
			t.Skip()
		}
		d := Of(old, new)
		if equal := Equal(old, new); equal != (len(d) == 0) || equal != Equal(new, old) {
			t.Fatalf("equal is %v, the diff %s", equal, d)
		}
		if !Equal(old, old) || len(Of(new, new)) > 0 {
			t.Fatal("a tree differs from itself")
		}
		if back := Of(new, old); len(back) != len(d) {
			t.Fatalf("%d changes there, %d back", len(d), len(back))
		}
		if !reflect.DeepEqual(d, Of(old, new)) {
			t.Fatal("the order varies")
		}
		if got := Apply(d, old); !Equal(got, new) {
			t.Fatalf("applied it is %v, diff %s", got, d)
		}
		again, _ := parse(before)
		if !reflect.DeepEqual(old, again) {
			t.Fatal("the argument has changed")
		}
		printed := map[string]Path{}
		for _, item := range d {
			text := item.Path.String()
			if other, ok := printed[text]; ok {
				t.Fatalf("%q and %q are both printed %s", other, item.Path, text)
			}
			printed[text] = item.Path
		}
		for _, path := range paths(old, nil, paths(new, nil, nil)) {
			a, _ := Resolve(old, path)
			b, _ := Resolve(new, path)
			if got, want := d.At(path), Of(a, b); got.String() != want.String() || !sameItems(got, want) {
				t.Fatalf("at %s it is\n%s\nthe values differ by\n%s", path, got, want)
			}
		}
	})
}

func paths(tree any, at Path, to []Path) []Path {
	to = append(to, at, append(slices.Clone(at), "no such key"))
	if object, ok := tree.(map[string]any); ok {
		for key, value := range object {
			to = paths(value, append(slices.Clone(at), key), to)
		}
	}
	return to
}

func sameItems(a, b Diff) bool {
	return slices.EqualFunc(a, b, func(a, b Item) bool {
		return a.Op == b.Op && slices.Equal(a.Path, b.Path) && Equal(a.Old, b.Old) && Equal(a.New, b.New)
	})
}
