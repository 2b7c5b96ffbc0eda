package registry

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"reflect"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Admission is a request to change an object, as admission handlers are told of it.
type Admission struct {
	Operation   string // in capitals
	Subresource string // empty: the object itself
	DryRun      bool
	User        authenticationv1.UserInfo
	Headers     http.Header
	Peer        *x509.Certificate // of the client; nil: it has shown none

	Object []byte // what is asked for, with what earlier handlers have changed; nil: nothing, as for DELETE
	Old    []byte // what is there; nil: nothing, as for CREATE

	Changed  []byte   // the object with what a mutating handler has changed; nil: nothing
	Warnings []string // what the client is to be told
}

// KindError says that a handler's Go type is for other objects than the request's.
type KindError struct {
	Type    reflect.Type
	Subject string // such as deployments/scale
	Kind    schema.GroupVersionKind
}

func (e *KindError) Error() string {
	return fmt.Sprintf("requests for %s are about %s, %s, not %s: handle them with that type, or with *unstructured.Unstructured",
		e.Subject, e.Kind.GroupVersion(), e.Kind.Kind, e.Type)
}
