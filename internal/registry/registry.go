package registry

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Registry collects registrations, in order, with the indices that they fill, and the
// mistakes in them. It is safe for concurrent use.
type Registry struct {
	mu       sync.Mutex
	handlers []*Handler
	sound    []*Handler // those of handlers that have no mistakes of their own
	indices  []*NamedIndex
	mistakes []error
}

// Default is the registry of registrations that name none.
var Default = new(Registry)

// Add takes a registration, or the mistakes that were found in it.
func (r *Registry) Add(h *Handler, mistakes ...error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range mistakes {
		r.mistakes = append(r.mistakes, h.Mistake(err))
	}
	for _, other := range r.handlers {
		if h.Kind == Index && other.Index == h.Index {
			h.Feed++
		}
	}
	r.handlers = append(r.handlers, h)
	if len(mistakes) > 0 {
		return // its id may be wrong as well
	}
	if i := slices.IndexFunc(r.sound, h.collides); i >= 0 {
		r.mistakes = append(r.mistakes, h.Mistake(fmt.Errorf(
			"its id is taken by the registration at %s: name one of them with on.ID", r.sound[i].Source)))
	}
	r.sound = append(r.sound, h)
}

// collides tells whether two handlers would share a record of progress, or a result,
// although they are different ones. Those of one kind do, and those of kinds that can be
// called for the same reason (CHG-5, CHG-6), unless they are one function, which is
// called once then (CHG-4, HID-5). Index functions never do: they feed one index (IDX-1).
func (h *Handler) collides(other *Handler) bool {
	return h.Type == other.Type && h.Selector == other.Selector && h.Clashes(other)
}

// Clashes is the part of that which holds on one resource, whatever the selectors:
// different ones can turn out to mean the same.
func (h *Handler) Clashes(other *Handler) bool {
	return h.ID == other.ID && h.Kind != Index &&
		(h.Kind == other.Kind || h.Func != other.Func && (h.joins(other) || other.joins(h)))
}

// joins tells whether h may be called together with a handler of another kind.
func (h *Handler) joins(other *Handler) bool {
	if len(h.Handles) > 0 && h.Keeps() && h.Kind != Delete { // an index calls it whatever the reason is
		return other.Keeps() && other.Kind != Delete
	}
	switch h.Kind {
	case Field:
		return other.Keeps() && other.Kind != Resume
	case Resume:
		return other.Kind == Update || other.Kind == Field || other.Kind == Delete && h.Deleted
	}
	return false
}

// Mistake says of which registration a mistake is, beginning with file and line.
func (h *Handler) Mistake(err error) error {
	return fmt.Errorf("%s: %s: %w", h.Source, h.Name(), err)
}

// Handlers returns the registrations so far, in order.
func (r *Registry) Handlers() []*Handler {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*Handler(nil), r.handlers...)
}

// Err returns all mistakes as one error, or nil.
func (r *Registry) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.mistakes...)
}

// Source returns file:line of the user's call: the nearest one outside of the
// package that skip names.
func Source(skip string) string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if !strings.HasPrefix(frame.Function, skip+".") {
			return fmt.Sprintf("%s:%d", filepath.Join(filepath.Base(filepath.Dir(frame.File)), filepath.Base(frame.File)), frame.Line)
		}
		if !more {
			return "unknown source"
		}
	}
}

// Identify returns a function's code address and its id: the name without the
// package, such as provision, Handlers.Provision or main.func1 (HID-1).
func Identify(fn any) (code uintptr, id string) {
	code = reflect.ValueOf(fn).Pointer()
	name := runtime.FuncForPC(code).Name()
	name = name[strings.LastIndex(name, "/")+1:]
	_, name, _ = strings.Cut(name, ".")
	name = strings.TrimSuffix(name, "-fm") // a method value
	return code, strings.NewReplacer("(*", "", ")", "", "[...]", "").Replace(name)
}
