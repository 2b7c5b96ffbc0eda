package schemas

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/version"
)

// Definition is a CustomResourceDefinition, as apiextensions.k8s.io/v1 has it.
type Definition struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`
}

// Metadata is what a Definition has of it.
type Metadata struct {
	Name string `json:"name"`
}

// Spec is what is defined.
type Spec struct {
	Group    string    `json:"group"`
	Names    Names     `json:"names"`
	Scope    string    `json:"scope"`
	Versions []Version `json:"versions"`
}

// Names are those of a resource.
type Names struct {
	Kind     string `json:"kind"`
	ListKind string `json:"listKind"`
	Plural   string `json:"plural"`
	Singular string `json:"singular"`
}

// Version is one version of a resource.
type Version struct {
	Name         string       `json:"name"`
	Served       bool         `json:"served"`
	Storage      bool         `json:"storage"`
	Schema       Validation   `json:"schema"`
	Subresources Subresources `json:"subresources,omitzero"`
}

// Validation is the schema of a version.
type Validation struct {
	OpenAPIV3Schema *Schema `json:"openAPIV3Schema"`
}

// Subresources are those of a version.
type Subresources struct {
	Status *struct{} `json:"status,omitempty"`
}

// Resource is what is to be defined: one version of a resource, and the Go type of its objects.
type Resource struct {
	Group, Version, Plural string
	Kind                   string // empty: guessed, from the names of Go types, or from the plural
	ClusterScoped          bool
	Type                   reflect.Type // a struct, or a pointer to one
}

// Define makes a definition of each resource, in order of their names, with all its
// versions; the newest one is stored. A note says what was guessed.
func Define(resources []Resource) (definitions []Definition, notes []string, err error) {
	var mistakes []error
	byName := map[string][]Resource{}
	var order []string
	for _, r := range resources {
		name := r.Plural + "." + r.Group
		if byName[name] == nil {
			order = append(order, name)
		}
		same := slices.IndexFunc(byName[name], func(other Resource) bool { return other.Version == r.Version })
		switch {
		case same < 0:
			byName[name] = append(byName[name], r)
		case byName[name][same].Type != r.Type:
			notes = append(notes, fmt.Sprintf("%s has several Go types; its definition is that of %s", name, byName[name][same].Type))
		}
	}
	slices.Sort(order)
	for _, name := range order {
		d, note, err := define(byName[name])
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("no definition of %s: %w", name, err))
			continue
		}
		if note != "" {
			notes = append(notes, note)
		}
		definitions = append(definitions, d)
	}
	return definitions, slices.Compact(notes), errors.Join(mistakes...)
}

// define is for the versions of one resource.
func define(versions []Resource) (d Definition, note string, err error) {
	slices.SortFunc(versions, func(a, b Resource) int { return version.CompareKubeAwareVersionStrings(b.Version, a.Version) })
	first := versions[0]
	if t := dereferenced(first.Type); t.Kind() != reflect.Struct {
		return d, "", fmt.Errorf("%s is no struct", t)
	}
	kind, sure := kindOf(first)
	if !sure {
		note = fmt.Sprintf("the kind of %s.%s is guessed to be %s: objects that are there may have another one", first.Plural, first.Group, kind)
	}
	d = Definition{
		APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition",
		Metadata: Metadata{Name: first.Plural + "." + first.Group},
		Spec: Spec{
			Group: first.Group, Scope: "Namespaced",
			Names: Names{Kind: kind, ListKind: kind + "List", Plural: first.Plural, Singular: strings.ToLower(kind)},
		},
	}
	if first.ClusterScoped {
		d.Spec.Scope = "Cluster"
	}
	var mistakes []error
	for i, r := range versions {
		root, err := ofObject(r.Type)
		if err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		v := Version{Name: r.Version, Served: true, Storage: i == 0, Schema: Validation{OpenAPIV3Schema: root}}
		if root.Properties["status"] != nil {
			v.Subresources.Status = &struct{}{}
		}
		d.Spec.Versions = append(d.Spec.Versions, v)
	}
	return d, note, errors.Join(mistakes...)
}

// ofObject is the schema of a whole object. Its metadata are the API server's own business,
// and so is a status that has nothing in it.
func ofObject(t reflect.Type) (*Schema, error) {
	d := &describer{}
	root := d.structure(dereferenced(t), "")
	if root.Properties == nil {
		root.Properties = map[string]*Schema{}
	}
	root.Properties["apiVersion"], root.Properties["kind"] = &Schema{Type: "string"}, &Schema{Type: "string"}
	root.Properties["metadata"] = &Schema{Type: "object"}
	root.Required = slices.DeleteFunc(root.Required, func(name string) bool {
		return name == "apiVersion" || name == "kind" || name == "metadata" || name == "status"
	})
	if status := root.Properties["status"]; status != nil && status.Type == "object" && status.empty() {
		delete(root.Properties, "status")
	}
	return root, errors.Join(d.mistakes...)
}

func dereferenced(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// empty tells of the schema of an object whether nothing can be in it.
func (s *Schema) empty() bool {
	return len(s.Properties) == 0 && s.AdditionalProperties == nil && !s.PreserveUnknownFields
}

// HasStatus tells whether objects of a Go type have a status that something can be in.
func HasStatus(t reflect.Type) bool {
	if dereferenced(t).Kind() != reflect.Struct {
		return false
	}
	root, _ := ofObject(t) // what is wrong with it is said where it is defined
	return root.Properties["status"] != nil
}

// kindOf finds the name of the kind: Go types are named after it, as Database and
// DatabaseSpec, or else it is the singular of the plural.
func kindOf(r Resource) (kind string, sure bool) {
	if r.Kind != "" {
		return r.Kind, true
	}
	t := dereferenced(r.Type)
	candidates := []string{t.Name()}
	for _, part := range []string{"Spec", "Status"} {
		if f, has := t.FieldByName(part); has {
			candidates = append(candidates, strings.TrimSuffix(f.Type.Name(), part))
		}
	}
	for _, candidate := range candidates {
		if candidate != "" && unicode.IsUpper(rune(candidate[0])) && Plural(candidate) == r.Plural {
			return candidate, true
		}
	}
	one := singular(r.Plural)
	return strings.ToUpper(one[:1]) + one[1:], false
}

// Plural is what the resource of a kind is called by the usual rules, which are those of
// English, and of code generators: databases, policies, gateways, classes, boxes.
func Plural(kind string) string {
	name := strings.ToLower(kind)
	for _, ending := range []string{"s", "x", "ch", "sh"} {
		if strings.HasSuffix(name, ending) {
			return name + "es"
		}
	}
	if stem, is := strings.CutSuffix(name, "y"); is && stem != "" && !strings.ContainsRune("aeiou", rune(stem[len(stem)-1])) {
		return stem + "ies"
	}
	return name + "s"
}

// singular undoes what Plural does, as far as that can be undone.
func singular(many string) string {
	for _, ending := range []struct{ many, one string }{{"ies", "y"}, {"sses", "ss"}, {"xes", "x"}, {"ches", "ch"}, {"shes", "sh"}, {"s", ""}} {
		if stem, cut := strings.CutSuffix(many, ending.many); cut && stem+ending.one != "" {
			return stem + ending.one
		}
	}
	return cmp.Or(many, "object")
}
