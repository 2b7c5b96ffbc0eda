package cause

import (
	"fmt"
	"testing"

	"github.com/kopf-go/kopf/internal/registry"
)

// CHG-2, T001–T006: the first rule that fits decides.
func TestDetect(t *testing.T) {
	for _, c := range []struct {
		name  string
		facts Facts
		want  Reason
	}{
		{"T002 free", Facts{Deleting: true}, Free},
		{"T002 free although handled", Facts{Deleting: true, Handled: true, Unchanged: true, Initial: true}, Free},
		{"T003 delete", Facts{Deleting: true, Held: true}, Delete},
		{"T003 delete although changed", Facts{Deleting: true, Held: true, Handled: true}, Delete},
		{"T003 delete at start", Facts{Deleting: true, Held: true, Handled: true, Unchanged: true, Initial: true}, Delete},
		{"T004 create", Facts{}, Create},
		{"T004 create when listed", Facts{Initial: true}, Create},
		{"T004 create after the finalizer", Facts{Held: true}, Create},
		{"T005 noop", Facts{Handled: true, Unchanged: true}, Noop},
		{"T005 noop, held", Facts{Handled: true, Unchanged: true, Held: true}, Noop},
		{"T005 resume", Facts{Handled: true, Unchanged: true, Initial: true}, Resume},
		{"T006 update", Facts{Handled: true}, Update},
		{"T006 update at start", Facts{Handled: true, Initial: true}, Update},
	} {
		if got := Detect(c.facts); got != c.want {
			t.Errorf("%s: got %s", c.name, got)
		}
	}
}

// CHG-2 for all combinations, as the table says it.
func TestDetectMatrix_CHG2(t *testing.T) {
	for bits := range 1 << 5 {
		is := func(i int) bool { return bits>>i&1 == 1 }
		f := Facts{Deleting: is(0), Held: is(1), Handled: is(2), Unchanged: is(3), Initial: is(4)}
		want := Update
		switch {
		case f.Deleting:
			if want = Free; f.Held {
				want = Delete
			}
		case !f.Handled:
			want = Create
		case f.Unchanged:
			if want = Noop; f.Initial {
				want = Resume
			}
		}
		if got := Detect(f); got != want {
			t.Errorf("%+v: got %s, want %s", f, got, want)
		}
	}
}

// CHG-4, CHG-5, CHG-6, T007–T009.
func TestCandidate_CHG4(t *testing.T) {
	reasons := []Reason{Create, Update, Delete, Resume, Noop, Free}
	for _, c := range []struct {
		name    string
		h       registry.Handler
		initial bool
		want    string // reasons
	}{
		{"create", registry.Handler{Kind: registry.Create}, false, "create"},
		{"create at start", registry.Handler{Kind: registry.Create}, true, "create"},
		{"update", registry.Handler{Kind: registry.Update}, true, "update"},
		{"delete", registry.Handler{Kind: registry.Delete}, true, "delete"},
		{"FIN-7 optional delete", registry.Handler{Kind: registry.Delete, Optional: true}, false, "delete free"},
		{"CHG-6 field", registry.Handler{Kind: registry.Field}, false, "create update delete"},
		{"CHG-6 field at start", registry.Handler{Kind: registry.Field}, true, "create update delete"},
		{"T007 resume later", registry.Handler{Kind: registry.Resume}, false, ""},
		{"T008 resume at start", registry.Handler{Kind: registry.Resume}, true, "update resume"},
		{"T009 resume, deleted", registry.Handler{Kind: registry.Resume, Deleted: true}, true, "update delete resume"},
		{"T009 resume later, deleted", registry.Handler{Kind: registry.Resume, Deleted: true}, false, ""},
		{"event", registry.Handler{Kind: registry.Event}, true, ""},
	} {
		got := ""
		for _, r := range reasons {
			if Candidate(&c.h, r, c.initial) {
				got += " " + string(r)
			}
		}
		if got = trim(got); got != c.want {
			t.Errorf("%s: for %q, want %q", c.name, got, c.want)
		}
	}
}

func trim(s string) string {
	if s == "" {
		return s
	}
	return s[1:]
}

// PRG-6, PRG-9, HID-6, T075.
func TestContinues_PRG6_PRG9_T075(t *testing.T) {
	for _, c := range []struct {
		kind    registry.Kind
		purpose string
		now     Reason
		want    bool
	}{
		{registry.Create, "create", Create, true},
		{registry.Create, "", Create, true}, // T075: matches anything
		{registry.Delete, "", Delete, true},
		{registry.Delete, "create", Delete, false}, // HID-6
		{registry.Delete, "update", Delete, false},
		{registry.Delete, "delete", Delete, true},
		{registry.Delete, "delete", Free, true},
		{registry.Delete, "create", Free, false},
		{registry.Update, "create", Update, false},
		{registry.Create, "delete", Create, false}, // created anew with a copied manifest
		{registry.Update, "resume", Update, false},
		{registry.Resume, "resume", Update, true}, // PRG-6: not repeated when an update comes in between
		{registry.Resume, "update", Resume, true},
		{registry.Resume, "update", Delete, true},
		{registry.Resume, "create", Resume, false},
		{registry.Field, "create", Update, false},
		{registry.Field, "update", Delete, false},
		{registry.Field, "update", Update, true},
	} {
		h := &registry.Handler{Kind: c.kind}
		if got := Continues(h, c.purpose, c.now); got != c.want {
			t.Errorf("%s handler, record for %q, now %s: got %t", c.kind, c.purpose, c.now, got)
		}
	}
}

// CHG-4, T010, T011: the same function under the same id once, in order.
func TestUnique(t *testing.T) {
	h := func(code uintptr, id string) *registry.Handler { return &registry.Handler{Func: code, ID: id} }
	for _, c := range []struct {
		name     string
		handlers []*registry.Handler
		want     string
	}{
		{"none", nil, ""},
		{"T010 same function, same id", []*registry.Handler{h(1, "a"), h(1, "a")}, "0"},
		{"T010 other ids", []*registry.Handler{h(1, "a"), h(1, "b")}, "01"},
		{"T010 other functions", []*registry.Handler{h(1, "a"), h(2, "a")}, "01"},
		{"T011 order", []*registry.Handler{h(3, "c"), h(1, "a"), h(3, "c"), h(2, "b"), h(1, "a")}, "013"},
	} {
		given := append([]*registry.Handler(nil), c.handlers...)
		got := ""
		for _, h := range Unique(c.handlers) {
			for i := range given {
				if given[i] == h {
					got += fmt.Sprint(i)
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
