package simulated

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// name is an object's place in its collection.
type name struct{ namespace, name string }

// version is one version of one object. It is immutable.
type version struct {
	tree map[string]any
	raw  []byte
}

func newVersion(o *unstructured.Unstructured) *version {
	raw, err := json.Marshal(o.Object)
	if err != nil {
		panic(err) // the trees come from JSON
	}
	return &version{tree: o.Object, raw: raw}
}

// object returns a copy that may be changed.
func (v *version) object() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(v.tree)}
}

// peek returns the object for reading.
func (v *version) peek() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: v.tree}
}

func text(version int64) string { return strconv.FormatInt(version, 10) }

// create stores a new object. The caller holds the lock.
func (c *Collection) create(o *unstructured.Unstructured) (*version, error) {
	s, k := c.server, &c.kind
	if o.GetName() == "" && o.GetGenerateName() != "" {
		s.identities++
		o.SetName(fmt.Sprintf("%s%05d", o.GetGenerateName(), s.identities))
	}
	if o.GetName() == "" {
		return nil, apierrors.NewInvalid(k.gvk().GroupKind(), "", field.ErrorList{
			field.Required(field.NewPath("metadata", "name"), "name or generateName is required")})
	}
	if err := c.inNamespace(o); err != nil {
		return nil, err
	}
	at := name{o.GetNamespace(), o.GetName()}
	if c.objects[at] != nil {
		return nil, apierrors.NewAlreadyExists(k.resource(), at.name)
	}
	o.SetAPIVersion(k.GroupVersion)
	o.SetKind(k.Kind)
	o.SetDeletionTimestamp(nil)
	if !c.adopts {
		o.SetUID(uid(s.identity()))
	}
	o.SetCreationTimestamp(metav1.NewTime(time.Now()))
	o.SetGeneration(0)
	if !k.NoGeneration {
		o.SetGeneration(1)
	}
	if k.Status {
		delete(o.Object, "status")
	}
	c.prune(o)
	if err := c.validate(o); err != nil {
		return nil, err
	}
	o.SetResourceVersion(text(s.bump()))
	v := newVersion(o)
	c.objects[at] = v
	s.tell(change{version: s.version, in: c, kind: "ADDED", now: v})
	return v, nil
}

// inNamespace checks an object's namespace; one that does not exist is created, for
// the tests' convenience.
func (c *Collection) inNamespace(o *unstructured.Unstructured) error {
	if !c.kind.Namespaced {
		o.SetNamespace("")
		return nil
	}
	if o.GetNamespace() == "" {
		return apierrors.NewBadRequest("an object of " + c.kind.Plural + " needs a namespace")
	}
	spaces := c.server.collections["v1/namespaces"]
	space := spaces.objects[name{"", o.GetNamespace()}]
	if space == nil {
		_, err := spaces.create(Object("", o.GetNamespace(), nil))
		return err
	}
	if space.peek().GetDeletionTimestamp() != nil {
		return apierrors.NewForbidden(c.kind.resource(), o.GetName(), fmt.Errorf(
			"unable to create new content in namespace %s because it is being terminated", o.GetNamespace()))
	}
	return nil
}

// update replaces an object by what edit makes of a copy. An edit that changes
// nothing makes no version and no event. The caller holds the lock.
func (c *Collection) update(at name, status bool, edit func(*unstructured.Unstructured) error) (*version, error) {
	s, k := c.server, &c.kind
	was := c.objects[at]
	if was == nil {
		return nil, apierrors.NewNotFound(k.resource(), at.name)
	}
	old, o := was.peek(), was.object()
	if err := edit(o); err != nil {
		return nil, err
	}
	if v := o.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(k.resource(), at.name, fmt.Errorf(
			"the object has been modified; please apply your changes to the latest version and try again"))
	}
	if u := o.GetUID(); u != "" && u != old.GetUID() {
		return nil, apierrors.NewInvalid(k.gvk().GroupKind(), at.name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), string(u), "field is immutable")})
	}
	if status {
		changed, ok := o.Object["status"]
		o = was.object()
		delete(o.Object, "status")
		if ok {
			o.Object["status"] = changed
		}
	}
	c.keepSystemFields(o, was, status)
	c.prune(o)
	if old.GetDeletionTimestamp() != nil {
		if err := c.onlyFewer(o, old); err != nil {
			return nil, err
		}
	}
	if err := c.validate(o); err != nil {
		return nil, err
	}
	if !k.NoGeneration && !reflect.DeepEqual(payload(o), payload(old)) {
		o.SetGeneration(old.GetGeneration() + 1)
	}
	if reflect.DeepEqual(o.Object, old.Object) {
		return was, nil
	}
	if old.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		// The update itself is never stored: the response has the version from before,
		// the event has a newer one and the last finalizer.
		c.remove(at)
		return newVersion(o), nil
	}
	o.SetResourceVersion(text(s.bump()))
	v := newVersion(o)
	c.objects[at] = v
	s.tell(change{version: s.version, in: c, kind: "MODIFIED", now: v, before: was})
	return v, nil
}

// keepSystemFields undoes what nobody may change.
func (c *Collection) keepSystemFields(o *unstructured.Unstructured, was *version, status bool) {
	old := was.object()
	o.SetAPIVersion(old.GetAPIVersion())
	o.SetKind(old.GetKind())
	o.SetName(old.GetName())
	o.SetNamespace(old.GetNamespace())
	o.SetUID(old.GetUID())
	o.SetResourceVersion(old.GetResourceVersion())
	for _, key := range []string{"creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"} {
		value, ok, _ := unstructured.NestedFieldNoCopy(old.Object, "metadata", key)
		if ok {
			_ = unstructured.SetNestedField(o.Object, value, "metadata", key)
		} else {
			unstructured.RemoveNestedField(o.Object, "metadata", key)
		}
	}
	if c.kind.Status && !status {
		delete(o.Object, "status")
		if value, ok := old.Object["status"]; ok {
			o.Object["status"] = value
		}
	}
	for _, key := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
		value, _, _ := unstructured.NestedFieldNoCopy(o.Object, "metadata", key)
		switch value := value.(type) {
		case nil:
			unstructured.RemoveNestedField(o.Object, "metadata", key)
		case map[string]any:
			if len(value) == 0 {
				unstructured.RemoveNestedField(o.Object, "metadata", key)
			}
		case []any:
			if len(value) == 0 {
				unstructured.RemoveNestedField(o.Object, "metadata", key)
			}
		}
	}
}

// onlyFewer refuses new finalizers on an object that is being deleted.
func (c *Collection) onlyFewer(o, old *unstructured.Unstructured) error {
	var added []string
	for _, f := range o.GetFinalizers() {
		if !slices.Contains(old.GetFinalizers(), f) {
			added = append(added, f)
		}
	}
	if len(added) == 0 {
		return nil
	}
	return apierrors.NewInvalid(c.kind.gvk().GroupKind(), o.GetName(), field.ErrorList{field.Forbidden(
		field.NewPath("metadata", "finalizers"),
		fmt.Sprintf("no new finalizers can be added if the object is being deleted, found new finalizers %#v", added))})
}

// largest is what etcd takes as one request.
const largest = 3 << 19

func (c *Collection) validate(o *unstructured.Unstructured) error {
	path := field.NewPath("metadata")
	errs := apivalidation.ValidateAnnotations(o.GetAnnotations(), path.Child("annotations"))
	for _, f := range o.GetFinalizers() {
		errs = append(errs, apivalidation.ValidateFinalizerName(f, path.Child("finalizers"))...)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(c.kind.gvk().GroupKind(), o.GetName(), errs)
	}
	if raw, err := json.Marshal(o.Object); err != nil || len(raw) > largest {
		return apierrors.NewInternalError(fmt.Errorf("etcdserver: request is too large"))
	}
	return nil
}

// payload is everything whose change makes a new generation.
func payload(o *unstructured.Unstructured) map[string]any {
	out := map[string]any{}
	for key, value := range o.Object {
		if key != "metadata" && key != "status" {
			out[key] = value
		}
	}
	return out
}

func (c *Collection) prune(o *unstructured.Unstructured) {
	if c.kind.Keeps == nil {
		return
	}
	for key, value := range o.Object {
		if key == "metadata" || key == "apiVersion" || key == "kind" {
			continue
		}
		if !kept(value, key, c.kind.Keeps) {
			delete(o.Object, key)
		}
	}
}

// kept prunes below a path, and tells whether the path itself stays.
func kept(value any, path string, known []string) bool {
	if slices.Contains(known, path) {
		return true
	}
	if !slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, path+".") }) {
		return false
	}
	if fields, ok := value.(map[string]any); ok {
		for key, inner := range fields {
			if !kept(inner, path+"."+key, known) {
				delete(fields, key)
			}
		}
	}
	return true
}

// delete asks for an object's deletion. The caller holds the lock.
func (c *Collection) delete(at name) (*version, error) {
	s, was := c.server, c.objects[at]
	if was == nil {
		return nil, apierrors.NewNotFound(c.kind.resource(), at.name)
	}
	o := was.object()
	if len(o.GetFinalizers()) == 0 {
		return c.remove(at), nil
	}
	if o.GetDeletionTimestamp() != nil {
		return was, nil
	}
	now, seconds := metav1.NewTime(time.Now()), int64(0)
	o.SetDeletionTimestamp(&now)
	o.SetDeletionGracePeriodSeconds(&seconds)
	if !c.kind.NoGeneration {
		o.SetGeneration(o.GetGeneration() + 1)
	}
	o.SetResourceVersion(text(s.bump()))
	v := newVersion(o)
	c.objects[at] = v
	s.tell(change{version: s.version, in: c, kind: "MODIFIED", now: v, before: was})
	return v, nil
}

// remove takes an object out of the store. The caller holds the lock.
func (c *Collection) remove(at name) *version {
	s, was := c.server, c.objects[at]
	delete(c.objects, at)
	o := was.object()
	o.SetResourceVersion(text(s.bump()))
	v := newVersion(o)
	s.tell(change{version: s.version, in: c, kind: "DELETED", now: v, before: was})
	return v
}

// merge applies a JSON merge patch (RFC 7386) to a tree, in place.
func merge(tree, patch map[string]any) {
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(tree, key)
		case map[string]any:
			inner, ok := tree[key].(map[string]any)
			if !ok {
				inner = map[string]any{}
				tree[key] = inner
			}
			merge(inner, value)
		default:
			tree[key] = value
		}
	}
}
