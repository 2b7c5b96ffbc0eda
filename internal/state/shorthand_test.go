package state

import (
	"slices"
	"sync"

	"github.com/kopf-go/kopf/internal/body"
)

// What most tests need of a store: the one with Kopf's own storages under a prefix.

var plainStores sync.Map

func plain(n Naming, extra [][]string) *Store {
	if s, ok := plainStores.Load(n.Prefix); ok && extra == nil {
		return s.(*Store)
	}
	s, err := newStore(Config{Naming: n, Extra: extra})
	if err != nil {
		panic(err)
	}
	if extra == nil {
		plainStores.Store(n.Prefix, s)
	}
	return s
}

// EssenceOf is [Store.Essence].
func EssenceOf(b *body.Body, n Naming, extra [][]string) *Essence {
	return plain(n, extra).Essence(b)
}

// LastHandled is [Store.LastHandled].
func LastHandled(b *body.Body, n Naming) (*Essence, bool, error) {
	return plain(n, nil).LastHandled(b)
}

// Handled is [Store.Handled].
func Handled(b *body.Body, n Naming, extra [][]string) (same, known bool, err error) {
	return plain(n, extra).Handled(b)
}

// Foreign is [Store.Foreign].
func Foreign(b *body.Body, n Naming) bool { return plain(n, nil).Foreign(b) }

// NewKeys is [Store.Key].
func NewKeys(n Naming, id string) *Keys { return plain(n, nil).Key(id) }

// Records is [Store.Records] of the default store.
func Records(b *body.Body, keys ...*Keys) (map[string]Record, error) {
	return plain(Default(), nil).Records(b, keys...)
}

// NewChanges is [Store.Changes].
func NewChanges(b *body.Body, n Naming) *Changes { return plain(n, nil).Changes(b) }

// Annotations is [Changes.Patch].
func (c *Changes) Annotations() map[string]*string {
	annotations, _ := c.Patch()
	return annotations
}

// Remove marks that other records are purged.
func (c *Changes) Remove(string) { c.others = true }

// Stray returns a name for each record that is none of the known.
func Stray(b *body.Body, n Naming, known ...*Keys) []string {
	s := plain(n, nil)
	c := s.Changes(b)
	c.PurgeOthers(known...)
	var strays []string
	for name := range c.Annotations() {
		strays = append(strays, name)
	}
	slices.Sort(strays)
	return strays
}
