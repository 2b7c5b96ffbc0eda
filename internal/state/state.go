// Package state is what the operator keeps on an object itself, in Kopf's wire
// format: the names of the annotations, the progress records of handlers, and the
// last handled configuration, which is the essence of the object at the time when
// its handlers had finished.
//
// An operator written with Python's Kopf can be replaced by a Go one, and the
// other way round, because both read and write this format: reference appendix B
// says how it looks, sections 3.3 and 4.3 what it means. Extra things of ours are
// ones that Kopf ignores: the key "digest" of a record, the annotations
// last-handled-uid and seen-*, and the compressed forms of what is too large.
//
// Where on the object all this is kept is the business of package storage. Here are
// what is kept, when it counts, and what is done when there is no room for it.
//
// Everything here is a pure function of its arguments: no requests, no clock, no
// state but pooled buffers. It is safe for concurrent use, except for [Changes],
// which belongs to one goroutine.
package state

import "github.com/kopf-go/kopf/storage"

// Record is the progress of one handler on one object; see package storage.
type Record = storage.Record

// CorruptError says that what was kept on an object is not readable.
type CorruptError = storage.CorruptError

// DecodeRecord reads a record from its JSON text.
func DecodeRecord(text string) (Record, error) { return storage.DecodeRecord(text) }

// SameNames tells whether two handler ids would keep their progress in the same
// annotation, as "a/b" and "a.b" do.
func SameNames(a, b string) bool { return storage.SameNames(a, b) }
