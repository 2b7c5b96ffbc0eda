// Package state is what the operator keeps on an object itself, in Kopf's wire
// format: the names of the annotations, the progress records of handlers, and the
// last handled configuration, which is the essence of the object at the time when
// its handlers had finished.
//
// An operator written with Python's Kopf can be replaced by a Go one, and the
// other way round, because both read and write this format: reference appendix B
// says how it looks, sections 3.3 and 4.3 what it means. Extra things of ours are
// ones that Kopf ignores: the key "digest" of a record and the annotation
// last-handled-uid.
//
// Everything here is a pure function of its arguments: no requests, no clock, no
// state but pooled buffers. It is safe for concurrent use, except for [Changes],
// which belongs to one goroutine.
//
// Bodies are parsed already, so their bytes are known to be valid JSON. The
// functions of walk.go rely on that and are therefore several times faster than a
// decoder that has to check; what comes out of an annotation's value is anybody's
// text and is checked before it is walked.
package state

import "fmt"

// CorruptError says that the value of one of the operator's own annotations is not
// what the operator or Kopf could have written: somebody edited it. Removing the
// annotation is the way out: without it the handler starts from the beginning, or
// the object counts as never handled.
type CorruptError struct {
	// Annotation is the full name, with the prefix.
	Annotation string
	// Err says what is wrong with the value.
	Err error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("annotation %s is not readable, correct or remove it: %v", e.Annotation, e.Err)
}

// Unwrap returns what is wrong with the value.
func (e *CorruptError) Unwrap() error { return e.Err }
