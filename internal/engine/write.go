package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/logging"
	"github.com/kopf-go/kopf/internal/patching"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/internal/tracing"
)

// errGone says that the object, or the one of this UID, is no more. Its deletion
// event is on the way.
var errGone = errors.New("object is gone")

// writer sends what there is to say about an object.
type writer struct {
	term   *term
	object *object
	body   *body.Body                  // the newest one that is known; of each response
	learn  func(*body.Body) *body.Body // what else happens with a response, and the newest body then

	account  *account   // nil: there is none
	response *body.Body // the last one
	verify   bool       // see whether the API server has kept what was asked for
}

// apply sends a change, and tells whether that changed the object. The status goes
// first, for it is the bookkeeping in the other request that says the handlers are
// through. A crash in between repeats them; the other way round it would lose what
// they had to say.
func (w *writer) apply(change patching.Change) (changed bool, err error) {
	if size, over := state.Oversize(w.body, change.Annotations); over {
		return false, fmt.Errorf("state does not fit on the object: its annotations would have %d bytes, "+
			"Kubernetes allows 262144; the object is too large to be handled", size)
	}
	version := w.body.ResourceVersion
	w.verify = len(change.Edits) > 0 || len(change.Results) > 0 || len(change.Merge) > 0 // annotations are always kept
	apart := w.object.kind.resource.Status
	plan, err := patching.Compose(w.body, change, apart)
	if err != nil {
		return false, err
	}
	if plan.Status != nil {
		if err := w.send(plan.Status, "status"); err != nil {
			return false, err
		}
		if plan, err = plan.Next(w.response); err != nil {
			return false, err
		}
	}
	if plan.Object != nil {
		if err := w.send(plan.Object); err != nil {
			return false, err
		}
	}
	return w.body.ResourceVersion != version, nil
}

// send makes one request, and the response the body to go on with.
func (w *writer) send(patch []byte, subresource ...string) error {
	k := w.object.kind
	endpoint := objectEndpoint
	if len(subresource) > 0 {
		endpoint = statusEndpoint
	}
	ctx, span := tracing.Patch(w.term.writing, w.account.parent(), w.object.traced, endpoint)
	defer span.End()
	b, err := w.term.patch(ctx, k.resource, w.object, patch, subresource...)
	w.wrote(endpoint, b, err, span)
	if err != nil {
		return err
	}
	if w.verify {
		k.verify(patch, b)
	}
	w.response, w.body = b, w.learn(b)
	return nil
}

// verify warns of fields that the API server did not keep, once for all objects: what
// the resource's schema does not know is lost, and to write it again would not help
// (VER-1, RES-3).
func (k *kind) verify(patch []byte, response *body.Body) {
	dropped := strings.Join(patching.Dropped(patch, response), ", ")
	if dropped == "" {
		return
	}
	k.mu.Lock()
	known := k.pruned[dropped]
	k.pruned[dropped] = true
	k.mu.Unlock()
	if !known {
		k.meter.Complain(pruned)
		k.log.Warn("the API server does not keep what was written: let the resource's schema have these fields, or an admission webhook leave them",
			"fields", dropped, logging.ObjectKey, k.reference(response.Namespace, response.Name, response.UID))
	}
}

// write sends a change in the name of the change lane. Another cycle follows on what
// came of it.
func (c *cycle) write(change patching.Change) (verdict, error) {
	w := &writer{term: c.term, object: c.object, body: c.body, learn: c.object.learn, account: c.account}
	changed, err := w.apply(change)
	c.body = w.body
	return verdict{again: changed}, err
}

// patch sends a merge patch, and says what a refusal means.
func (t *term) patch(ctx context.Context, r Resource, o *object, patch []byte, subresource ...string) (*body.Body, error) {
	if err := t.may(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.engine.settings.RequestTimeout)
	defer cancel()
	b, err := o.kind.client.Patch(ctx, r.GVR, o.namespace, o.name, types.MergePatchType, patch, subresource...)
	switch {
	case err == nil:
		return b, nil
	case apierrors.IsNotFound(err):
		return nil, errGone
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("permission is missing: verb patch on %s: %w",
			strings.Join(append([]string{r.GVR.Resource}, subresource...), "/"), err)
	case patching.AnotherUID(err):
		return nil, errGone
	}
	return nil, err
}
