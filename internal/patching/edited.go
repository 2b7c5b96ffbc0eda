package patching

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/kopf-go/kopf/internal/body"
)

// Edited returns an object with what edit changes in object, a typed copy of it; nil if
// that is nothing. edit returns what has become of the copy. What the copy does not know
// stays, with all digits of its numbers, and so does what no edit may change.
func Edited(raw []byte, object any, edit func() (any, error)) ([]byte, error) {
	before, err := encodeObject(object)
	if err != nil {
		return nil, &encodingError{"object", err}
	}
	if object, err = edit(); err != nil {
		return nil, err
	}
	after, err := encodeObject(object)
	if err != nil {
		return nil, &encodingError{"object", err}
	}
	if bytes.Equal(before, after) {
		return nil, nil
	}
	merge, err := (&comparison{object: raw, decode: body.DecodeExactly}).between(before, after)
	if err != nil {
		return nil, err
	}
	if keepIdentity(merge); len(merge) == 0 {
		return nil, nil
	}
	tree, err := DecodeExactly(raw)
	if err != nil {
		return nil, err
	}
	return json.Marshal(merged(tree, merge))
}

// DecodeExactly decodes an object with its numbers as they are written.
func DecodeExactly(raw []byte) (map[string]any, error) {
	value, err := body.DecodeExactly(raw)
	if err != nil {
		return nil, err
	}
	tree, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("got %T where an object is expected", value)
	}
	return tree, nil
}
