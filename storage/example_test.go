package storage_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/kopf-go/kopf/storage"
	"github.com/kopf-go/kopf/storage/storagetest"
)

// ledger is a storage of one's own: it keeps the records of all handlers in a single
// annotation, as a JSON object of records by ids.
type ledger struct{}

const annotation = "widgets.example.com/ledger"

func (ledger) records(text string) (records map[string]json.RawMessage) {
	_ = json.Unmarshal([]byte(text), &records) // nonsense is no records
	return records
}

func (l ledger) Fetch(o storage.Object, id string) (storage.Record, bool, error) {
	text, ok := l.records(o.GetAnnotations()[annotation])[id]
	if !ok {
		return storage.Record{}, false, nil
	}
	r, err := storage.DecodeRecord(string(text))
	if err != nil {
		return storage.Record{}, false, &storage.CorruptError{Where: "annotation " + annotation, Err: err}
	}
	return r, true, nil
}

// write changes the records as they will be after the patch so far.
func (l ledger) write(p *storage.Patch, change func(records map[string]json.RawMessage)) {
	before, there := p.Annotation(annotation)
	records := l.records(before)
	if records == nil {
		records = map[string]json.RawMessage{}
	}
	change(records)
	if len(records) == 0 {
		p.RemoveAnnotation(annotation)
		return
	}
	after, _ := json.Marshal(records)
	if !there || before != string(after) {
		p.SetManaged(annotation, string(after))
	}
}

func (l ledger) Store(o storage.Object, p *storage.Patch, id string, r storage.Record) {
	l.write(p, func(records map[string]json.RawMessage) { records[id] = json.RawMessage(r.Encode()) })
}

func (l ledger) Purge(o storage.Object, p *storage.Patch, id string) {
	l.write(p, func(records map[string]json.RawMessage) { delete(records, id) })
}

func (l ledger) PurgeOthers(o storage.Object, p *storage.Patch, keep ...string) {
	l.write(p, func(records map[string]json.RawMessage) {
		for id := range records {
			if !slices.Contains(keep, id) {
				delete(records, id)
			}
		}
	})
}

func (l ledger) HasOthers(o storage.Object, keep ...string) bool {
	text, ok := o.GetAnnotations()[annotation]
	if !ok {
		return false // nearly always, and quickly
	}
	records := l.records(text)
	for id := range records {
		if !slices.Contains(keep, id) {
			return true
		}
	}
	return records == nil // nonsense is to be removed
}

func (ledger) Own() storage.Fields {
	return storage.Fields{Prefixes: []string{"widgets.example.com"}}
}

func TestLedger(t *testing.T) {
	storagetest.Progress(t, func() storage.Progress { return ledger{} })
}

// A storage of one's own goes into kopf.Settings.Persistence.ProgressStorage.
func ExampleProgress() {
	o := storagetest.Object(new(testing.T), `{"kind":"Widget","metadata":{"name":"w"}}`)
	p := storage.NewPatch(o)
	ledger{}.Store(o, p, "provision", storage.Record{Purpose: "create", Retries: 1})
	ledger{}.Store(o, p, "notify", storage.Record{Purpose: "create", Success: true})
	fmt.Println(*p.Annotations()[annotation])
	// Output: {"notify":{"purpose":"create","retries":0,"success":true,"failure":false},"provision":{"purpose":"create","retries":1,"success":false,"failure":false}}
}

// For a move from annotations to the status, both are written for as long as there are
// objects that are in the annotations only.
func ExampleMulti() {
	s := storage.Multi(
		storage.StatusProgress(storage.StatusOptions{Name: "widgets"}),
		storage.AnnotationsProgress(storage.DefaultPrefix, storage.AnnotationsOptions{}),
	)
	o := storagetest.Object(new(testing.T), `{"metadata":{"annotations":{"kopf.zalando.org/provision":"{\"retries\":2}"}}}`)
	r, found, err := s.Fetch(o, "provision")
	fmt.Println(r.Retries, found, err)
	// Output: 2 true <nil>
}

// The state that was handled last, in the status, with a field that others change all
// the time and that is nobody's business.
func ExampleStatusLastHandled() {
	s := storage.StatusLastHandled(storage.StatusLastHandledOptions{Ignored: [][]string{{"spec", "replicas"}}})
	o := storagetest.Object(new(testing.T), `{"metadata":{"name":"w"}}`)
	p := storage.NewPatch(o)
	s.Store(o, p, `{"spec":{"size":1}}`)
	text, err := json.Marshal(p.Tree())
	fmt.Println(string(text), err)
	// Output: {"status":{"kopf":{"last-handled-configuration":"{\"spec\":{\"size\":1}}"}}} <nil>
}
