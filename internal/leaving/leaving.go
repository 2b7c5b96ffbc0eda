// Package leaving takes away what an operator has left on objects, for good: its finalizer,
// without which nobody could delete them any more once the operator is gone, and its state.
package leaving

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/patching"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/internal/stream"
)

// Policy says what is taken away, and what stays. The zero value takes everything, but for
// the finalizers of objects that are being deleted.
type Policy struct {
	// KeepFinalizers leaves them all.
	KeepFinalizers bool
	// KeepState leaves what is known of objects: what was handled last, and progress. The next
	// operator of the same name goes on from there; without it, all objects are new to it.
	KeepState bool
	// Abandon takes the finalizers of objects that are being deleted too, whose delete handlers
	// have not come to their end and never will then.
	Abandon bool
	// DryRun only tells what would be done.
	DryRun bool
}

// Resource is what is looked through.
type Resource struct {
	GVR    schema.GroupVersionResource
	Status bool // it has a status endpoint
	// Namespaces are where; none: everywhere, or the resource is not namespaced.
	Namespaces []string
}

// Object is one object.
type Object struct {
	Resource  schema.GroupVersionResource
	Namespace string
	Name      string
}

func (o Object) String() string {
	name := o.Resource.GroupResource().String() + "/" + o.Name
	if o.Namespace != "" {
		return name + " in " + o.Namespace
	}
	return name
}

// Left is something of the operator's that is still there.
type Left struct {
	Object
	Why string
}

// Report is what was done.
type Report struct {
	Seen     int // objects that were looked at
	Released int // those whose finalizer was taken off
	Cleaned  int // those whose state was taken away
	Left     []Left
	Pending  []Object // of a dry run: those that would be changed
	Failed   []error  // resources that could not be read
}

// Cleaner takes things away. All fields are required.
type Cleaner struct {
	Client *stream.Client
	Store  *state.Store
	Naming state.Naming
	Policy Policy
	// Timeout limits each list request.
	Timeout time.Duration
	Log     *slog.Logger
}

// Clean looks through all objects of the resources. What it cannot do is in the report; it
// ends early only if the context does. It is safe to be run again, and changes nothing then.
func (c *Cleaner) Clean(ctx context.Context, resources []Resource) *Report {
	report := new(Report)
	for _, r := range resources {
		namespaces := r.Namespaces
		if len(namespaces) == 0 {
			namespaces = []string{""}
		}
		for _, namespace := range namespaces {
			if err := c.cleanAll(ctx, r, namespace, report); err != nil {
				report.Failed = append(report.Failed, fmt.Errorf("%s: %w", r.GVR.GroupResource(), err))
			}
		}
	}
	return report
}

func (c *Cleaner) cleanAll(ctx context.Context, r Resource, namespace string, report *Report) error {
	seen := map[types.UID]bool{}
	return c.Client.List(ctx, r.GVR, namespace, c.Timeout, func(b *body.Body, unreadable error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if seen[b.UID] {
			return nil
		}
		seen[b.UID] = true
		report.Seen++
		object := Object{r.GVR, b.Namespace, b.Name}
		if unreadable != nil {
			report.Left = append(report.Left, Left{object, "it is not readable: " + unreadable.Error()})
			return nil
		}
		if err := c.clean(ctx, r, object, b, report); err != nil {
			report.Left = append(report.Left, Left{object, err.Error()})
		}
		return nil
	})
}

// conflicts is how often others may be faster.
const conflicts = 10

// clean takes away what is on one object.
func (c *Cleaner) clean(ctx context.Context, r Resource, object Object, b *body.Body, report *Report) error {
	releases, cleans := c.plan(b)
	for attempt := 0; ; attempt++ {
		change := c.change(b)
		plan, err := patching.Compose(b, change, r.Status)
		if err != nil {
			return err
		}
		if plan.Object == nil && plan.Status == nil {
			break
		}
		if c.Policy.DryRun {
			report.Pending = append(report.Pending, object)
			c.Log.Debug("would be cleaned", "object", object.String(), "finalizer", releases, "state", cleans)
			break
		}
		if err = c.send(ctx, object, b, plan); err == nil {
			break
		}
		if apierrors.IsNotFound(err) || patching.AnotherUID(err) {
			return nil
		}
		if !apierrors.IsConflict(err) || attempt == conflicts {
			return err
		}
		uid := b.UID
		if b, err = c.Client.Get(ctx, r.GVR, object.Namespace, object.Name); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return err
		}
		if b.UID != uid {
			return nil // another one, which was listed or will be handled by whoever made it
		}
	}
	if releases {
		report.Released++
	}
	if cleans {
		report.Cleaned++
	}
	return c.remains(b)
}

// plan tells what there is to take away from an object.
func (c *Cleaner) plan(b *body.Body) (releases, cleans bool) {
	change := c.change(b)
	return change.RemoveFinalizer != "" && b.HasFinalizer(c.Naming.Finalizer), len(change.Annotations)+len(change.Merge) > 0
}

// change is what is taken away.
func (c *Cleaner) change(b *body.Body) patching.Change {
	change := patching.Change{}
	if !c.Policy.KeepFinalizers && b.HasFinalizer(c.Naming.Finalizer) && (!b.Deleting() || c.Policy.Abandon) {
		change.RemoveFinalizer = c.Naming.Finalizer
	}
	if c.Policy.KeepState || b.Deleting() && change.RemoveFinalizer == "" && b.HasFinalizer(c.Naming.Finalizer) {
		return change // progress of delete handlers is what somebody may still need
	}
	changes := c.Store.Changes(b)
	changes.Disown()
	changes.RemoveTouch()
	change.Annotations, change.Merge = changes.Patch()
	for name := range b.Annotations {
		if c.Naming.Owns(name) {
			if change.Annotations == nil {
				change.Annotations = map[string]*string{}
			}
			change.Annotations[name] = nil
		}
	}
	return change
}

func (c *Cleaner) send(ctx context.Context, object Object, b *body.Body, plan patching.Plan) error {
	if plan.Status != nil {
		response, err := c.Client.Patch(ctx, object.Resource, object.Namespace, object.Name, types.MergePatchType, plan.Status, "status")
		if err != nil {
			return err
		}
		if plan, err = plan.Next(response); err != nil {
			return err
		}
	}
	if plan.Object == nil {
		return nil
	}
	_, err := c.Client.Patch(ctx, object.Resource, object.Namespace, object.Name, types.MergePatchType, plan.Object)
	return err
}

// remains says what stays on an object, and why.
func (c *Cleaner) remains(b *body.Body) error {
	switch {
	case b.Deleting() && b.HasFinalizer(c.Naming.Finalizer) && !c.Policy.Abandon:
		return errors.New("it is being deleted and waits for delete handlers: let the operator run until it is gone, or abandon it")
	case c.Policy.KeepFinalizers && b.HasFinalizer(c.Naming.Finalizer):
		return errors.New("it keeps its finalizer, as it was asked for: nobody can delete it without the operator")
	}
	return nil
}

// Sorted returns what is left in order of resources, namespaces and names.
func (r *Report) Sorted() []Left {
	left := slices.Clone(r.Left)
	slices.SortFunc(left, func(a, b Left) int {
		return slices.Compare([]string{a.Resource.String(), a.Namespace, a.Name}, []string{b.Resource.String(), b.Namespace, b.Name})
	})
	return left
}
