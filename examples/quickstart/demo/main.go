// Demo shows the quickstart operator at work: on the cluster of the current
// kubeconfig it creates, edits and deletes a database, with the operator's log and
// the object's status in between. It leaves nothing behind.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const folder = "examples/quickstart"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

type demo struct {
	client client.Client
	binary string
	out    *lines
}

func run(ctx context.Context, w io.Writer) (err error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "kopf-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d := &demo{client: c, binary: filepath.Join(dir, "operator"), out: &lines{w: w}}

	d.say("build the operator, %s/main.go", folder)
	build := exec.CommandContext(ctx, "go", "build", "-o", d.binary, "./"+folder)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("cannot build the operator: %w", err)
	}

	d.say("apply the custom resource definition, %s/crd.yaml", folder)
	crd, err := d.create(ctx, "crd.yaml")
	if err != nil {
		return err
	}
	defer d.remove(crd, &err)

	operator, err := d.start(ctx)
	if err != nil {
		return err
	}
	defer func() { operator.Process.Kill() }() // if it was not stopped below

	d.say("create a database, %s/database.yaml", folder)
	database, err := d.create(ctx, "database.yaml")
	if err != nil {
		return err
	}
	defer d.remove(database, &err)
	if err := d.until(ctx, database, map[string]any{"phase": "Ready", "replicas": int64(1)}); err != nil {
		return err
	}

	d.say("edit it: spec.replicas 1 -> 3")
	if err := d.edit(ctx, database, 3); err != nil {
		return err
	}

	d.say("stop the operator, and edit again meanwhile: spec.replicas 3 -> 4 -> 5")
	if err := stopped(operator); err != nil {
		return err
	}
	for _, replicas := range []int{4, 5} {
		if err := d.patch(ctx, database, replicas); err != nil {
			return err
		}
	}
	d.say("start it again: it gets both edits as one")
	if operator, err = d.start(ctx); err != nil {
		return err
	}
	if err := d.until(ctx, database, map[string]any{"replicas": int64(5)}); err != nil {
		return err
	}

	d.say("delete it: the operator holds it until the delete handler is through")
	if err := d.client.Delete(ctx, database); err != nil {
		return err
	}
	if err := d.untilGone(ctx, database); err != nil {
		return err
	}
	d.say("the database is gone; stop the operator")
	if err := stopped(operator); err != nil {
		return err
	}
	d.say("done")
	return nil
}

// create creates the object of a file in the example's folder.
func (d *demo) create(ctx context.Context, file string) (*unstructured.Unstructured, error) {
	raw, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		return nil, fmt.Errorf("%w: run the demo in the root of the repository", err)
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(raw, &object.Object); err != nil {
		return nil, err
	}
	// A resource that was defined a moment ago may not be served yet.
	err = poll(ctx, func(ctx context.Context) (bool, error) {
		err := d.client.Create(ctx, object)
		if apierrors.IsAlreadyExists(err) {
			return false, fmt.Errorf("%s %s exists already: the demo does not touch it", object.GetKind(), object.GetName())
		}
		return err == nil, client.IgnoreNotFound(ignoreNoMatch(err))
	})
	return object, err
}

// remove cleans up, also after an error or an interruption.
func (d *demo) remove(object *unstructured.Unstructured, err *error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if *err != nil && object.GetKind() == "Database" { // no operator may be left to let it go
		d.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	}
	if e := d.client.Delete(ctx, object); client.IgnoreNotFound(e) != nil && *err == nil {
		*err = e
	}
}

func (d *demo) edit(ctx context.Context, database *unstructured.Unstructured, replicas int) error {
	if err := d.patch(ctx, database, replicas); err != nil {
		return err
	}
	return d.until(ctx, database, map[string]any{"replicas": int64(replicas)})
}

func (d *demo) patch(ctx context.Context, database *unstructured.Unstructured, replicas int) error {
	return d.client.Patch(ctx, database, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)))
}

// until waits for values in the status, and shows it.
func (d *demo) until(ctx context.Context, object *unstructured.Unstructured, want map[string]any) error {
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		if err := d.client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return false, err
		}
		status, _, err := unstructured.NestedMap(object.Object, "status")
		for key, value := range want {
			if status[key] != value {
				return false, err
			}
		}
		return true, err
	})
	status, _ := yaml.Marshal(object.Object["status"])
	d.out.print("status   | ", status)
	if err != nil {
		return fmt.Errorf("status does not become %v: %w", want, err)
	}
	return nil
}

func (d *demo) untilGone(ctx context.Context, object *unstructured.Unstructured) error {
	return poll(ctx, func(ctx context.Context) (bool, error) {
		err := d.client.Get(ctx, client.ObjectKeyFromObject(object), object)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// start runs the operator; its log comes with a prefix.
func (d *demo) start(ctx context.Context) (*exec.Cmd, error) {
	d.say("start the operator")
	operator := exec.CommandContext(ctx, d.binary, "--namespace", "default")
	operator.Stderr = d.out
	operator.WaitDelay = 10 * time.Second
	return operator, operator.Start()
}

// stopped asks the operator to stop, and expects that it does so in good order.
func stopped(operator *exec.Cmd) error {
	if err := operator.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := operator.Wait(); err != nil {
		return fmt.Errorf("operator did not stop in good order: %w", err)
	}
	return nil
}

func poll(ctx context.Context, condition wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, condition)
}

func ignoreNoMatch(err error) error {
	if meta.IsNoMatchError(err) {
		return nil
	}
	return err
}

func (d *demo) say(format string, args ...any) {
	d.out.print("\n== ", fmt.Appendf(nil, format+"\n", args...))
}

// lines prints whole lines of several writers, each with a prefix.
type lines struct {
	mu   sync.Mutex
	w    io.Writer
	rest []byte
}

func (l *lines) print(prefix string, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(text) {
		fmt.Fprintf(l.w, "%s%s", prefix, line)
	}
}

// Write takes the operator's log.
func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	l.rest = append(l.rest, text...)
	end := bytes.LastIndexByte(l.rest, '\n') + 1
	whole := bytes.Clone(l.rest[:end])
	l.rest = l.rest[end:]
	l.mu.Unlock()
	l.print("operator | ", whole)
	return len(text), nil
}
