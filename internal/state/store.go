package state

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/rawjson"
	"github.com/kopf-go/kopf/storage"
)

// Config says what a [Store] keeps, and where.
type Config struct {
	// Naming is the operator's. Its prefix is that of what no storage keeps, too: the UID
	// that the last-handled state belongs to, and what handlers have seen.
	Naming Naming
	// Progress keeps records. Default: [storage.Smart] under the prefix of Naming.
	Progress storage.Progress
	// LastHandled keeps the last-handled state. Default:
	// [storage.AnnotationsLastHandled] under the prefix of Naming.
	LastHandled storage.LastHandled
	// Extra are the fields that count although they are not essential (ESS-3).
	Extra [][]string
	// Sensitive are the fields whose values are never kept, but digests of them.
	Sensitive [][]string
	// Secret tells that the resource is core/v1 secrets: their data are sensitive.
	Secret bool
	// DigestKey is mixed into the digests of sensitive values, so that they can't be
	// guessed by who does not know it. Without it, those of short values can be found by
	// trying, though not recognised across objects.
	DigestKey []byte
	// RecordLimit is the size in bytes from which the last-handled state is compressed.
	// Default: 64 KiB.
	RecordLimit int
}

// DefaultRecordLimit is the default of Config.RecordLimit.
const DefaultRecordLimit = 64 << 10

// Store keeps the state of one operator on the objects of one resource. It is
// immutable and safe for concurrent use.
type Store struct {
	naming      Naming
	progress    storage.Progress
	lastHandled storage.LastHandled
	selection   selection
	rules       *rules // nil: everything that is selected is essential, and not sensitive
	limit       int
	names       [2]bookkeeping // by mark
}

// bookkeeping are the names of annotations that no storage keeps.
type bookkeeping struct{ uid, seenPrefix, seenSuffix string }

// Keys is a handler's place in a store. Make it with [Store.Key].
type Keys struct {
	// ID is the raw handler id, as it is used in results and subrefs.
	ID string
}

// NewStore makes a store. It fails if the storages get in each other's way.
func NewStore(c Config) (*Store, error) {
	s, err := newStore(c)
	if err != nil {
		return nil, err
	}
	return s, s.check()
}

func newStore(c Config) (*Store, error) {
	if c.Progress == nil {
		c.Progress = storage.Smart(c.Naming.Prefix, storage.AnnotationsOptions{}, storage.StatusOptions{})
	}
	if c.LastHandled == nil {
		c.LastHandled = storage.AnnotationsLastHandled(c.Naming.Prefix, storage.LastHandledOptions{})
	}
	var mistakes []error
	for _, s := range []any{c.Progress, c.LastHandled} {
		if v, ok := s.(storage.Validator); ok {
			mistakes = append(mistakes, v.Validate())
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	if c.RecordLimit < 0 {
		return nil, fmt.Errorf("the limit of a record is %d bytes: give a positive one, or none for the default", c.RecordLimit)
	}
	if c.RecordLimit == 0 {
		c.RecordLimit = DefaultRecordLimit
	}
	s := &Store{naming: c.Naming, progress: c.Progress, lastHandled: c.LastHandled, limit: c.RecordLimit}
	s.selection = selection{prefixes: []string{c.Naming.Prefix}, extra: c.Extra}
	var excluded [][]string
	for _, own := range []storage.Fields{c.LastHandled.Own(), c.Progress.Own()} {
		for _, prefix := range own.Prefixes {
			if !slices.Contains(s.selection.prefixes, prefix) {
				s.selection.prefixes = append(s.selection.prefixes, prefix)
			}
		}
		for _, path := range own.Paths {
			if s.selection.reaches(path) {
				excluded = append(excluded, path)
			}
		}
	}
	s.rules = newRules(c, excluded)
	for i, mark := range marks {
		s.names[i] = bookkeeping{
			uid: c.Naming.Prefix + "/" + uidKey + mark, seenPrefix: c.Naming.Prefix + "/" + seenKey, seenSuffix: mark,
		}
	}
	return s, nil
}

// check tries whether the storages get in each other's way.
func (s *Store) check() error {
	empty, err := probe(storage.NewPatch(nobody))
	if err != nil {
		return err
	}
	if s.progress.HasOthers(empty) {
		return errors.New("the progress storage finds records on an object that has none: test it with package storagetest")
	}
	patch := storage.NewPatch(empty)
	s.storeText(empty, patch, "{}")
	handled, err := probe(patch)
	if err != nil {
		return err
	}
	if s.progress.HasOthers(handled) {
		return errors.New("the progress storage takes the last-handled state for a record of a handler: " +
			"give them different prefixes or fields, or reserve the key of the last-handled state in the progress storage")
	}
	if text, err := s.lastHandled.Fetch(handled); text != "{}" || err != nil {
		return fmt.Errorf("the storage of the last-handled state does not find what it has stored, test it with package storagetest: %w",
			errors.Join(errors.New("it found "+fmt.Sprintf("%q", text)), err))
	}
	return nil
}

// Key returns a handler's place in the store.
func (s *Store) Key(id string) *Keys { return &Keys{ID: id} }

// Essence takes the essence of an object: one pass over its bytes, two allocations,
// nothing is decoded. With sensitive or ignored fields it is one pass more.
func (s *Store) Essence(b *body.Body) *Essence {
	buffer := rawjson.GetBuffer()
	defer rawjson.PutBuffer(buffer)
	*buffer = s.appendEssence(*buffer, b)
	return &Essence{text: bytes.Clone(*buffer)}
}

func (s *Store) appendEssence(dst []byte, b *body.Body) []byte {
	if s.rules == nil {
		return appendEssence(dst, b, s.selection)
	}
	buffer := rawjson.GetBuffer()
	defer rawjson.PutBuffer(buffer)
	*buffer = appendEssence(*buffer, b, s.selection)
	dst, _ = s.rules.apply(dst, *buffer, b.UID, false)
	return dst
}

// LastHandled reads the essence that the object had when its handlers had last
// finished (3.4). known is false if there is none, and if the one that is there
// was made for another object (see [Store.Foreign]); then the object is a new one. One
// that can't be read is a *[CorruptError].
func (s *Store) LastHandled(b *body.Body) (last *Essence, known bool, err error) {
	text, err := s.lastHandledText(b)
	if text == "" || err != nil {
		return nil, false, err
	}
	last, _, err = s.decode(b, text)
	if err != nil {
		return nil, false, s.corrupt(b, err)
	}
	return last, true, nil
}

// Handled tells whether the essence of the object is the one that was last handled
// (same), provided that there is one (known). It is what [Store.Essence],
// [Store.LastHandled] and [Essence.Equal] would say together, but for an object that
// nothing has happened to, which is nearly every one at a restart, nothing is decoded
// and nothing kept. A last-handled state that exposes sensitive values (see
// [Store.Exposed]) is not the same.
func (s *Store) Handled(b *body.Body) (same, known bool, err error) {
	text, err := s.lastHandledText(b)
	if text == "" || err != nil {
		return false, false, err
	}
	buffer := rawjson.GetBuffer()
	defer rawjson.PutBuffer(buffer)
	*buffer = s.appendEssence(*buffer, b)
	if string(*buffer) == text {
		return true, true, nil
	}
	if s.rules == nil && !isForm(text) { // without a copy
		raw, err := checked([]byte(text))
		if err != nil {
			return false, false, s.corrupt(b, err)
		}
		return rawjson.Equal(*buffer, raw), true, nil
	}
	last, exposed, err := s.decode(b, text)
	if err != nil {
		return false, false, s.corrupt(b, err)
	}
	if exposed {
		return false, true, nil
	}
	return last.Equal(&Essence{text: *buffer}), true, nil
}

// Exposed tells whether the last-handled state on the object holds sensitive values as
// they are: it was written by Python, or before they were marked. It should be
// written again at once, with [Changes.StoreLastHandled]; no handler need be called.
func (s *Store) Exposed(b *body.Body) bool {
	if s.rules == nil || len(s.rules.hidden) == 0 {
		return false
	}
	text, err := s.lastHandledText(b)
	if text == "" || err != nil {
		return false
	}
	_, exposed, err := s.decode(b, text)
	return err == nil && exposed
}

// Foreign tells whether the operator's state was made for another object, whose UID it
// names: the manifest was exported and applied again, under this or another name, and
// the annotations travelled along (B23). The last-handled state then counts as absent.
// Progress records are to be taken as absent too, and to be purged: see
// [Changes.Disown]. State that names no UID, as Python's, is trusted.
func (s *Store) Foreign(b *body.Body) bool {
	if len(b.Annotations) == 0 {
		return false
	}
	uid, ok := b.Annotations[s.names[markOf(b)].uid]
	return ok && uid != string(b.UID)
}

// Records reads the progress of handlers: by id, for those that have any on the
// object. Records that can't be read are left out and reported together, each as a
// *[CorruptError]; the others are good to use.
//
// Records that came along with a copied manifest are read as well; whoever asks
// for them is to look at [Store.Foreign] first.
func (s *Store) Records(b *body.Body, keys ...*Keys) (map[string]Record, error) {
	var (
		found  map[string]Record
		broken []error
	)
	if !s.progress.HasOthers(b) { // none at all
		return nil, nil
	}
	for _, k := range keys {
		r, ok, err := s.progress.Fetch(b, k.ID)
		if err != nil {
			broken = append(broken, err)
		}
		if err != nil || !ok {
			continue
		}
		if found == nil {
			found = make(map[string]Record, len(keys))
		}
		found[k.ID] = r
	}
	return found, errors.Join(broken...)
}

// HasStray tells whether there is anything on the object that [Changes.PurgeOthers]
// would remove. It is quick when there is nothing, which is nearly always.
func (s *Store) HasStray(b *body.Body, known ...*Keys) bool {
	return s.progress.HasOthers(b, ids(known)...) || s.hasStraySeen(b, known)
}

func ids(keys []*Keys) []string {
	if len(keys) == 0 {
		return nil
	}
	ids := make([]string, len(keys))
	for i, k := range keys {
		ids[i] = k.ID
	}
	return ids
}

// lastHandledText finds the text that counts for the object.
func (s *Store) lastHandledText(b *body.Body) (string, error) {
	text, err := s.lastHandled.Fetch(b)
	if text == "" && err == nil || s.Foreign(b) {
		return "", nil
	}
	return text, err
}

// storeText writes the text and the UID of the object that it is for.
func (s *Store) storeText(b *body.Body, p *storage.Patch, text string) {
	s.lastHandled.Store(b, p, text)
	p.SetManaged(s.names[markOf(b)].uid, string(b.UID))
}

// isHandled tells whether there is a last-handled state, readable or not.
func (s *Store) isHandled(b *body.Body) bool {
	text, err := s.lastHandled.Fetch(b)
	return err != nil || text != ""
}

// corrupt names the place of a text that can't be read.
func (s *Store) corrupt(b *body.Body, err error) error {
	where := "the last-handled state"
	if w, ok := s.lastHandled.(interface {
		Where(storage.Object) string
	}); ok {
		where = w.Where(b)
	}
	return &CorruptError{Where: where, Err: err}
}
