package state

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kopf-go/kopf/internal/body"
)

// large is an object of about 4 KB with its last handled configuration beside it,
// in the API server's form.
func large(t testing.TB, extra [][]string) []byte {
	t.Helper()
	var containers []any
	for i := range 16 {
		containers = append(containers, map[string]any{
			"name": fmt.Sprintf("container-%d", i), "image": "registry.example.com/team/app:1.2.3",
			"args":  []any{"--verbose", "--level=<3>", "--name=größe"},
			"env":   []any{map[string]any{"name": "A", "value": "b"}, map[string]any{"name": "C", "value": "d & e"}},
			"ports": []any{map[string]any{"containerPort": 8080 + i, "protocol": "TCP"}},
		})
	}
	object := map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{
			"name": "w", "namespace": "default", "uid": "u-1", "resourceVersion": "12345",
			"creationTimestamp": "2026-11-30T01:48:26Z", "generation": 3,
			"labels":      map[string]any{"app": "w", "tier": "backend"},
			"annotations": map[string]any{"example.com/note": "kept"},
			"finalizers":  []any{"kopf.zalando.org/KopfFinalizerMarker"},
		},
		"spec":   map[string]any{"replicas": 3, "ratio": 1.5, "containers": containers},
		"status": map[string]any{"phase": "Ready", "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
	}
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	b := parse(t, string(raw))
	c := storeWith(Default(), nil).Changes(b)
	c.StoreLastHandled(essenceOf(b, Default(), extra))
	for name, value := range annotationsOf(c) {
		object["metadata"].(map[string]any)["annotations"].(map[string]any)[name] = *value
	}
	if raw, err = json.Marshal(object); err != nil {
		t.Fatal(err)
	}
	return raw
}

func BenchmarkHandled(b *testing.B) {
	statusPhase := [][]string{{"status", "phase"}}
	for name, extra := range map[string][][]string{"plain": nil, "extra": statusPhase} {
		b.Run(name, func(b *testing.B) {
			raw := large(b, extra)
			o := parse(b, string(raw))
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			store := storeWith(Default(), extra)
			for b.Loop() {
				if same, known, err := store.Handled(o); !same || !known || err != nil {
					b.Fatal(same, known, err)
				}
			}
		})
	}
	b.Run("changed", func(b *testing.B) {
		o := parse(b, strings.Replace(string(large(b, nil)), `"replicas":3`, `"replicas":4`, 1))
		b.ReportAllocs()
		store := storeWith(Default(), nil)
		for b.Loop() {
			if same, known, err := store.Handled(o); same || !known || err != nil {
				b.Fatal(same, known, err)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) { // for comparison: what comes before
	raw := large(b, nil)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := body.Parse(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEssence(b *testing.B) {
	o := parse(b, string(large(b, nil)))
	b.ReportAllocs()
	store := storeWith(Default(), nil)
	for b.Loop() {
		store.Essence(o)
	}
}

func BenchmarkLastHandled(b *testing.B) {
	o := parse(b, string(large(b, nil)))
	b.ReportAllocs()
	store := storeWith(Default(), nil)
	for b.Loop() {
		if _, _, err := store.LastHandled(o); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDigest(b *testing.B) {
	text := essenceOf(parse(b, string(large(b, nil))), Default(), nil).Bytes()
	b.ReportAllocs()
	for b.Loop() {
		(&Essence{text: text}).Digest()
	}
}

func BenchmarkTree(b *testing.B) {
	text := essenceOf(parse(b, string(large(b, nil))), Default(), nil).Bytes()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (&Essence{text: text}).Tree(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHasStray(b *testing.B) { // of an object without any
	o := parse(b, string(large(b, nil)))
	store := storeWith(Default(), nil)
	b.ReportAllocs()
	for b.Loop() {
		if store.HasStray(o) {
			b.Fatal("there is none")
		}
	}
}

func BenchmarkRecords(b *testing.B) { // of an object without any, asked for twenty
	o := parse(b, string(large(b, nil)))
	var keys []*Keys
	for i := range 20 {
		keys = append(keys, storeWith(Default(), nil).Key(fmt.Sprintf("handler_%d/spec.field", i)))
	}
	b.ReportAllocs()
	store := storeWith(Default(), nil)
	for b.Loop() {
		if _, err := store.Records(o, keys...); err != nil {
			b.Fatal(err)
		}
	}
}
