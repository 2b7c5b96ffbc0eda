// Package storage says where an operator keeps what it needs to know of an object on
// the object itself: the progress of handlers, and the state that was handled last.
//
// The defaults are those of Kopf, so that an operator written in Python can be
// replaced by a Go one and the other way round: annotations, see [AnnotationsProgress]
// and [AnnotationsLastHandled]. The others that Kopf has are here too: the status
// ([StatusProgress], [StatusLastHandled]), and several at once, for a transition
// ([Multi], [MultiLastHandled]). Changing the storage of a running operator without a
// transition makes every object look new: its creation handlers run again (SET-6).
//
// You can have your own by implementing [Progress] or [LastHandled]; package
// storagetest checks it. They are set in kopf.Settings.Persistence.
//
// A storage makes no requests. It reads an [Object] and adds to a [Patch], which goes
// to the API server together with everything else that is to be written. Storages are
// used by many goroutines at once.
package storage

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is one version of an object. It is read-only: what its methods return is
// shared. Reading metadata is free; see the other methods for their costs.
type Object interface {
	GroupVersionKind() schema.GroupVersionKind
	GetNamespace() string
	GetName() string
	GetUID() types.UID
	GetLabels() map[string]string
	GetAnnotations() map[string]string
	GetOwnerReferences() []metav1.OwnerReference
	// Raw returns the object's JSON. It is free.
	Raw() []byte
	// Tree returns the object as maps, slices, strings, bools, int64 and float64. It is
	// decoded on the first call, which costs some 20 µs per KB.
	Tree() (map[string]any, error)
}

// Progress keeps the records of handlers on objects. Ids are those of handlers, such
// as "provision" or "resize/spec.size"; any text is possible.
type Progress interface {
	// Fetch reads the record of a handler; ok is false if there is none. A record that
	// is there and can't be read is a *[CorruptError].
	Fetch(o Object, id string) (r Record, ok bool, err error)
	// Store adds the record of a handler to the patch. What is there is replaced.
	Store(o Object, p *Patch, id string, r Record)
	// Purge adds the removal of the record of a handler (PRG-5). A record that is only in
	// the patch is taken out of it; one that is nowhere is nothing (T064): the methods of
	// Patch see to that.
	Purge(o Object, p *Patch, id string)
	// PurgeOthers adds the removal of all records but these: of handlers that were renamed
	// or removed since, too. It must also remove what can't be read.
	PurgeOthers(o Object, p *Patch, keep ...string)
	// HasOthers tells whether there are records other than these: whether PurgeOthers would
	// remove something. Of none given, whether there are records at all. It is asked for every event of every object, so it should be quick
	// if there are none; Tree is too slow for it.
	HasOthers(o Object, keep ...string) bool
	// Own says what of an object is the storage's own, and therefore never counts as a
	// change of the object (ESS-4). It is asked once.
	Own() Fields
}

// LastHandled keeps the state that an object had when its handlers had last
// finished: its essence, as JSON. What the text is like is not the storage's business;
// it may be compressed, or digests only, and is always a JSON object.
type LastHandled interface {
	// Fetch reads the text, or returns none, which stands for a new object.
	Fetch(o Object) (text string, err error)
	// Store adds the text to the patch. What is there is replaced.
	Store(o Object, p *Patch, text string)
	// Purge adds the removal of the text.
	Purge(o Object, p *Patch)
	// Own says what of an object is the storage's own (ESS-4), and which other fields
	// shall not count as changes of the object. It is asked once.
	Own() Fields
}

// Fields are parts of objects.
type Fields struct {
	// Prefixes are those of annotations: all before the slash of their names.
	Prefixes []string
	// Paths lead to fields, key by key. They lead through objects only, not into lists.
	Paths [][]string
}

func (f Fields) with(other Fields) Fields {
	return Fields{Prefixes: append(f.Prefixes, other.Prefixes...), Paths: append(f.Paths, other.Paths...)}
}

// TouchRemover is a [Progress] that removes what a Python operator may have left
// over: the value by which it wakes itself up (B.5). We never write it.
type TouchRemover interface {
	// RemoveTouch adds the removal of the value, if it is there (T065).
	RemoveTouch(o Object, p *Patch)
}

// Validator is a storage whose parameters can be wrong: kopf.New reports it.
type Validator interface {
	Validate() error
}

// CorruptError says that what was kept on an object is not what the operator or Kopf
// could have written: somebody edited it. Removing it is the way out: without it the
// handler starts from the beginning, or the object counts as never handled.
type CorruptError struct {
	// Where names the place, such as "annotation kopf.zalando.org/create_fn".
	Where string
	// Err says what is wrong there.
	Err error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is not readable, correct or remove it: %v", e.Where, e.Err)
}

// Unwrap returns what is wrong there.
func (e *CorruptError) Unwrap() error { return e.Err }
