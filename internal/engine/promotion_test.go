package engine_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
)

var promoted = flag.Int("promoted", 600, "how many objects there are when a standby comes to lead; a tenth of them is not handled")

// B43: when a standby comes to lead, it does not list what there is as at a start: what it costs
// depends on how much asks for something. If much does, or resume handlers look at all, there is
// one list, in pages; else each object is read. Objects that are handled are not kept meanwhile.
func TestPromotion_B43(t *testing.T) {
	var least int64 // what is kept when nothing asks for anything, the server's part included
	for _, c := range []struct {
		name    string
		pending int // one of so many; 0: none
		resumes bool
		lists   int // pages, beside the question for the version
		gets    int
	}{
		{name: "nothing to do"},
		{name: "a tenth", pending: 10, lists: (*promoted + 499) / 500},
		{name: "very few", pending: *promoted / 5, gets: 5},
		{name: "resume handlers", resumes: true, lists: (*promoted + 499) / 500},
		{name: "both of the last", pending: *promoted / 5, resumes: true, lists: (*promoted + 499) / 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			scenario(t, func(w *world) {
				blob := fmt.Sprintf("%04000d", 0)
				handled := fmt.Sprintf(`{"spec":{"blob":%q,"size":1}}`, blob)
				for i := range *promoted {
					w.create(fmt.Sprint("w", i), 1, func(o widgetObj) {
						set(o, blob, "spec", "blob")
						name := "example.com/as-large"
						if c.pending == 0 || i%c.pending != 0 {
							name = lastHandledName
						}
						annotation(name, handled)(o)
					})
				}
				before := heap()
				o := w.assemble(func(h handlers) {
					h.create("create", nil)
					if c.resumes {
						h.resume("resume", nil)
					}
				}, true)
				w.run(o)
				w.sleep(time.Second)
				kept := heap() - before
				w.mark()
				o.Lead(nil)
				w.sleep(time.Minute)
				pending := 0
				if c.pending > 0 {
					pending = (*promoted + c.pending - 1) / c.pending
				}
				resumed := 0
				if c.resumes {
					resumed = *promoted - pending
				}
				if n := len(w.called()); n != pending+resumed {
					t.Errorf("%d calls, want %d and %d", n, pending, resumed)
				}
				if n := w.server.Count(simulated.On{Verb: "list", Resource: "widgets"}); n != c.lists+1 {
					t.Errorf("%d lists", n)
				}
				if n := w.server.Count(simulated.On{Verb: "get", Resource: "widgets"}); n != c.gets {
					t.Errorf("%d were read one by one", n)
				}
				if n := len(w.server.Writes()); n != pending {
					t.Errorf("%d writes", n)
				}
				if least == 0 {
					least = kept
				}
				t.Logf("%d objects of 8 KB, %d of them not handled: the standby keeps %d KB for those", *promoted, pending, (kept-least)>>10)
				if limit := least + int64(pending)*20000 + 1<<20; kept > limit {
					t.Errorf("%d bytes are kept, not %d", kept, limit)
				}
				w.mark()
				<-o.StepDown(kopf.ErrPaused)
				o.Lead(nil)
				w.sleep(time.Minute)
				w.expect() // each is resumed once
			})
		})
	}
}

// run starts what was assembled.
func (w *world) run(o engaged) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	go func() { o.done <- o.Run(ctx) }()
	w.operators = append(w.operators, o.operator)
}

func heap() int64 {
	synctest.Wait()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
