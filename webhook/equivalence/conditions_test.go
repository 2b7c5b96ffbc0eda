package equivalence_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/webhook"
	"github.com/kopf-go/kopf/webhook/celtest"
)

const seed = 0x5eed

// asked tells whether the API server would ask the webhook of the hook about a request.
func asked(t *testing.T, o webhook.Options, hook webhook.Hook, request celtest.Request) bool {
	t.Helper()
	hook.ID, hook.Kind = "check", webhook.Validating
	hook.Resources = []webhook.Resource{{Group: "kopf.dev", Version: "v1", Plural: "widgets"}}
	o.Name = "kopf.example.com"
	validating, _ := webhook.Configurations(o, []webhook.Hook{hook}, func(string) (c admissionregistrationv1.WebhookClientConfig) { return c })
	entry := validating.Webhooks[0]
	selector, err := metav1.LabelSelectorAsSelector(entry.ObjectSelector)
	if err != nil {
		t.Fatal(err)
	}
	if !selector.Empty() && !selected(selector, request.Object) && !selected(selector, request.OldObject) {
		return false
	}
	for _, condition := range entry.MatchConditions {
		ok, err := request.Matches(condition.Expression)
		if err != nil {
			t.Fatalf("%s: %v\nobject %v, old object %v", condition.Expression, err, request.Object, request.OldObject)
		}
		if !ok {
			return false
		}
	}
	return true
}

// selected is as the API server does it.
func selected(selector labels.Selector, object any) bool {
	tree, _ := object.(map[string]any)
	if tree == nil {
		return false
	}
	set := labels.Set{}
	found, _ := diff.Resolve(tree, diff.Path{"metadata", "labels"})
	values, _ := found.(map[string]any)
	for key, value := range values {
		set[key], _ = value.(string)
	}
	return selector.Matches(set)
}

// The conditions are what the filters mean, for any object: what is in the way of the
// field may be missing, null, or no object at all.
func TestConditionsAreWhatFiltersMean_T164(t *testing.T) {
	random := rand.New(rand.NewPCG(seed, 1))
	said := 0
	for range 1000 {
		path := paths[random.IntN(len(paths))]
		criterion := randomCriterion(random, 2, values)
		var hook webhook.Hook
		annotated := len(path) == 3 && path[1] == "annotations"
		if annotated {
			hook.Restrict(nil, []webhook.Criterion{{Key: path[2], Match: criterion}}, nil, nil)
		} else {
			hook.Restrict(nil, nil, path, criterion)
		}
		if len(hook.Conditions) == 0 {
			continue
		}
		said++
		for range 3 {
			object := randomObject(random, path)
			request := celtest.Request{Object: object}
			if random.IntN(3) == 0 {
				request = celtest.Request{OldObject: object} // a deletion
			}
			value, present := diff.Resolve(object, path)
			if got, want := asked(t, webhook.Options{Finalizers: true}, hook, request), criterion.Match(value, present); got != want {
				t.Fatalf("%v at %v: asked %v, want %v\n%s\nobject %s", criterion, path, got, want, hook.Conditions[0].Expression, text(object))
			}
		}
	}
	if said < 300 {
		t.Errorf("only %d of 1000 filters are conditions", said)
	}
}

// The selector never leaves an object out that the filters take, and selects exactly
// those where all filters can be said and there is no other state of the object.
func TestSelectorsAreWhatFiltersMean_T164(t *testing.T) {
	random := rand.New(rand.NewPCG(seed, 2))
	texts := []any{"x", "y", "", "not legal!", int64(3)}
	for range 3000 {
		var criteria []webhook.Criterion
		for _, key := range []string{"a", "kopf.dev/b", "not/legal/key"}[:1+random.IntN(3)] {
			criteria = append(criteria, webhook.Criterion{Key: key, Match: randomCriterion(random, 2, texts)})
		}
		var hook webhook.Hook
		hook.Restrict(criteria, nil, nil, nil)
		exact := hook.Selector != nil && len(hook.Selector.MatchExpressions) == len(criteria)

		set := map[string]any{}
		for _, key := range []string{"a", "kopf.dev/b"} {
			if random.IntN(2) == 0 {
				set[key] = []string{"x", "y", ""}[random.IntN(3)]
			}
		}
		object := map[string]any{"metadata": map[string]any{"labels": set}}
		taken := true
		for _, c := range criteria {
			value, present := set[c.Key]
			taken = taken && c.Match.Match(value, present)
		}
		for _, request := range []celtest.Request{{Object: object}, {OldObject: object}} {
			got := asked(t, webhook.Options{Finalizers: true}, hook, request)
			if taken && !got || exact && got != taken {
				t.Fatalf("%v: asked %v, taken %v, exact %v, labels %v", criteria, got, taken, exact, set)
			}
		}
	}
}

var paths = [][]string{
	{"spec"}, {"spec", "engine"}, {"spec", "a b"}, {"spec", "in", "\"quoted\\\n"}, {"status", "x-y", "deep"}, {"data", "ключ"},
	{"metadata", "annotations", "kopf.dev/note"}, {"metadata", "name"}, {"spec", "__x__"}, {"spec", "namespace"},
}

var values = []any{"x", "", "it's \"q\" \\ \n\x7f ü 🙂", true, false, int64(0), int64(3), int64(-1 << 62), json.Number("3"), 1.5, []any{"x"}, map[string]any{"a": int64(1)}}

func randomCriterion(random *rand.Rand, depth int, values []any) filters.Criterion {
	kind := random.IntN(7)
	if depth == 0 {
		kind %= 3
	}
	parts := make([]any, random.IntN(3))
	for i := range parts {
		parts[i] = randomCriterion(random, max(0, depth-1), values)
	}
	switch kind {
	case 0:
		return filters.Present
	case 1:
		return filters.Absent
	case 2:
		return filters.Equal(values[random.IntN(len(values))])
	case 3:
		return filters.Any(parts...)
	case 4:
		return filters.All(parts...)
	case 5:
		return filters.None(parts...)
	}
	return filters.Not(randomCriterion(random, depth-1, values))
}

// randomObject has something at the path, or on the way to it.
func randomObject(random *rand.Rand, path []string) map[string]any {
	object := map[string]any{"apiVersion": "kopf.dev/v1", "kind": "Widget"}
	at := object
	for i, name := range path {
		if random.IntN(6) == 0 {
			break // it is not there
		}
		if i == len(path)-1 || random.IntN(6) == 0 {
			at[name] = randomValue(random)
			break
		}
		next := map[string]any{"other": int64(1)}
		at[name], at = next, next
	}
	return object
}

func randomValue(random *rand.Rand) any {
	more := []any{nil, float64(3), "3", map[string]any{}, []any{}, []any{map[string]any{"engine": "x"}}}
	if i := random.IntN(len(values) + len(more)); i >= len(values) {
		return more[i-len(values)]
	} else if number, ok := values[i].(json.Number); ok {
		n, _ := number.Int64()
		return n
	} else {
		return values[i]
	}
}

func text(object any) string {
	data, err := json.Marshal(object)
	return fmt.Sprint(string(data), err)
}

// criteria makes criteria of what a user may pass, by key.
func criteria(wanted map[string]any) []webhook.Criterion {
	var list []webhook.Criterion
	for key, value := range wanted {
		criterion, err := filters.Of(value)
		if err != nil {
			panic(err)
		}
		list = append(list, webhook.Criterion{Key: key, Match: criterion})
	}
	return list
}
