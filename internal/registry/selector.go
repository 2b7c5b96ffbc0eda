package registry

import "k8s.io/apimachinery/pkg/runtime/schema"

// Selector names a resource of the API. The zero Selector stands for the
// resource that the scheme knows for the handler's Go type.
type Selector struct {
	schema.GroupVersion
	Name string // plural, singular, short name or kind
}

// Empty tells whether the selector leaves the choice to the scheme.
func (s Selector) Empty() bool { return s.Name == "" }

// String returns the name as kubectl would take it, such as databases.v1.example.com.
func (s Selector) String() string {
	text := s.Name + "." + s.Version
	if s.Group != "" {
		text += "." + s.Group
	}
	return text
}
