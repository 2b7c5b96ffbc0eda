package state

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestDefaultNamingIsKopfs_B1(t *testing.T) {
	if n := Default(); n.Prefix != "kopf.zalando.org" || n.Finalizer != "kopf.zalando.org/KopfFinalizerMarker" {
		t.Errorf("got %s, %s", n.Prefix, n.Finalizer)
	}
}

func TestForMakesAnIsolatedNaming(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 58)+".", 4) // 236 characters with its dots
	for _, c := range []struct{ name, prefix, problem string }{
		{"", "kopf.zalando.org", ""},
		{"widgets", "widgets.kopf.zalando.org", ""},
		{"team.widgets", "team.widgets.kopf.zalando.org", ""},
		{"Widgets", "", "choose one like"},
		{"my operator", "", "choose one like"},
		{"a/b", "", "choose one like"},
		{"-a", "", "choose one like"},
		{".", "", "choose one like"},
		{long + "a", long + "a.kopf.zalando.org", "too long"},
		{long[:len(long)-1], long + "kopf.zalando.org", ""},
	} {
		n, err := For(c.name)
		if c.problem != "" {
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("For(%q): error is %v, want one with %q", c.name, err, c.problem)
			}
			continue
		}
		if err != nil || n.Prefix != c.prefix {
			t.Errorf("For(%q) = %q, %v", c.name, n.Prefix, err)
		}
		if c.name != "" && n.Finalizer != c.prefix+"/finalizer" {
			t.Errorf("For(%q) has the finalizer %q", c.name, n.Finalizer)
		}
		if problems := validation.IsQualifiedName(n.Finalizer); len(problems) > 0 {
			t.Errorf("finalizer %q: %v", n.Finalizer, problems)
		}
	}
}

func TestCustomNaming_SET4_T062(t *testing.T) {
	for _, c := range []struct{ prefix, finalizer, problem string }{
		{"my-operator.example.com", "example.com/mine", ""},
		{"", "example.com/mine", "empty"},
		{"My_Prefix", "example.com/mine", "illegal"},
		{strings.Repeat("a.", 127), "example.com/mine", "illegal"},
		{"example.com", "two words", "illegal"},
	} {
		_, err := Custom(c.prefix, c.finalizer)
		if c.problem == "" && err != nil || c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)) {
			t.Errorf("Custom(%q, %q): %v", c.prefix, c.finalizer, err)
		}
	}
}

func TestLiteralNamingWorks(t *testing.T) {
	b := parse(t, `{"metadata":{"uid":"u","annotations":{"p.example.com/last-handled-configuration":"{}"}}}`)
	if _, known, err := lastHandledBy(b, Naming{Prefix: "p.example.com"}); !known || err != nil {
		t.Error(known, err)
	}
}
