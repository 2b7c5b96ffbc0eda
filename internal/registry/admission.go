package registry

import (
	"crypto/x509"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
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

	Changed  []byte   // what a mutating handler has made of its copy of the object; nil: nothing
	Warnings []string // what the client is to be told
}
