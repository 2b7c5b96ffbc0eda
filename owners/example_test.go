package owners_test

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kopf-go/kopf/owners"
)

// boss stands for c.Object, which a handler is called for.
var boss = &appsv1.Deployment{
	TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
	ObjectMeta: metav1.ObjectMeta{Name: "boss", Namespace: "office", UID: "0a1b", Labels: map[string]string{"team": "blue"}},
}

// Children have a reference, a name, a namespace and labels of their owner, and so have the
// pods of the template.
func ExampleAdopt() {
	set, config := &appsv1.StatefulSet{}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}
	if err := owners.Adopt(boss, owners.Objects{set, config}, owners.Nested("spec.template")); err != nil {
		fmt.Println(err)
	}

	fmt.Println(set.Namespace, set.GenerateName, set.OwnerReferences[0].Name, set.Labels, set.Spec.Template.Labels)
	fmt.Println(config.Namespace, config.Name, config.OwnerReferences[0].Name, config.Labels)
	// Output:
	// office boss- boss map[team:blue] map[team:blue]
	// office settings boss map[team:blue]
}

// Kubernetes would remove a child in another namespace, for it would not find the owner there.
func ExampleAppendReference() {
	fmt.Println(owners.AppendReference(boss, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key", Namespace: "vault"}}))
	// Output:
	// Secret vault/key: the owner, Deployment office/boss, is in another namespace than the object, which is in namespace vault: Kubernetes would not find it there, take it for gone, and remove the object; tell whose it is by labels, and remove it in a handler of on.Delete
}

// A child that is to live on.
func ExampleRemoveReference() {
	pod := &corev1.Pod{}
	_ = owners.AppendReference(boss, pod)
	_ = owners.RemoveReference(boss, pod)
	fmt.Println(pod.OwnerReferences)
	// Output: []
}

// All of a slice; a key that is there keeps its value.
func ExampleLabel() {
	pods := []*corev1.Pod{{}, {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "red"}}}}
	_ = owners.Label(owners.Of(pods...), map[string]string{"team": "blue"})
	fmt.Println(pods[0].Labels, pods[1].Labels)
	_ = owners.Label(owners.Of(pods...), map[string]string{"team": "blue"}, owners.Forced())
	fmt.Println(pods[0].Labels, pods[1].Labels)
	// Output:
	// map[team:blue] map[team:red]
	// map[team:blue] map[team:blue]
}

// There is one of the name, and the API server makes names of others.
func ExampleHarmonizeNaming() {
	one, many := &corev1.Pod{}, &corev1.Pod{}
	_ = owners.HarmonizeNaming(one, boss.Name, owners.Strict())
	_ = owners.HarmonizeNaming(many, boss.Name)
	fmt.Printf("%q %q\n", one.Name, many.GenerateName)
	// Output: "boss" "boss-"
}

func ExampleAdjustNamespace() {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "home"}}
	_ = owners.AdjustNamespace(pod, boss.Namespace)
	fmt.Println(pod.Namespace)
	_ = owners.AdjustNamespace(pod, boss.Namespace, owners.Forced())
	fmt.Println(pod.Namespace)
	// Output:
	// home
	// office
}
