package decisions

import (
	"container/list"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The limits of a ring: the last PerObject decisions of each of the last Objects objects
// that there were decisions for, and no more than Bytes, about, in all.
const (
	PerObject = 16
	Objects   = 1000
	Bytes     = 8 << 20
)

// Ring keeps the last decisions. The nil ring keeps nothing. It is in memory only, and safe
// for concurrent use.
type Ring struct {
	mu          sync.Mutex
	objects     map[types.UID]*list.Element // of *History
	recent      list.List                   // the most recent first
	bytes       int
	next        int
	subscribers map[int]*Subscription
}

// History is what was decided for an object, the last first.
type History struct {
	Object
	Decisions []Decision `json:"decisions,omitempty"`
}

// News is a decision that was just made.
type News struct {
	Object   Object   `json:"object"`
	Decision Decision `json:"decision"`
}

// NewRing makes an empty ring.
func NewRing() *Ring {
	return &Ring{objects: map[types.UID]*list.Element{}, subscribers: map[int]*Subscription{}}
}

// Record keeps a decision, and forgets older ones to make room. What was decided before in
// just the same way is counted only.
func (r *Ring) Record(o Object, d Decision) {
	if r == nil {
		return
	}
	d.bound()
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.objects[o.UID]
	if at == nil {
		at = r.recent.PushFront(&History{Object: o})
		r.objects[o.UID] = at
		r.bytes += objectSize(o)
	}
	r.recent.MoveToFront(at)
	h := at.Value.(*History)
	if len(h.Decisions) > 0 && d.same(&h.Decisions[0]) {
		d.Repeated = h.Decisions[0].Repeated + 1
		r.bytes -= h.Decisions[0].size()
		h.Decisions[0] = d
	} else {
		h.Decisions = slices.Insert(h.Decisions, 0, d)
		for len(h.Decisions) > PerObject {
			last := len(h.Decisions) - 1
			r.bytes -= h.Decisions[last].size()
			h.Decisions[last] = Decision{}
			h.Decisions = h.Decisions[:last]
		}
	}
	r.bytes += h.Decisions[0].size()
	for r.recent.Len() > Objects || r.bytes > Bytes && r.recent.Len() > 1 {
		r.drop(r.recent.Back())
	}
	for _, s := range r.subscribers {
		s.offer(News{Object: o, Decision: d})
	}
}

func objectSize(o Object) int { return 512 + len(o.Name) + len(o.Namespace) }

func (r *Ring) drop(at *list.Element) {
	h := at.Value.(*History)
	for i := range h.Decisions {
		r.bytes -= h.Decisions[i].size()
	}
	r.bytes -= objectSize(h.Object)
	delete(r.objects, h.UID)
	r.recent.Remove(at)
}

// Histories returns what is kept of the objects that match, the most recent first, of most
// objects at most.
func (r *Ring) Histories(most int, match func(Object) bool) []History {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []History
	for at := r.recent.Front(); at != nil && len(found) < most; at = at.Next() {
		if h := at.Value.(*History); match(h.Object) {
			found = append(found, History{Object: h.Object, Decisions: slices.Clone(h.Decisions)})
		}
	}
	return found
}

// Of returns what is kept of one object.
func (r *Ring) Of(uid types.UID) []Decision {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.objects[uid]
	if at == nil {
		return nil
	}
	return slices.Clone(at.Value.(*History).Decisions)
}

// Subscription hands out news. Who does not take them in time misses some: nobody waits.
type Subscription struct {
	C    <-chan News
	news chan News
	end  func()
}

// Subscribe has every further decision handed out. End it with Close.
func (r *Ring) Subscribe() *Subscription {
	s := &Subscription{news: make(chan News, 64)}
	s.C = s.news
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.next
	r.next++
	r.subscribers[id] = s
	s.end = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subscribers, id)
	}
	return s
}

// Close ends it. The channel is not closed.
func (s *Subscription) Close() { s.end() }

func (s *Subscription) offer(n News) {
	select {
	case s.news <- n:
	default:
	}
}

// Subscribers counts those who are handed out news.
func (r *Ring) Subscribers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.subscribers)
}

// Bytes is about how much memory the ring takes.
func (r *Ring) Bytes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// Match tells whether an object is meant by kind, namespace and name. Each may be empty, for
// any. A kind is the plural name of the resource, with its group or without, or one of
// the other names that are given.
func (o Object) Match(kind, namespace, name string, others ...string) bool {
	plural, _, _ := strings.Cut(o.Kind, ".")
	known := kind == "" || strings.EqualFold(kind, o.Kind) || strings.EqualFold(kind, plural)
	for _, other := range others {
		known = known || strings.EqualFold(kind, other)
	}
	return known && (namespace == "" || namespace == o.Namespace) && (name == "" || name == o.Name)
}

// At is a time of a decision; nil stands for none.
func At(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
