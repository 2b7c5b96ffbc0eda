package on_test

import (
	"strings"
	"testing"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// B25.
func TestSensitiveFieldsAreCollected_B25(t *testing.T) {
	reg := kopf.NewRegistry()
	on.Update(scaled, on.Sensitive("spec.template.spec", "metadata.annotations.token"), on.Sensitive("spec.replicas"), on.In(reg))
	if err := reg.Err(); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, path := range reg.Handlers()[0].Sensitive {
		paths = append(paths, path.String())
	}
	if got := strings.Join(paths, " "); got != "spec.template.spec metadata.annotations.token spec.replicas" {
		t.Errorf("got %s", got)
	}
}

func TestMistakesInSensitiveFields_B25(t *testing.T) {
	for want, option := range map[string]on.AnyOption{
		"on.Sensitive names no field":                           on.Sensitive(),
		"on.Sensitive: the field path is empty":                 on.Sensitive("spec.replicas", ""),
		`on.Sensitive: no field "credentials"`:                  on.Sensitive("spec.credentials"),
		"on.Sensitive: no element":                              on.Sensitive("spec.template.spec.containers.0"),
		`on.Sensitive: field path "a..b" has an empty key in`:   on.Sensitive("a..b"),
		"brackets are not understood: give a key with dots by ": on.Sensitive("spec[0]"),
	} {
		reg := kopf.NewRegistry()
		on.Create(scaled, option, on.In(reg))
		if err := reg.Err(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "sensitive_test.go:") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
