package webhook

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/kopf-go/kopf/filters"
)

var update = flag.Bool("update", false, "write the golden files anew")

// What is printed is the same as what is kept.
func TestManifests(t *testing.T) {
	check := validating("check", widgets, databases)
	check.Operations = []string{"UPDATE", "CREATE"}
	check.Restrict([]Criterion{{"tier", filters.Any("gold", "silver")}}, nil, []string{"spec", "engine"}, filters.Not("none"))
	hooks := []Hook{
		check,
		{ID: "fill", Kind: Mutating, Resources: []Resource{pods}, SideEffects: true, IgnoreFailures: true},
		{ID: "few", Kind: Policy, Resources: []Resource{widgets}, Rule: Rule{Expression: "object.spec.replicas <= 5", Message: "at most 5 replicas"}},
	}
	o := Options{Name: "kopf.example.com", Namespace: "ns", User: "system:serviceaccount:ns:op"}
	got, err := Manifests(o, hooks, service{}, "ns/op-serving")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Manifests(o, hooks, service{}, "ns/op-serving"); err != nil || !bytes.Equal(again, got) {
		t.Errorf("the second time: %v\n%s", err, again)
	}
	const golden = "testdata/manifests.yaml"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v, is not %s:\n%s", err, golden, got)
	}
	if none, err := Manifests(o, nil, service{}, "ns/op-serving"); err != nil || len(none) > 0 {
		t.Errorf("without hooks: %v\n%s", err, none)
	}
	if plain, err := Manifests(o, hooks, service{}, ""); err != nil || bytes.Contains(plain, []byte("annotations:\n")) || bytes.Contains(plain, []byte("caBundle")) {
		t.Errorf("without a certificate: %v\n%s", err, plain)
	}
}
