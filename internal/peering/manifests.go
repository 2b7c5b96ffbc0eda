package peering

import (
	_ "embed"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

//go:embed crds.yaml
var crds []byte

// CRDs returns the CustomResourceDefinitions of both kinds of peering objects, in Kopf's group
// kopf.dev, as YAML.
func CRDs() []byte { return slices.Clone(crds) }

// Manifest returns the peering object of a name, as YAML: of the cluster, or one in each of
// some namespaces.
func Manifest(name string, namespaces ...string) ([]byte, error) {
	clusterWide := len(namespaces) == 0
	if clusterWide {
		namespaces = []string{""}
	}
	var all []byte
	for i, namespace := range namespaces {
		raw, err := yaml.Marshal(struct {
			metav1.TypeMeta `json:",inline"`
			Metadata        map[string]string `json:"metadata"`
		}{
			metav1.TypeMeta{APIVersion: groups[0].String(), Kind: kindName(clusterWide)}, metadata(name, namespace),
		})
		if err != nil {
			return nil, err
		}
		if i > 0 {
			all = append(all, "---\n"...)
		}
		all = append(all, raw...)
	}
	return all, nil
}

func metadata(name, namespace string) map[string]string {
	m := map[string]string{"name": name}
	if namespace != "" {
		m["namespace"] = namespace
	}
	return m
}
