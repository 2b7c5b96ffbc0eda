package patching

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
)

// large is a Deployment of about 4 KB, as an API server returns it.
func large(t testing.TB) *body.Body {
	var containers, fields []string
	for i := range 4 {
		containers = append(containers, fmt.Sprintf(`{"name":"c%d","image":"registry.example/app:%d","imagePullPolicy":"IfNotPresent",
			"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"ports":[{"containerPort":80%d,"protocol":"TCP"}],
			"resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"100m","memory":"128Mi"}},
			"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}`, i, i, i))
		fields = append(fields, fmt.Sprintf(`{"manager":"m%d","operation":"Update","apiVersion":"apps/v1","time":"2026-01-01T00:00:00Z",
			"fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:x":{}}},"f:spec":{"f:replicas":{}}}}`, i))
	}
	raw := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","namespace":"ns","uid":"u","resourceVersion":"7",
		"generation":3,"creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"d"},"finalizers":["other/one"],
		"annotations":{"kopf.zalando.org/last-handled-configuration":` + fmt.Sprintf("%q", strings.Repeat(`{"spec":{"a":1}}`, 40)) + `},
		"managedFields":[` + strings.Join(fields, ",") + `]},
		"spec":{"replicas":3,"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},
		"spec":{"containers":[` + strings.Join(containers, ",") + `],"restartPolicy":"Always","dnsPolicy":"ClusterFirst"}}},
		"status":{"observedGeneration":3,"replicas":3,"conditions":[{"type":"Available","status":"True","reason":"R",
		"message":"all is well","lastUpdateTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(raw)); err != nil {
		t.Fatal(err)
	}
	b, err := body.Parse(compact.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func BenchmarkCompose(b *testing.B) {
	raw := large(b).Raw()
	handled := text(strings.Repeat(`{"spec":{"a":2}}`, 40))
	bookkeeping := map[string]*string{
		"kopf.zalando.org/last-handled-configuration": handled, "kopf.zalando.org/handler": nil,
	}
	status := []registry.Edit{editOf(func(d *appsv1.Deployment) { d.Status.Replicas = 2 })}
	for _, c := range []struct {
		name   string
		change Change
	}{
		{"bookkeeping", Change{Annotations: bookkeeping}},
		{"finalizer", Change{AddFinalizer: "mine"}},
		{"result", Change{Annotations: bookkeeping, Results: map[string]any{"h": map[string]any{"n": 1}}}},
		{"typed status", Change{Annotations: bookkeeping, Edits: status}},
		{"merge", Change{Annotations: bookkeeping, Edits: []registry.Edit{mergeOf(`{"status":{"replicas":2}}`)}}},
		{"JSON", Change{Annotations: bookkeeping, Edits: []registry.Edit{jsonOf(`[{"op":"replace","path":"/status/replicas","value":2}]`)}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				parsed, err := body.Parse(raw) // each version is composed for about once
				if err != nil {
					b.Fatal(err)
				}
				if _, err := Compose(parsed, c.change, true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("parsing alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := body.Parse(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDropped(b *testing.B) {
	response := large(b)
	for name, patch := range map[string]string{
		"bookkeeping": `{"metadata":{"uid":"u","annotations":{"kopf.zalando.org/last-handled-configuration":` +
			fmt.Sprintf("%q", strings.Repeat(`{"spec":{"a":1}}`, 40)) + `,"x":null}}}`,
		"status": `{"metadata":{"uid":"u"},"status":{"replicas":3}}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if paths := Dropped([]byte(patch), response); paths != nil {
					b.Fatal(paths)
				}
			}
		})
	}
}
