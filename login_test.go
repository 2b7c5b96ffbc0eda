package kopf

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kopf-go/kopf/on"
)

// AUTH-1, AUTH-5, T155: tokens are revoked again and again while objects are edited and watches are cut: every change
// is handled, once, and each revocation costs one login.
func TestRevokedTokens_AUTH1_AUTH5_T155(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			onBench(t, func(b *bench) {
				random, delays := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 1))
				var logins, revocations atomic.Int64
				b.takes("token 0")
				on.Login(func(context.Context, *Login) (*Credentials, error) {
					logins.Add(1)
					time.Sleep(time.Duration(delays.IntN(500)) * time.Millisecond)
					return &Credentials{Config: b.config(fmt.Sprint("token ", revocations.Load()))}, nil
				}, on.ID("login"), b.in)
				const objects = 20
				var handled [objects]int
				note := func(_ context.Context, c *Change[*widget]) error {
					if c.Old != nil && c.Old.Spec.Size >= c.New.Spec.Size {
						b.Errorf("%s goes from %d to %d", c.Object.Name, c.Old.Spec.Size, c.New.Spec.Size)
					}
					var i int
					if _, err := fmt.Sscanf(c.Object.Name, "w%d", &i); err != nil {
						return err
					}
					if handled[i] >= c.New.Spec.Size {
						b.Errorf("%s is told again of %d", c.Object.Name, c.New.Spec.Size)
					}
					handled[i] = c.New.Spec.Size
					c.Patch.Apply(func(w *widget) { w.Status.Size = c.New.Spec.Size })
					return nil
				}
				on.Create(note, widgets, on.ID("create"), b.in)
				on.Update(note, widgets, on.ID("update"), b.in)
				r := b.start(b.operator(func(o *Options) { o.Config = nil }))
				var sizes [objects]int
				for step := range 150 {
					i := random.IntN(objects)
					sizes[i]++
					if name := fmt.Sprint("w", i); sizes[i] == 1 {
						b.create(name, 1)
					} else {
						b.resize(name, sizes[i])
					}
					if step%15 == 0 {
						b.takes(fmt.Sprint("token ", revocations.Add(1)))
					}
					if random.IntN(20) == 0 {
						b.server.CutWatches()
					}
					time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
				}
				b.pass(time.Minute)
				if handled != sizes {
					b.Errorf("handled %v\nof      %v", handled, sizes)
				}
				if more := logins.Load() - revocations.Load(); more != 1 && more != 0 { // the first one may be revoked before it is used
					b.Errorf("%d logins after %d revocations", logins.Load(), revocations.Load())
				}
				if text := b.said(); strings.Contains(text, "level=ERROR") || strings.Contains(text, "token ") {
					b.Error("an error, or a token, is in the log")
				}
				r.ends(b)
			})
		})
	}
}

// AUTH-5: what expires is replaced before it is refused.
func TestExpiringTokens_AUTH5(t *testing.T) {
	onBench(t, func(b *bench) {
		logins := 0
		on.Login(func(context.Context, *Login) (*Credentials, error) {
			logins++
			token := fmt.Sprint("token ", logins)
			b.takes(token)
			return &Credentials{Config: b.config(token), Expiration: time.Now().Add(time.Minute)}, nil
		}, b.in)
		on.Create(func(_ context.Context, c *Change[*widget]) error { b.note("create %s", c.Object.Name); return nil }, widgets, b.in)
		r := b.start(b.operator(func(o *Options) { o.Config = nil }))
		for _, name := range []string{"a", "b"} {
			b.create(name, 1)
			b.pass(90 * time.Second)
		}
		r.ends(b)
		b.noted("create a 0s", "create b 1m30s")
		if logins != 2 || strings.Contains(b.said(), "refused") {
			b.Error(logins)
		}
	})
}

// AUTH-1, AUTH-2, AUTH-3, T156: an operator without credentials ends. It was started, so it cleans up.
func TestNoLogin_AUTH1_AUTH2_AUTH3_T156(t *testing.T) {
	for name, c := range map[string]struct {
		login func(context.Context, *Login) (*Credentials, error)
		says  string
	}{
		"nothing":          {func(context.Context, *Login) (*Credentials, error) { return nil, nil }, "no login handler has returned any"},
		"nothing sensible": {func(context.Context, *Login) (*Credentials, error) { return &Credentials{}, nil }, "login handler h: the credentials have no Config"},
		"a failure":        {func(context.Context, *Login) (*Credentials, error) { return nil, Permanent(errBroken) }, "login failed: handler h: broken"},
		"no default": {func(_ context.Context, l *Login) (*Credentials, error) {
			c, err := l.Default()
			return c, Permanent(err)
		}, "no cluster to connect to"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", t.TempDir()+"/none")
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			onBench(t, func(b *bench) {
				on.Login(c.login, on.ID("h"), b.in)
				on.Cleanup(b.activity("cleanup", nil), b.in)
				err := b.operator(func(o *Options) { o.Config = nil }).Run(b.Context())
				if !errors.As(err, new(*LoginError)) || strings.Count(err.Error(), c.says) != 1 {
					b.Error(err)
				}
				b.noted("cleanup 0s")
			})
		})
	}
}

// A login that takes its time does not hold the end up.
func TestLoginIsInterrupted(t *testing.T) {
	onBench(t, func(b *bench) {
		on.Login(func(context.Context, *Login) (*Credentials, error) { b.note("login"); return nil, errBroken }, b.in)
		on.Cleanup(b.activity("cleanup", nil), b.in)
		r := b.start(b.operator(func(o *Options) { o.Config = nil }))
		b.pass(90 * time.Second)
		r.ends(b)
		b.noted("login 0s", "login 1m0s", "cleanup 1m30s")
	})
}

// AUTH-2, AUTH-6, EMB-7: if there are login handlers, what is found otherwise is theirs to use, each time a copy.
func TestDefaultCredentials_AUTH2_AUTH6_EMB7(t *testing.T) {
	onBench(t, func(b *bench) {
		own := b.config("own")
		own.UserAgent = "mine"
		op := b.operator(func(o *Options) { o.Config = own })
		for range 2 {
			c, err := op.standardCredentials()
			if err != nil || c.Config == own || c.Config.BearerToken != "own" || c.Config.UserAgent != "mine" || c.Priority != 0 || !c.Expiration.IsZero() {
				b.Error(c, err)
			}
			c.Config.BearerToken = "changed"
		}
	})
	file := kubeconfigFile(t)
	t.Setenv("KUBECONFIG", file)
	op, err := New(Options{Registry: NewRegistry(), Logger: quietly()})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := op.standardCredentials(); err != nil || c.Config.Host != "http://one.example:1" {
		t.Error(c, err)
	}
}

// AUTH-7, T157: of several kubeconfig files, the first that has something wins.
func TestKubeconfigFiles_AUTH7_T157(t *testing.T) {
	var files []string
	for _, host := range []string{"first.example", "second.example"} {
		file := filepath.Join(t.TempDir(), host)
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(kubeconfig, "one.example", host)), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	t.Setenv("KUBECONFIG", strings.Join(files, ":"))
	op, err := New(Options{Registry: NewRegistry(), Logger: quietly()})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := op.standardCredentials(); err != nil || c.Config.Host != "http://first.example:1" {
		t.Error(c, err)
	}
}
