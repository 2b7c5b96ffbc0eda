package storagetest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kopf-go/kopf/storage"
	"github.com/kopf-go/kopf/storage/storagetest"
)

func TestKopfsProgressStorages_SET3(t *testing.T) {
	const kopf, own = storage.DefaultPrefix, "widgets.example.com"
	for name, s := range map[string]func() storage.Progress{
		"annotations": func() storage.Progress { return storage.AnnotationsProgress(kopf, storage.AnnotationsOptions{}) },
		"annotations, verbose": func() storage.Progress {
			return storage.AnnotationsProgress(kopf, storage.AnnotationsOptions{Verbose: true})
		},
		"annotations, own": func() storage.Progress {
			return storage.AnnotationsProgress(own, storage.AnnotationsOptions{TouchKey: "wake", WithoutV1: true, Reserved: []string{"create_fn"}})
		},
		"annotations, long prefix": func() storage.Progress {
			return storage.AnnotationsProgress(strings.Repeat("a.", 100)+"b", storage.AnnotationsOptions{})
		},
		"status":      func() storage.Progress { return storage.StatusProgress(storage.StatusOptions{}) },
		"status, own": func() storage.Progress { return storage.StatusProgress(storage.StatusOptions{Name: "widgets"}) },
		"field": func() storage.Progress {
			return storage.StatusProgress(storage.StatusOptions{Field: "spec.operator.progress"})
		},
		"smart": func() storage.Progress {
			return storage.Smart(kopf, storage.AnnotationsOptions{}, storage.StatusOptions{})
		},
		"multi": func() storage.Progress {
			return storage.Multi(
				storage.AnnotationsProgress(own, storage.AnnotationsOptions{}), storage.StatusProgress(storage.StatusOptions{}),
			)
		},
	} {
		t.Run(name, func(t *testing.T) { storagetest.Progress(t, s) })
	}
}

func TestKopfsLastHandledStorages_DB5(t *testing.T) {
	const kopf, own = storage.DefaultPrefix, "widgets.example.com"
	for name, s := range map[string]func() storage.LastHandled{
		"annotations": func() storage.LastHandled { return storage.AnnotationsLastHandled(kopf, storage.LastHandledOptions{}) },
		"annotations, own": func() storage.LastHandled {
			return storage.AnnotationsLastHandled(own, storage.LastHandledOptions{Key: strings.Repeat("k", 60), WithoutV1: true})
		},
		"annotations, two names": func() storage.LastHandled {
			return storage.AnnotationsLastHandled(own, storage.LastHandledOptions{Key: strings.Repeat("k", 60)})
		},
		"status": func() storage.LastHandled { return storage.StatusLastHandled(storage.StatusLastHandledOptions{}) },
		"field": func() storage.LastHandled {
			return storage.StatusLastHandled(storage.StatusLastHandledOptions{Name: "w", Field: "operators.{name}.handled"})
		},
		"multi": func() storage.LastHandled {
			return storage.MultiLastHandled(
				storage.StatusLastHandled(storage.StatusLastHandledOptions{}), storage.AnnotationsLastHandled(own, storage.LastHandledOptions{}),
			)
		},
	} {
		t.Run(name, func(t *testing.T) { storagetest.LastHandled(t, s) })
	}
}

// recorder is a testing.TB that only notes what is wrong.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// flawed is a storage with a mistake.
type flawed struct {
	storage.Progress
	flaw string
}

func (f flawed) Purge(o storage.Object, p *storage.Patch, id string) {
	if f.flaw != "Purge leaves" {
		f.Progress.Purge(o, p, id)
	}
}

func (f flawed) HasOthers(o storage.Object, keep ...string) bool {
	return f.flaw != "HasOthers" && f.Progress.HasOthers(o, keep...)
}

func (f flawed) Own() storage.Fields {
	if f.flaw == "Own does not say" {
		return storage.Fields{}
	}
	return f.Progress.Own()
}

func (f flawed) Store(o storage.Object, p *storage.Patch, id string, r storage.Record) {
	if f.flaw == "is fetched as" || f.flaw == "fetched as" {
		r.Message = ""
	}
	f.Progress.Store(o, p, id, r)
}

func (f flawed) Fetch(o storage.Object, id string) (storage.Record, bool, error) {
	r, ok, err := f.Progress.Fetch(o, id)
	if f.flaw == "Fetch finds" {
		ok = true
	}
	return r, ok, err
}

// A conformance test that passes everything is worth nothing.
func TestMistakesAreFound(t *testing.T) {
	for _, flaw := range []string{"Purge leaves", "HasOthers", "Own does not say", "fetched as", "Fetch finds"} {
		r := &recorder{TB: t}
		storagetest.Progress(r, func() storage.Progress {
			return flawed{storage.AnnotationsProgress("widgets.example.com", storage.AnnotationsOptions{}), flaw}
		})
		if all := strings.Join(r.errors, "\n"); !strings.Contains(all, flaw) {
			t.Errorf("%s is not found, but only %.1000s", flaw, all)
		}
	}
}
