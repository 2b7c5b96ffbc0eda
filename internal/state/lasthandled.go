package state

import (
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kopf-go/kopf/internal/body"
)

// LastHandled reads the essence that the object had when its handlers had last
// finished (3.4). known is false if there is none, and if the one that is there
// was made for another object (see [Foreign]); then the object is a new one. One
// that can't be read is a *[CorruptError].
func LastHandled(b *body.Body, n Naming) (last *Essence, known bool, err error) {
	name, value := lastHandledText(b, n)
	if name == "" {
		return nil, false, nil
	}
	raw, err := checked(name, value)
	if err != nil {
		return nil, false, err
	}
	w := walker{src: raw}
	return &Essence{text: w.copy(make([]byte, 0, len(raw)))}, true, nil
}

// Handled tells whether the essence of the object is the one that was last handled
// (same), provided that there is one (known). It is what [EssenceOf], [LastHandled]
// and [Essence.Equal] would say together, but for an object that nothing has
// happened to, which is nearly every one at a restart, nothing is decoded and
// nothing kept.
func Handled(b *body.Body, n Naming, extra [][]string) (same, known bool, err error) {
	name, value := lastHandledText(b, n)
	if name == "" {
		return false, false, nil
	}
	buffer := getBuffer()
	defer putBuffer(buffer)
	*buffer = appendEssence(*buffer, b, n, extra)
	if string(*buffer) == value {
		return true, true, nil
	}
	raw, err := checked(name, value)
	if err != nil {
		return false, false, err
	}
	return sameValue(*buffer, raw), true, nil
}

// Foreign tells whether the operator's annotations were made for another object,
// whose UID they name: the manifest was exported and applied again, under this or
// another name, and the annotations travelled along (B23). The last handled
// configuration then counts as absent. Progress records are to be taken as absent
// too, and to be purged. Annotations that name no UID, as Python's, are trusted.
func Foreign(b *body.Body, n Naming) bool {
	uid, ok := b.Annotations[n.names().uid[markOf(b)]]
	return ok && uid != string(b.UID)
}

// lastHandledText finds the annotation, V2 before V1 (B.2.4), and returns its name
// and its value without white space around it (T055). The name is empty if there
// is none to be used.
func lastHandledText(b *body.Body, n Naming) (name, value string) {
	if len(b.Annotations) == 0 {
		return "", ""
	}
	for _, name := range n.names().lastHandled[markOf(b)] {
		if value, ok := b.Annotations[name]; ok {
			if value = strings.Trim(value, whiteSpace); value != "null" && !Foreign(b, n) {
				return name, value
			}
		}
	}
	return "", ""
}

// whiteSpace is what JSON takes for it.
const whiteSpace = " \t\r\n"

// checked returns the value as bytes that a walker can rely on.
func checked(name, value string) ([]byte, error) {
	raw := jsontext.Value(value)
	switch {
	case raw.Kind() != '{':
		return nil, &CorruptError{Annotation: name, Err: errors.New("not a JSON object")}
	case !raw.IsValid(tolerant...):
		return nil, &CorruptError{Annotation: name, Err: errors.New("not valid JSON")}
	}
	return raw, nil
}
