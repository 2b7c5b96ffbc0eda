package state

import (
	"slices"
	"sync"

	"github.com/kopf-go/kopf/internal/body"
)

// The functions of this file are the ones of before [Store]. They go when nobody
// calls them.

var legacyStores sync.Map

func legacyStore(n Naming, extra [][]string) *Store {
	if extra == nil {
		if s, ok := legacyStores.Load(n.Prefix); ok {
			return s.(*Store)
		}
	}
	s, err := newStore(Config{Naming: n, Extra: extra})
	if err != nil {
		panic(err) // the prefix was checked
	}
	if extra == nil {
		legacyStores.Store(n.Prefix, s)
	}
	return s
}

// EssenceOf is [Store.Essence].
func EssenceOf(b *body.Body, n Naming, extra [][]string) *Essence {
	return legacyStore(n, extra).Essence(b)
}

// LastHandled is [Store.LastHandled].
func LastHandled(b *body.Body, n Naming) (*Essence, bool, error) {
	return legacyStore(n, nil).LastHandled(b)
}

// Handled is [Store.Handled].
func Handled(b *body.Body, n Naming, extra [][]string) (same, known bool, err error) {
	return legacyStore(n, extra).Handled(b)
}

// Foreign is [Store.Foreign].
func Foreign(b *body.Body, n Naming) bool { return legacyStore(n, nil).Foreign(b) }

// NewKeys is [Store.Key].
func NewKeys(n Naming, id string) *Keys { return &Keys{ID: id, legacy: legacyStore(n, nil)} }

// Records is [Store.Records] of the default store.
func Records(b *body.Body, keys ...*Keys) (map[string]Record, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	return keys[0].legacy.Records(b, keys...)
}

// NewChanges is [Store.Changes].
func NewChanges(b *body.Body, n Naming) *Changes { return legacyStore(n, nil).Changes(b) }

// Annotations is [Changes.Patch].
func (c *Changes) Annotations() map[string]*string {
	annotations, _ := c.Patch()
	return annotations
}

// Remove marks that other records are purged.
func (c *Changes) Remove(string) { c.others = true }

// Stray returns a name for each record that is none of the known.
func Stray(b *body.Body, n Naming, known ...*Keys) []string {
	s := legacyStore(n, nil)
	c := s.Changes(b)
	c.PurgeOthers(known...)
	var strays []string
	for name := range c.Annotations() {
		strays = append(strays, name)
	}
	slices.Sort(strays)
	return strays
}
