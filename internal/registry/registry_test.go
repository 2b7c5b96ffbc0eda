package registry

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
)

func handler(kind Kind, id string) *Handler {
	return &Handler{Kind: kind, ID: id, Type: reflect.TypeFor[*testing.T](), Source: "a/b.go:1"}
}

// A handler with mistakes stays, so that more can be found in it, but does not take
// ids from others.
func TestMistaken(t *testing.T) {
	r := new(Registry)
	r.Add(handler(Create, "h"), errors.New("one"), errors.New("two"))
	r.Add(handler(Create, "h"))
	if got := r.Err().Error(); got != "a/b.go:1: create handler h: one\na/b.go:1: create handler h: two" {
		t.Error(got)
	}
	r.Add(handler(Create, "h"))
	r.Add(handler(Create, "h"))
	if n := strings.Count(r.Err().Error(), "its id is taken"); n != 2 {
		t.Errorf("%d duplicates:\n%v", n, r.Err())
	}
	if n := len(r.Handlers()); n != 4 {
		t.Errorf("%d handlers", n)
	}
}

func TestHandlersIsACopy(t *testing.T) {
	r := new(Registry)
	r.Add(handler(Create, "a"))
	r.Handlers()[0] = nil
	if r.Handlers()[0] == nil {
		t.Error("the list is shared")
	}
	if r.Err() != nil {
		t.Error(r.Err())
	}
}

func TestConcurrentUse(t *testing.T) {
	r := new(Registry)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 50 {
				r.Add(handler(Create, fmt.Sprintf("%d-%d", i, j)), errors.New("mistake"))
				_, _ = r.Handlers(), r.Err()
			}
		})
	}
	all.Wait()
	if n := len(r.Handlers()); n != 400 {
		t.Errorf("%d handlers", n)
	}
}

func TestEditsKeepTheirOrder(t *testing.T) {
	var edits Edits
	if edits.List() != nil {
		t.Error("not empty")
	}
	var got []int
	for i := range 3 {
		edits.Add(Edit{Apply: func(any) { got = append(got, i) }})
	}
	for _, edit := range edits.List() {
		edit.Apply(nil)
	}
	if !reflect.DeepEqual(got, []int{0, 1, 2}) {
		t.Error(got)
	}
}

// Each handler sees the edits that were there before its own, and its own are named
// after it, unless they have a name already.
func TestEditsOfOneHandler(t *testing.T) {
	names := func(edits []Edit) (names []string) {
		for _, edit := range edits {
			names = append(names, edit.Handler)
		}
		return names
	}
	var cycle Edits
	cycle.Add(Edit{Handler: "carried"})
	first := cycle.For("first")
	first.Add(Edit{}, Edit{Handler: "other"})
	cycle.Add(first.List()...)
	second := cycle.For("second")
	second.Add(Edit{})
	first.Add(Edit{}) // too late for the second
	for _, c := range []struct{ got, want []string }{
		{names(first.List()), []string{"first", "other", "first"}},
		{names(first.All()), []string{"carried", "first", "other", "first"}},
		{names(second.List()), []string{"second"}},
		{names(second.All()), []string{"carried", "first", "other", "second"}},
		{names(cycle.All()), []string{"carried", "first", "other"}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	// What was listed is nobody's to overwrite.
	list := cycle.List()
	_ = append(list, Edit{Handler: "mine"})
	cycle.Add(Edit{Handler: "next"})
	if got := names(cycle.List()); got[3] != "next" {
		t.Errorf("%q", got)
	}
}

func TestDecodeError(t *testing.T) {
	cause := errors.New("cause")
	err := &DecodeError{Type: reflect.TypeFor[int](), Err: cause}
	if err.Error() != "object does not decode into int: cause" || !errors.Is(err, cause) {
		t.Error(err)
	}
}

func named() {}

type receiver struct{}

func (*receiver) Pointer() {}
func (receiver) Value()    {}

func generic[T any]() {}

// HID-1.
func TestIdentify(t *testing.T) {
	for want, fn := range map[string]any{
		"named":              named,
		"receiver.Pointer":   (&receiver{}).Pointer,
		"receiver.Value":     receiver{}.Value,
		"generic":            generic[int],
		"TestIdentify.func1": func() {},
	} {
		if code, id := Identify(fn); id != want || code == 0 {
			t.Errorf("got %q, want %q", id, want)
		}
	}
	if _, id := Identify((*receiver).Pointer); id != "receiver.Pointer" {
		t.Errorf("method expression: %q", id)
	}
}

// The nearest call outside of a package that is on the way, else the caller itself.
func TestSource(t *testing.T) {
	if got := Source("github.com/nobody/elsewhere"); !strings.HasPrefix(got, "registry/registry_test.go:") {
		t.Error(got)
	}
	if got := Source("github.com/kopf-go/kopf/internal/registry"); !strings.HasPrefix(got, "testing/testing.go:") {
		t.Error(got)
	}
	// A package whose path only begins alike is another one.
	if got := Source("github.com/kopf-go/kopf/internal/regis"); !strings.HasPrefix(got, "registry/registry_test.go:") {
		t.Error(got)
	}
}
