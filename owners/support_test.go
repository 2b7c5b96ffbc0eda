package owners_test

import (
	"encoding/json"
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kopf-go/kopf/owners"
)

// newOwner is what a handler gets.
func newOwner(edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	o := &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "boss", Namespace: "office", UID: "u-boss", Labels: map[string]string{"app": "boss", "tier": "gold"},
		},
	}
	for _, edit := range edits {
		edit(o)
	}
	return o
}

func inNamespace(namespace string) func(*appsv1.Deployment) {
	return func(o *appsv1.Deployment) { o.Namespace = namespace }
}

func content(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// forms are the same object in all forms that there are, each as it is given to a function,
// with what shows it afterwards.
func forms(t *testing.T, meta metav1.ObjectMeta) map[string]form {
	t.Helper()
	pod := func() *corev1.Pod { return &corev1.Pod{ObjectMeta: *meta.DeepCopy()} }
	dynamic := func() *unstructured.Unstructured {
		raw, err := json.Marshal(pod())
		if err != nil {
			t.Fatal(err)
		}
		return content(t, string(raw))
	}
	typed, untyped, one, two, three := pod(), dynamic(), pod(), pod(), dynamic()
	list := &corev1.PodList{Items: []corev1.Pod{*pod(), *pod()}}
	dynamicList := &unstructured.UnstructuredList{Items: []unstructured.Unstructured{*dynamic()}}
	partial := &metav1.PartialObjectMetadata{ObjectMeta: *meta.DeepCopy()}
	return map[string]form{
		"typed":             {typed, []owners.Object{typed}},
		"unstructured":      {untyped, []owners.Object{untyped}},
		"metadata":          {partial, []owners.Object{partial}},
		"slice of one type": {owners.Of([]*corev1.Pod{one, nil}...), []owners.Object{one}},
		"mixed":             {owners.Objects{two, nil, (*corev1.Secret)(nil), three}, []owners.Object{two, three}},
		"list":              {list, []owners.Object{&list.Items[0], &list.Items[1]}},
		"unstructured list": {dynamicList, []owners.Object{&dynamicList.Items[0]}},
		"nothing":           {nil, nil},
		"nil":               {(*corev1.Pod)(nil), nil},
		"no list":           {(*corev1.PodList)(nil), nil},
	}
}

type form struct {
	given runtime.Object
	shown []owners.Object
}

// metaOf is what all forms have in common.
func metaOf(o owners.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: o.GetName(), GenerateName: o.GetGenerateName(), Namespace: o.GetNamespace(), UID: o.GetUID(),
		Labels: o.GetLabels(), OwnerReferences: o.GetOwnerReferences(),
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		t.Errorf("%s:\n got %s\nwant %s", what, a, b)
	}
}
