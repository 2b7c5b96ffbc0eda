package kopf_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/webhook"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with a file in testdata.
func golden(t *testing.T, name string, text []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile("testdata/"+name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, want) {
		t.Errorf("testdata/%s is something else (go test -run %s -update . writes it):\n%s", name, t.Name(), text)
	}
}

// quickstart registers what examples/quickstart has.
func quickstart(reg *kopf.Registry) {
	type DatabaseSpec struct {
		Engine   string `json:"engine,omitempty"`
		Replicas int32  `json:"replicas,omitempty"`
	}
	type DatabaseStatus struct {
		Phase    string `json:"phase,omitempty"`
		Replicas int32  `json:"replicas,omitempty"`
	}
	type Database = kopf.Resource[DatabaseSpec, DatabaseStatus]
	changed := func(context.Context, *kopf.Change[*Database]) error { return nil }
	in := on.In(reg)
	databases := on.Resource("quickstart.example.com/v1", "databases")
	on.Create(changed, databases, in, on.ID("provision"))
	on.FieldChange("spec.replicas", func(context.Context, *kopf.FieldChange[*Database, int32]) error { return nil }, databases, in, on.ID("resize"))
	on.Delete(changed, databases, in, on.ID("release"))
}

func printed(t *testing.T, o kopf.Options, m kopf.ManifestOptions, register func(*kopf.Registry)) (string, error) {
	t.Helper()
	o.Registry = kopf.NewRegistry()
	register(o.Registry)
	op, err := kopf.New(o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := op.Manifests(t.Context(), m)
	again, _ := op.Manifests(t.Context(), m)
	if !bytes.Equal(text, again) {
		t.Errorf("another time there is something else:\n%s", again)
	}
	return string(text), err
}

func TestManifestsOfTheQuickstart(t *testing.T) {
	text, err := printed(t, kopf.Options{Name: "quickstart"}, kopf.ManifestOptions{Image: "example.com/quickstart:1"}, quickstart)
	if err != nil {
		t.Error(err)
	}
	golden(t, "manifests-quickstart.yaml", []byte(text))
}

// Shelf is a resource with all that tags say.
type Shelf = kopf.Resource[struct {
	Label string   `json:"label" doc:"what is on it" pattern:"^[a-z]+$" maxLength:"20"`
	Size  int32    `json:"size,omitempty" minimum:"1" maximum:"9" default:"3"`
	Kind  string   `json:"kind,omitempty" enum:"wood,steel"`
	Notes []string `json:"notes,omitempty" maxItems:"5"`
}, struct{}]

// everything is an operator with handlers of all kinds, for two namespaces.
func everything(reg *kopf.Registry) {
	in := on.In(reg)
	shelves := on.Resource("example.com/v1", "shelves")
	on.Event(func(context.Context, *kopf.Event[*corev1.ConfigMap]) error { return nil }, in, on.ID("watch"))
	on.Index(func(context.Context, *kopf.Snapshot[*corev1.Node]) (map[string]int, error) { return nil, nil }, in, on.ID("nodes"))
	on.Index(func(context.Context, *kopf.Snapshot[*appsv1.Deployment]) (map[string]int, error) { return nil, nil }, in, on.ID("deployments"))
	on.Timer(func(context.Context, *kopf.Tick[*appsv1.Deployment]) error { return nil }, in, on.Interval(time.Hour), on.ID("tick"))
	on.Daemon(func(context.Context, *kopf.Daemon[*Shelf]) error { return nil }, shelves, in, on.ID("daemon"), on.Finalize())
	on.Event(func(context.Context, *kopf.Event[*metav1.PartialObjectMetadata]) error { return nil },
		on.Resource("example.com/v1", "tenants"), in, on.ID("tenant"))
	on.Validate(func(context.Context, *kopf.Admission[*Shelf]) error { return nil }, shelves, in, on.ID("check"))
	on.ValidateCEL[*Shelf]("small", "object.spec.size < 5", shelves, on.In(reg))
}

func TestManifestsOfEverythingInNamespaces(t *testing.T) {
	o := kopf.Options{Name: "all", Namespaces: []string{"team-a", "team-b"}}
	o.Settings.Admission = settings.Admission{Endpoint: webhook.Service{Namespace: "operators", Name: "all", Port: 8443}, Managed: "all.example.com"}
	o.Settings.Queueing.ExitTimeout = time.Minute
	text, err := printed(t, o, kopf.ManifestOptions{
		Namespace: "operators", ClusterScoped: []string{"tenants.example.com"}, Kinds: map[string]string{"shelves.example.com": "Shelf"}, HealthPort: -1,
		Args: []string{"-n=team-a,team-b"},
	}, everything)
	if err != nil {
		t.Error(err)
	}
	golden(t, "manifests-everything.yaml", []byte(text))
}

// What only a cluster knows is said, and does not keep the rest from being printed.
func TestManifestsSayWhatOnlyAClusterKnows(t *testing.T) {
	handler := func(context.Context, *kopf.Event[*metav1.PartialObjectMetadata]) error { return nil }
	for _, tc := range []struct {
		name     string
		selector on.SelectionOption
		problem  string
	}{
		{"a short name", on.ShortName("db"), "event handler x at"},
		{"a category", on.Category("all"), "is for category all: only a cluster knows"},
		{"a function", on.ResourceFunc(func(on.APIResource) bool { return true }), "is for function: only a cluster knows"},
		{"a kind in any group", on.Kind("Database"), "name them with on.Resource, or look at a cluster"},
		{"a plural in any group", on.Plural("databases"), "name them with on.Resource, or look at a cluster"},
		{"a short name of Kubernetes", on.Resource("apps/v1", "deploy"), "which Kubernetes does not have under this name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text, err := printed(t, kopf.Options{}, kopf.ManifestOptions{}, func(reg *kopf.Registry) {
				quickstart(reg)
				on.Event(handler, tc.selector, on.In(reg), on.ID("x"))
			})
			if err == nil || !strings.Contains(err.Error(), tc.problem) || !strings.Contains(err.Error(), "manifests_test.go:") {
				t.Errorf("error %v", err)
			}
			if !strings.HasPrefix(text, "# ERROR: event handler x at ") || !strings.Contains(text, tc.problem) || !strings.Contains(text, `["databases"]`) {
				t.Errorf("printed %s", text)
			}
		})
	}
}

// What is for everything is permitted everything, unless there is a cluster to ask.
func TestManifestsOfEverything(t *testing.T) {
	text, err := printed(t, kopf.Options{}, kopf.ManifestOptions{Parts: []kopf.ManifestPart{kopf.ManifestRBAC}}, func(reg *kopf.Registry) {
		on.Event(func(context.Context, *kopf.Event[*metav1.PartialObjectMetadata]) error { return nil }, on.Everything(), on.In(reg), on.ID("x"))
	})
	want := "- apiGroups: [\"*\"]\n  resources: [\"*\"]\n  verbs: [\"get\", \"list\", \"patch\", \"watch\"]\n"
	if err != nil || !strings.Contains(text, want) || strings.Contains(text, "kind: Deployment") {
		t.Errorf("%v, printed\n%s", err, text)
	}
}

func TestMistakesInManifestOptions(t *testing.T) {
	_, err := printed(t, kopf.Options{}, kopf.ManifestOptions{Name: "A.B", Replicas: 2, Parts: []kopf.ManifestPart{"charts"}}, quickstart)
	for _, want := range []string{`"A.B" is no name`, `no part "charts"`, "enable leader election"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in %v", want, err)
		}
	}
}
