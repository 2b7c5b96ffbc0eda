package patching

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
)

const handledObject = `{"metadata":{"name":"d","uid":"u","resourceVersion":"7","finalizers":["a","ours","b"],
	"annotations":{"x/y":"z","own/state":"1"},"labels":{"l":"1"}},"spec":{"replicas":3},"status":{"kopf":{"progress":"1"}}}`

// What is the framework's own stays as it is, whatever handlers ask for; what the
// framework itself says about it counts.
func TestFrameworkWins(t *testing.T) {
	owns := func(name string) bool { return strings.HasPrefix(name, "own/") }
	locked := func(finalizers string) string {
		return `{"metadata":{"uid":"u","resourceVersion":"7","finalizers":` + finalizers + `}}`
	}
	for _, c := range []struct {
		name   string
		object string
		edit   registry.Edit
		change Change
		want   string
		status string
	}{
		{name: "FIN-8 ours is not removed", edit: editOf(func(d *appsv1.Deployment) { d.Finalizers = []string{"a", "b"} })},
		{name: "FIN-8 nor moved", edit: editOf(func(d *appsv1.Deployment) { d.Finalizers = []string{"ours", "a", "b"} })},
		{name: "FIN-8 foreign ones are", edit: editOf(func(d *appsv1.Deployment) { d.Finalizers = nil }), want: locked(`["ours"]`)},
		{name: "FIN-8 in any order", edit: mergeOf(`{"metadata":{"finalizers":["b","a"]}}`), want: locked(`["b","ours","a"]`)},
		{name: "FIN-8 and added", edit: editOf(func(d *appsv1.Deployment) { d.Finalizers = []string{"a", "b", "c"} }), want: locked(`["a","ours","b","c"]`)},
		{name: "FIN-8 ours is not added", object: `{"metadata":{"uid":"u","resourceVersion":"7","finalizers":["a"]}}`,
			edit: mergeOf(`{"metadata":{"finalizers":["a","ours"]}}`)},
		{name: "FIN-8 nor added beside another", object: `{"metadata":{"uid":"u","resourceVersion":"7"}}`,
			edit: mergeOf(`{"metadata":{"finalizers":["ours","a"]}}`), want: locked(`["a"]`)},
		{name: "FIN-8 it is added when the framework says so", object: `{"metadata":{"uid":"u","resourceVersion":"7","finalizers":["a"]}}`,
			edit: mergeOf(`{"metadata":{"finalizers":null}}`), change: Change{AddFinalizer: "ours"}, want: locked(`["ours"]`)},
		{name: "FIN-8 and removed", edit: mergeOf(`{"metadata":{"finalizers":["ours","b","c"]}}`),
			change: Change{RemoveFinalizer: "ours"}, want: locked(`["b","c"]`)},
		{name: "FIN-8 removed beside what is no list", edit: mergeOf(`{"metadata":{"finalizers":"none"}}`),
			change: Change{RemoveFinalizer: "ours"}, want: locked(`["a","b"]`)},
		{name: "what is no list is the server's business", edit: mergeOf(`{"metadata":{"finalizers":"none"}}`), want: locked(`"none"`)},

		{name: "our annotations are not removed", edit: editOf(func(d *appsv1.Deployment) { d.Annotations = nil }),
			want: `{"metadata":{"uid":"u","annotations":{"x/y":null}}}`},
		{name: "nor changed or added", edit: mergeOf(`{"metadata":{"annotations":{"own/state":"2","own/other":"3","n":"4"}}}`),
			want: `{"metadata":{"uid":"u","annotations":{"n":"4"}}}`},
		{name: "nor removed one by one", edit: jsonOf(`[{"op":"remove","path":"/metadata/annotations/own~1state"}]`)},
		{name: "but by the framework", edit: mergeOf(`{"metadata":{"annotations":{"own/state":"2"}}}`),
			change: Change{Annotations: map[string]*string{"own/state": text("3"), "own/new": text("4")}},
			want:   `{"metadata":{"uid":"u","annotations":{"own/state":"3","own/new":"4"}}}`},

		{name: "state in the status", edit: mergeOf(`{"status":{"kopf":null,"phase":"Ready"}}`),
			change: Change{Merge: map[string]any{"status": map[string]any{"kopf": map[string]any{"progress": "2", "gone": nil}}}},
			status: `{"metadata":{"uid":"u"},"status":{"kopf":{"progress":"2"},"phase":"Ready"}}`},
		{name: "who it is", edit: editOf(func(d *appsv1.Deployment) {
			d.Name, d.Namespace, d.UID, d.ResourceVersion, d.Kind = "e", "f", "v", "1", "Other"
		})},
		{name: "the metadata as a whole", edit: mergeOf(`{"metadata":null,"kind":null}`)},
		{name: "the metadata as something else", edit: mergeOf(`{"metadata":"x"}`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.object == "" {
				c.object = handledObject
			}
			c.change.Edits = []registry.Edit{c.edit}
			c.change.Finalizer, c.change.Owns = "ours", owns
			plan, err := Compose(parse(t, c.object), c.change, true)
			if err != nil || !same(t, plan.Object, c.want) || !same(t, plan.Status, c.status) {
				t.Errorf("\n     %s\nwant %s\n     %s\nwant %s\n%v", plan.Object, c.want, plan.Status, c.status, err)
			}
		})
	}
}

// B30: what others did to the list in between is not undone: the list is of one
// version, and is made again from the next.
func TestFinalizersOfOthers_B30_PAT7(t *testing.T) {
	change := Change{RemoveFinalizer: "ours", Finalizer: "ours"}
	for object, want := range map[string]string{
		`{"metadata":{"uid":"u","resourceVersion":"7","finalizers":["x/a","x/b","ours"]}}`: `{"metadata":{"uid":"u","resourceVersion":"7","finalizers":["x/a","x/b"]}}`,
		`{"metadata":{"uid":"u","resourceVersion":"8","finalizers":["x/b","ours"]}}`:       `{"metadata":{"uid":"u","resourceVersion":"8","finalizers":["x/b"]}}`,
	} {
		plan, err := Compose(parse(t, object), change, true)
		if err != nil || !plan.Locked || !same(t, plan.Object, want) {
			t.Errorf("%s, %v", plan.Object, err)
		}
	}
}

// What is left to send once the status is written.
func TestNext_PAT3(t *testing.T) {
	ran := 0
	conditional := editOf(func(d *appsv1.Deployment) {
		if ran++; d.Status.Replicas == 1 { // no more so once its status is written
			d.Status.Replicas = 2
			d.Labels["l"] = "2"
			d.Finalizers = append(d.Finalizers, "c")
		}
	})
	before := `{"metadata":{"uid":"u","resourceVersion":"7","labels":{"l":"1"},"finalizers":["a"]},"status":{"replicas":1}}`
	response := parse(t, `{"metadata":{"uid":"u","resourceVersion":"8","labels":{"l":"1"},"finalizers":["a","b"]},"status":{"replicas":2}}`)
	compose := func(c Change) Plan {
		t.Helper()
		plan, err := Compose(parse(t, before), c, true)
		if err != nil || plan.Status == nil || plan.Object == nil {
			t.Fatalf("%s, %s, %v", plan.Object, plan.Status, err)
		}
		return plan
	}
	next := func(plan Plan, response *body.Body, want string, locked bool) {
		t.Helper()
		rest, err := plan.Next(response)
		if err != nil || rest.Status != nil || !same(t, rest.Object, want) || rest.Locked != locked {
			t.Errorf("%s, %s, %t, %v", rest.Object, rest.Status, rest.Locked, err)
		}
	}
	// An edit of both under a lock has seen this version only, in both requests.
	plan := compose(Change{Edits: []registry.Edit{conditional}})
	if !same(t, plan.Status, `{"metadata":{"uid":"u","resourceVersion":"7"},"status":{"replicas":2}}`) {
		t.Errorf("%s", plan.Status)
	}
	next(plan, response, `{"metadata":{"uid":"u","resourceVersion":"8","labels":{"l":"2"},"finalizers":["a","c"]}}`, true)
	if ran != 1 {
		t.Errorf("the edit ran %d times", ran)
	}
	// Without a lock the rest goes as it is.
	plan = compose(Change{Edits: []registry.Edit{mergeOf(`{"metadata":{"labels":{"l":"2"}},"status":{"replicas":2}}`)}})
	next(plan, response, `{"metadata":{"uid":"u","labels":{"l":"2"}}}`, false)
	// Bookkeeping of the framework alone puts no lock on the status, and is made anew.
	plan = compose(Change{Results: map[string]any{"h": 1}, AddFinalizer: "ours"})
	if !same(t, plan.Status, `{"metadata":{"uid":"u"},"status":{"h":1}}`) {
		t.Errorf("%s", plan.Status)
	}
	next(plan, response, `{"metadata":{"uid":"u","resourceVersion":"8","finalizers":["a","b","ours"]}}`, true)
}
