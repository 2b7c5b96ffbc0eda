package storage

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kopf-go/kopf/internal/rawjson"
)

// AnnotationsOptions are what can be chosen for [AnnotationsProgress]. The zero value is
// Kopf's default.
type AnnotationsOptions struct {
	// TouchKey is the part after the slash of the annotation by which a Python operator
	// wakes itself up. Default: touch-dummy.
	TouchKey string
	// WithoutV1 leaves out the second names that long ids have, by which versions of Kopf
	// before 1.29 find them (B.2.3): records are neither read nor written under them.
	WithoutV1 bool
	// Verbose writes what is absent from a record as null.
	Verbose bool
	// Reserved are the parts after the slash of other annotations under the prefix that are
	// not records of handlers. Those of Kopf and of this library are known.
	Reserved []string
}

// LastHandledOptions are what can be chosen for [AnnotationsLastHandled]. The zero value
// is Kopf's default.
type LastHandledOptions struct {
	// Key is the part after the slash. Default: last-handled-configuration. If it is
	// another one, under the prefix of an [AnnotationsProgress], it has to be reserved
	// there.
	Key string
	// WithoutV1 leaves out the second name that a long key has; see [AnnotationsOptions].
	WithoutV1 bool
	// Ignored are fields whose changes are none of the object, key by key.
	Ignored [][]string
}

// AnnotationsProgress returns the storage that keeps each record in an annotation
// named PREFIX/HANDLER (B.2, B.3): Kopf's AnnotationsProgressStorage. Everything under
// the prefix is taken for a record, but for what is reserved.
//
// Any id gives legal names (B21). Where Kopf's own forms are legal these are exactly
// Kopf's. Where they are not, Kopf could not have stored anything, for the API server
// refuses the whole patch, and we are free: every character that is not allowed becomes
// "_", the ends are trimmed to letters and digits, and 16 hex digits of a hash of the
// raw id follow, so that such ids never share a name:
//
//	"on update [v1]"  kopf.zalando.org/on_update__v1-abe88dcb8d1809e7
//
// The same is done for an id that Kopf would store in one of its bookkeeping
// annotations, such as "touch-dummy". Distinct ids that differ only in "/" against ".",
// or "<>" against "_", share a name as they do in Kopf.
//
// A prefix or key that can't be part of a name, such as an empty one, is reported by
// kopf.New (SET-4).
func AnnotationsProgress(prefix string, o AnnotationsOptions) Progress {
	return newAnnotations(prefix, o)
}

func newAnnotations(prefix string, o AnnotationsOptions) *annotations {
	o.TouchKey = cmp.Or(o.TouchKey, touchKey)
	a := &annotations{AnnotationsOptions: o, prefix: prefix, slash: prefix + "/"}
	for i, mark := range marks {
		a.touch[i] = a.names(kopfNames(prefix, o.TouchKey+mark))
		for _, key := range append([]string{lastHandledKey, o.TouchKey}, o.Reserved...) {
			for _, name := range kopfNames(prefix, key+mark) {
				a.reserved = append(a.reserved, strings.TrimPrefix(name, a.slash))
			}
		}
	}
	return a
}

// Validate reports what can't be part of a name.
func (a *annotations) Validate() error {
	mistakes := []error{checkPrefix(a.prefix), checkKey(a.TouchKey)}
	for _, key := range a.Reserved {
		mistakes = append(mistakes, checkKey(key))
	}
	return errors.Join(mistakes...)
}

func checkPrefix(prefix string) error {
	if prefix == "" {
		return errors.New("the annotation prefix of a storage is empty, choose one like \"widgets.example.com\"")
	}
	if problems := validation.IsDNS1123Subdomain(prefix); len(problems) > 0 {
		return fmt.Errorf("annotation prefix %q is illegal, choose one like \"widgets.example.com\": %s", prefix, strings.Join(problems, "; "))
	}
	return nil
}

func checkKey(key string) error {
	if problems := validation.IsQualifiedName(key); len(problems) > 0 || strings.Contains(key, "/") {
		return fmt.Errorf("annotation key %q is illegal, choose one like %q: %s", key, lastHandledKey, strings.Join(problems, "; "))
	}
	return nil
}

// annotations is an [AnnotationsProgress].
type annotations struct {
	AnnotationsOptions
	prefix   string
	slash    string      // the prefix with the slash
	touch    [2][]string // V2, and V1 if it differs, for each mark
	reserved []string    // parts after the slash

	cache cache
}

// isReserved tells whether the part of a name after the slash is of something else
// than a handler.
func (a *annotations) isReserved(key string) bool {
	return reserved(key) || slices.Contains(a.reserved, key)
}

// names are the names to be used of those that there are.
func (a *annotations) names(all []string) []string {
	if a.WithoutV1 {
		return all[:1]
	}
	return all
}

// namesOf returns the names of the record of a handler, V2 first.
func (a *annotations) namesOf(o Object, id string) []string {
	return a.bothNames(id)[markOf(o)]
}

func (a *annotations) bothNames(id string) *[2][]string {
	return a.cache.get(id, func() (both [2][]string) {
		for i, mark := range marks {
			both[i] = a.names(recordNames(a.prefix, id+mark, a.isReserved))
		}
		return both
	})
}

func (a *annotations) Fetch(o Object, id string) (Record, bool, error) {
	values := o.GetAnnotations()
	if len(values) == 0 {
		return Record{}, false, nil
	}
	for _, name := range a.namesOf(o, id) { // V2 before V1 (B.2.4)
		value, ok := values[name]
		if !ok || strings.Trim(value, rawjson.WhiteSpace) == "null" {
			continue
		}
		r, err := DecodeRecord(value)
		if err != nil {
			return Record{}, false, &CorruptError{Where: "annotation " + name, Err: err}
		}
		return r, true, nil
	}
	return Record{}, false, nil
}

func (a *annotations) Store(o Object, p *Patch, id string, r Record) {
	names := a.namesOf(o, id)
	if old, ok, err := a.Fetch(o, id); ok && err == nil && old.Equal(&r) { // B.3.6
		for _, name := range names {
			p.KeepAnnotation(name)
		}
		return
	}
	value := r.encode(a.Verbose)
	for _, name := range names {
		p.SetManaged(name, value)
	}
}

func (a *annotations) Purge(o Object, p *Patch, id string) {
	for _, name := range a.namesOf(o, id) {
		p.RemoveAnnotation(name)
	}
}

func (a *annotations) PurgeOthers(o Object, p *Patch, keep ...string) {
	for name := range p.annotations {
		if a.isOther(o, name, keep) {
			p.RemoveAnnotation(name)
		}
	}
	for name := range o.GetAnnotations() {
		if a.isOther(o, name, keep) {
			p.RemoveAnnotation(name)
		}
	}
}

func (a *annotations) HasOthers(o Object, keep ...string) bool {
	for name := range o.GetAnnotations() {
		if a.isOther(o, name, keep) {
			return true
		}
	}
	return false
}

// isOther tells whether an annotation is a record, and none of those to keep.
//
// On a ReplicaSet, the names which a handler has for its Deployment count as known, as
// does what the Deployment's handlers have seen: Kubernetes would copy the annotations
// again as long as they are on the Deployment.
func (a *annotations) isOther(o Object, name string, keep []string) bool {
	key, ok := strings.CutPrefix(name, a.slash)
	if !ok || a.isReserved(key) {
		return false
	}
	for _, id := range keep {
		if names := a.bothNames(id); slices.Contains(names[0], name) || slices.Contains(names[1], name) {
			return false
		}
	}
	return true
}

func (a *annotations) RemoveTouch(o Object, p *Patch) {
	for _, name := range a.touch[markOf(o)] {
		p.RemoveAnnotation(name)
	}
}

func (a *annotations) Own() Fields { return Fields{Prefixes: []string{a.prefix}} }

// AnnotationsLastHandled returns the storage that keeps the text in one annotation
// (B.4): Kopf's AnnotationsDiffBaseStorage. A prefix or key that can't be part of a name,
// such as an empty prefix, is reported by kopf.New (SET-4).
func AnnotationsLastHandled(prefix string, o LastHandledOptions) LastHandled {
	o.Key = cmp.Or(o.Key, lastHandledKey)
	a := &lastHandledAnnotation{prefix: prefix, key: o.Key, ignored: o.Ignored}
	for i, mark := range marks {
		a.names[i] = kopfNames(prefix, o.Key+mark)
		if o.WithoutV1 {
			a.names[i] = a.names[i][:1]
		}
	}
	return a
}

// lastHandledAnnotation is an [AnnotationsLastHandled].
type lastHandledAnnotation struct {
	names   [2][]string // V2, and V1 if it differs, for each mark
	prefix  string
	key     string
	ignored [][]string
}

// Validate reports what can't be part of a name.
func (a *lastHandledAnnotation) Validate() error {
	return errors.Join(checkPrefix(a.prefix), checkKey(a.key))
}

func (a *lastHandledAnnotation) Fetch(o Object) (string, error) {
	name, text := a.find(o)
	if name != "" && text == "" {
		return "", &CorruptError{Where: "annotation " + name, Err: errors.New("it is empty")}
	}
	return text, nil
}

// find returns the name that the text has on the object, and the text without white
// space around it (T055): V2 before V1 (B.2.4).
func (a *lastHandledAnnotation) find(o Object) (name, text string) {
	values := o.GetAnnotations()
	if len(values) == 0 {
		return "", ""
	}
	for _, name := range a.names[markOf(o)] {
		if value, ok := values[name]; ok {
			if value = strings.Trim(value, rawjson.WhiteSpace); value != "null" {
				return name, value
			}
		}
	}
	return "", ""
}

func (a *lastHandledAnnotation) Where(o Object) string {
	name, _ := a.find(o)
	return "annotation " + name
}

func (a *lastHandledAnnotation) Store(o Object, p *Patch, text string) {
	for _, name := range a.names[markOf(o)] {
		p.SetManaged(name, text+"\n") // B.4
	}
}

func (a *lastHandledAnnotation) Purge(o Object, p *Patch) {
	for _, name := range a.names[markOf(o)] {
		p.RemoveAnnotation(name)
	}
}

func (a *lastHandledAnnotation) Own() Fields {
	return Fields{Prefixes: []string{a.prefix}, Paths: a.ignored}
}

// cache holds the names of handlers' records, for making them takes hashes. Ids are
// those of handlers, which are few, and of their sub-handlers, of which there may
// come more and more: it starts anew when it is full.
type cache struct {
	names atomic.Pointer[sync.Map] // of id: *[2][]string
	count atomic.Int32
}

const cacheSize = 4096

func (c *cache) get(id string, make func() [2][]string) *[2][]string {
	names := c.names.Load()
	if names == nil || c.count.Load() >= cacheSize {
		names = new(sync.Map)
		c.names.Store(names)
		c.count.Store(0)
	}
	if both, ok := names.Load(id); ok {
		return both.(*[2][]string)
	}
	both := make()
	names.Store(id, &both)
	c.count.Add(1)
	return &both
}
