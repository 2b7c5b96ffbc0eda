package kopf

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/webhook"
)

var errBroken = errors.New("broken")

// ACT-4, EXT-1, EMB-4: nothing is asked of the API server before all startup handlers have
// succeeded; then the one who embeds the operator is told.
func TestNothingBeforeStartup_ACT4_EXT1_EMB4(t *testing.T) {
	onBench(t, func(b *bench) {
		on.Login(func(context.Context, *Login) (*Credentials, error) {
			b.note("login")
			return &Credentials{Config: b.config("a")}, nil
		}, b.in)
		on.Startup(b.activity("startup", func(_ context.Context, a *Activity) error {
			if a.Retry == 0 {
				return Retry(time.Hour, errBroken)
			}
			if n := b.server.Count(simulated.On{}); n > 0 {
				b.Errorf("%d requests", n)
			}
			return nil
		}), b.in)
		on.Create(func(_ context.Context, c *Change[*widget]) error { b.note("create"); return nil }, widgets, b.in)
		b.create("w", 1)
		r := b.start(b.operator(func(o *Options) {
			o.Config, o.OnStarted = nil, func() { b.note("started") }
		}))
		b.pass(time.Minute)
		if err := r.Ready(nil); err == nil || err.Error() != "operator is starting, or has no credentials yet" {
			b.Error(err)
		}
		b.pass(time.Hour)
		if err := r.Ready(nil); err != nil {
			b.Error(err)
		}
		r.ends(b)
		b.noted("startup 0s", "startup 1h0m0s", "started 1h0m0s", "login 1h0m0s", "create 1h0m0s")
	})
}

// ACT-4, SET-1: startup handlers change the settings of this run, and of no other.
func TestStartupChangesSettings_ACT4_SET1(t *testing.T) {
	onBench(t, func(b *bench) {
		on.Startup(func(_ context.Context, a *Activity) error {
			if a.Settings.Execution.DefaultBackoff != 0 || a.Settings.Queueing.WorkerLimit != 3 {
				b.Errorf("%+v", a.Settings)
			}
			a.Settings.Execution.DefaultBackoff = 7 * time.Second
			a.Settings.Persistence.Finalizer = "own.example.com/finalizer"
			return nil
		}, b.in)
		on.Cleanup(func(_ context.Context, a *Activity) error {
			b.note("cleanup after %s", a.Settings.Execution.DefaultBackoff)
			a.Settings.Queueing.WorkerLimit = 0 // of nobody's interest
			return nil
		}, b.in)
		on.Create(func(_ context.Context, c *Change[*widget]) error {
			b.note("create %s #%d %v", c.Object.Name, c.Retry, c.Object.Finalizers)
			return []error{errBroken, nil}[min(c.Retry, 1)]
		}, widgets, b.in)
		on.Delete(handled[*widget], widgets, b.in)
		op := b.operator(func(o *Options) { o.Settings.Queueing.WorkerLimit = 3 })
		for _, name := range []string{"a", "b"} {
			b.create(name, 1)
			r := b.start(op)
			b.pass(10 * time.Second)
			r.ends(b)
		}
		b.noted("create a #0 [own.example.com/finalizer] 0s", "create a #1 [own.example.com/finalizer] 7s", "cleanup after 7s 10s",
			"create b #0 [own.example.com/finalizer] 10s", "create b #1 [own.example.com/finalizer] 17s", "cleanup after 7s 20s")
	})
}

// Settings that startup handlers have made wrong end the operator; it was started, so it cleans up.
func TestStartupMakesSettingsWrong(t *testing.T) {
	onBench(t, func(b *bench) {
		on.Startup(func(_ context.Context, a *Activity) error {
			a.Settings.Persistence.Finalizer = "not a name"
			return nil
		}, b.in)
		on.Cleanup(b.activity("cleanup", nil), b.in)
		err := b.operator().Run(b.Context())
		if err == nil || !strings.HasPrefix(err.Error(), "settings, as startup handlers have left them: ") {
			b.Error(err)
		}
		b.noted("cleanup 0s")
	})
}

// ACT-4, EXT-6, T152: an operator that cannot start ends with the handlers' errors, and cleans
// nothing up.
func TestStartupFails_ACT4_EXT6_T152(t *testing.T) {
	onBench(t, func(b *bench) {
		on.Startup(b.activity("one", func(context.Context, *Activity) error { return Permanent(errBroken) }), on.ID("one"), b.in)
		on.Startup(b.activity("two", func(context.Context, *Activity) error { return Permanent(io.EOF) }), on.ID("two"), b.in)
		on.Startup(b.activity("three", nil), on.ID("three"), b.in)
		on.Cleanup(b.activity("cleanup", nil), b.in)
		err := b.operator(func(o *Options) { o.OnStarted = func() { b.note("started") } }).Run(b.Context())
		var failed *ActivityError
		if !errors.As(err, &failed) || len(failed.Outcomes) != 3 || !errors.Is(err, errBroken) || !errors.Is(err, io.EOF) {
			b.Error(err)
		}
		b.noted("one 0s", "two 0s", "three 0s")
		if n := b.server.Count(simulated.On{}); n > 0 {
			b.Errorf("%d requests", n)
		}
	})
}

// EXT-6, T153: an operator that is told to stop while it starts ends at once, and cleans nothing up.
func TestStartupIsInterrupted_EXT6_T153(t *testing.T) {
	for name, c := range map[string]struct {
		startup func(context.Context, *Activity) error
		says    string
	}{
		"in a pause":               {func(context.Context, *Activity) error { return errBroken }, ""},
		"in a handler":             {func(ctx context.Context, _ *Activity) error { <-ctx.Done(); return ctx.Err() }, ""},
		"in one that does not end": {func(context.Context, *Activity) error { time.Sleep(time.Hour); return nil }, "handler startup did not return in time"},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				on.Startup(b.activity("startup", c.startup), on.ID("startup"), b.in)
				on.Cleanup(b.activity("cleanup", nil), b.in)
				r := b.start(b.operator())
				b.pass(time.Second)
				r.stop()
				if err := <-r.done; (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
					b.Error(err)
				}
				b.noted("startup 0s")
				if c.says == "" && !strings.Contains(b.said(), "operator stops before its startup handlers have succeeded") {
					b.Error("nothing is said")
				}
				b.pass(time.Hour) // whoever is left behind
			})
		})
	}
}

// ACT-5, EXT-5, T153: cleanup comes when everything else has ended, and its context does not end with the others'.
func TestCleanupComesLast_ACT5_EXT5_T153(t *testing.T) {
	onBench(t, func(b *bench) {
		on.Daemon(func(ctx context.Context, d *Daemon[*widget]) error {
			<-ctx.Done()
			time.Sleep(3 * time.Second)
			b.note("daemon leaves: %v", context.Cause(ctx))
			return nil
		}, widgets, b.in)
		on.Create(func(ctx context.Context, c *Change[*widget]) error {
			<-ctx.Done()
			time.Sleep(2 * time.Second)
			b.note("create ends")
			return nil
		}, widgets, b.in)
		on.Probe(func(ctx context.Context, _ *Probe) (int, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			b.note("probe ends")
			return 1, nil
		}, b.in)
		on.Cleanup(b.activity("cleanup", func(ctx context.Context, a *Activity) error {
			if a.Retry == 0 {
				return Retry(time.Second, errBroken)
			}
			if deadline, limited := ctx.Deadline(); ctx.Err() != nil || !limited || time.Until(deadline) != 9*time.Second {
				b.Error(ctx.Err(), deadline)
			}
			return nil
		}), b.in)
		b.create("w", 1)
		r := b.start(b.operator())
		b.pass(time.Minute)
		go b.alive(r.Operator)
		b.pass(time.Second)
		r.ends(b)
		b.noted("create ends 1m3s", "daemon leaves: operator is exiting 1m4s", "probe ends 1m5s", "cleanup 1m5s", "cleanup 1m6s")
		if got := b.kind.Get("default", "w").GetAnnotations()["kopf.zalando.org/last-handled-configuration"]; got == "" {
			b.Error("what was done is not written down")
		}
	})
}

// Cleanup has its limits, and its failures are the operator's.
func TestCleanupIsLimited(t *testing.T) {
	for name, c := range map[string]struct {
		cleanup func(context.Context, *Activity) error
		limit   time.Duration
		takes   time.Duration
		says    string
	}{
		"fails for good":    {func(context.Context, *Activity) error { return Permanent(errBroken) }, 0, 0, "cleanup failed: handler c: broken"},
		"fails for ever":    {func(context.Context, *Activity) error { return Retry(time.Second, errBroken) }, 0, 10 * time.Second, "cleanup was interrupted: cleanup handlers have had 10s, as Settings.Process.CleanupTimeout says"},
		"a shorter limit":   {func(context.Context, *Activity) error { return errBroken }, time.Second, time.Second, "cleanup handlers have had 1s"},
		"heeds no limit":    {func(context.Context, *Activity) error { time.Sleep(time.Hour); return nil }, time.Second, 11 * time.Second, "handler c did not return in time"},
		"there is no limit": {func(context.Context, *Activity) error { time.Sleep(time.Hour); return nil }, -1, time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				on.Cleanup(c.cleanup, on.ID("c"), b.in)
				r := b.start(b.operator(func(o *Options) { o.Settings.Process.CleanupTimeout = c.limit }))
				b.pass(time.Second)
				r.stop()
				err := <-r.done
				if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
					b.Error(err)
				}
				if took := time.Since(b.begun) - time.Second; took != c.takes {
					b.Error(took)
				}
				b.pass(time.Hour)
			})
		})
	}
}

// EXT-2, T168: when one part fails, all others end in order, and the error is returned.
func TestPartFails_EXT2_T168(t *testing.T) {
	onBench(t, func(b *bench) {
		on.Login(func(_ context.Context, l *Login) (*Credentials, error) {
			b.note("login")
			return l.Default()
		}, b.in)
		on.Daemon(func(ctx context.Context, d *Daemon[*widget]) error {
			<-ctx.Done()
			b.note("daemon leaves: %v", context.Cause(ctx))
			return nil
		}, widgets, b.in)
		on.Update(handled[*widget], widgets, b.in)
		on.Cleanup(b.activity("cleanup", nil), b.in)
		b.create("w", 1)
		b.takes("config")
		r := b.start(b.operator())
		b.pass(time.Minute)
		b.takes("none")
		b.resize("w", 2)
		err := <-r.done
		if !errors.As(err, new(*LoginError)) || strings.Count(err.Error(), "refused its credentials") != 1 {
			b.Error(err)
		}
		b.noted("login 1m0s", "daemon leaves: operator is exiting 1m0s", "cleanup 1m4s") // what was done was tried to be written until then
	})
}

// EXT-9: failures of handlers are not the operator's.
func TestHandlersFail_EXT9(t *testing.T) {
	onBench(t, func(b *bench) {
		on.Create(func(context.Context, *Change[*widget]) error { panic("create") }, widgets, b.in)
		on.Daemon(func(context.Context, *Daemon[*widget]) error { panic("daemon") }, widgets, b.in)
		on.Event(func(context.Context, *Event[*widget]) error { panic("event") }, widgets, b.in)
		on.Probe(func(context.Context, *Probe) (int, error) { return 0, Permanent(errBroken) }, b.in)
		b.create("w", 1)
		r := b.start(b.operator())
		b.pass(time.Hour)
		if got := b.alive(r.Operator); !strings.HasPrefix(got, "500 probe failed: ") {
			b.Error(got)
		}
		r.ends(b)
	})
}

// EXT-4, EXT-10: what is interrupted goes on in the next operator with the same attempt, and what holds objects
// stays on them.
func TestNextOperatorContinues_EXT4_EXT10(t *testing.T) {
	onBench(t, func(b *bench) {
		on.Create(func(ctx context.Context, c *Change[*widget]) error {
			b.note("create #%d", c.Retry)
			switch c.Retry {
			case 0:
				return Retry(time.Minute, errBroken)
			case 1:
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}, widgets, b.in)
		on.Delete(handled[*widget], widgets, b.in)
		b.create("w", 1)
		for range 3 {
			r := b.start(b.operator())
			b.pass(61 * time.Second)
			r.ends(b)
			w := b.kind.Get("default", "w")
			if len(w.GetFinalizers()) != 1 || !strings.Contains(w.GetAnnotations()["kopf.zalando.org/TestNextOperatorContinues_EXT4_EXT10.func1.1"], `"retries":1`) {
				b.Errorf("%v %v", w.GetFinalizers(), w.GetAnnotations())
			}
		}
		b.noted("create #0 0s", "create #1 1m0s", "create #1 1m1s", "create #1 2m2s")
	})
}

// EXT-7, T169: the process ends if stopping takes too long; only that of Main, and only if there is a limit.
func TestExitTimeout_EXT7_T169(t *testing.T) {
	const never = -1
	for name, c := range map[string]struct {
		limit    time.Duration
		embedded bool
		early    bool          // the operator is told to stop before it begins
		exits    time.Duration // after it was told to stop
	}{
		"by default":              {0, false, false, 10 * time.Minute},
		"set":                     {time.Minute, false, false, time.Minute},
		"none":                    {-1, false, false, never},
		"in another program":      {time.Minute, true, false, never},
		"told to stop beforehand": {time.Minute, false, true, never},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				on.Cleanup(func(context.Context, *Activity) error { time.Sleep(time.Hour); return nil }, b.in)
				op := b.operator(func(o *Options) {
					o.Settings.Process = settings.Process{ExitTimeout: c.limit, CleanupTimeout: -1}
				})
				exited := time.Duration(never)
				if !c.embedded {
					op.exit = func(after time.Duration) {
						exited = time.Since(b.begun) - time.Second
						if after != exited {
							b.Error(after)
						}
					}
				}
				ctx, cancel := context.WithCancel(b.Context())
				time.AfterFunc(time.Second, cancel)
				if c.early {
					cancel()
				}
				if err := op.Run(ctx); err != nil {
					b.Error(err)
				}
				if exited != c.exits {
					b.Errorf("exits after %s", exited)
				}
			})
		})
	}
}

// EXT-7: it counts from a failure, too, and startup handlers may set it.
func TestExitTimeoutAfterFailure_EXT7(t *testing.T) {
	onBench(t, func(b *bench) {
		on.Startup(func(_ context.Context, a *Activity) error {
			a.Settings.Process.ExitTimeout = 20 * time.Second
			return nil
		}, b.in)
		on.Login(func(context.Context, *Login) (*Credentials, error) { time.Sleep(time.Second); return nil, nil }, b.in)
		on.Cleanup(func(context.Context, *Activity) error { time.Sleep(15 * time.Second); return nil }, b.in)
		op := b.operator(func(o *Options) { o.Config, o.Settings.Process.CleanupTimeout = nil, -1 })
		op.exit = func(time.Duration) { b.note("exits") }
		if err := op.Run(b.Context()); !errors.As(err, new(*LoginError)) {
			b.Error(err)
		}
		b.noted()
	})
}

// ACT-6, T154: liveness in all states of the operator.
func TestLiveness_ACT6_T154(t *testing.T) {
	onBench(t, func(b *bench) {
		index := on.Index(func(_ context.Context, s *Snapshot[*widget]) (map[string]int, error) {
			return map[string]int{s.Object.Name: s.Object.Spec.Size}, nil
		}, widgets, b.in, on.ID("sizes"))
		on.Startup(func(_ context.Context, a *Activity) error { time.Sleep(time.Minute); return nil }, b.in)
		on.Cleanup(func(_ context.Context, a *Activity) error { time.Sleep(time.Second); return nil }, b.in)
		on.Probe(func(context.Context, *Probe) (int, error) { b.note("probe"); return index.Len(), nil }, on.ID("widgets"), b.in)
		b.create("w", 1)
		op := b.operator()
		is := func(want string) {
			b.Helper()
			if got := b.alive(op); got != want {
				b.Errorf("%s, want %s", got, want)
			}
		}
		is("503 the operator does not run")
		r := b.start(op)
		b.pass(time.Second)
		is("200 {}")
		b.noted()
		b.pass(time.Minute)
		is(`200 {"widgets":1}`)
		b.create("x", 1)
		b.pass(9 * time.Second)
		is(`200 {"widgets":1}`)
		b.pass(time.Second)
		is(`200 {"widgets":2}`)
		b.noted("probe 1m1s", "probe 1m11s")
		r.stop()
		synctest.Wait()
		is("503 the operator is stopping")
		if err := <-r.done; err != nil {
			b.Error(err)
		}
		is("503 the operator does not run")
	})
}

// What the settings say of webhooks is that of the startup handlers, too.
func TestStartupSetsAdmission(t *testing.T) {
	onBench(t, func(b *bench) {
		on.Startup(func(_ context.Context, a *Activity) error {
			a.Settings.Admission.Endpoint = webhook.URL{Host: "[::bad"}
			a.Settings.Admission.Timeout = time.Millisecond
			return nil
		}, b.in)
		err := b.operator().Run(b.Context())
		if err == nil || !strings.Contains(err.Error(), "Timeout is 1ms") {
			b.Error(err)
		}
	})
}

// Whoever asks for liveness while startup handlers change settings does not see them half-changed.
func TestLivenessWhileSettingsChange(t *testing.T) {
	onBench(t, func(b *bench) {
		on.Startup(func(_ context.Context, a *Activity) error {
			time.Sleep(time.Second)
			a.Settings.Execution.DefaultBackoff = time.Second
			return nil
		}, b.in)
		on.Probe(func(_ context.Context, p *Probe) (string, error) {
			return p.Settings.Execution.DefaultBackoff.String(), nil
		}, on.ID("p"), b.in)
		r := b.start(b.operator())
		answers := map[string]bool{}
		for range 1500 {
			time.Sleep(time.Millisecond)
			answers[b.alive(r.Operator)] = true
		}
		if len(answers) != 2 || !answers["200 {}"] || !answers[`200 {"p":"1s"}`] {
			b.Error(answers)
		}
		r.ends(b)
	})
}
