package typed

import (
	"sync"

	"github.com/kopf-go/kopf/internal/registry"
)

// Memo remembers an S for each object, in memory: what a handler puts there is what all
// others of the object find, of whatever kind, and filters, too (MEM-3).
//
//	var memo = kopf.NewMemo(func() *attempts { return new(attempts) })
//
//	memo.Of(c).times++ // in a handler
//
// Make S a pointer or a map, so that what is changed is what is remembered. It is
// forgotten with the object, does not survive a restart, and belongs to one operator
// (MEM-1). It is for an object with a UID: one that is created anew has a new S.
//
// A Memo is safe for concurrent use, but what is in S is for its users to guard: daemons
// and timers run beside other handlers of the object (MEM-6). The zero Memo has zero
// values. It costs some 100 bytes per object that it was asked for.
type Memo[S any] struct {
	init func() S
}

// NewMemo returns a Memo of what init makes when an object's S is first asked for; without
// init it is a zero value. What all objects shall share is what init refers to (MEM-2), or
// Operator's. A panic of init is that of the handler which has asked; the next one tries
// again. init must not ask for the same Memo.
func NewMemo[S any](init func() S) *Memo[S] { return &Memo[S]{init: init} }

// Of returns the S of the object that a handler, or filter, is called for. An argument
// that a test has made by hand has one of its own.
func (m *Memo[S]) Of(h Memoized) S { return m.in(h.memory().memos()) }

// Operator returns the operator's own S, which is the same from everywhere, and what Of
// returns in handlers of activities, such as on.Startup (MEM-4).
func (m *Memo[S]) Operator(h Memoized) S {
	memos := h.memory().memos()
	if memos.Operator != nil {
		memos = memos.Operator
	}
	return m.in(memos)
}

func (m *Memo[S]) in(memos *registry.Memos) S {
	value := memos.Of(m, func() any {
		if m.init == nil {
			var zero S
			return zero
		}
		return m.init()
	})
	s, _ := value.(S) // an interface may hold nothing
	return s
}

// Memoized is what there can be memos of: the arguments of all handlers and filters.
type Memoized interface{ memory() *memory }

// Operating lets there be memos of what embeds it: those of the operator itself, so that Of
// and Operator return the same. It is for package activities.
type Operating struct{ memos memory }

// NewOperating makes one of the operator's memos.
func NewOperating(find func() *registry.Memos) Operating { return Operating{memory{find: find}} }

func (o *Operating) memory() *memory {
	handmade.Lock()
	defer handmade.Unlock()
	if o.memos.find == nil && o.memos.own == nil {
		o.memos.own = new(registry.Memos)
	}
	return &o.memos
}

// memory leads to what is remembered of the object that an argument is about.
type memory struct {
	find func() *registry.Memos // nil: the argument was made by hand
	own  *registry.Memos
}

// handmade guards the memories of arguments that were made by hand, which is for tests.
// They have no lock of their own, so that arguments can be copied.
var handmade sync.Mutex

func (m *memory) memos() *registry.Memos {
	if m.find != nil {
		return m.find()
	}
	handmade.Lock()
	defer handmade.Unlock()
	if m.own == nil {
		m.own = &registry.Memos{Operator: new(registry.Memos)}
	}
	return m.own
}

func (a *Attempt) memory() *memory     { return &a.memos }
func (e *Event[T]) memory() *memory    { return &e.memos }
func (s *Snapshot[T]) memory() *memory { return &s.memos }
