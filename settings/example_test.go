package settings_test

import (
	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/storage"
)

// An operator that shares its objects with another one, and keeps its state where a
// Python operator with these settings would.
func ExamplePersistence() {
	const prefix = "widgets.example.com"
	kopf.Main(kopf.Options{Settings: kopf.Settings{Persistence: settings.Persistence{
		Finalizer:       prefix + "/finalizer",
		ProgressStorage: storage.AnnotationsProgress(prefix, storage.AnnotationsOptions{}),
		DiffBaseStorage: storage.AnnotationsLastHandled(prefix, storage.LastHandledOptions{}),
	}}})
}
