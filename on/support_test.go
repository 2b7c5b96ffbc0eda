package on_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/on"
)

type (
	Dep = appsv1.Deployment

	DatabaseSpec struct {
		Engine   string            `json:"engine,omitempty"`
		Replicas *int32            `json:"replicas,omitempty"`
		Flags    map[string]string `json:"flags,omitempty"`
	}
	DatabaseStatus struct {
		Phase string `json:"phase,omitempty"`
	}
	Database = kopf.Resource[DatabaseSpec, DatabaseStatus]
)

var databases = on.Resource("example.com/v1", "databases")

func scaled(context.Context, *kopf.Change[*Dep]) error               { return nil }
func provision(context.Context, *kopf.Change[*Database]) error       { return nil }
func seen(context.Context, *kopf.Event[*Dep]) error                  { return nil }
func replicas(context.Context, *kopf.FieldChange[*Dep, int32]) error { return nil }
func watch(context.Context, *kopf.Daemon[*Dep]) error                { return nil }
func tick(context.Context, *kopf.Tick[*Dep]) error                   { return nil }
func byReplicas(_ context.Context, s *kopf.Snapshot[*Dep]) (map[int32]string, error) {
	if s.Object.Spec.Replicas == nil {
		return nil, nil
	}
	return map[int32]string{*s.Object.Spec.Replicas: s.Object.Name}, nil
}
func always(context.Context, *kopf.Snapshot[*Dep]) bool             { return true }
func ofPods(context.Context, *kopf.Snapshot[*corev1.Pod]) bool      { return true }
func generic[T kopf.Object](context.Context, *kopf.Change[T]) error { return nil }
func ofSpec(d *Dep) *appsv1.DeploymentSpec                          { return &d.Spec }
func makeHandler(err error) func(context.Context, *kopf.Change[*Dep]) error {
	return func(context.Context, *kopf.Change[*Dep]) error { return err }
}

// only returns the one handler that register has registered without a mistake.
func only(t *testing.T, register func(in on.AnyOption)) *registry.Handler {
	t.Helper()
	reg := kopf.NewRegistry()
	register(on.In(reg))
	if err := reg.Err(); err != nil {
		t.Fatal(err)
	}
	if n := len(reg.Handlers()); n != 1 {
		t.Fatalf("%d handlers are registered", n)
	}
	return reg.Handlers()[0]
}

// lines are the place where it is called, as mistakes name it, and the one below.
func lines() [2]string { return [2]string{place(2, 0), place(2, 1)} }

// below is a place some lines further down.
func below(lines int) string { return place(2, lines) }

func place(skip, lines int) string {
	_, file, line, _ := runtime.Caller(skip)
	return fmt.Sprintf("%s:%d", filepath.Join(filepath.Base(filepath.Dir(file)), filepath.Base(file)), line+lines)
}
