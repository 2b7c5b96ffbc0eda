package simulated

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

func uid(s string) types.UID { return types.UID(s) }

// Object makes an object of a name, with the other members from fields. Ints and
// other Go values in fields become what JSON makes of them.
func Object(namespace, name string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: normal(fields)}
	o.SetName(name)
	o.SetNamespace(namespace)
	return o
}

// Collection holds the objects of one kind: the way for tests to be the other users
// of the server. Its methods are no requests: no hook sees them and nothing counts
// them. What they return is the caller's.
type Collection struct {
	server  *Server
	kind    Kind
	objects map[name]*version

	withdrawn bool
	adopts    bool // objects that are created have their UID already
}

// Create stores a new object and returns it as stored. A namespace that is not there
// is created. As over HTTP, status is ignored if it has an endpoint of its own.
func (c *Collection) Create(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	v, err := c.create(&unstructured.Unstructured{Object: normal(o.Object)})
	if err != nil {
		return nil, err
	}
	return v.object(), nil
}

// Adopt stores an object that is there already in another version of the resource: it has
// the same UID here.
func (c *Collection) Adopt(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.adopts = true
	defer func() { c.adopts = false }()
	v, err := c.create(&unstructured.Unstructured{Object: normal(o.Object)})
	if err != nil {
		return nil, err
	}
	return v.object(), nil
}

// Update changes an object, but for its status if that has an endpoint of its own.
func (c *Collection) Update(namespace, name string, edit func(*unstructured.Unstructured)) (*unstructured.Unstructured, error) {
	return c.edit(namespace, name, false, edit)
}

// UpdateStatus changes an object's status.
func (c *Collection) UpdateStatus(namespace, name string, edit func(*unstructured.Unstructured)) (*unstructured.Unstructured, error) {
	return c.edit(namespace, name, true, edit)
}

func (c *Collection) edit(namespace, n string, status bool, edit func(*unstructured.Unstructured)) (*unstructured.Unstructured, error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	v, err := c.update(name{namespace, n}, status, func(o *unstructured.Unstructured) error {
		edit(o)
		o.Object = normal(o.Object)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return v.object(), nil
}

// Delete asks for an object's deletion: it is gone at once unless it has finalizers.
func (c *Collection) Delete(namespace, n string) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	_, err := c.delete(name{namespace, n})
	return err
}

// Vanish takes an object away at once, whatever its finalizers: so a real server does
// with one whose deletion it decided on before the finalizer was put on.
func (c *Collection) Vanish(namespace, n string) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	at := name{namespace, n}
	if c.objects[at] == nil {
		return apierrors.NewNotFound(c.kind.resource(), n)
	}
	c.remove(at)
	return nil
}

// Get returns an object, or nil if it is not there.
func (c *Collection) Get(namespace, n string) *unstructured.Unstructured {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	v := c.objects[name{namespace, n}]
	if v == nil {
		return nil
	}
	return v.object()
}

// List returns all objects, sorted by namespace and name.
func (c *Collection) List() []*unstructured.Unstructured {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	var out []*unstructured.Unstructured
	for _, v := range c.sorted("") {
		out = append(out, v.object())
	}
	return out
}

// sorted returns the objects of a namespace, or all. The caller holds the lock.
func (c *Collection) sorted(namespace string) []*version {
	keys := make([]name, 0, len(c.objects))
	for at := range c.objects {
		if namespace == "" || at.namespace == namespace {
			keys = append(keys, at)
		}
	}
	slices.SortFunc(keys, func(a, b name) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	out := make([]*version, len(keys))
	for i, at := range keys {
		out[i] = c.objects[at]
	}
	return out
}

// Collection returns the collection of a kind that is served, such as
// ("v1", "namespaces"), or nil.
func (s *Server) Collection(groupVersion, plural string) *Collection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.collections[groupVersion+"/"+plural]
}

// Events returns the Kubernetes events that were posted, in order.
func (s *Server) Events() []corev1.Event {
	objects := s.Collection("v1", "events").List()
	slices.SortFunc(objects, func(a, b *unstructured.Unstructured) int { return cmp.Compare(a.GetUID(), b.GetUID()) })
	events := make([]corev1.Event, len(objects))
	for i, o := range objects {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &events[i]); err != nil {
			events[i] = corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: o.GetName()}, Message: "not readable: " + err.Error()}
		}
	}
	return events
}
