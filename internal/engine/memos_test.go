package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// diary is what handlers remember of an object: who was called for it.
type diary struct {
	mu  sync.Mutex
	who []string
	uid types.UID
}

// add notes who was called, if for the first time, and returns all who were.
func (d *diary) add(t *testing.T, who string, uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.uid == "" {
		d.uid = uid
	}
	if d.uid != uid {
		t.Errorf("%s of %s has the memo of %s", who, uid, d.uid)
	}
	if !slices.Contains(d.who, who) {
		d.who = append(d.who, who)
	}
}

// remembering registers handlers of all kinds that write diaries. tell gets each diary
// with what was written last, and the object.
func (h handlers) remembering(memo *kopf.Memo[*diary], tell func(d *diary, who string, uid types.UID)) {
	filter := func(who string) on.CommonOption {
		return on.When(func(_ context.Context, s *snapshot) bool {
			tell(memo.Of(s), "filter of "+who, s.Object.UID)
			return true
		})
	}
	change := func(_ context.Context, c *change) error {
		tell(memo.Of(c), string(c.Reason), c.Object.UID)
		return nil
	}
	h.index("x", func(_ context.Context, s *snapshot) (texts, error) {
		tell(memo.Of(s), "index", s.Object.UID)
		return nil, nil
	}, filter("index"))
	on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
		tell(memo.Of(e), "event "+string(e.Type), e.Object.UID)
		return nil
	}, on.ID("event"), on.In(h.r), forWidgets)
	h.create("create", func(ctx context.Context, c *kopf.Change[*widget]) error {
		h.sub(c, "sub", func(_ context.Context, c *kopf.Change[*widget]) error {
			tell(memo.Of(c), "sub-handler", c.Object.UID)
			return nil
		})
		return change(ctx, c)
	}, filter("create"))
	h.update("update", change)
	h.resume("resume", change)
	h.delete("delete", change)
	on.FieldChange("spec.size", func(_ context.Context, c *kopf.FieldChange[*widget, int]) error {
		tell(memo.Of(c), "field", c.Object.UID)
		return nil
	}, on.ID("field"), on.In(h.r), forWidgets)
	h.daemon("daemon", func(ctx context.Context, d *daemon) error {
		tell(memo.Of(d), "daemon", d.Object().UID)
		<-ctx.Done()
		return nil
	}, filter("daemon"))
	h.timer("timer", func(_ context.Context, t *tick) error {
		tell(memo.Of(t), "timer", t.Object.UID)
		return nil
	}, on.Interval(time.Minute), filter("timer"))
}

// MEM-1, MEM-2, MEM-3, KW-3: all of an object's handlers, and filters, share what they
// remember of it; nobody else does, and a restart forgets it.
func TestMemosOfAnObject_MEM1_MEM2_MEM3_KW3(t *testing.T) {
	scenario(t, func(w *world) {
		var mu sync.Mutex
		diaries := map[types.UID]*diary{}
		made := 0
		memo := kopf.NewMemo(func() *diary {
			mu.Lock()
			defer mu.Unlock()
			made++
			return new(diary)
		})
		register := func(h handlers) {
			h.remembering(memo, func(d *diary, who string, uid types.UID) {
				mu.Lock()
				defer mu.Unlock()
				d.add(t, who, uid)
				if diaries[uid] == nil {
					diaries[uid] = d
				}
				if diaries[uid] != d {
					t.Errorf("%s has another memo of %s", who, uid)
				}
			})
		}
		o := w.start(register)
		var uids []types.UID
		for range 2 { // the second time it is another object
			uids = append(uids, w.create("w1", 1).GetUID())
			w.sleep(2 * time.Second)
			w.resize("w1", 2)
			w.settle()
			w.delete("w1")
			w.settle()
			w.gone("w1")
		}
		uids = append(uids, w.create("w2", 1).GetUID())
		w.settle()
		want := "create, daemon, delete, event ADDED, event DELETED, event MODIFIED, field, filter of create, filter of daemon, filter of index, filter of timer, " +
			"index, sub-handler, timer, update"
		mu.Lock()
		for _, uid := range uids[:2] {
			if got := strings.Join(slices.Sorted(slices.Values(diaries[uid].who)), ", "); got != want {
				t.Errorf("in the memo:\n got %s\nwant %s", got, want)
			}
		}
		if made != 3 {
			t.Errorf("%d memos were made of 3 objects", made)
		}
		clear(diaries)
		mu.Unlock()
		if err := o.stop(); err != nil {
			t.Error(err)
		}
		w.start(register)
		w.sleep(10 * time.Second) // timers begin one after the other
		mu.Lock()
		defer mu.Unlock()
		want = "daemon, event LISTED, filter of create, filter of daemon, filter of index, filter of timer, index, resume, timer"
		if got := strings.Join(slices.Sorted(slices.Values(diaries[uids[2]].who)), ", "); got != want || made != 4 {
			t.Errorf("%d memos, after the restart:\n got %s\nwant %s", made, got, want)
		}
	})
}

// MEM-2: what is remembered of an object goes with it, however it goes.
func TestMemosGoWithTheirObjects_MEM2(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"seen":     func(w *world) { w.delete("w1") },
		"missed":   func(w *world) { unwatched(w, func() { w.delete("w1") }) },
		"vanished": func(w *world) { _ = w.widgets.Vanish(ns, "w1") },
		"resource": func(w *world) { w.server.Withdraw("demo.example/v1", "widgets") },
	} {
		for kinds, register := range map[string]func(h handlers, memo *kopf.Memo[*diary], tell func(*diary, string, types.UID)){
			"all": handlers.remembering,
			"event": func(h handlers, memo *kopf.Memo[*diary], tell func(*diary, string, types.UID)) {
				on.Event(func(_ context.Context, e *kopf.Event[*widget]) error {
					tell(memo.Of(e), "event", e.Object.UID)
					return nil
				}, on.ID("event"), on.In(h.r), forWidgets)
			},
			"index": func(h handlers, memo *kopf.Memo[*diary], tell func(*diary, string, types.UID)) {
				h.index("x", func(_ context.Context, s *snapshot) (texts, error) {
					tell(memo.Of(s), "index", s.Object.UID)
					return nil, kopf.Retry(time.Hour, nil)
				})
			},
			"daemon": func(h handlers, memo *kopf.Memo[*diary], tell func(*diary, string, types.UID)) {
				h.daemon("d", func(_ context.Context, d *daemon) error {
					tell(memo.Of(d), "daemon", d.Object().UID)
					return nil
				})
			},
		} {
			t.Run(name+", "+kinds, func(t *testing.T) {
				scenario(t, func(w *world) {
					w.allow("resource is not served by the cluster", "handling failed")
					var mu sync.Mutex
					remembered := map[weak.Pointer[diary]]bool{}
					memo := kopf.NewMemo(func() *diary { return new(diary) })
					w.start(func(h handlers) {
						register(h, memo, func(d *diary, who string, uid types.UID) {
							mu.Lock()
							defer mu.Unlock()
							remembered[weak.Make(d)] = true
						})
					})
					w.create("w1", 1)
					w.sleep(2 * time.Second)
					end(w)
					w.sleep(2 * time.Hour)
					runtime.GC()
					runtime.GC()
					mu.Lock()
					defer mu.Unlock()
					if len(remembered) == 0 {
						t.Error("nothing was remembered")
					}
					for d := range remembered {
						if d.Value() != nil {
							t.Error("is still remembered")
						}
					}
				})
			})
		}
	}
}

// MEM-4, MEM-5: the operator has a memo of its own, which is the same for all, but not for
// another operator; what objects share is up to what makes their memos.
func TestMemosOfTheOperator_MEM4_MEM5(t *testing.T) {
	scenario(t, func(w *world) {
		shared := new(atomic.Int64)
		var (
			counts = kopf.NewMemo(func() *atomic.Int64 { return new(atomic.Int64) })
			common = kopf.NewMemo(func() *atomic.Int64 { return shared })
			flat   kopf.Memo[int]
		)
		register := func(h handlers) {
			h.create("c", func(_ context.Context, c *change) error {
				w.note(fmt.Sprint(counts.Operator(c).Add(1), counts.Of(c).Add(1), common.Of(c).Add(1), flat.Of(c)))
				return nil
			})
			h.timer("t", func(_ context.Context, t *tick) error {
				counts.Operator(t).Add(10)
				return nil
			}, on.Interval(time.Hour), on.InitialDelay(time.Second))
		}
		o := w.start(register)
		w.create("w1", 1)
		w.sleep(2 * time.Second)
		w.create("w2", 1)
		w.sleep(2 * time.Second)
		if err := o.stop(); err != nil {
			t.Error(err)
		}
		w.startAs("other", register)
		var got []string
		for _, call := range w.called() {
			if !strings.Contains(call, "#") {
				got = append(got, call)
			}
		}
		slices.Sort(got[2:]) // the other operator begins with both at once
		for i, prefix := range []string{"1 1 1 0", "12 1 2 0", "1 1 ", "2 1 "} {
			if len(got) != 4 || !strings.HasPrefix(got[i], prefix) {
				t.Errorf("got %q", got)
			}
		}
	})
}

// MEM-6: a memo is made once, whoever asks at the same time; a memo beside it is another
// one; and one whose making panics is made later.
func TestMemosAreMadeOnce_MEM6(t *testing.T) {
	scenario(t, func(w *world) {
		var made, sum atomic.Int64
		tries := 0
		one := kopf.NewMemo(func() *atomic.Int64 { made.Add(1); runtime.Gosched(); return new(atomic.Int64) })
		two := kopf.NewMemo(func() *atomic.Int64 {
			if tries++; tries == 1 {
				panic("oops")
			}
			return new(atomic.Int64)
		})
		w.allow("handler panicked")
		w.start(func(h handlers) {
			for i := range 5 {
				h.daemon(fmt.Sprint("d", i), func(_ context.Context, d *daemon) error {
					var all sync.WaitGroup
					for range 10 {
						all.Go(func() { sum.Store(one.Of(d).Add(1)) })
					}
					all.Wait()
					return nil
				})
			}
			h.create("c", func(_ context.Context, c *change) error {
				two.Of(c).Add(1)
				w.note(fmt.Sprint(two.Of(c).Load(), " of ", one.Of(c).Load()))
				return nil
			}, on.Backoff(time.Minute))
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(2 * time.Minute)
		if made.Load() != 1 || sum.Load() != 50 {
			t.Errorf("made %d times, counted to %d", made.Load(), sum.Load())
		}
		var notes []string
		for _, call := range w.called() {
			if strings.Contains(call, " of ") {
				notes = append(notes, call)
			}
		}
		if fmt.Sprint(notes) != "[1 of 50]" {
			t.Errorf("got %q", notes)
		}
	})
}

// MEM-7: one function under several ids is told by its param which one it is.
func TestParam_MEM7_KW3(t *testing.T) {
	scenario(t, func(w *world) {
		w.start(func(h handlers) {
			fn := func(_ context.Context, c *change) error {
				w.note(fmt.Sprint(c.Param))
				return nil
			}
			index := func(_ context.Context, s *snapshot) (texts, error) {
				w.note(fmt.Sprint(s.Param))
				return nil, nil
			}
			for _, id := range []string{"a", "b"} {
				on.Create(fn, on.ID(id), on.Param("create "+id), on.In(h.r), forWidgets)
				h.index(id, index, on.Param("index "+id))
			}
		})
		w.create("w1", 1)
		w.settle()
		w.expect("index a", "index b", "create a", "create b", "index a", "index b")
	})
}

// KW-4, KW-5: a deletion is told with the last state of the object, a daemon sees the newest
// one, and nobody sees what others do to their copies.
func TestObjectsOfHandlers_KW4_KW5(t *testing.T) {
	scenario(t, func(w *world) {
		spoil := func(o *widget) { o.Spec.Size, o.Labels = 99, map[string]string{"spoilt": ""} }
		w.start(func(h handlers) {
			h.index("x", func(_ context.Context, s *snapshot) (texts, error) { spoil(s.Object); return nil, nil },
				on.When(func(_ context.Context, s *snapshot) bool { spoil(s.Object); return true }))
			h.create("c", func(_ context.Context, c *change) error { spoil(c.Object); return nil })
			h.update("u", func(_ context.Context, c *change) error { spoil(c.Old); spoil(c.New); return nil })
			h.update("v", nil)
			h.events()
			h.daemon("d", func(ctx context.Context, d *daemon) error {
				for {
					select {
					case <-d.Changed():
						w.note(fmt.Sprint("daemon sees ", d.Object().Spec.Size))
					case <-ctx.Done():
						return nil
					}
				}
			})
		})
		w.create("w1", 1)
		w.settle()
		w.mark()
		w.resize("w1", 2)
		w.settle()
		w.delete("w1")
		w.settle()
		w.expectSet("event w1 MODIFIED 2", "event w1 MODIFIED 2", "u w1 #0 1→2", "v w1 #0 1→2", "daemon sees 2",
			"event w1 DELETED 2", "d w1 leaves: <nil>")
	})
}
