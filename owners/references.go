package owners

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AppendReference makes objects go when the owner goes: each gets a reference to it as its
// controller, one that the owner's deletion in the foreground waits for. An object that has
// a reference with the owner's UID already stays as it is (HIE-3).
//
// It is an error if the owner lacks anything that a reference needs (see Reference), if the
// object has another controller, and if Kubernetes would take the owner for gone, and
// remove the object: if it is in another namespace than the owner, or in none while the
// owner is in one. Of which kinds objects are in no namespace is known of Kubernetes' own
// ones only.
func AppendReference(owner Object, objects runtime.Object, options ...ReferenceOption) error {
	c := configOf(options)
	ref, err := c.reference(owner)
	if err != nil {
		return err
	}
	return Each(objects, func(o Object) error {
		if err := c.mayOwn(owner, ref, o, o.GetNamespace()); err != nil {
			return err
		}
		c.append(ref, o)
		return nil
	})
}

// append adds the reference, unless the owner is referred to already.
func (c config) append(ref metav1.OwnerReference, o Object) {
	refs := o.GetOwnerReferences()
	if !slices.ContainsFunc(refs, refersTo(ref)) {
		o.SetOwnerReferences(append(slices.Clip(slices.Clone(refs)), *ref.DeepCopy()))
	}
}

func refersTo(ref metav1.OwnerReference) func(metav1.OwnerReference) bool {
	return func(other metav1.OwnerReference) bool { return other.UID == ref.UID }
}

// mayOwn says what speaks against a reference in an object of a namespace.
func (c config) mayOwn(owner Object, ref metav1.OwnerReference, o Object, namespace string) error {
	if slices.ContainsFunc(o.GetOwnerReferences(), refersTo(ref)) {
		return nil
	}
	if o.GetUID() == ref.UID {
		return errors.New("an object cannot be its own owner")
	}
	if owner.GetNamespace() != "" && (isClusterScoped(o) || namespace != "" && namespace != owner.GetNamespace()) {
		where := "in namespace " + namespace
		if isClusterScoped(o) {
			where = "in no namespace"
		}
		return fmt.Errorf("the owner, %s, is in another namespace than the object, which is %s: Kubernetes would not find it there, "+
			"take it for gone, and remove the object; tell whose it is by labels, and remove it in a handler of on.Delete", describe(owner), where)
	}
	if controller := metav1.GetControllerOfNoCopy(o); controller != nil && !c.notController {
		return fmt.Errorf("it is controlled by %s %s already, and there can be only one controller: use NotController", controller.Kind, controller.Name)
	}
	return nil
}

// RemoveReference takes all references to the owner, by its UID, away from objects. There is
// an empty list left if there was any (HIE-4).
func RemoveReference(owner Object, objects runtime.Object) error {
	if isNil(owner) || owner.GetUID() == "" {
		return errors.New("there is no owner, or it has no UID")
	}
	return Each(objects, func(o Object) error {
		if refs := o.GetOwnerReferences(); refs != nil {
			o.SetOwnerReferences(slices.DeleteFunc(slices.Clone(refs), refersTo(metav1.OwnerReference{UID: owner.GetUID()})))
		}
		return nil
	})
}

// Reference returns the reference by which objects name their owner (HIE-10). It is an error
// if the owner is nil, has no name or no UID, as before it is created, or says nothing of
// its kind while there is no OwnerKind.
func Reference(owner Object, options ...ReferenceOption) (metav1.OwnerReference, error) {
	return configOf(options).reference(owner)
}

func (c config) reference(owner Object) (ref metav1.OwnerReference, err error) {
	if isNil(owner) {
		return ref, errors.New("there is no owner")
	}
	kind := c.kind
	if kind.Empty() {
		kind = owner.GetObjectKind().GroupVersionKind()
	}
	ref.APIVersion, ref.Kind = kind.ToAPIVersionAndKind()
	ref.Name, ref.UID = owner.GetName(), owner.GetUID()
	switch {
	case kind.Version == "" || kind.Kind == "":
		err = errors.New("it has no apiVersion or no kind, as objects of Go types have none that clients return: say it with OwnerKind")
	case ref.Name == "":
		err = errors.New("it has no name")
	case ref.UID == "":
		err = errors.New("it has no UID: it has to be created first")
	}
	if err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("%s cannot be an owner: %w", describe(owner), err)
	}
	if !c.notController {
		ref.Controller = new(true)
	}
	if !c.notBlocking {
		ref.BlockOwnerDeletion = new(true)
	}
	return ref, nil
}

// ObjectReference returns the reference by which fields of other objects, and Kubernetes
// events, name an object. What it does not have is empty (HIE-10); nil has nothing.
func ObjectReference(o Object) corev1.ObjectReference {
	if isNil(o) {
		return corev1.ObjectReference{}
	}
	ref := corev1.ObjectReference{Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID()}
	ref.APIVersion, ref.Kind = o.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	return ref
}

// isClusterScoped tells whether it is known that objects of a kind are in no namespace.
func isClusterScoped(o Object) bool {
	gvk := o.GetObjectKind().GroupVersionKind()
	if gvk.Empty() {
		t := goType(o)
		return kubernetesOwn(t) && slices.Contains(clusterScoped, t.Name())
	}
	return ownGroup(gvk) && slices.Contains(clusterScoped, gvk.Kind)
}

// kubernetesOwn tells whether a Go type is of Kubernetes' own kinds, which it has the name of.
func kubernetesOwn(t reflect.Type) bool {
	return strings.HasPrefix(t.PkgPath(), "k8s.io/api/") || strings.HasPrefix(t.PkgPath(), "k8s.io/apiextensions-apiserver/")
}

func ownGroup(gvk schema.GroupVersionKind) bool {
	return gvk.Group == "" || strings.HasSuffix(gvk.Group, ".k8s.io")
}

// clusterScoped are Kubernetes' own kinds of objects that are in no namespace.
var clusterScoped = []string{
	"APIService", "CSIDriver", "CSINode", "CertificateSigningRequest", "ClusterRole", "ClusterRoleBinding",
	"ClusterTrustBundle", "CustomResourceDefinition", "DeviceClass", "DeviceTaintRule", "FlowSchema", "IPAddress", "IngressClass",
	"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "Namespace", "Node",
	"PersistentVolume", "PriorityClass", "PriorityLevelConfiguration", "ResourceSlice", "RuntimeClass", "ServiceCIDR",
	"StorageClass", "StorageVersionMigration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	"ValidatingWebhookConfiguration", "VolumeAttachment", "VolumeAttributesClass",
}
