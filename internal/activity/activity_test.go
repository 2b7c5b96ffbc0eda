package activity_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/activities"
	"github.com/kopf-go/kopf/internal/activity"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an activity in virtual time, and what its handlers were called for.
type world struct {
	*testing.T
	in    on.InOption
	reg   *kopf.Registry
	begun time.Time

	mu    sync.Mutex
	calls []string
}

func scenario(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour) // zero times would hide mistakes
		reg := kopf.NewRegistry()
		test(&world{T: t, reg: reg, in: on.In(reg), begun: time.Now()})
	})
}

// note writes down a call, with the time since the start in seconds.
func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, fmt.Sprintf("%s@%d", what, int(time.Since(w.begun).Seconds())))
}

func (w *world) called(want ...string) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.calls, want) {
		w.Errorf("called %q, want %q", w.calls, want)
	}
}

func (w *world) activity(kind registry.Kind) activity.Activity {
	w.Helper()
	if err := w.reg.Err(); err != nil {
		w.Fatal(err)
	}
	return activity.Activity{
		Kind: kind, Handlers: w.reg.Handlers(), Memos: new(registry.Memos), Backoff: time.Minute, Patience: 5 * time.Second,
		Facts: func() registry.Activity { return registry.Activity{Settings: &settings.Settings{}} },
		Log:   slog.New(slog.DiscardHandler),
	}
}

// startup registers a startup handler that returns the errors, one after the other, and
// then nil.
func (w *world) startup(id string, errs []error, opts ...on.ActivityOption) {
	on.Startup(func(_ context.Context, a *kopf.Activity) error {
		w.note(id)
		if a.Retry < len(errs) {
			return errs[a.Retry]
		}
		return nil
	}, append(opts, on.ID(id), w.in)...)
}

var errAny = errors.New("any")

func times(n int, err error) []error { return slices.Repeat([]error{err}, n) }

// Handlers are called one after the other, in rounds, each when it is due; those that are
// through are not called again.
func TestRounds_ACT1(t *testing.T) {
	scenario(t, func(w *world) {
		w.startup("a", []error{kopf.Retry(5*time.Second, errAny), kopf.Retry(0, errAny)})
		w.startup("b", nil)
		w.startup("c", times(2, errAny))
		w.startup("d", times(1, errAny), on.Backoff(5*time.Second))
		on.Cleanup(func(context.Context, *kopf.Activity) error { w.note("cleanup"); return nil }, w.in)
		outcomes, err := w.activity(registry.Startup).Run(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		w.called("a@0", "b@0", "c@0", "d@0", "a@5", "d@5", "a@5", "c@60", "c@120")
		want := []activities.Outcome{{ID: "a", Attempts: 3}, {ID: "b", Attempts: 1}, {ID: "c", Attempts: 3}, {ID: "d", Attempts: 2}}
		if !reflect.DeepEqual(outcomes, want) {
			w.Errorf("outcomes %+v", outcomes)
		}
	})
}

// The activity begins nothing by itself.
func TestNoHandlers(t *testing.T) {
	scenario(t, func(w *world) {
		if outcomes, err := w.activity(registry.Cleanup).Run(w.Context()); err != nil || len(outcomes) != 0 {
			w.Error(outcomes, err)
		}
	})
}

// T152: results by id.
func TestResults_T152_T156(t *testing.T) {
	scenario(t, func(w *world) {
		found := &kopf.Credentials{Priority: 7}
		on.Login(func(context.Context, *kopf.Login) (*kopf.Credentials, error) { return found, nil }, on.ID("one"), w.in)
		on.Login(func(context.Context, *kopf.Login) (*kopf.Credentials, error) { return nil, nil }, on.ID("none"), w.in)
		outcomes, err := w.activity(registry.Login).Run(w.Context())
		if err != nil || len(outcomes) != 2 || outcomes[0].Result != any(found) || outcomes[1].Result != nil {
			w.Errorf("%+v, %v", outcomes, err)
		}
	})
}

// ACT-2, T152: several failures are one error, with what has become of all.
func TestFailures_ACT2_T152(t *testing.T) {
	scenario(t, func(w *world) {
		broken := errors.New("broken")
		w.startup("good", nil)
		w.startup("permanent", []error{kopf.Permanent(errAny)})
		w.startup("mode", times(1, broken), on.Errors(on.Permanent))
		w.startup("ignored", times(1, errAny), on.Errors(on.Ignored))
		outcomes, err := w.activity(registry.Startup).Run(w.Context())
		var failed *kopf.ActivityError
		if !errors.As(err, &failed) || !errors.Is(err, errAny) || !errors.Is(err, broken) || !errors.As(err, new(*kopf.PermanentError)) {
			w.Fatal(err)
		}
		if failed.Activity != "startup" || err.Error() != "startup failed: handler permanent: any; handler mode: broken" {
			w.Errorf("%q", err)
		}
		if !reflect.DeepEqual(failed.Outcomes, outcomes) || len(outcomes) != 4 || outcomes[0].Err != nil || outcomes[3].Err != nil {
			w.Errorf("outcomes %+v", failed.Outcomes)
		}
		w.called("good@0", "permanent@0", "mode@0", "ignored@0")
	})
}

// T152: three attempts with a delay of 123 seconds end after 246.
func TestRetries_T152(t *testing.T) {
	scenario(t, func(w *world) {
		w.startup("a", times(9, kopf.Retry(123*time.Second, errAny)), on.Retries(3))
		outcomes, err := w.activity(registry.Startup).Run(w.Context())
		if err == nil || !strings.Contains(err.Error(), "handler a: did not succeed in 3 attempts: any") || outcomes[0].Attempts != 3 {
			w.Error(outcomes, err)
		}
		w.called("a@0", "a@123", "a@246")
	})
}

// OUT-4: no attempt at all is a failure.
func TestNoAttempt_OUT4(t *testing.T) {
	scenario(t, func(w *world) {
		w.startup("a", nil, on.Retries(0))
		if _, err := w.activity(registry.Startup).Run(w.Context()); err == nil {
			w.Error("no error")
		}
		w.called()
	})
}

// OUT-5: the timeout is over all attempts, and ends the context. It counts from the handler's own
// first attempt (OUT-6).
func TestTimeout_OUT5_OUT6(t *testing.T) {
	scenario(t, func(w *world) {
		on.Startup(func(context.Context, *kopf.Activity) error { time.Sleep(time.Minute); return nil }, on.ID("slow"), w.in)
		on.Startup(func(ctx context.Context, a *kopf.Activity) error {
			w.note(fmt.Sprint("a", a.Retry, " ", int(a.Runtime().Seconds())))
			if a.Retry == 0 {
				return errAny
			}
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) || context.Cause(ctx) == context.DeadlineExceeded {
				w.Error(context.Cause(ctx))
			}
			return context.Cause(ctx)
		}, on.ID("a"), on.Timeout(30*time.Second), on.Backoff(10*time.Second), w.in)
		_, err := w.activity(registry.Startup).Run(w.Context())
		if err == nil || !strings.Contains(err.Error(), "did not succeed within 30s: timeout of 30s is over") {
			w.Error(err)
		}
		w.called("a0 0@60", "a1 10@70")
		if took := time.Since(w.begun); took != 90*time.Second {
			w.Error(took)
		}
	})
}

// A panic, and an end of the goroutine, are tried again in every mode.
func TestPanics(t *testing.T) {
	scenario(t, func(w *world) {
		for id, wild := range map[string]func(){"goexit": runtime.Goexit, "panic": func() { panic("wild") }} {
			on.Startup(func(_ context.Context, a *kopf.Activity) error {
				if a.Retry == 0 {
					wild()
				}
				return nil
			}, on.ID(id), on.Errors(on.Permanent), w.in)
		}
		outcomes, err := w.activity(registry.Startup).Run(w.Context())
		if err != nil || outcomes[0].Attempts != 2 || outcomes[1].Attempts != 2 {
			w.Error(outcomes, err)
		}
		if took := time.Since(w.begun); took != time.Minute {
			w.Error(took)
		}
	})
}

// What the end of the context does: no attempt begins, no pause goes on, and who is being called
// has some time.
func TestInterruption_EXT6(t *testing.T) {
	stop := errors.New("stop")
	for name, c := range map[string]struct {
		handler func(context.Context) error
		after   time.Duration // of the end of the context
		left    string
	}{
		"in a pause":                        {func(context.Context) error { return errAny }, 0, ""},
		"in a handler that heeds it":        {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 0, ""},
		"in a handler that asks for more":   {func(ctx context.Context) error { <-ctx.Done(); return kopf.Retry(0, errAny) }, 0, ""},
		"in a handler that needs a while":   {func(ctx context.Context) error { <-ctx.Done(); time.Sleep(4 * time.Second); return ctx.Err() }, 4 * time.Second, ""},
		"in a handler that does not heed":   {func(context.Context) error { time.Sleep(time.Hour); return nil }, 5 * time.Second, "first"},
		"in a handler that then is through": {func(ctx context.Context) error { <-ctx.Done(); return nil }, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				on.Startup(func(ctx context.Context, _ *kopf.Activity) error { w.note("first"); return c.handler(ctx) }, on.ID("first"), w.in)
				on.Startup(func(context.Context, *kopf.Activity) error {
					if time.Since(w.begun) > 0 {
						w.note("second")
					}
					return nil
				}, w.in)
				ctx, cancel := context.WithCancelCause(w.Context())
				time.AfterFunc(30*time.Second, func() { cancel(stop) })
				_, err := w.activity(registry.Startup).Run(ctx)
				var interrupted *activity.InterruptedError
				if !errors.As(err, &interrupted) || !errors.Is(err, stop) || interrupted.Left != c.left || interrupted.Activity != "startup" {
					w.Fatal(err)
				}
				if strings.Contains(err.Error(), "handler first did not return in time") != (c.left != "") {
					w.Error(err)
				}
				if took := time.Since(w.begun) - 30*time.Second; took != c.after {
					w.Errorf("ended %s after its context", took)
				}
				w.called("first@0")
				time.Sleep(2 * time.Hour) // whoever was left behind ends some time
			})
		})
	}
}

// A handler that fails for good while the context ends has failed nevertheless, and one that succeeds has succeeded.
func TestEndInTheLastHandler(t *testing.T) {
	for _, want := range []error{nil, kopf.Permanent(errAny)} {
		scenario(t, func(w *world) {
			ctx, cancel := context.WithCancel(w.Context())
			on.Startup(func(context.Context, *kopf.Activity) error { cancel(); return want }, w.in)
			if _, err := w.activity(registry.Startup).Run(ctx); !errors.Is(err, want) || errors.As(err, new(*activity.InterruptedError)) {
				w.Error(err)
			}
		})
	}
}

// ACT-4, KW-3, MEM-4, MEM-7: what handlers are given.
func TestArguments_ACT4_KW3_MEM4_MEM7(t *testing.T) {
	scenario(t, func(w *world) {
		memo := kopf.NewMemo(func() *int { return new(int) })
		a := w.activity(registry.Startup)
		shared := &settings.Settings{}
		a.Facts = func() registry.Activity { return registry.Activity{Settings: shared} }
		on.Startup(func(_ context.Context, a *kopf.Activity) error {
			a.Settings.Queueing.WorkerLimit += 5
			*memo.Of(a)++
			if a.Param != "p" || a.Log == nil || a.Retry != int(a.Runtime()/time.Minute) || !a.Started.Equal(w.begun) || memo.Of(a) != memo.Operator(a) {
				w.Errorf("%+v", a)
			}
			return []error{errAny, nil}[a.Retry]
		}, on.Param("p"), w.in)
		a.Handlers = w.reg.Handlers()
		if _, err := a.Run(w.Context()); err != nil {
			w.Fatal(err)
		}
		if shared.Queueing.WorkerLimit != 10 {
			w.Error(shared.Queueing.WorkerLimit)
		}
		// Of another activity, and of objects, it is the same one (MEM-2).
		if n := a.Memos.Of(memo, nil); *n.(*int) != 2 {
			w.Error(n)
		}
	})
}

// ACT-3: the log names the activity, the handler and the attempt.
func TestLog_ACT3(t *testing.T) {
	scenario(t, func(w *world) {
		var text strings.Builder
		w.startup("h", times(1, errAny))
		on.Startup(func(_ context.Context, a *kopf.Activity) error { a.Log.Info("hello"); return nil }, on.ID("own"), w.in)
		a := w.activity(registry.Startup)
		a.Log = slog.New(slog.NewTextHandler(&text, nil))
		if _, err := a.Run(w.Context()); err != nil {
			w.Fatal(err)
		}
		for _, part := range []string{
			`msg="handler failed, will be tried again" activity=startup handler=h attempt=1 error=any in=1m0s`,
			`msg="handler succeeded" activity=startup handler=h attempt=2`,
			`msg=hello activity=startup handler=own attempt=1`,
		} {
			if !strings.Contains(text.String(), part) {
				w.Errorf("%s is not in\n%s", part, &text)
			}
		}
	})
}
