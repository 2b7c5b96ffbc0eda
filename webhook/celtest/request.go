package celtest

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// attributes are the request as the API server has it.
func (r Request) attributes() (*admission.VersionedAttributes, error) {
	object, err := tree(r.Object)
	if err != nil {
		return nil, fmt.Errorf("object: %w", err)
	}
	old, err := tree(r.OldObject)
	if err != nil {
		return nil, fmt.Errorf("old object: %w", err)
	}
	either := object
	if either == nil {
		either = old
	}
	if either == nil {
		either = &unstructured.Unstructured{}
	}
	kind := either.GroupVersionKind()
	versioned := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(untyped(object), untyped(old), kind, either.GetNamespace(), either.GetName(),
			r.Resource, r.Subresource, r.operation(object, old), nil, r.DryRun, &user.DefaultInfo{Name: r.User, Groups: r.Groups}),
		VersionedKind: kind,
	}
	if object != nil {
		versioned.VersionedObject.Set(object)
	}
	if old != nil {
		versioned.VersionedOldObject.Set(old)
	}
	return versioned, nil
}

func (r Request) operation(object, old *unstructured.Unstructured) admission.Operation {
	switch {
	case r.Operation != "":
		return admission.Operation(r.Operation)
	case object == nil && old != nil:
		return admission.Delete
	case old != nil:
		return admission.Update
	}
	return admission.Create
}

// untyped keeps a nil pointer from becoming an object.
func untyped(u *unstructured.Unstructured) runtime.Object {
	if u == nil {
		return nil
	}
	return u
}

// tree is the object as it is in JSON; nil: there is none.
func tree(object any) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := utiljson.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("a %T is no object in JSON: %w", object, err)
	}
	if fields == nil {
		return nil, nil
	}
	return &unstructured.Unstructured{Object: fields}, nil
}
