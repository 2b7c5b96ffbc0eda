package typed

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/patching"
	"github.com/kopf-go/kopf/internal/registry"
)

// Admission is the argument of handlers that are asked before an object is stored: a
// request to create, change or delete it. It belongs to one call: its objects may be
// kept and changed, for no other handler shares them. Only Diff, User, Headers and Peer
// are shared, and must not be changed. Nothing is kept of it once it is answered.
//
// A test may make one as a literal, with the fields that its handler looks at.
type Admission[T Object] struct {
	// Object is what is asked for, or on deletion, what goes. A mutating handler changes
	// it in place, and sees what the ones before it have changed; what a validating one
	// changes is ignored. Fields that T does not know stay as they are.
	Object T
	// Old is the object as it is stored, nil if it is not, as on creation. New is Object
	// under the name that pairs with Old, nil if nothing is to be stored, as on deletion.
	Old, New T
	// Diff leads from Old to New, with metadata and status. On creation it is one addition
	// of the whole, on deletion one removal (ADM-5).
	Diff diff.Diff
	// Operation is what is asked for: admissionv1.Create, Update, Delete or Connect, which
	// are "CREATE" and so on.
	Operation admissionv1.Operation
	// Subresource is what the request is for, such as status or scale; empty for the object
	// itself. The object is then what goes with the subresource, which is another kind in
	// some, such as autoscaling/v1 Scale: T must be that type, or *unstructured.Unstructured.
	Subresource string
	// DryRun tells that nothing will be stored, so that the handler must not change anything
	// elsewhere either (ADM-13).
	DryRun bool
	// User is who asks.
	User authenticationv1.UserInfo
	// Headers are those of the API server's request to the operator.
	Headers http.Header
	// Peer is the certificate that the API server has shown; nil if it has shown none.
	Peer *x509.Certificate
	// Param is the value given with on.Param.
	Param any
	// Log writes with the object and the handler named.
	Log *slog.Logger
	// Resource is the resource that the request is for.
	Resource schema.GroupVersionResource

	request *registry.Admission // nil: made by hand
	memos   memory
}

// Warn tells the client something, whether the request is allowed or not: kubectl prints
// it. A text that was said already is left out, one of more than 256 characters is cut, and
// of more than 4096 characters in all, the rest is left out, as the API server would do.
func (a *Admission[T]) Warn(format string, args ...any) {
	if a.request == nil { // made by hand, for a test
		a.request = new(registry.Admission)
	}
	a.request.Warnings = append(a.request.Warnings, fmt.Sprintf(format, args...))
}

// Warnings returns what was said with Warn, in full, for tests of handlers.
func (a *Admission[T]) Warnings() []string {
	if a.request == nil {
		return nil
	}
	return a.request.Warnings
}

func (a *Admission[T]) memory() *memory { return &a.memos }

// NewAdmission makes the argument of an admission handler from the erased call, whose
// body is what filters look at: the object, or on deletion the old one.
func NewAdmission[T Object](call *registry.Call) (*Admission[T], error) {
	request := call.Admission
	if err := fits[T](call); err != nil {
		return nil, err
	}
	a := &Admission[T]{
		Diff: call.Diff, Operation: admissionv1.Operation(request.Operation), Subresource: request.Subresource,
		DryRun: request.DryRun, User: request.User, Headers: request.Headers, Peer: request.Peer,
		Param: call.Param, Log: call.Log, Resource: call.Resource,
		request: request, memos: memory{find: call.Memos},
	}
	if request.Object != nil {
		object, err := decode[T](call)
		if err != nil {
			return nil, err
		}
		a.Object, a.New = object, object
	}
	if request.Old != nil {
		old, err := decodeStored[T](request.Old)
		if err != nil {
			// It is stored already, perhaps from before the type was changed. It must not
			// keep anybody from putting it right, nor from deleting it.
			call.Log.Warn("stored object does not fully decode", "error", err)
		}
		a.Old = old
		if request.Object == nil {
			a.Object = old
		}
	}
	return a, nil
}

// Mutate calls fn, and says in the call what has become of the object. Of an operation
// that stores no object, nothing does.
func Mutate[T Object](ctx context.Context, call *registry.Call, fn func(context.Context, *Admission[T]) error) error {
	a, err := NewAdmission[T](call)
	if err != nil {
		return err
	}
	if call.Admission.Object == nil {
		return fn(ctx, a)
	}
	changed, err := patching.Edited(call.Admission.Object, a.Object, func() (any, error) {
		if err := fn(ctx, a); err != nil {
			return nil, err
		}
		if reflect.ValueOf(a.Object).IsNil() {
			return nil, errors.New("the handler has set Object to nil: there must be an object")
		}
		return a.Object, nil
	})
	call.Admission.Changed = changed
	return err
}

// decodeStored decodes what fits.
func decodeStored[T Object](raw []byte) (T, error) {
	object := newObject[T]()
	b, err := body.Parse(raw)
	if err == nil {
		err = b.Decode(object)
	}
	return object, err
}

// fits tells whether the body can be a T at all: subresources may have another kind,
// which would decode, but into nothing that means something. The kinds of Kubernetes'
// own types are their names; those of users are of the resource's group.
func fits[T Object](call *registry.Call) error {
	switch any(newObject[T]()).(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata:
		return nil
	}
	t := reflect.TypeFor[T]().Elem()
	kind := call.Body.GroupVersionKind()
	if kind.Kind == "" || t.Name() == kind.Kind {
		return nil
	}
	if strings.HasPrefix(t.PkgPath(), "k8s.io/api/") || kind.Group != call.Resource.Group {
		subject := call.Resource.Resource
		if call.Admission.Subresource != "" {
			subject += "/" + call.Admission.Subresource
		}
		return &registry.KindError{Type: reflect.TypeFor[T](), Subject: subject, Kind: kind}
	}
	return nil
}
