package owners

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/internal/fieldpath"
)

// Label puts labels on objects, and with Nested on what is inside of them. A key that is
// there keeps its value, unless Forced (HIE-5). Without labels nothing is done.
func Label(objects runtime.Object, labels map[string]string, options ...LabelOption) error {
	c := configOf(options)
	if err := c.checkPaths(objects); err != nil {
		return err
	}
	return Each(objects, func(o Object) error {
		if err := c.checkNested(o); err != nil {
			return err
		}
		c.label(o, labels)
		return nil
	})
}

// label needs checkNested to have been called.
func (c config) label(o Object, labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	o.SetLabels(c.merged(o.GetLabels(), labels))
	for _, path := range c.nested {
		_ = visit(root(o), strings.Split(path, "."), func(inner reflect.Value) error {
			c.labelInner(inner, labels)
			return nil
		})
	}
}

// merged is a new map: the old one may be a selector's as well.
func (c config) merged(old, labels map[string]string) map[string]string {
	all := maps.Clone(old)
	if all == nil {
		all = map[string]string{}
	}
	for key, value := range labels {
		if _, has := all[key]; !has || c.forced {
			all[key] = value
		}
	}
	return all
}

// checkPaths says what is wrong with the paths themselves: one that cannot be read, or that
// no Go type of the objects has. Several objects may be of types that have it, and others.
func (c config) checkPaths(objects runtime.Object) error {
	for _, dotted := range c.nested {
		path, err := fieldpath.Parse(dotted)
		if err != nil {
			return err
		}
		exists := false
		err = Each(objects, func(o Object) error {
			var unknown *unknownError
			if err := visit(root(o), path, passOver); errors.As(err, &unknown) {
				return fmt.Errorf("nested path %s: %w", dotted, err)
			}
			exists = true
			return nil
		})
		if err != nil && !exists {
			return err
		}
	}
	return nil
}

func passOver(reflect.Value) error { return nil }

// unknownError says that a Go type does not have a field.
type unknownError struct{ error }

// checkNested says why the paths cannot be labelled in an object, if it has them.
func (c config) checkNested(o Object) error {
	for _, path := range c.nested {
		err := visit(root(o), strings.Split(path, "."), labelled)
		if err != nil && !errors.As(err, new(*unknownError)) {
			return fmt.Errorf("nested path %s: %w", path, err)
		}
	}
	return nil
}

// root is where paths begin.
func root(o Object) reflect.Value {
	if u, is := o.(runtime.Unstructured); is {
		return reflect.ValueOf(u.UnstructuredContent())
	}
	return reflect.ValueOf(o)
}

// visit calls do for what is at a path, if there is anything; of a list, for each element.
// What do changes is changed in the object.
func visit(v reflect.Value, path diff.Path, do func(reflect.Value) error) error {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem() // of nil: nothing, which has no kind
	}
	switch {
	case !v.IsValid() || v.Kind() == reflect.Map && v.IsNil():
		return nil
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		for i := range v.Len() {
			if err := visit(v.Index(i), path, do); err != nil {
				return err
			}
		}
		return nil
	case len(path) == 0:
		return do(v)
	case v.Kind() == reflect.Struct:
		field, found := fieldpath.FieldNamed(v, path[0])
		if known, err := fieldpath.Check(v.Type(), path[:1]); !found && (err != nil || known == nil) {
			if err == nil {
				return fmt.Errorf("%s cannot be looked into", v.Type())
			}
			return &unknownError{err}
		}
		return visit(field, path[1:], do)
	case v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String:
		return visitEntry(v, path, do)
	}
	return fmt.Errorf("%s has no fields", v.Type())
}

// visitEntry goes on in a copy of an entry that is a struct, for it has no address in the map.
func visitEntry(entries reflect.Value, path diff.Path, do func(reflect.Value) error) error {
	key := reflect.ValueOf(path[0]).Convert(entries.Type().Key())
	entry := entries.MapIndex(key)
	if !entry.IsValid() || entry.Kind() != reflect.Struct {
		return visit(entry, path[1:], do)
	}
	changed := reflect.New(entry.Type()).Elem()
	changed.Set(entry)
	if err := visit(changed, path[1:], do); err != nil {
		return err
	}
	entries.SetMapIndex(key, changed)
	return nil
}

// labelled tells why what is inside of an object cannot have labels; nil: it can.
func labelled(inner reflect.Value) error {
	if content, is := inner.Interface().(map[string]any); is {
		return labelledContent(content)
	}
	if inner.Kind() == reflect.Struct && inner.CanAddr() { // else it could not be changed
		metadata, _ := fieldpath.FieldNamed(inner, "metadata")
		for metadata.Kind() == reflect.Pointer {
			metadata = reflect.New(metadata.Type().Elem()).Elem()
		}
		if metadata.Kind() == reflect.Struct {
			if labels, has := fieldpath.FieldNamed(metadata, "labels"); has && labels.Type().ConvertibleTo(labelsType) {
				return nil
			}
		}
	}
	return fmt.Errorf("%s has no metadata with labels", inner.Type())
}

var labelsType = reflect.TypeFor[map[string]string]()

func labelledContent(content map[string]any) error {
	metadata := content["metadata"]
	if metadata == nil {
		return nil
	}
	inMetadata, is := metadata.(map[string]any)
	if !is {
		return fmt.Errorf("its metadata is %T, not an object", metadata)
	}
	switch labels := inMetadata["labels"].(type) {
	case nil, map[string]any, map[string]string:
		return nil
	default:
		return fmt.Errorf("its labels are %T, not an object", labels)
	}
}

// labelInner puts labels on what labelled has let pass.
func (c config) labelInner(inner reflect.Value, labels map[string]string) {
	if content, is := inner.Interface().(map[string]any); is {
		c.labelContent(content, labels)
		return
	}
	metadata, _ := fieldpath.FieldNamed(inner, "metadata")
	for metadata.Kind() == reflect.Pointer {
		if metadata.IsNil() {
			metadata.Set(reflect.New(metadata.Type().Elem()))
		}
		metadata = metadata.Elem()
	}
	field, _ := fieldpath.FieldNamed(metadata, "labels")
	old, _ := field.Convert(labelsType).Interface().(map[string]string)
	field.Set(reflect.ValueOf(c.merged(old, labels)).Convert(field.Type()))
}

func (c config) labelContent(content map[string]any, labels map[string]string) {
	metadata, _ := content["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		content["metadata"] = metadata
	}
	all := map[string]any{}
	switch old := metadata["labels"].(type) {
	case map[string]any:
		maps.Copy(all, old)
	case map[string]string:
		for key, value := range old {
			all[key] = value
		}
	}
	for key, value := range labels {
		if _, has := all[key]; !has || c.forced {
			all[key] = value
		}
	}
	metadata["labels"] = all
}
