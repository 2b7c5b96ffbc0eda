package state

import (
	"strings"
	"testing"
)

// Ids of sub-handlers are written sorted, each once, and not at all if there are none.
func TestSubrefs_T078(t *testing.T) {
	for _, c := range []struct {
		name string
		ids  []string
		want string // in the text; empty: no such key
	}{
		{"none", nil, ""},
		{"none, though asked for", []string{}, ""},
		{"one", []string{"p/a"}, `"subrefs":["p/a"]`},
		{"in any order", []string{"p/c", "p/a", "p/b"}, `"subrefs":["p/a","p/b","p/c"]`},
		{"repeated", []string{"p/a", "p/b", "p/a", "p/a"}, `"subrefs":["p/a","p/b"]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			given := strings.Join(c.ids, " ")
			r := Record{Subrefs: c.ids}
			text := r.Encode()
			if c.want == "" && strings.Contains(text, "subrefs") || !strings.Contains(text, c.want) {
				t.Errorf("written is %s", text)
			}
			if strings.Join(c.ids, " ") != given {
				t.Error("the caller's list was sorted")
			}
			back, err := DecodeRecord(text)
			if err != nil || !back.Equal(&r) {
				t.Errorf("read is %+v, %v", back, err)
			}
		})
	}
}
