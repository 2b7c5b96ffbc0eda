package patching

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kopf-go/kopf/internal/body"
)

type editedUser struct {
	Name string `json:"name"`
}

type editedObject struct {
	Name  string       `json:"title,omitempty"`
	Users []editedUser `json:"users,omitempty"`
}

// What the type does not know stays, to the last digit; nothing is made of nothing.
func TestEdited_PAT1(t *testing.T) {
	const raw = `{"title":"a","users":[{"name":"x","n":123456789012345678901}],"n":1.500}`
	for name, c := range map[string]struct {
		edit func(*editedObject)
		want string
	}{
		"nothing":  {func(*editedObject) {}, ""},
		"a field":  {func(o *editedObject) { o.Name = "b" }, `{"n":1.500,"title":"b","users":[{"n":123456789012345678901,"name":"x"}]}`},
		"an item":  {func(o *editedObject) { o.Users = append(o.Users, editedUser{"y"}) }, `{"n":1.500,"title":"a","users":[{"n":123456789012345678901,"name":"x"},{"name":"y"}]}`},
		"no field": {func(o *editedObject) { o.Name = "" }, `{"n":1.500,"users":[{"name":"x","n":123456789012345678901}]}`},
	} {
		object := &editedObject{"a", []editedUser{{"x"}}}
		got, err := Edited([]byte(raw), object, func() (any, error) { c.edit(object); return object, nil })
		if err != nil {
			t.Fatal(err)
		}
		if c.want == "" != (got == nil) {
			t.Errorf("%s: got %s", name, got)
		}
		if c.want != "" {
			a, err1 := body.DecodeExactly(got)
			b, err2 := body.DecodeExactly([]byte(c.want))
			if x, y := mustEncode(t, a), mustEncode(t, b); err1 != nil || err2 != nil || x != y {
				t.Errorf("%s: got %s, want %s", name, x, y)
			}
		}
	}
}

func mustEncode(t *testing.T, value any) string {
	t.Helper()
	raw, err := encodeObject(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The name of an object is not edited, and an error ends it.
func TestEditedIdentityAndErrors(t *testing.T) {
	raw := []byte(`{"kind":"X","metadata":{"name":"a","resourceVersion":"1"}}`)
	u := new(unstructured.Unstructured)
	if err := decodeObject(raw, u); err != nil {
		t.Fatal(err)
	}
	if got, err := Edited(raw, u, func() (any, error) { u.SetName("b"); u.SetKind("Y"); return u, nil }); got != nil || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	no := errors.New("no")
	if got, err := Edited(raw, u, func() (any, error) { u.SetLabels(map[string]string{"a": "b"}); return nil, no }); got != nil || err != no {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := Edited(raw, u, func() (any, error) { u.Object["x"] = func() {}; return u, nil }); err == nil {
		t.Error("a function was encoded")
	}
	if _, err := DecodeExactly([]byte(`[]`)); err == nil {
		t.Error("a list is an object")
	}
}
