package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

// caFrom is cert-manager's annotation: the certificate whose CA it writes into webhooks.
const caFrom = "cert-manager.io/inject-ca-from"

// Manifests are the objects that a [Keeper] would keep, in YAML, for those who apply them
// with Helm, kustomize or kubectl: configurations, then policies with their bindings. The
// same arguments give the same bytes. Webhooks have no bundle in them. With the name of a
// certificate of cert-manager, NAMESPACE/NAME, that writes it; otherwise whoever applies
// them has to. There is nothing at all without hooks.
func Manifests(o Options, hooks []Hook, endpoint Endpoint, certificate string) ([]byte, error) {
	validating, mutating := Configurations(o, hooks, func(path string) admissionregistrationv1.WebhookClientConfig {
		return endpoint.ClientConfig(path, nil)
	})
	var objects []object
	if validating != nil {
		objects = append(objects, validating)
	}
	if mutating != nil {
		objects = append(objects, mutating)
	}
	if certificate != "" {
		for _, object := range objects {
			object.SetAnnotations(map[string]string{caFrom: certificate})
		}
	}
	policies, bindings := Policies(o, hooks)
	for i := range policies {
		objects = append(objects, policies[i], bindings[i])
	}
	var out bytes.Buffer
	for _, object := range objects {
		text, err := manifest(object)
		if err != nil {
			return nil, fmt.Errorf("printing %s: %w", object.GetName(), err)
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes(), nil
}

// manifest leaves out what only the API server says.
func manifest(o object) ([]byte, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := yaml.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	delete(fields, "status")
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	return yaml.Marshal(fields)
}
