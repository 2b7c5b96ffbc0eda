package state

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/storage"
)

// The names and strings of Kopf's, all part of the wire format (B.1, B.2.5).
const (
	kopfPrefix    = storage.DefaultPrefix
	kopfFinalizer = kopfPrefix + "/KopfFinalizerMarker"

	uidKey    = "last-handled-uid" // ours; Kopf ignores it
	seenKey   = "seen-"            // with a digest; ours
	markerKey = "kopf-managed"

	// kubectlApplied is kubectl's own last-handled record: a copy of the
	// object inside the object, hence never essential (ESS-1).
	kubectlApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

// Naming says under which names an operator keeps its state on objects. Two
// operators that look after the same objects need different ones (SET-5), or each
// takes the object as handled as soon as the other has handled it.
//
// Make it with [Default], [For] or [Custom], which check the names.
type Naming struct {
	// Prefix is the part before the slash of all annotation names.
	Prefix string
	// Finalizer is the operator's entry in metadata.finalizers.
	Finalizer string
}

var standard = Naming{Prefix: kopfPrefix, Finalizer: kopfFinalizer}

// Default returns Kopf's own names: the ones to continue, or to be continued by,
// a Python operator with default settings.
func Default() Naming { return standard }

// For returns the names of an operator called name: annotations under
// NAME.kopf.zalando.org, finalizer NAME.kopf.zalando.org/finalizer. Every Kopf
// operator, in Python too, recognises those as bookkeeping and not as a change
// of the object (ESS-2). An empty name stands for [Default].
func For(name string) (Naming, error) {
	if name == "" {
		return Default(), nil
	}
	prefix := name + "." + kopfPrefix
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return Naming{}, fmt.Errorf("operator name %q can't be part of annotation names, "+
			"choose one like \"widgets\": %s", name, strings.Join(problems, "; "))
	}
	if len(prefix) > validation.DNS1123SubdomainMaxLength {
		return Naming{}, fmt.Errorf("operator name %q is too long: annotation prefix %s has %d characters, %d are allowed",
			name, prefix, len(prefix), validation.DNS1123SubdomainMaxLength)
	}
	return Naming{Prefix: prefix, Finalizer: prefix + "/finalizer"}, nil
}

// Custom returns names that were chosen freely, as a Python operator can with the
// settings of its storages (SET-4) and its finalizer.
func Custom(prefix, finalizer string) (Naming, error) {
	if prefix == "" {
		return Naming{}, errors.New("annotation prefix is empty, choose one like \"widgets.example.com\"")
	}
	if problems := validation.IsDNS1123Subdomain(prefix); len(problems) > 0 {
		return Naming{}, fmt.Errorf("annotation prefix %q is illegal: %s", prefix, strings.Join(problems, "; "))
	}
	if problems := validation.IsQualifiedName(finalizer); len(problems) > 0 {
		return Naming{}, fmt.Errorf("finalizer %q is illegal: %s", finalizer, strings.Join(problems, "; "))
	}
	return Naming{Prefix: prefix, Finalizer: finalizer}, nil
}

// marks are appended to logical keys: the first for all objects, the second for
// ReplicaSets of Deployments (B.2.2). Kubernetes copies the annotations of a
// Deployment to its ReplicaSets, so that without a mark of its own a ReplicaSet
// would be taken as handled when its Deployment was.
var marks = [2]string{"", "-ofDRS"}

// markOf returns the index in marks for the object.
func markOf(b *body.Body) int {
	if b.Kind != "ReplicaSet" {
		return 0
	}
	for i := range b.OwnerReferences {
		if b.OwnerReferences[i].Kind == "Deployment" {
			return 1
		}
	}
	return 0
}

// Owns tells whether an annotation is under the operator's prefix.
func (n Naming) Owns(annotation string) bool {
	prefix, _, ok := strings.Cut(annotation, "/")
	return ok && prefix == n.Prefix
}
