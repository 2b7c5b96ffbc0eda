// Package admission answers one request to change an object: it asks the handlers that are
// for it, and makes one response of what they say. It knows no network.
package admission

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
)

// Handler is an admission handler with the resources that it was found to be for.
type Handler struct {
	*registry.Handler
	Resources []schema.GroupVersionResource
	// Group is the id of the first handler of those that the API server asks with one
	// request. It tells them apart together with the kind and the resource.
	Group string
}

// Reviewer answers requests. Its fields are not changed once it is in use; then it is safe
// for concurrent use. The zero value has no handlers.
type Reviewer struct {
	Handlers []Handler // in order of registration; those of policies are passed over
	// Memos are those of an object; of one that is being created, temporary ones (ADM-6).
	// nil: all are temporary.
	Memos func(resource schema.GroupVersionResource, uid types.UID, create bool) *registry.Memos
	// Ready returns when handlers can be called, or an error when they cannot, which is
	// answered by 503. nil: they can.
	Ready func(context.Context) error
	// Essence is what counts of an object that is being deleted. nil: that of Kopf.
	Essence func(*body.Body) *state.Essence
	// Serves tells whether objects of a namespace are handled; those of others are let
	// through. nil: all are.
	Serves func(namespace string) bool
	// ValidateTerminating lets validating handlers be asked about updates of objects that are
	// being deleted, also if they change nothing that counts (B39).
	ValidateTerminating bool
	// Observe is told what each call of a handler has come to: allowed, denied, or failed if
	// it panicked or was too late. nil: nobody is.
	Observe func(h *registry.Handler, resource schema.GroupVersionResource, outcome string, took time.Duration)
	Log     *slog.Logger // nil: the default
}

// Hint says which handlers the API server asks, as far as the URL of its request does. What
// is empty does not restrict them.
type Hint struct {
	Kind  registry.Kind
	Group string
	ID    string
}

// Facts are what is known of a request beside what is in it.
type Facts struct {
	Hint
	Headers http.Header
	Peer    *x509.Certificate
	Timeout time.Duration // after which the API server gives up; zero: unknown
}

// Route returns the hint in the path of a URL, as it is escaped there: /validate/GROUP and
// /mutate/GROUP ask a group, /ID one handler (ADM-16), /validate and /mutate all of a kind,
// and / all. Without handlers that are meant there is none: what is configured at the API
// server is not what is registered here, and is not to be taken for permission.
func (r *Reviewer) Route(path string) (hint Hint, ok bool) {
	path = strings.Trim(path, "/")
	if path == "" {
		return Hint{}, true
	}
	first, rest, deeper := strings.Cut(path, "/")
	if kind := registry.Kind(first); kind == registry.Validate || kind == registry.Mutate {
		hint := Hint{Kind: kind}
		if deeper {
			hint.Group, _ = url.PathUnescape(rest)
		}
		if r.any(hint) && (!deeper || hint.Group != "") {
			return hint, true
		}
	}
	id, err := url.PathUnescape(path)
	if err != nil {
		return Hint{}, false
	}
	hint = Hint{ID: id}
	return hint, r.any(hint)
}

func (r *Reviewer) any(hint Hint) bool { return slices.ContainsFunc(r.Handlers, hint.means) }

func (hint Hint) means(h Handler) bool {
	return (h.Kind == registry.Validate || h.Kind == registry.Mutate) &&
		(hint.Kind == "" || hint.Kind == h.Kind) &&
		(hint.Group == "" || hint.Group == h.Group) &&
		(hint.ID == "" || hint.ID == h.ID)
}

// candidates are the handlers that are for a request by all but their filters, mutating ones
// first, as the API server has it; known is false if no handler at all is for its resource.
func (r *Reviewer) candidates(request *admissionv1.AdmissionRequest, hint Hint) (found []*registry.Handler, known bool) {
	resource := resourceOf(request)
	for _, h := range r.Handlers {
		if h.Kind == registry.Policy || !slices.Contains(h.Resources, resource) {
			continue
		}
		known = true
		if hint.means(h) && asks(h.Handler, request) {
			found = append(found, h.Handler)
		}
	}
	slices.SortStableFunc(found, func(a, b *registry.Handler) int {
		return strings.Compare(string(a.Kind), string(b.Kind)) // mutate, validate
	})
	return found, known
}

// asks tells whether a handler is for the operation and the subresource (ADM-7).
func asks(h *registry.Handler, request *admissionv1.AdmissionRequest) bool {
	operation := string(request.Operation)
	switch {
	case h.Subresource != "*" && h.Subresource != request.SubResource:
		return false
	case h.Kind == registry.Mutate && request.Operation == admissionv1.Delete:
		return len(h.Operations) == 1 && h.Operations[0] == operation
	}
	return len(h.Operations) == 0 || slices.Contains(h.Operations, operation)
}

func resourceOf(request *admissionv1.AdmissionRequest) schema.GroupVersionResource {
	return schema.GroupVersionResource(request.Resource)
}
