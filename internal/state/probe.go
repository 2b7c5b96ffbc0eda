package state

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/storage"
)

// nobody is an object with nothing on it.
var nobody = body.Identify(metav1.TypeMeta{Kind: "Probe"}, "", "probe", "probe", "")

// probe makes an object of nothing but what the patch says.
func probe(p *storage.Patch) (*body.Body, error) {
	object := map[string]any{}
	for name, value := range p.Tree() {
		object[name] = value
	}
	metadata := map[string]any{"name": "probe", "uid": "probe"}
	if annotations := p.Annotations(); annotations != nil {
		metadata["annotations"] = annotations
	}
	object["metadata"], object["kind"] = metadata, "Probe"
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("a storage has patched something that does not encode: %w", err)
	}
	return body.Parse(raw)
}
