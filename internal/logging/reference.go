package logging

// Reference says which object a record is about. It is the value of the attribute
// object: text shows it by its name, JSON as a whole (LOG-1), whoever's handler it is.
type Reference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"` // of a request to create one, there is none yet
	Namespace  string `json:"namespace,omitempty"`
}

// String is the name, with the namespace if there is one (LOG-2).
func (r Reference) String() string {
	if r.Namespace == "" {
		return r.Name
	}
	return r.Namespace + "/" + r.Name
}
