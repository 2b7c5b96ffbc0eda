package kopf_test

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/owners"
)

// What kubectl describe shows of a Deployment.
func ExampleInfo() {
	on.Update(func(ctx context.Context, c *kopf.Change[*appsv1.Deployment]) error {
		if *c.New.Spec.Replicas == 0 {
			return kopf.Warn(ctx, c.Object, "Idle", "nobody will answer")
		}
		return kopf.Info(ctx, c.Object, "Scaled", "from %d to %d", *c.Old.Spec.Replicas, *c.New.Spec.Replicas)
	}, on.Field("spec.replicas"), on.ID("told"), on.In(kopf.NewRegistry()))
}

// An error is told of two objects, the handler's own and another one.
func ExampleException() {
	on.Create(func(ctx context.Context, c *kopf.Change[*appsv1.Deployment]) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		return kopf.Exception(ctx, kopf.Objects{c.Object, node}, "Unbalanced", fmt.Errorf("node %s is full", node.Name))
	}, on.ID("balance"), on.In(kopf.NewRegistry()))
}

// Outside of handlers there is no operator that could post anything.
func ExamplePost() {
	err := kopf.Post(context.Background(), &corev1.Pod{}, corev1.EventTypeNormal, "Reason", "text")
	fmt.Println(err)
	// Output: events are posted with the context that a handler is called with, or one that is made from it: this one is of no operator
}

// A child is removed by Kubernetes when the handler's object goes.
func ExampleAdopt() {
	create := func(ctx context.Context, c *kopf.Change[*appsv1.Deployment]) error {
		config := &corev1.ConfigMap{Data: map[string]string{"owner": c.Object.Name}}
		if err := kopf.Adopt(c.Object, config, owners.Strict()); err != nil {
			return err
		}
		fmt.Println(config.Namespace, config.Name, config.OwnerReferences[0].Kind)
		return nil // after it is created
	}

	object := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "0a1b"},
	}
	c := &kopf.Change[*appsv1.Deployment]{Object: object, New: object}
	fmt.Println(create(context.Background(), c))
	// Output:
	// team web Deployment
	// <nil>
}
