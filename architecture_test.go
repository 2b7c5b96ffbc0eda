package kopf_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The arrows between the packages: who may import whom among our own, directly.
// ARCHITECTURE.md draws them. What is not listed may import nothing of ours.
var arrows = map[string][]string{
	"":                         {"activities", "daemons", "indexing", "internal/access", "internal/activity", "internal/admission", "internal/body", "internal/command", "internal/decisions", "internal/endpoints", "internal/engine", "internal/leading", "internal/leaving", "internal/logging", "internal/manifests", "internal/outcome", "internal/peering", "internal/permissions", "internal/recording", "internal/registry", "internal/schemas", "internal/state", "internal/stream", "owners", "settings", "storage", "typed", "webhook"},
	"on":                       {"activities", "daemons", "diff", "filters", "indexing", "internal/fieldpath", "internal/registry", "typed"},
	"activities":               {"internal/registry", "settings", "typed"},
	"settings":                 {"storage", "typed", "webhook"},
	"typed":                    {"diff", "internal/body", "internal/patching", "internal/registry"},
	"filters":                  {"diff"},
	"diff":                     {},
	"indexing":                 {},
	"webhook":                  {"filters", "internal/metrics"},
	"daemons":                  {},
	"owners":                   {"diff", "internal/fieldpath"},
	"internal/engine":          {"daemons", "indexing", "internal/body", "internal/cause", "internal/decisions", "internal/logging", "internal/metrics", "internal/outcome", "internal/patching", "internal/recording", "internal/registry", "internal/state", "internal/stream", "internal/tracing"},
	"internal/cause":           {"diff", "filters", "internal/body", "internal/registry", "internal/state"},
	"internal/admission":       {"diff", "internal/body", "internal/cause", "internal/logging", "internal/outcome", "internal/patching", "internal/recording", "internal/registry", "internal/state"},
	"internal/leading":         {"daemons"},
	"internal/leaving":         {"internal/body", "internal/patching", "internal/state", "internal/stream"},
	"internal/activity":        {"activities", "internal/metrics", "internal/outcome", "internal/registry", "internal/state"},
	"internal/access":          {"activities"},
	"internal/outcome":         {"internal/registry", "internal/state"},
	"internal/patching":        {"diff", "internal/body", "internal/registry"},
	"internal/registry":        {"daemons", "diff", "filters", "indexing", "internal/body", "internal/fieldpath"},
	"internal/state":           {"internal/body", "internal/rawjson", "storage"},
	"storage":                  {"internal/rawjson"},
	"storage/storagetest":      {"internal/body", "storage"},
	"internal/rawjson":         {},
	"internal/recording":       {},
	"internal/peering":         {"daemons", "internal/body", "internal/stream"},
	"internal/stream":          {"internal/body"},
	"internal/fieldpath":       {"diff"},
	"internal/body":            {},
	"internal/command":         {"filters", "internal/logging", "internal/registry", "settings", "webhook"},
	"internal/logging":         {},
	"internal/metrics":         {},
	"internal/permissions":     {"internal/registry", "internal/schemas"},
	"internal/schemas":         {"internal/fieldpath"},
	"internal/manifests":       {"internal/permissions", "internal/schemas", "webhook"},
	"internal/tracing":         {},
	"internal/decisions":       {},
	"internal/endpoints":       {"internal/decisions"},
	"internal/cluster":         {},                     // for tests
	"internal/simulated":       {},                     // for tests
	"internal/faulty":          {"internal/simulated"}, // for tests
	"examples/quickstart":      {"", "on"},
	"examples/quickstart/demo": {},
}

// What a user's program never contains.
var unwanted = []string{
	"github.com/onsi/ginkgo", "github.com/onsi/gomega", "github.com/stretchr/testify", "go.uber.org/goleak",
	"k8s.io/kubernetes", "sigs.k8s.io/controller-runtime/pkg/envtest",
	"github.com/kopf-go/kopf/kopftest", "github.com/kopf-go/kopf/devcluster",
	"github.com/kopf-go/kopf/internal/cluster", "github.com/kopf-go/kopf/internal/simulated", "github.com/kopf-go/kopf/internal/faulty",
}

// Leaf packages know nothing of Kubernetes clients.
var leaves = []string{"diff", "filters", "indexing", "daemons"}

const module = "github.com/kopf-go/kopf"

func TestArrows(t *testing.T) {
	for _, line := range goList(t, "-f", `{{.ImportPath}}:{{join .Imports " "}}`, "./...") {
		path, imports, _ := strings.Cut(line, ":")
		name := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
		allowed, known := arrows[name]
		if !known {
			t.Errorf("package %q is new: say in this test and in ARCHITECTURE.md whom it may import", name)
		}
		for imported := range strings.FieldsSeq(imports) {
			ours, isOurs := strings.CutPrefix(imported, module)
			if isOurs && !slices.Contains(allowed, strings.TrimPrefix(ours, "/")) {
				t.Errorf("%q imports %q, which is against the arrows", name, strings.TrimPrefix(ours, "/"))
			}
		}
	}
}

func TestUsersLinkNoTestTools(t *testing.T) {
	for _, imported := range goList(t, "-deps", ".", "./on", "./typed", "./filters", "./diff", "./indexing", "./daemons", "./owners") {
		for _, prefix := range unwanted {
			if strings.HasPrefix(imported, prefix) {
				t.Errorf("a user's program contains %s", imported)
			}
		}
	}
}

func TestLeavesKnowNoClients(t *testing.T) {
	for _, name := range leaves {
		if _, exists := arrows[name]; !exists {
			continue // a room that has nothing in it yet
		}
		for _, imported := range goList(t, "-deps", "./"+name) {
			if strings.HasPrefix(imported, "k8s.io/") || strings.HasPrefix(imported, "sigs.k8s.io/") {
				t.Errorf("%s contains %s", name, imported)
			}
		}
	}
}

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}
