package stream

import (
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kopf-go/kopf/internal/body"
)

// store is what the reflector writes to. It turns that into events, and keeps no
// more of an object than is needed to notice, when everything is listed anew,
// that it has changed, vanished or been re-created. Its texts are those of the
// object's last body, which has them apart from its bytes.
//
// One goroutine at a time uses it: the reflector's, or the one that lists while
// the reflector waits for it.
type store struct {
	kind metav1.TypeMeta
	emit func(Event)
	fail func(*marked)
	sync func() // the listing is complete

	known  map[key]alive
	round  uint32 // counts the listings
	synced bool   // a listing has been completed
}

// key is unique among the living objects of one resource. The UID would be, too,
// but a few aggregated APIs have objects without (WCH-8), and the re-created must
// be told from the vanished by name.
type key struct{ namespace, name string }

type alive struct {
	uid     types.UID
	version string
	round   uint32 // the last listing that had it, or during which it was changed
}

var _ cache.TransformingStore = &store{}

// begin starts a listing. Whatever it does not touch is gone when it is complete.
func (s *store) begin() { s.round++ }

// Transformer is called for each object of a streamed list while that is still
// coming in. The object is handed out at once and only an empty stub stays in the
// reflector's temporary store; otherwise all objects were in memory together.
//
// (It rules out client-go's KUBE_WATCHLIST_INCONSISTENCY_DETECTOR, a thing for CI.)
func (s *store) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		s.see(object, true)
		return stub{}, nil
	}
}

type stub struct{}

// Replace ends a listing, whose objects have all been seen before.
func (s *store) Replace([]any, string) error {
	for at, was := range s.known {
		if was.round != s.round {
			s.missed(at, was)
		}
	}
	s.synced = true
	s.sync()
	return nil
}

func (s *store) Add(object any) error    { s.see(object, false); return nil }
func (s *store) Update(object any) error { s.see(object, false); return nil }
func (s *store) Resync() error           { return nil }

func (s *store) Delete(object any) error {
	switch object := object.(type) {
	case *body.Body:
		s.gone(object, nil)
	case *marked:
		s.gone(object.Body, object.err)
	}
	return nil
}

// see takes note of an object that came in a list or as a change.
func (s *store) see(object any, listing bool) {
	switch object := object.(type) {
	case *body.Body:
		s.present(object, listing)
	case *marked:
		if object.deleted {
			s.gone(object.Body, object.err)
			return
		}
		s.unreadable(object)
	}
}

func (s *store) present(b *body.Body, listing bool) {
	at := keyOf(b)
	was, known := s.known[at]
	if known && was.uid != b.UID {
		s.missed(at, was)
		known = false
	}
	s.known[at] = alive{uid: b.UID, version: b.ResourceVersion, round: s.round}
	switch {
	case !known && listing && !s.synced:
		s.emit(Event{Type: Listed, Body: b})
	case !known:
		s.emit(Event{Type: Added, Body: b})
	case was.version != b.ResourceVersion || b.ResourceVersion == "":
		s.emit(Event{Type: Modified, Body: b})
	}
}

// unreadable keeps the object alive if it was, but makes no event of it. Once it
// is readable again, it is modified, or added if it had never been readable.
func (s *store) unreadable(object *marked) {
	at := keyOf(object.Body)
	was, known := s.known[at]
	switch {
	case known && object.UID != "" && object.UID != was.uid:
		s.missed(at, was)
	case known:
		was.round = s.round
		s.known[at] = was
	}
	s.fail(object)
}

// gone takes note of a deletion that was seen.
func (s *store) gone(b *body.Body, unreadable error) {
	at := keyOf(b)
	was, known := s.known[at]
	switch {
	case known && b.UID != "" && was.uid != b.UID:
		return // was missed and reported when its successor showed up
	case unreadable == nil:
		delete(s.known, at)
		s.emit(Event{Type: Deleted, Body: b})
	case known:
		s.missed(at, was)
	}
}

// missed reports a deletion that nobody saw.
func (s *store) missed(at key, was alive) {
	delete(s.known, at)
	s.emit(Event{Type: Deleted, Missed: true, Body: body.Identify(s.kind, at.namespace, at.name, was.uid, was.version)})
}

func keyOf(b *body.Body) key {
	// Namespaces repeat. Names, UIDs and versions hardly do.
	return key{unique.Make(b.Namespace).Value(), b.Name}
}
