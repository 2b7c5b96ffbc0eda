package webhook

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestNamesAreLegal_ADM17(t *testing.T) {
	for _, c := range []struct{ id, owner, want string }{
		{"validate1", "example.com", "validate1.example.com"},
		{"fn/sub", "example.com", "fn.sub.example.com"},
		{"check_spec", "example.com", "check-spec.example.com"},
		{"CheckSpec", "example.com", "checkspec.example.com"}, // Kopf's is refused
		{"fn/spec.field=ü", "example.com", "fn.spec.field3dc3bc.example.com"},
		{"check", "operator", "check.operator.webhooks"}, // three labels at least
		{"check", "My_Operator", "check.my-operator.webhooks"},
		{"-a-/_b_", "example.com", "a.b.example.com"},
		{"", "example.com", "e3b0c442.example.com"},
		{"//", "example.com", "a2c23396.example.com"},
	} {
		if name, own := newNames(c.owner).of(c.id); name != c.want || !strings.HasPrefix(c.want, own+".") {
			t.Errorf("%q of %q: %q, %q, want %q", c.id, c.owner, name, own, c.want)
		}
	}
}

func TestNamesAreUnique_ADM17(t *testing.T) {
	names := newNames("example.com")
	long := strings.Repeat("a", 300)
	seen := make(map[string]bool)
	for _, id := range []string{"a/b", "a.b", "A_b", "a-b", "a-b", "a-b", long, long + "b", long, strings.Repeat("x/", 200), ""} {
		name, own := names.of(id)
		if seen[name] || seen[own] {
			t.Errorf("%q has the name %q of another one", id, name)
		}
		seen[name], seen[own] = true, true
		check(t, name, own)
	}
	if name, _ := names.of("c"); name != "c.example.com" {
		t.Errorf("c is %q after others", name)
	}
}

func check(t *testing.T, name, own string) {
	t.Helper()
	if errs := validation.IsFullyQualifiedName(field.NewPath("name"), name); len(errs) > 0 {
		t.Errorf("%q: %v", name, errs)
	}
	for label := range strings.SplitSeq(name, ".") {
		if errs := validation.IsDNS1123Label(label); len(errs) > 0 {
			t.Errorf("%q in %q: %v", label, name, errs)
		}
	}
	// A Service's path has such segments only.
	if errs := validation.IsDNS1123Subdomain(own); len(errs) > 0 {
		t.Errorf("path %q: %v", own, errs)
	}
}

func FuzzNames_ADM17(f *testing.F) {
	f.Add("check", "check/sub", "example.com")
	f.Add("Ünïcode", "ünïcode", "x")
	f.Add(strings.Repeat("a", 400), strings.Repeat("a/", 200), strings.Repeat("b.", 200))
	f.Add(strings.Repeat("a", 62)+"/b", strings.Repeat("-", 100)+"a", "-")
	f.Add("a", "a", "")
	f.Fuzz(func(t *testing.T, id, other, owner string) {
		names := newNames(owner)
		first, firstOwn := names.of(id)
		second, secondOwn := names.of(other)
		check(t, first, firstOwn)
		check(t, second, secondOwn)
		if first == second {
			t.Errorf("%q and %q are both %q", id, other, first)
		}
		if again, _ := newNames(owner).of(id); again != first {
			t.Errorf("%q is %q, then %q", id, first, again)
		}
		if errs := validation.IsValidLabelValue((&Options{Name: owner}).owner()); len(errs) > 0 {
			t.Errorf("label of %q: %v", owner, errs)
		}
	})
}
