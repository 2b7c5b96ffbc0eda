package peering_test

import (
	"cmp"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kopf-go/kopf/internal/peering"
	"github.com/kopf-go/kopf/internal/simulated"
)

// freeze and resume are what a person does.
func (w *world) freeze(o peering.FreezeOptions) ([]string, error) {
	parts := w.options("")
	o.ID = cmp.Or(o.ID, "somebody") // or the name server would be asked
	return peering.Freeze(w.Context(), parts.Client, parts.Discovery, o)
}

func (w *world) resume(o peering.FreezeOptions) ([]string, error) {
	parts := w.options("")
	o.ID = cmp.Or(o.ID, "somebody")
	return peering.Resume(w.Context(), parts.Client, parts.Discovery, o)
}

// PEER-11: operators pause until somebody ends it, or its time is over.
func TestFreeze_PEER11_CLI6_CLI7(t *testing.T) {
	scenario(t, func(w *world) {
		w.with(nil)
		low, same, high := w.start("low", priority(1)), w.start("same", priority(100)), w.start("high", priority(101))
		high.stop() // so that the others would be active
		same.stop()
		low.expect("+0s continue", "+0s pause", "+0s continue")
		freeze := peering.FreezeOptions{Name: "default", ID: "me@laptop", Priority: peering.FreezePriority, Lifetime: time.Hour, Message: "upgrade"}
		noted, err := w.freeze(freeze)
		if err != nil || strings.Join(noted, " ") != "clusterkopfpeerings.kopf.dev/default" {
			t.Error(noted, err)
		}
		w.settle()
		low.expect("+0s pause: in favour of me@laptop (priority 100: upgrade)")
		got := w.records()["me@laptop"].(map[string]any)
		if got["priority"] != int64(100) || got["lifetime"] != int64(3600) || got["message"] != "upgrade" || len(got) != 4 {
			t.Error(got)
		}
		higher := w.start("higher", priority(101))
		higher.expect("+0s continue")
		higher.stop()
		if noted, err := w.resume(freeze); err != nil || len(noted) != 1 {
			t.Error(noted, err)
		}
		w.settle()
		low.expect("+0s continue")
		if noted, err := w.resume(freeze); err != nil || len(noted) != 1 {
			t.Error("nothing to end:", noted, err)
		}
		// Nobody ends it.
		if _, err := w.freeze(freeze); err != nil {
			t.Error(err)
		}
		w.sleep(time.Hour + time.Second)
		low.expect("+0s pause", "+1h0m0s continue")
		w.identities("low")
		if found := w.said(slog.LevelWarn, ""); len(found) > 0 {
			t.Error(found)
		}
	})
}

// CLI-7: where it is noted, and what is an error.
func TestFreezePlaces_CLI6_CLI7(t *testing.T) {
	team := func(name string, labels map[string]string) bool {
		return strings.HasPrefix(name, "team-") && labels["quiet"] == ""
	}
	for name, c := range map[string]struct {
		kinds   string // groups of namespaced kinds, of cluster-wide ones in capitals
		options peering.FreezeOptions
		noted   string
		errors  []string
	}{
		"the cluster":              {"K", peering.FreezeOptions{Name: "default"}, "clusterkopfpeerings.kopf.dev/default", nil},
		"both groups":              {"KZ", peering.FreezeOptions{Name: "default"}, "clusterkopfpeerings.kopf.dev/default, clusterkopfpeerings.zalando.org/default", nil},
		"the legacy group":         {"Zk", peering.FreezeOptions{Name: "default"}, "clusterkopfpeerings.zalando.org/default", nil},
		"no kind":                  {"k", peering.FreezeOptions{Name: "default"}, "", []string{"the cluster has no kind of peering objects, clusterkopfpeerings.kopf.dev or clusterkopfpeerings.zalando.org"}},
		"no namespaced kind":       {"KZ", peering.FreezeOptions{Name: "default", Namespaces: []string{"team-a"}}, "", []string{"the cluster has no kind of peering objects, kopfpeerings.kopf.dev or"}},
		"no object":                {"K", peering.FreezeOptions{Name: "absent"}, "", []string{"there is no clusterkopfpeerings.kopf.dev/absent"}},
		"no name":                  {"K", peering.FreezeOptions{}, "", []string{"the name of the peering object is missing"}},
		"a namespace":              {"Kk", peering.FreezeOptions{Name: "default", Namespaces: []string{"team-a"}}, "kopfpeerings.kopf.dev/default in namespace team-a", nil},
		"one without an object":    {"k", peering.FreezeOptions{Name: "default", Namespaces: []string{"team-a", "empty"}}, "kopfpeerings.kopf.dev/default in namespace team-a", []string{"there is no kopfpeerings.kopf.dev/default in namespace empty"}},
		"namespaces that match":    {"k", peering.FreezeOptions{Name: "default", Match: team}, "kopfpeerings.kopf.dev/default in namespace team-a, kopfpeerings.kopf.dev/default in namespace team-b", nil},
		"and one that is named":    {"k", peering.FreezeOptions{Name: "default", Match: team, Namespaces: []string{"other", "team-a"}}, "kopfpeerings.kopf.dev/default in namespace other, kopfpeerings.kopf.dev/default in namespace team-a, kopfpeerings.kopf.dev/default in namespace team-b", nil},
		"none that match have one": {"k", peering.FreezeOptions{Name: "default", Match: func(n string, _ map[string]string) bool { return n == "empty" }}, "", []string{"there is no KopfPeering named default in any of the namespaces that match: empty"}},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				for _, group := range c.kinds {
					collection := w.serve(map[string]string{"K": "kopf.dev", "Z": "zalando.org"}[strings.ToUpper(string(group))], group < 'a')
					if group < 'a' {
						w.create(collection, "", "default", nil)
						continue
					}
					for _, namespace := range []string{"team-a", "team-b", "team-quiet", "other"} {
						w.create(collection, namespace, "default", nil)
					}
				}
				namespaces := w.server.Collection("v1", "namespaces")
				if _, err := namespaces.Create(simulated.Object("", "empty", nil)); err != nil {
					t.Fatal(err)
				}
				if _, err := namespaces.Update("", "team-quiet", func(o *unstructuredObject) { o.SetLabels(map[string]string{"quiet": "yes"}) }); err != nil && strings.Contains(c.kinds, "k") {
					t.Fatal(err)
				}
				c.options.Lifetime = time.Minute
				for _, do := range []func(peering.FreezeOptions) ([]string, error){w.freeze, w.resume} {
					noted, err := do(c.options)
					if strings.Join(noted, ", ") != c.noted {
						t.Errorf("noted in %q", noted)
					}
					if (err == nil) != (len(c.errors) == 0) {
						t.Error(err)
					}
					for _, text := range c.errors {
						if err != nil && !strings.Contains(err.Error(), text) {
							t.Errorf("%v does not say %q", err, text)
						}
					}
				}
			})
		})
	}
}

// CLI-6, CLI-7: what else can be wrong is said, too.
func TestFreezeFails_CLI6_CLI7(t *testing.T) {
	scenario(t, func(w *world) {
		w.with(nil)
		w.serve("kopf.dev", false)
		for _, lifetime := range []time.Duration{0, -time.Second, 1500 * time.Millisecond} {
			if _, err := w.freeze(peering.FreezeOptions{Name: "default", Lifetime: lifetime}); err == nil || !strings.Contains(err.Error(), "whole number of seconds") {
				t.Error(lifetime, err)
			}
		}
		all := peering.FreezeOptions{Name: "default", Lifetime: time.Minute, Match: func(string, map[string]string) bool { return true }}
		cluster := peering.FreezeOptions{Name: "default", Lifetime: time.Minute}
		for resource, c := range map[string]struct {
			options peering.FreezeOptions
			text    string
		}{
			"clusterkopfpeerings": {cluster, "clusterkopfpeerings.kopf.dev/default: "},
			"namespaces":          {all, "cannot find out which namespaces there are, name them: "},
			"zalando.org/v1":      {cluster, "cannot find out which resources zalando.org/v1 has: "},
		} {
			mend := w.server.Before(simulated.On{Resource: resource}, simulated.Always(simulated.Fail(403)))
			if _, err := w.freeze(c.options); err == nil || !strings.Contains(err.Error(), c.text) {
				t.Error(err)
			}
			mend()
		}
		w.identities()
	})
}

// PEER-1: the manifests are of the kinds that are looked for.
func TestManifests_PEER1(t *testing.T) {
	names := map[string]string{}
	for text := range strings.SplitSeq(string(peering.CRDs()), "---\n") {
		var crd unstructured.Unstructured
		if err := yaml.UnmarshalStrict([]byte(text), &crd.Object); err != nil {
			t.Fatal(err)
		}
		scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope")
		names[crd.GetName()] = scope
	}
	if len(names) != 2 || names["clusterkopfpeerings.kopf.dev"] != "Cluster" || names["kopfpeerings.kopf.dev"] != "Namespaced" {
		t.Error(names)
	}
	if shown, err := os.ReadFile("../../docs/peering-crds.yaml"); err != nil || string(shown) != string(peering.CRDs()) {
		t.Error("docs/peering-crds.yaml is not crds.yaml", err)
	}
	for want, namespaces := range map[string][]string{
		"apiVersion: kopf.dev/v1\nkind: ClusterKopfPeering\nmetadata:\n  name: x\n": nil,
		"apiVersion: kopf.dev/v1\nkind: KopfPeering\nmetadata:\n  name: x\n  namespace: a\n---\n" +
			"apiVersion: kopf.dev/v1\nkind: KopfPeering\nmetadata:\n  name: x\n  namespace: b\n": {"a", "b"},
	} {
		if got, err := peering.Manifest("x", namespaces...); err != nil || string(got) != want {
			t.Errorf("%s, %v", got, err)
		}
	}
}
