// Package body holds one immutable version of a Kubernetes object as the bytes
// that came from the API server, with the views that the engine needs computed
// lazily and at most once.
//
// Bytes are kept, and not a decoded object, for two reasons: decoding is what
// costs (20 to 85 µs for 4 KB), and a typed decode drops the fields that the Go
// type does not know, so that a change in them would be invisible.
package body

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "sigs.k8s.io/json"
)

// Body is one version of one object. It is immutable and safe for concurrent
// use: whatever its accessors return is shared and must not be changed.
//
// ObjectMeta holds the part of the metadata that the engine looks at: name,
// namespace, uid, resourceVersion, generation, timestamps, labels, annotations,
// finalizers, owner references. Managed fields are skipped, for they are large.
// Body is a runtime.Object and a metav1.Object, as client-go's Reflector asks.
type Body struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	raw  []byte
	tree func() (map[string]any, error)
}

// Parse reads the metadata of an object and keeps raw, which the caller must not
// change afterwards. It fails if raw is not a JSON object.
func Parse(raw []byte) (*Body, error) {
	b := &Body{raw: raw}
	b.tree = sync.OnceValues(b.decodeTree)
	err := Members(raw, func(name string, value jsontext.Value) error {
		switch name {
		case "apiVersion":
			return text(value, &b.APIVersion)
		case "kind":
			return text(value, &b.Kind)
		case "metadata":
			return b.parseMeta(value)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("object is not readable: %w", err)
	}
	return b, nil
}

// Identify makes a body that knows no more of an object than who it was: what is
// left of one whose deletion happened while nobody watched.
func Identify(kind metav1.TypeMeta, namespace, name string, uid types.UID, version string) *Body {
	b := &Body{TypeMeta: kind, ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: uid, ResourceVersion: version,
	}}
	b.tree = sync.OnceValues(b.decodeTree)
	b.raw, _ = json.Marshal(struct { // texts only: cannot fail
		metav1.TypeMeta `json:",inline"`
		Metadata        map[string]string `json:"metadata"`
	}{kind, map[string]string{
		"namespace": namespace, "name": name, "uid": string(uid), "resourceVersion": version,
	}})
	return b
}

// Raw returns the bytes of the object as they came from the API server.
func (b *Body) Raw() []byte { return b.raw }

// Tree returns the object as maps, slices, strings, bools, int64 and float64. It
// is decoded on the first call (about 80 µs for 4 KB) and shared.
func (b *Body) Tree() (map[string]any, error) { return b.tree() }

// Decode fills into, a private copy of the caller's, from the bytes. Fields that
// the Go type does not know are dropped.
func (b *Body) Decode(into any) error {
	if u, ok := into.(runtime.Unstructured); ok {
		tree, err := b.decodeTree()
		if err != nil {
			return err
		}
		u.SetUnstructuredContent(tree)
		return nil
	}
	return utiljson.UnmarshalCaseSensitivePreserveInts(b.raw, into)
}

// Deleting tells whether the deletion of the object has been requested.
func (b *Body) Deleting() bool { return b.DeletionTimestamp != nil }

// HasFinalizer tells whether the object carries the finalizer.
func (b *Body) HasFinalizer(name string) bool {
	for _, f := range b.Finalizers {
		if f == name {
			return true
		}
	}
	return false
}

// DeepCopyObject returns the body itself, for it is immutable.
func (b *Body) DeepCopyObject() runtime.Object { return b }

func (b *Body) decodeTree() (map[string]any, error) {
	tree, err := DecodeTree(b.raw)
	if err != nil {
		return nil, fmt.Errorf("object is not readable: %w", err)
	}
	return tree, nil
}

func (b *Body) parseMeta(raw jsontext.Value) error {
	return Members(raw, func(name string, value jsontext.Value) error {
		switch name {
		case "name":
			return text(value, &b.Name)
		case "namespace":
			return text(value, &b.Namespace)
		case "uid":
			return text(value, (*string)(&b.UID))
		case "resourceVersion":
			return text(value, &b.ResourceVersion)
		case "generation":
			return decode(value, &b.Generation)
		case "creationTimestamp":
			return instant(value, func(t *metav1.Time) {
				if t != nil {
					b.CreationTimestamp = *t
				}
			})
		case "deletionTimestamp":
			return instant(value, func(t *metav1.Time) { b.DeletionTimestamp = t })
		case "labels":
			return texts(value, &b.Labels)
		case "annotations":
			return texts(value, &b.Annotations)
		case "finalizers":
			return decode(value, &b.Finalizers)
		case "ownerReferences":
			return decode(value, &b.OwnerReferences)
		}
		return nil
	})
}

// Members calls visit for each member of a JSON object, in order, with its raw
// value. Values alias raw. null has no members.
func Members(raw []byte, visit func(name string, value jsontext.Value) error) error {
	if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return nil
	}
	dec := decoders.Get().(*jsontext.Decoder)
	defer func() {
		dec.Reset(nothing{}) // or the pool would keep raw alive
		decoders.Put(dec)
	}()
	dec.Reset(bytes.NewBuffer(raw), trusting...)
	token, err := dec.ReadToken()
	if err != nil {
		return err
	}
	if token.Kind() != '{' {
		return fmt.Errorf("got JSON %s where an object is expected", token.Kind())
	}
	for dec.PeekKind() == '"' {
		token, err := dec.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		if err := visit(name, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	_, err = dec.ReadToken()
	return err
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, io.EOF }

var decoders = sync.Pool{New: func() any { return jsontext.NewDecoder(nothing{}) }}

// trusting: the API server is trusted not to send a name twice, which is what
// costs most to check, and its texts are passed on as they are: one that is not
// UTF-8 must not end the watch that it comes in.
var trusting = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

func text(value jsontext.Value, into *string) error {
	switch value.Kind() {
	case '"':
		s, err := jsontext.AppendUnquote(nil, value)
		*into = string(s)
		return err
	case 'n':
		return nil
	}
	return fmt.Errorf("got JSON %s where a text is expected", value.Kind())
}

func texts(value jsontext.Value, into *map[string]string) error {
	m := map[string]string{}
	err := Members(value, func(name string, value jsontext.Value) error {
		var s string
		err := text(value, &s)
		m[name] = s
		return err
	})
	if len(m) > 0 {
		*into = m
	}
	return err
}

func instant(value jsontext.Value, set func(*metav1.Time)) error {
	var s string
	if err := text(value, &s); err != nil || s == "" {
		return err
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return err
	}
	set(&metav1.Time{Time: t})
	return nil
}

func decode(value jsontext.Value, into any) error {
	return utiljson.UnmarshalCaseSensitivePreserveInts(value, into)
}
