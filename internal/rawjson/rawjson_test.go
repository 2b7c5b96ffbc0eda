package rawjson

import "testing"

func TestFind(t *testing.T) {
	const text = ` {"a":{"b":[1],"c\/d":{"e":null},"b":{"x":"\"a\""}},"status":"kopf"}`
	for _, c := range []struct {
		path []string
		want string
	}{
		{nil, text},
		{[]string{"a", "b"}, `{"x":"\"a\""}`},
		{[]string{"a", "c/d", "e"}, `null`},
		{[]string{"a", "c/d", "e", "a"}, ``},
		{[]string{"status"}, `"kopf"`},
		{[]string{"status", "kopf"}, ``},
		{[]string{"nope"}, ``},
		{[]string{"x"}, ``},
	} {
		if got := string(Find([]byte(text), c.path...)); got != c.want {
			t.Errorf("%q: got %s, want %s", c.path, got, c.want)
		}
	}
}

// What is not there, in nearly every object, costs no allocation.
func TestFindIsFree(t *testing.T) {
	text := []byte(`{"metadata":{"managedFields":[{"manager":"kopf"}]},"status":{"kopf":{"x":1}}}`)
	if n := testing.AllocsPerRun(100, func() {
		if Find(text, "status", "kopf", "progress") != nil || Find(text, "status", "kopf", "x") == nil {
			t.Fatal("found what is not there")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
