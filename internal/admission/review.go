package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/cause"
	"github.com/kopf-go/kopf/internal/logging"
	"github.com/kopf-go/kopf/internal/recording"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
)

// review is a request while it is answered.
type review struct {
	*Reviewer
	request  *admissionv1.AdmissionRequest
	facts    Facts
	resource schema.GroupVersionResource
	log      *slog.Logger
	memos    func() *registry.Memos
	limit    limit

	asked   *body.Body // what filters look at: the object as it was asked for, or the old one
	object  *body.Body // what is asked for, with what handlers have changed; nil: nothing
	old     *body.Body // what is stored; nil: nothing
	changed bool       // object is not what was asked for

	diff   diff.Diff
	diffTo *body.Body // the object that diff is to

	complaints []complaint
	warnings   []string
}

// Review answers a request. An error is an *Error: the request cannot be answered, and what
// then happens is for the API server to say, by its failure policy.
func (r *Reviewer) Review(ctx context.Context, request *admissionv1.AdmissionRequest, facts Facts) (*admissionv1.AdmissionResponse, error) {
	v := &review{Reviewer: r, request: request, facts: facts, resource: resourceOf(request), limit: newLimit(facts.Timeout)}
	ctx, cancel := v.limit.apply(ctx)
	defer cancel()
	if v.isDryRun() {
		ctx = recording.Mute(ctx)
	}
	candidates, known := r.candidates(request, facts.Hint)
	if !known {
		return nil, failure(http.StatusNotFound, "no handler is for the resource %s", v.resource.GroupResource()) // ADM-4
	}
	if err := v.read(); err != nil {
		return nil, err
	}
	if !v.serves() {
		return v.response(), nil
	}
	if r.Ready != nil {
		if err := r.Ready(ctx); err != nil {
			return nil, &Error{Code: http.StatusServiceUnavailable, Err: fmt.Errorf("the operator is not ready: %w", err)}
		}
	}
	for _, h := range v.selected(ctx, candidates) { // all of them, whatever the others say (ADM-8)
		v.ask(ctx, h)
	}
	return v.response(), nil
}

// serves tells whether the object is in a namespace that is handled, or in none. Of a
// namespace itself, the API server says that it is in itself.
func (v *review) serves() bool {
	namespace := v.request.Namespace
	return v.Serves == nil || namespace == "" || v.resource.Group == "" && v.resource.Resource == "namespaces" || v.Serves(namespace)
}

// read takes the objects out of the request.
func (v *review) read() (err error) {
	if v.request.Operation == "" {
		return failure(http.StatusBadRequest, "the request has no operation")
	}
	if v.object, err = parse("object", v.request.Object.Raw); err != nil {
		return err
	}
	if v.old, err = parse("oldObject", v.request.OldObject.Raw); err != nil {
		return err
	}
	if v.asked = cmp.Or(v.object, v.old); v.asked == nil {
		return failure(http.StatusBadRequest, "the request has neither an object nor an old one") // ADM-4
	}
	v.log = cmp.Or(v.Log, slog.Default()).With("resource", v.resource.GroupResource().String(), logging.ObjectKey, logging.Reference{
		APIVersion: v.asked.APIVersion, Kind: v.asked.Kind, Name: v.request.Name, UID: string(v.asked.UID), Namespace: v.request.Namespace,
	}, "operation", string(v.request.Operation))
	v.memos = sync.OnceValue(v.memory)
	return nil
}

func parse(name string, raw []byte) (*body.Body, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	b, err := body.Parse(raw)
	if err != nil {
		return nil, failure(http.StatusBadRequest, "%s of the request: %w", name, err)
	}
	return b, nil
}

func (v *review) memory() *registry.Memos {
	if v.Memos == nil {
		return &registry.Memos{Operator: new(registry.Memos)}
	}
	return v.Memos(v.resource, v.asked.UID, v.request.Operation == admissionv1.Create)
}

// selected are the candidates whose filters let the object pass.
func (v *review) selected(ctx context.Context, candidates []*registry.Handler) (selected []*registry.Handler) {
	subject := &cause.Subject{Body: v.asked, Resource: v.resource, Log: v.log, Memos: v.memos}
	leaving := v.leaving(candidates)
	for _, h := range candidates {
		if leaving && h.Kind == registry.Validate {
			continue
		}
		switch ok, err := subject.PreMatches(ctx, h); {
		case err != nil:
			v.filterFailed(h, err)
		case ok:
			selected = append(selected, h)
		}
	}
	return selected
}

// leaving tells whether an object that is being deleted is changed in nothing that counts,
// as when its finalizers are taken off. Whether it is being deleted is for the stored object
// to say, not for the one that is asked for (B39).
func (v *review) leaving(candidates []*registry.Handler) bool {
	if v.ValidateTerminating || v.request.Operation != admissionv1.Update ||
		v.old == nil || v.object == nil || !v.old.Deleting() || len(candidates) == 0 {
		return false
	}
	essence := v.Essence
	if essence == nil {
		essence = defaultStore().Essence
	}
	if !essence(v.old).Equal(essence(v.object)) {
		return false
	}
	return v.request.SubResource == "" || v.sameStatus()
}

// sameStatus tells whether the rest is the same: it is what requests for subresources are
// about.
func (v *review) sameStatus() bool {
	before, err1 := v.old.Tree()
	after, err2 := v.object.Tree()
	return err1 == nil && err2 == nil && diff.Equal(before["status"], after["status"])
}

var defaultStore = sync.OnceValue(func() *state.Store {
	store, err := state.NewStore(state.Config{Naming: state.Default()})
	if err != nil {
		panic(err) // there is nothing of users' in it
	}
	return store
})

// ask calls a handler, and takes what it says.
func (v *review) ask(ctx context.Context, h *registry.Handler) {
	log := v.log.With("handler", h.ID)
	call, err := v.newCall(h, log)
	began := time.Now()
	if err == nil {
		err = v.limit.call(ctx, h, call)
	}
	var late *lateError
	if !errors.As(err, &late) { // else the handler may still be at work on it
		v.warnings = append(v.warnings, call.Admission.Warnings...)
	}
	if err == nil && call.Admission.Changed != nil && v.object != nil {
		err = v.change(call.Admission.Changed)
	}
	v.settle(h, log, err, time.Since(began))
}

func (v *review) isDryRun() bool { return v.request.DryRun != nil && *v.request.DryRun }

func (v *review) newCall(h *registry.Handler, log *slog.Logger) (*registry.Call, error) {
	call := &registry.Call{
		Body: v.asked, Resource: v.resource, Param: h.Param, Log: log, Memos: v.memos,
		Admission: &registry.Admission{
			Operation: string(v.request.Operation), Subresource: v.request.SubResource,
			DryRun: v.isDryRun(), User: v.request.UserInfo,
			Headers: v.facts.Headers, Peer: v.facts.Peer,
		},
	}
	if v.object != nil {
		call.Body, call.Admission.Object = v.object, v.object.Raw()
	}
	if v.old != nil {
		call.Admission.Old = v.old.Raw()
	}
	if v.diffTo != call.Body {
		before, err1 := tree(v.old)
		after, err2 := tree(v.object)
		if err := errors.Join(err1, err2); err != nil {
			return call, err
		}
		v.diff, v.diffTo = diff.Of(before, after), call.Body
	}
	call.Diff = v.diff
	return call, nil
}

func tree(b *body.Body) (any, error) {
	if b == nil {
		return nil, nil
	}
	return b.Tree()
}

// change takes over what a mutating handler has changed, for those after it.
func (v *review) change(raw []byte) error {
	b, err := body.Parse(raw)
	if err != nil {
		return err
	}
	v.object, v.changed = b, true
	return nil
}
