package registry

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/kopf-go/kopf/indexing"
)

// IndexWriter is an index in its erased form.
type IndexWriter interface {
	indexing.AnyIndex
	Remove(indexing.Owner)
	Clear()
	Len() int
}

// NamedIndex is an index of a registry: the writer, and the handle that users read.
type NamedIndex struct {
	ID     string
	Writer IndexWriter
	Handle reflect.Value // of *indexing.Index[K, V]
	Source string        // file:line of the registration that made it

	claimed bool // by an operator that runs
	stray   bool // made by a mistaken registration, and filled by nothing
}

// entries is the type map[K]V of a *indexing.Index[K, V]; nil of another type.
func entries(t reflect.Type) reflect.Type {
	const name = "Index["
	if t.Kind() != reflect.Pointer || t.Elem().PkgPath() != reflect.TypeFor[indexing.Owner]().PkgPath() ||
		len(t.Elem().Name()) < len(name) || t.Elem().Name()[:len(name)] != name {
		return nil
	}
	first, _ := t.MethodByName("First") // of the receiver and the key
	return reflect.MapOf(first.Type.In(1), first.Type.Out(0))
}

// Feed returns the index that a handler with this id feeds: the one that is there, for
// handlers of one id feed one index (IDX-1), else made. If their types differ, made is
// left alone, and the error says so.
func (r *Registry) Feed(made *NamedIndex) (*NamedIndex, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	there := r.index(made.ID)
	if there != nil && there.Handle.Type() == made.Handle.Type() {
		return there, nil
	}
	r.indices = append(r.indices, made)
	if made.stray = made.ID == "" || there != nil; there == nil {
		return made, nil // one without an id is a mistake, and told already
	}
	return made, fmt.Errorf("its entries are %s, those of the index %s at %s are %s: name one of them with on.ID",
		entries(made.Handle.Type()), there.ID, there.Source, entries(there.Handle.Type()))
}

func (r *Registry) index(id string) *NamedIndex {
	for _, index := range r.indices {
		if index.ID == id && !index.stray {
			return index
		}
	}
	return nil
}

// Connect finds the indices of the registry that handlers use, and sets those that
// they want injected. The handlers are an operator's own copies. If there is any
// mistake in the registry, nothing is injected.
func (r *Registry) Connect(handlers []*Handler) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var mistakes []error
	var injections []func()
	for _, h := range handlers {
		complain := func(err error) { mistakes = append(mistakes, h.Mistake(err)) }
		h.Uses = r.used(h, complain)
		for _, fields := range h.Injections {
			for _, field := range fields {
				if inject, err := r.inject(field); err != nil {
					complain(err)
				} else {
					injections = append(injections, inject)
				}
			}
		}
	}
	if len(mistakes) > 0 || len(r.mistakes) > 0 {
		return errors.Join(mistakes...)
	}
	for _, inject := range injections {
		inject()
	}
	return nil
}

// used are the writers of the indices whose handles a handler has named.
func (r *Registry) used(h *Handler, complain func(error)) (writers []IndexWriter) {
	for _, handle := range h.Handles {
		i := slices.IndexFunc(r.indices, func(index *NamedIndex) bool { return index.Handle.Interface() == handle })
		switch {
		case i < 0:
			complain(errors.New("on.Uses: the index is not one of the handler's registry: register both in the same one"))
		case r.indices[i].stray: // the mistake was told where it was made
		case !slices.Contains(writers, r.indices[i].Writer):
			writers = append(writers, r.indices[i].Writer)
		}
	}
	return writers
}

// Claim takes the registry's indices for an operator that runs, empty, until it
// releases them, empty again. It fails if another one has them, for each operator
// would remove what the other one has filled in.
func (r *Registry) Claim() (release func(), err error) {
	claimed, err := r.claim()
	if err != nil {
		return nil, err
	}
	clear := func() {
		for _, index := range claimed {
			index.Writer.Clear()
		}
	}
	clear()
	return sync.OnceFunc(func() {
		clear()
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, index := range claimed {
			index.claimed = false
		}
	}), nil
}

func (r *Registry) claim() ([]*NamedIndex, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, index := range r.indices {
		if index.claimed {
			return nil, fmt.Errorf("index %s is filled by another operator that runs: "+
				"give each a registry of its own (kopf.NewRegistry, on.In)", index.ID)
		}
	}
	for _, index := range r.indices {
		index.claimed = true
	}
	return slices.Clone(r.indices), nil
}
