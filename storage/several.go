package storage

import "errors"

// Multi returns a storage that writes each record to all of the storages, and reads the
// first that has it: Kopf's MultiProgressStorage. It is for moving from one storage to
// another: run it until all objects are in the new one (SET-6).
func Multi(storages ...Progress) Progress { return multi(storages) }

type multi []Progress

func (m multi) Fetch(o Object, id string) (Record, bool, error) {
	for _, s := range m {
		if r, ok, err := s.Fetch(o, id); ok || err != nil {
			return r, ok, err
		}
	}
	return Record{}, false, nil
}

func (m multi) Store(o Object, p *Patch, id string, r Record) {
	for _, s := range m {
		s.Store(o, p, id, r)
	}
}

func (m multi) Purge(o Object, p *Patch, id string) {
	for _, s := range m {
		s.Purge(o, p, id)
	}
}

func (m multi) PurgeOthers(o Object, p *Patch, keep ...string) {
	for _, s := range m {
		s.PurgeOthers(o, p, keep...)
	}
}

func (m multi) HasOthers(o Object, keep ...string) bool {
	for _, s := range m {
		if s.HasOthers(o, keep...) {
			return true
		}
	}
	return false
}

func (m multi) RemoveTouch(o Object, p *Patch) {
	for _, s := range m {
		if t, ok := s.(TouchRemover); ok {
			t.RemoveTouch(o, p)
		}
	}
}

// Validate reports the mistakes of all.
func (m multi) Validate() error { return validated(m) }

func validated[S any](storages []S) error {
	var mistakes []error
	for _, s := range storages {
		if v, ok := any(s).(Validator); ok {
			mistakes = append(mistakes, v.Validate())
		}
	}
	if len(storages) == 0 {
		mistakes = append(mistakes, errors.New("a storage is made of no storages: give it one"))
	}
	return errors.Join(mistakes...)
}

func (m multi) Own() (own Fields) {
	for _, s := range m {
		own = own.with(s.Own())
	}
	return own
}

// Smart returns the storage that is the default, Kopf's SmartProgressStorage: it reads
// and writes annotations; and what older versions of Kopf have left in the status it
// reads if there is no annotation, and purges, but never writes (T066).
func Smart(prefix string, a AnnotationsOptions, s StatusOptions) Progress {
	return multi{newAnnotations(prefix, a), unwritten{newStatus(s)}}
}

// unwritten is a status storage that is emptied. The touch value was never removed by
// it in Kopf; here it is.
type unwritten struct{ *status }

// Store does nothing: what is in the status stays until the record is purged.
func (unwritten) Store(Object, *Patch, string, Record) {}

// MultiLastHandled returns a storage that writes to all of the storages, and reads the
// first that has a text: Kopf's MultiDiffBaseStorage. See [Multi] for its use.
func MultiLastHandled(storages ...LastHandled) LastHandled { return multiLastHandled(storages) }

type multiLastHandled []LastHandled

func (m multiLastHandled) Fetch(o Object) (string, error) {
	for _, s := range m {
		if text, err := s.Fetch(o); text != "" || err != nil {
			return text, err
		}
	}
	return "", nil
}

func (m multiLastHandled) Where(o Object) string {
	for _, s := range m {
		if text, _ := s.Fetch(o); text != "" {
			if w, ok := s.(interface{ Where(Object) string }); ok {
				return w.Where(o)
			}
		}
	}
	return "the last-handled state"
}

func (m multiLastHandled) Store(o Object, p *Patch, text string) {
	for _, s := range m {
		s.Store(o, p, text)
	}
}

func (m multiLastHandled) Purge(o Object, p *Patch) {
	for _, s := range m {
		s.Purge(o, p)
	}
}

// Validate reports the mistakes of all.
func (m multiLastHandled) Validate() error { return validated(m) }

func (m multiLastHandled) Own() (own Fields) {
	for _, s := range m {
		own = own.with(s.Own())
	}
	return own
}
