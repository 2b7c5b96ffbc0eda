package equivalence_test

import (
	"testing"

	"github.com/kopf-go/kopf/webhook"
	"github.com/kopf-go/kopf/webhook/celtest"
)

type tree = map[string]any

// An update that only takes finalizers off an object that is being deleted goes through
// whatever handlers say, and when there is nobody to say anything (B39).
func TestNobodyBlocksADeletion_B39(t *testing.T) {
	terminating := func(edit func(meta, object tree)) tree {
		meta := tree{
			"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": []any{"x", "y"}, "labels": tree{"a": "b"},
			"resourceVersion": "1", "generation": int64(1), "managedFields": []any{tree{"manager": "m"}},
		}
		object := tree{"apiVersion": "kopf.dev/v1", "kind": "Widget", "metadata": meta, "spec": tree{"a": int64(1)}, "status": tree{"b": "c"}}
		edit(meta, object)
		return object
	}
	same := func(tree, tree) {}
	for name, c := range map[string]struct {
		before, after func(meta, object tree)
		asked         bool
	}{
		"nothing":                  {same, same, false},
		"one finalizer":            {same, func(m, _ tree) { m["finalizers"] = []any{"y"} }, false},
		"all finalizers":           {same, func(m, _ tree) { delete(m, "finalizers") }, false},
		"bookkeeping":              {same, func(m, _ tree) { m["resourceVersion"], m["generation"] = "2", int64(2); delete(m, "managedFields") }, false},
		"a label":                  {same, func(m, _ tree) { m["labels"] = tree{"a": "c"} }, true},
		"no labels":                {same, func(m, _ tree) { delete(m, "labels") }, true},
		"a new annotation":         {same, func(m, _ tree) { m["annotations"] = tree{"a": "c"} }, true},
		"the spec":                 {same, func(_, o tree) { o["spec"] = tree{"a": int64(2)} }, true},
		"no spec":                  {same, func(_, o tree) { delete(o, "spec") }, true},
		"a new field":              {same, func(_, o tree) { o["data"] = "x" }, true},
		"the status":               {same, func(_, o tree) { o["status"] = tree{} }, true},
		"finalizers, but not gone": {func(m, _ tree) { delete(m, "deletionTimestamp") }, func(m, _ tree) { delete(m, "deletionTimestamp"); delete(m, "finalizers") }, true},
		"no time":                  {func(m, _ tree) { m["deletionTimestamp"] = nil }, func(m, _ tree) { m["deletionTimestamp"] = nil }, true},
		"no metadata":              {func(_, o tree) { delete(o, "metadata") }, func(_, o tree) { delete(o, "metadata") }, true},
	} {
		request := celtest.Request{OldObject: terminating(c.before), Object: terminating(c.after)}
		if got := asked(t, webhook.Options{}, webhook.Hook{}, request); got != c.asked {
			t.Errorf("%s changes: asked %v, want %v", name, got, c.asked)
		}
		if !asked(t, webhook.Options{Finalizers: true}, webhook.Hook{}, request) {
			t.Errorf("%s changes: not asked although it is wanted", name)
		}
	}
	object := terminating(same)
	for _, request := range []celtest.Request{{Object: object}, {OldObject: object}, {Object: tree{"a": "b"}, Operation: "CONNECT"}, {}} {
		if !asked(t, webhook.Options{}, webhook.Hook{}, request) {
			t.Errorf("not asked about %+v", request)
		}
	}
}

func TestTheOperatorIsNotAskedAboutItsOwnWrites(t *testing.T) {
	o := webhook.Options{User: `system:serviceaccount:ns:op"`}
	for user, want := range map[string]bool{o.User: false, "system:serviceaccount:ns:other": true, "": true} {
		if got := asked(t, o, webhook.Hook{}, celtest.Request{Object: tree{}, User: user}); got != want {
			t.Errorf("user %q: asked %v", user, got)
		}
	}
}

// A namespace with the operator in it can be deleted, with what is in it.
func TestTheOwnNamespaceCanBeDeleted(t *testing.T) {
	const controller = "system:serviceaccount:kube-system:namespace-controller"
	in := func(namespace string) tree { return tree{"metadata": tree{"name": "a", "namespace": namespace}} }
	for _, c := range []struct {
		request celtest.Request
		want    bool
	}{
		{celtest.Request{OldObject: in("own"), User: controller}, false},
		{celtest.Request{OldObject: in("own"), User: "somebody"}, true},
		{celtest.Request{OldObject: in("other"), User: controller}, true},
		{celtest.Request{Object: in("own"), User: controller}, true},
		{celtest.Request{OldObject: in(""), User: controller}, true},
	} {
		if got := asked(t, webhook.Options{Namespace: "own"}, webhook.Hook{}, c.request); got != c.want {
			t.Errorf("%+v: asked %v", c.request, got)
		}
	}
}

// Filters that cannot be said keep no object from being looked at on receipt.
func TestFunctionsAreLeftToTheReceipt_T164(t *testing.T) {
	never := func(string) bool { return false }
	var hook webhook.Hook
	hook.Restrict(criteria(tree{"a": never, "b": 3}), criteria(tree{"a": never}), []string{"spec"}, criteria(tree{"": never})[0].Match)
	if hook.Selector != nil || len(hook.Conditions) > 0 {
		t.Errorf("said: %+v", hook)
	}
	if !asked(t, webhook.Options{}, hook, celtest.Request{Object: tree{}}) {
		t.Error("not asked")
	}
	hook.Restrict(criteria(tree{"a": "x", "b": never}), nil, nil, nil)
	if len(hook.Selector.MatchExpressions) != 1 {
		t.Errorf("selector: %v", hook.Selector)
	}
	for value, want := range map[string]bool{"x": true, "y": false} {
		object := tree{"metadata": tree{"labels": tree{"a": value}}}
		if got := asked(t, webhook.Options{}, hook, celtest.Request{Object: object}); got != want {
			t.Errorf("label %q: asked %v", value, got)
		}
		// An object that was selected before is asked about, too.
		if !asked(t, webhook.Options{}, hook, celtest.Request{OldObject: tree{"metadata": tree{"labels": tree{"a": "x"}}}, Object: object}) {
			t.Errorf("label %q: not asked although the old one is selected", value)
		}
	}
}
