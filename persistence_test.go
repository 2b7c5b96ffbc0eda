package kopf

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/storage"
)

// What the operator keeps on an object, by its settings.
func writtenWith(t *testing.T, o Options) (names []string, finalizer string) {
	t.Helper()
	o.Registry, o.Config = NewRegistry(), nowhere()
	op, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	store, err := state.NewStore(op.config.State)
	if err != nil {
		t.Fatal(err)
	}
	b, err := body.Parse([]byte(`{"kind":"W","metadata":{"name":"w","uid":"u"},"spec":1}`))
	if err != nil {
		t.Fatal(err)
	}
	c := store.Changes(b)
	c.StoreRecord(store.Key("f"), state.Record{Digest: store.Essence(b).Digest()})
	c.StoreSeen(store.Essence(b))
	c.StoreLastHandled(store.Essence(b))
	annotations, merge := c.Patch()
	for name := range annotations {
		names = append(names, name)
	}
	if merge != nil {
		names = append(names, "status")
	}
	if op.config.Naming != op.config.State.Naming {
		t.Error("two namings")
	}
	return names, op.config.Naming.Finalizer
}

// SET-3, DB-5, SET-5, FIN-1: names and storages; explicit settings win over the name.
func TestPersistenceSettings_SET3_SET5(t *testing.T) {
	const mine = "mine.example.com"
	for _, c := range []struct {
		rule      string
		options   Options
		prefixes  map[string]int
		finalizer string
	}{
		{"FIN-1: Kopf's defaults", Options{}, map[string]int{"kopf.zalando.org": 4}, "kopf.zalando.org/KopfFinalizerMarker"},
		{"SET-5: a name", Options{Name: "w"}, map[string]int{"w.kopf.zalando.org": 5}, "w.kopf.zalando.org/finalizer"},
		{"FIN-1: a finalizer wins", Options{Name: "w", Settings: Settings{Persistence: settings.Persistence{Finalizer: "example.com/f"}}},
			map[string]int{"w.kopf.zalando.org": 5}, "example.com/f"},
		{"SET-5: storages", Options{Settings: Settings{Persistence: settings.Persistence{
			ProgressStorage: storage.AnnotationsProgress(mine, storage.AnnotationsOptions{}),
			DiffBaseStorage: storage.AnnotationsLastHandled(mine, storage.LastHandledOptions{}),
		}}}, map[string]int{mine: 5}, "kopf.zalando.org/KopfFinalizerMarker"},
		{"SET-5: storages win over the name, but for what none keeps", Options{Name: "w", Settings: Settings{Persistence: settings.Persistence{
			ProgressStorage: storage.AnnotationsProgress(mine, storage.AnnotationsOptions{}),
		}}}, map[string]int{mine: 2, "w.kopf.zalando.org": 4}, "w.kopf.zalando.org/finalizer"},
		{"DB-5: the default of the other storage is Kopf's", Options{Settings: Settings{Persistence: settings.Persistence{
			ProgressStorage: storage.AnnotationsProgress(mine, storage.AnnotationsOptions{}),
		}}}, map[string]int{mine: 4, "kopf.zalando.org": 1}, "kopf.zalando.org/KopfFinalizerMarker"},
		{"SET-3: status", Options{Settings: Settings{Persistence: settings.Persistence{
			ProgressStorage: storage.StatusProgress(storage.StatusOptions{}),
			DiffBaseStorage: storage.StatusLastHandled(storage.StatusLastHandledOptions{}),
		}}}, map[string]int{"status": 1, "kopf.zalando.org": 2}, "kopf.zalando.org/KopfFinalizerMarker"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			names, finalizer := writtenWith(t, c.options)
			got := map[string]int{}
			for _, name := range names {
				prefix, _, _ := strings.Cut(name, "/")
				got[prefix]++
			}
			for prefix, n := range c.prefixes {
				if got[prefix] != n {
					t.Errorf("got %q", names)
				}
			}
			if len(got) != len(c.prefixes) || finalizer != c.finalizer {
				t.Errorf("got %q, finalizer %s", names, finalizer)
			}
		})
	}
}

// SET-4, T062.
func TestMistakesInPersistenceSettings_SET4_T062(t *testing.T) {
	for want, s := range map[string]settings.Persistence{
		"the annotation prefix of a storage is empty": {ProgressStorage: storage.AnnotationsProgress("", storage.AnnotationsOptions{})},
		"prefix of a storage is empty":                {DiffBaseStorage: storage.AnnotationsLastHandled("", storage.LastHandledOptions{})},
		`storage field "status..x" has an empty key`:  {ProgressStorage: storage.StatusProgress(storage.StatusOptions{Field: "status..x"})},
		`finalizer "two words" is illegal`:            {Finalizer: "two words"},
		"Settings.Persistence: RecordLimit is -1":     {RecordLimit: -1},
		"takes the last-handled state for a record":   {DiffBaseStorage: storage.AnnotationsLastHandled(storage.DefaultPrefix, storage.LastHandledOptions{Key: "old"})},
	} {
		_, err := New(Options{Registry: NewRegistry(), Config: nowhere(), Settings: Settings{Persistence: s}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestALongPrefixIsAWarning_SET4_T062(t *testing.T) {
	for length, warned := range map[int]bool{189: false, 190: true} {
		var log bytes.Buffer
		prefix := strings.Repeat("a.", 100)[:length-1] + "b"
		prefix = strings.ReplaceAll(prefix, ".b", "bb")
		_, err := New(Options{
			Registry: NewRegistry(), Config: nowhere(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Settings: Settings{Persistence: settings.Persistence{ProgressStorage: storage.AnnotationsProgress(prefix, storage.AnnotationsOptions{})}},
		})
		if err != nil || len(prefix) != length || strings.Contains(log.String(), "annotation prefix is very long") != warned {
			t.Errorf("%d characters: %v, %s", len(prefix), err, log.String())
		}
	}
}
