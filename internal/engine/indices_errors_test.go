package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// flaky registers an index by color whose function notes its calls, such as
// "x w1 #0 red +5s", and fails for objects of some colors.
func (h handlers) flaky(id string, fail func(color string) error, opts ...on.IndexOption) *textIndex {
	started := map[string]time.Time{}
	return on.Index(func(ctx context.Context, s *snapshot) (texts, error) {
		color := s.Object.Spec.Color
		h.w.note(fmt.Sprintf("%s %s %s +%s", id, s.Object.Name, color, h.w.since()))
		h.w.mu.Lock()
		if started[color].IsZero() {
			started[color] = time.Now()
		}
		h.w.mu.Unlock()
		if err := fail(color); err != nil {
			return nil, err
		}
		return byColor(ctx, s)
	}, append(opts, on.ID(id), on.In(h.r), forWidgets)...)
}

func failsFor(bad string, err error) func(string) error {
	return func(color string) error {
		if color == bad {
			return err
		}
		return nil
	}
}

var errPanic = errors.New("panic")

// IDX-8, T149, T150: what an error means, by mode. The object is red, then bad for a
// minute or so, then blue.
func TestErrorsOfIndexFunctions_IDX8_T149_T150(t *testing.T) {
	none, bad := []string(nil), []string{"red=w1"}
	for name, c := range map[string]struct {
		opts  []on.IndexOption
		err   error
		after []string // what is in the index then
		calls []string // since it is bad
		end   []string // what is in the index when it is blue, 10 s later
	}{
		"ignored": {nil, errFlop, bad, []string{"x w1 bad +0s", "x w1 blue +10s"}, []string{"blue=w1"}},
		"retry": {nil, kopf.Retry(4*time.Second, nil), none,
			[]string{"x w1 bad +0s", "x w1 bad +4s", "x w1 bad +8s", "x w1 blue +12s"}, none},
		"retry later": {nil, kopf.Retry(time.Minute, nil), none, []string{"x w1 bad +0s", "x w1 blue +1m0s"}, none},
		"retry at once": {[]on.IndexOption{on.Retries(3)}, kopf.Retry(0, nil), none,
			[]string{"x w1 bad +0s", "x w1 bad +0s", "x w1 bad +0s"}, none},
		"temporary": {[]on.IndexOption{on.Errors(on.Temporary)}, errFlop, none, []string{"x w1 bad +0s", "x w1 blue +1m0s"}, none},
		"temporary with a backoff": {[]on.IndexOption{on.Errors(on.Temporary), on.Backoff(20 * time.Second)}, errFlop, none,
			[]string{"x w1 bad +0s", "x w1 blue +20s"}, none},
		"permanent":      {nil, kopf.Permanent(nil), none, []string{"x w1 bad +0s"}, none},
		"permanent mode": {[]on.IndexOption{on.Errors(on.Permanent)}, errFlop, none, []string{"x w1 bad +0s"}, none},
		"too often": {[]on.IndexOption{on.Retries(2)}, kopf.Retry(time.Second, nil), none,
			[]string{"x w1 bad +0s", "x w1 bad +1s"}, none},
		"too late": {[]on.IndexOption{on.Timeout(10 * time.Second)}, kopf.Retry(3*time.Second, nil), none,
			[]string{"x w1 bad +0s", "x w1 bad +3s", "x w1 bad +6s", "x w1 bad +9s"}, none},
		"panic": {[]on.IndexOption{on.Errors(on.Permanent)}, errPanic, none, []string{"x w1 bad +0s", "x w1 blue +1m0s"}, none},
		"exit":  {[]on.IndexOption{on.Errors(on.Permanent)}, errExit, none, []string{"x w1 bad +0s", "x w1 blue +1m0s"}, none},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.allow("index function failed")
				w.create("w1", 1, inColor("red"))
				w.create("w2", 1, inColor("red"))
				var x, y *textIndex
				w.start(func(h handlers) {
					x = h.flaky("x", func(color string) error {
						switch err := failsFor("bad", c.err)(color); err {
						case errPanic:
							panic("oops")
						case errExit:
							runtime.Goexit()
						default:
							return err
						}
						return nil
					}, c.opts...)
					y = h.index("y", nil) // whom the errors of the other do not concern
					h.events()
				})
				w.mark()
				w.paint("w1", "bad")
				w.settle()
				w.holds(x, append(c.after, "red=w2")...)
				w.holds(y, "bad=w1", "red=w2")
				w.sleep(9990 * time.Millisecond)
				w.paint("w1", "blue")
				w.settle()
				w.holds(x, append(c.end, "red=w2")...)
				w.holds(y, "blue=w1", "red=w2")
				w.sleep(10 * time.Minute)
				if last := c.calls[len(c.calls)-1]; last != "x w1 bad +0s" && last != "x w1 bad +1s" && last != "x w1 bad +9s" {
					w.holds(x, "blue=w1", "red=w2")
				} else {
					w.paint("w1", "green")
					w.sleep(time.Hour)
					w.holds(x, "red=w2")
				}
				var calls []string
				for _, call := range w.called() {
					if call[0] == 'x' {
						calls = append(calls, call)
					}
				}
				if fmt.Sprint(calls) != fmt.Sprint(c.calls) {
					t.Errorf("calls:\n got %q\nwant %q", calls, c.calls)
				}
				w.delete("w1") // it is another object then
				w.create("w1", 1, inColor("blue"))
				w.settle()
				w.holds(x, "blue=w1", "red=w2")
			})
		})
	}
}

var errExit = errors.New("exit")

// IDX-8: another attempt looks at the newest version, whatever came in between, and
// however it came.
func TestAnotherAttemptIsForTheNewestVersion_IDX8(t *testing.T) {
	for name, again := range map[string]time.Duration{"at once": 0, "later": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				var x *textIndex
				w.start(func(h handlers) {
					x = h.index("x", func(ctx context.Context, s *snapshot) (texts, error) {
						switch s.Object.Spec.Rev++; {
						case s.Object.Spec.Color == "old" && w.since() < time.Second:
							return nil, kopf.Retry(time.Second, nil)
						case s.Object.Spec.Color == "new" && w.since() < 4*time.Second:
							return nil, kopf.Retry(again, nil)
						}
						return byColor(ctx, s)
					})
					h.index("slow", func(context.Context, *snapshot) (texts, error) { time.Sleep(2 * time.Second); return nil, nil })
				})
				w.mark()
				w.create("w1", 1, inColor("old"))
				w.sleep(500 * time.Millisecond)
				w.paint("w1", "new") // the attempt at 1 s waits for it to be looked at, at 2 s
				w.sleep(time.Minute)
				w.holds(x, "new=w1")
			})
		})
	}
}

// IDX-8, KW-3: the state of the attempts is told, and a success ends it.
func TestAttemptsOfIndexFunctions_IDX8_T150(t *testing.T) {
	scenario(t, func(w *world) {
		var x *textIndex
		failures := 2
		w.start(func(h handlers) {
			x = h.index("x", func(ctx context.Context, s *snapshot) (texts, error) {
				w.note(s.Object.Spec.Color + " +" + w.since().String())
				if failures--; failures >= 0 {
					return nil, kopf.Retry(5*time.Second, errFlop)
				}
				return byColor(ctx, s)
			}, on.Retries(3))
		})
		w.mark()
		w.create("w1", 1, inColor("red"))
		w.sleep(time.Second)
		w.paint("w1", "blue") // is no attempt
		w.sleep(time.Minute)
		w.expect("red +0s", "blue +5s", "blue +10s")
		w.holds(x, "blue=w1")
		failures = 2 // as many as before are allowed again
		w.paint("w1", "green")
		w.sleep(time.Minute)
		w.holds(x, "green=w1")
	})
}

// IDX-8: what is asked for again is asked for as little as anything once the object is out
// of scope or gone.
func TestNoAttemptForWhatIsGone_IDX8(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(w *world)
		calls int
	}{
		"deleted":      {func(w *world) { w.delete("w1") }, 1},
		"out of scope": {func(w *world) { w.update("w1", label("in", "no")) }, 1},
		"and back": {func(w *world) {
			w.update("w1", label("in", "no"))
			w.settle()
			w.update("w1", label("in", ""))
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.create("w1", 1, label("in", ""))
				var calls int
				w.start(func(h handlers) {
					h.index("x", func(context.Context, *snapshot) (texts, error) {
						calls++
						return nil, kopf.Retry(time.Minute, nil)
					}, on.Label("in", ""), on.Retries(2))
				})
				w.allow("index function failed for good")
				c.end(w)
				w.sleep(time.Hour)
				if calls != c.calls {
					t.Errorf("%d calls, want %d", calls, c.calls)
				}
			})
		})
	}
}

func TestDeadlineOfIndexFunctions_IDX8(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("index function failed for good")
		w.start(func(h handlers) {
			h.index("x", func(ctx context.Context, s *snapshot) (texts, error) {
				<-ctx.Done()
				w.note(fmt.Sprint(context.Cause(ctx), " ", errors.Is(ctx.Err(), context.DeadlineExceeded), " +", w.since()))
				return nil, kopf.Retry(time.Second, ctx.Err())
			}, on.Timeout(7*time.Second))
			h.create("c", nil)
		})
		w.mark()
		w.create("w1", 1)
		w.sleep(time.Hour)
		w.expect("timeout of 7s is over true +7s", "c w1 #0 →1 +7s")
	})
}

// IDX-8: an object that does not decode stays as it was known last, one that has failed
// while it did is tried again, and others are not affected.
func TestUndecodableObjectInIndex_IDX8(t *testing.T) {
	scenario(t, func(w *world) {
		w.allow("object cannot be handled until it is changed")
		w.create("w1", 1, inColor("red"))
		var x *textIndex
		w.start(func(h handlers) {
			x = h.flaky("x", failsFor("bad", kopf.Retry(time.Minute, nil)))
			h.create("c", nil, on.Label("never", ""))
		})
		w.update("w1", func(o widgetObj) { set(o, "big", "spec", "size") })
		w.create("w2", 1, inColor("red"))
		w.sleep(time.Hour)
		w.holds(x, "red=w1", "red=w2")
		if n := len(w.errorLogs("object cannot be handled until it is changed")); n != 1 {
			t.Errorf("%d complaints", n)
		}
		w.update("w1", func(o widgetObj) { set(o, int64(1), "spec", "size"); set(o, "blue", "spec", "color") })
		w.settle()
		w.holds(x, "blue=w1", "red=w2")
		w.paint("w1", "bad")
		w.settle()
		w.update("w1", func(o widgetObj) { set(o, "big", "spec", "size") })
		w.sleep(time.Hour)
		w.holds(x, "red=w2")
		w.update("w1", func(o widgetObj) { set(o, int64(1), "spec", "size"); set(o, "green", "spec", "color") })
		w.settle()
		w.holds(x, "green=w1", "red=w2")
	})
}

// A filter of an index that panics is an error of its function; one of an object that
// matched keeps it out until it is known again.
func TestFilterOfAnIndexPanics_IDX8(t *testing.T) {
	scenario(t, func(w *world) {
		w.create("w1", 1, inColor("red"))
		var x *textIndex
		w.start(func(h handlers) {
			x = h.index("x", nil, on.When(func(_ context.Context, s *snapshot) bool {
				if s.Object.Spec.Color == "bad" && w.since() < time.Minute {
					panic("oops")
				}
				return true
			}), on.Backoff(10*time.Second))
			h.update("u", nil)
		})
		w.mark()
		w.paint("w1", "bad")
		w.settle()
		w.holds(x)
		w.expect("u w1 #0 1→1 +0s")
		w.sleep(time.Minute)
		w.holds(x, "bad=w1")
	})
}

// A function that hangs for one object holds nobody else up.
func TestIndexFunctionHangsForOneObject_IDX8(t *testing.T) {
	scenario(t, func(w *world) {
		var x *textIndex
		w.start(func(h handlers) {
			x = h.index("x", func(ctx context.Context, s *snapshot) (texts, error) {
				if s.Object.Name == "bad" {
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}
				return sizes(ctx, s)
			})
			h.create("c", nil)
			h.events()
		})
		w.mark()
		w.create("bad", 1)
		w.settle()
		for i := range 3 {
			w.create("w"+strconv.Itoa(i), i)
		}
		w.settle()
		w.holds(x, "w0=0", "w1=1", "w2=2")
		if n := len(w.called()); n != 9 { // creation, and two events each
			t.Errorf("calls: %q", w.called())
		}
	})
}
