package typed_test

import (
	"sync"
	"testing"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/typed"
)

type counter struct{ n int }

// arguments are those of all kinds of handlers, and of filters, for one object.
func arguments(t *testing.T, memos *registry.Memos) map[string]typed.Memoized {
	t.Helper()
	call, _, _ := liveCall(t)
	call.Memos = func() *registry.Memos { return memos }
	call.Body, _, _ = call.Live.Body()
	all := map[string]typed.Memoized{}
	add := func(name string, h typed.Memoized, err error) {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[name] = h
	}
	change, err := typed.NewChange[*database](call)
	add("change", change, err)
	field, err := typed.NewFieldChange[*database, int32](call)
	add("field", field, err)
	event, err := typed.NewEvent[*database](call)
	add("event", event, err)
	snapshot, err := typed.NewSnapshot[*database](call)
	add("snapshot", snapshot, err)
	daemon, err := typed.NewDaemon[*database](call)
	add("daemon", daemon, err)
	tick, err := typed.NewTick[*database](call)
	add("tick", tick, err)
	return all
}

// MEM-1, MEM-3: all kinds of handlers of an object find the same, and another object
// has another one.
func TestMemoOfObject_MEM1_MEM3(t *testing.T) {
	operator := new(registry.Memos)
	object, other := &registry.Memos{Operator: operator}, &registry.Memos{Operator: operator}
	memo := typed.NewMemo(func() *counter { return new(counter) })
	second := typed.NewMemo(func() *counter { return new(counter) })
	handlers := arguments(t, object)
	for _, h := range handlers {
		memo.Of(h).n++
		memo.Operator(h).n += 100
	}
	for name, h := range handlers {
		if memo.Of(h).n != len(handlers) || second.Of(h).n != 0 {
			t.Errorf("%s: got %d and %d", name, memo.Of(h).n, second.Of(h).n)
		}
	}
	for name, h := range arguments(t, other) {
		if memo.Of(h).n != 0 || memo.Operator(h).n != 100*len(handlers) { // MEM-4
			t.Errorf("another object, %s: got %d, the operator %d", name, memo.Of(h).n, memo.Operator(h).n)
		}
	}
	// MEM-4: what is called for no object gets the operator's.
	for name, h := range arguments(t, operator) {
		if memo.Of(h) != memo.Operator(h) || memo.Of(h).n != 100*len(handlers) {
			t.Errorf("without object, %s: got %d, the operator %d", name, memo.Of(h).n, memo.Operator(h).n)
		}
	}
}

// MEM-2: nothing is copied; what is shared is what init closes over.
func TestMemosShareWhatTheyAreMadeOf_MEM2(t *testing.T) {
	shared := new(counter)
	type state struct{ shared *counter }
	memo := typed.NewMemo(func() *state { return &state{shared} })
	memo.Of(new(typed.Change[*database])).shared.n++
	memo.Of(new(typed.Event[*database])).shared.n++
	if shared.n != 2 {
		t.Errorf("got %d", shared.n)
	}
}

// MEM-5: a memo has a type.
func TestMemoWithoutInit_MEM5(t *testing.T) {
	c := new(typed.Change[*database])
	if got := typed.NewMemo[int](nil).Of(c); got != 0 {
		t.Errorf("int is %v", got)
	}
	if got := typed.NewMemo[error](nil).Of(c); got != nil {
		t.Errorf("interface is %v", got)
	}
	if got := typed.NewMemo(func() error { return nil }).Of(c); got != nil {
		t.Errorf("interface that holds nothing is %v", got)
	}
	var zero typed.Memo[counter]
	if got := zero.Of(c); got.n != 0 {
		t.Errorf("the zero memo has %v", got)
	}
}

// Arguments that were made by hand have memos of their own, and the operator's is not
// theirs.
func TestMemoOfArgumentsByHand(t *testing.T) {
	memo := typed.NewMemo(func() *counter { return new(counter) })
	daemon, _, _ := typed.NewDaemonFor(new(database))
	for i, h := range []typed.Memoized{
		new(typed.Change[*database]), new(typed.FieldChange[*database, int]), new(typed.Event[*database]),
		new(typed.Snapshot[*database]), new(typed.Daemon[*database]), new(typed.Tick[*database]), daemon,
	} {
		if memo.Of(h).n++; memo.Of(h).n != 1 || memo.Operator(h).n != 0 {
			t.Errorf("%d: got %d, the operator %d", i, memo.Of(h).n, memo.Operator(h).n)
		}
	}
}

// MEM-6: a memo may be asked for by all at once, and is made once.
func TestMemoConcurrently_MEM6(t *testing.T) {
	for name, h := range map[string]typed.Memoized{
		"by hand": new(typed.Tick[*database]), "by the operator": arguments(t, new(registry.Memos))["tick"],
	} {
		made := make(chan bool, 100)
		memo := typed.NewMemo(func() *counter { made <- true; return new(counter) })
		var all sync.WaitGroup
		var first [8]*counter
		for i := range first {
			all.Go(func() { first[i] = memo.Of(h) })
		}
		all.Wait()
		for _, c := range first {
			if c != first[0] || len(made) != 1 {
				t.Errorf("%s: %d are made", name, len(made))
			}
		}
	}
}

// A panic is that of whoever has asked, and the next one tries again. A memo may be made
// of another one.
func TestMemoInit(t *testing.T) {
	h := arguments(t, new(registry.Memos))["event"]
	fails := true
	inner := typed.NewMemo(func() *counter {
		if fails {
			panic("no")
		}
		return &counter{5}
	})
	outer := typed.NewMemo(func() *counter { return inner.Of(h) })
	func() {
		defer func() {
			if p := recover(); p != "no" {
				t.Errorf("recovered %v", p)
			}
		}()
		outer.Of(h)
	}()
	fails = false
	if outer.Of(h) != inner.Of(h) || outer.Of(h).n != 5 {
		t.Errorf("got %+v", outer.Of(h))
	}
}

// BenchmarkMemo is asked for again, and then for the first time of an object, in which the
// bytes are what a memo costs, beside what is in it.
func BenchmarkMemo(b *testing.B) {
	memo := typed.NewMemo(func() *counter { return nil })
	memos := new(registry.Memos)
	raw, err := body.Parse([]byte(`{}`))
	if err != nil {
		b.Fatal(err)
	}
	h, err := typed.NewTick[*database](&registry.Call{Body: raw, Memos: func() *registry.Memos { return memos }})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("again", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			memo.Of(h)
		}
	})
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			memos = new(registry.Memos)
			memo.Of(h)
		}
	})
}

// BenchmarkDaemonObject is looked at when there is nothing newer, and when there is.
func BenchmarkDaemonObject(b *testing.B) {
	raw, err := body.Parse([]byte(manifest))
	if err != nil {
		b.Fatal(err)
	}
	live := new(registry.Live)
	live.Set(raw, true)
	d, err := typed.NewDaemon[*database](&registry.Call{Live: live})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("same", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d.Object()
		}
	})
	b.Run("newer", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			live.Set(raw, false)
			d.Object()
		}
	})
}
