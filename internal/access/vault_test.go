package access_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/activities"
	"github.com/kopf-go/kopf/internal/access"
)

// AUTH-1, T155: whoever needs credentials waits until there are some.
func TestVaultWaits_AUTH1_T155(t *testing.T) {
	scenario(t, func(w *world) {
		w.server.take("a")
		w.will(func(context.Context) (found, error) {
			time.Sleep(time.Minute)
			return found{"h": w.token("a")}, nil
		})
		before := time.Now()
		w.used(w.connect(), "a")
		if took := time.Since(before); took != time.Minute {
			w.Error(took)
		}
		w.loggedIn(1)
	})
}

// Whoever waits has not to wait longer than he wants to.
func TestVaultWaitsNoLonger(t *testing.T) {
	scenario(t, func(w *world) {
		w.will(func(ctx context.Context) (found, error) { <-ctx.Done(); return nil, ctx.Err() })
		impatient := errors.New("impatient")
		ctx, cancel := context.WithCancelCause(w.Context())
		time.AfterFunc(time.Second, func() { cancel(impatient) })
		if _, err := w.Connect(ctx); !errors.Is(err, impatient) {
			w.Error(err)
		}
	})
}

// AUTH-1, T156: without credentials, all calls fail, and so does the operator.
func TestNoCredentials_AUTH1_T156(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		login any
		says  string
	}{
		"nothing":            {found{}, "no login handler has returned any"},
		"a failure":          {broken, "broken"},
		"no configuration":   {found{"h": {}}, "login handler h: the credentials have no Config"},
		"wrong address":      {found{"h": {Config: &rest.Config{Host: "http://x:y:z"}}}, "login handler h: the credentials' Config is wrong"},
		"wrong certificates": {found{"h": {Config: &rest.Config{Host: "https://x", TLSClientConfig: rest.TLSClientConfig{CAFile: "/none"}}}}, "login handler h: "},
		"expired already":    {found{"h": {Config: &rest.Config{}, Expiration: time.Unix(1, 0)}}, "login handler h: its credentials have expired at 19"},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.will(c.login)
				_, err := w.Connect(w.Context())
				if err == nil || !strings.Contains(err.Error(), c.says) || errors.Is(err, broken) != (c.login == any(broken)) {
					w.Error(err)
				}
				w.fails(&http.Client{Transport: w.Vault}, c.says)
				w.loggedIn(1)
			})
		})
	}
}

// One login handler without, or with unusable, credentials does not matter if there are others (T156).
func TestSomeCredentials_T156(t *testing.T) {
	scenario(t, func(w *world) {
		w.server.take("a")
		w.will(found{"a": w.token("a"), "none": {}, "old": w.token("old", expires(-1))})
		w.used(w.connect(), "a")
	})
}

// AUTH-2: only the user agent is added, unless there is one.
func TestUserAgent_AUTH2(t *testing.T) {
	scenario(t, func(w *world) {
		w.server.take("a", "b")
		w.will(found{"h": w.token("a")}, found{"h": w.token("b", func(c *activities.Credentials) { c.Config.UserAgent = "own" })})
		client := &http.Client{Transport: w.Vault}
		w.used(client, "a")
		w.server.take("b")
		w.used(client, "a", "b")
		if got := w.server.seen; got[0].agent != "agent" || got[2].agent != "own" {
			w.Error(got)
		}
	})
}

// AUTH-4: those of the highest priority, any of equals.
func TestPriority_AUTH4(t *testing.T) {
	scenario(t, func(w *world) {
		w.server.take("low", "x", "y")
		w.will(found{"a": w.token("low"), "b": w.token("x", priority(5)), "c": w.token("y", priority(5))})
		client := w.connect()
		used := map[string]int{}
		for range 200 {
			if code, err := w.get(client); code != 200 || err != nil {
				w.Fatal(code, err)
			}
		}
		for _, s := range w.server.seen {
			used[s.token]++
		}
		if used["low"] != 0 || used["x"] < 50 || used["y"] < 50 {
			w.Error(used)
		}
	})
}

// AUTH-5: the next ones are tried, in the order of their priority, and login handlers are asked when none are left.
func TestRefusal_AUTH5_T155(t *testing.T) {
	scenario(t, func(w *world) {
		w.server.take("c")
		w.will(found{"a": w.token("a", priority(3)), "b": w.token("b", priority(2)), "c": w.token("c")}, found{"d": w.token("d")})
		client := w.connect()
		w.used(client, "a", "b", "c")
		w.used(client, "c")
		w.loggedIn(1)
		w.server.take("d")
		w.used(client, "c", "d")
		w.loggedIn(2)
	})
}

// AUTH-5, T155: what has expired is not used. When all has, login handlers are asked.
func TestExpiry_AUTH5_T155(t *testing.T) {
	scenario(t, func(w *world) {
		w.server.take("a", "b", "c")
		w.will(found{"a": w.token("a", priority(1), expires(time.Minute)), "b": w.token("b", expires(2*time.Minute))},
			func(context.Context) (found, error) {
				return found{"a": w.token("a", expires(time.Minute)), "c": w.token("c", priority(1))}, nil
			}, found{})
		client := w.connect()
		w.used(client, "a")
		time.Sleep(time.Minute)
		w.used(client, "b")
		w.loggedIn(1)
		time.Sleep(time.Minute)
		w.used(client, "c")
		w.loggedIn(2)
		w.server.take("a")
		w.used(client, "c", "a") // what has expired, but was not refused, may come again
	})
	scenario(t, func(w *world) {
		w.server.take("a")
		w.will(found{"a": w.token("a", expires(time.Minute))}, found{})
		client := w.connect()
		time.Sleep(time.Minute)
		w.fails(client, "no login handler has returned any")
	})
}

// AUTH-5, T155: when the last ones are refused and there are no others, the error says so.
func TestLastOnesRefused_AUTH5_T155(t *testing.T) {
	scenario(t, func(w *world) {
		w.will(found{"h": w.token("a")}, found{})
		err := w.fails(w.connect(), "no login handler has returned any\nthe API server has answered with 401")
		w.loggedIn(2)
		if again := w.fails(&http.Client{Transport: w.Vault}, ""); !errors.Is(again, errors.Unwrap(err)) {
			w.Error(again)
		}
		w.loggedIn(2)
	})
}

// AUTH-5, T155: what was refused is not used again, also when it comes anew; the last three
// of each handler are remembered.
func TestRefusedOnesAreRemembered_AUTH5_T155(t *testing.T) {
	scenario(t, func(w *world) {
		w.will(found{"h": w.token("a")}, found{"h": w.token("a")})
		w.fails(w.connect(), "login handler h: the API server has refused its credentials")
		w.loggedIn(2)
	})
	scenario(t, func(w *world) {
		shared := w.token("a") // changed in place by a handler that keeps it
		w.server.take("a")
		w.will(found{"h": shared}, func(context.Context) (found, error) {
			shared.Config.BearerToken = "b"
			return found{"h": shared}, nil
		})
		client := w.connect()
		w.used(client, "a")
		w.server.take("b")
		w.used(client, "a", "b")
	})
	scenario(t, func(w *world) {
		for _, token := range []string{"a", "b", "c", "d", "a", "d"} {
			w.will(found{"h": w.token(token)})
		}
		w.server.take("a")
		client := w.connect()
		for _, next := range [][]string{{"a"}, {"a", "b"}, {"b", "c"}, {"c", "d"}, {"d", "a"}} {
			w.server.take(next[len(next)-1])
			w.used(client, next...) // at last a, which is forgotten
		}
		w.server.take("d")
		w.fails(client, "has refused its credentials")
	})
}

// T155: the refusal of older ones leaves newer ones of the same handler alone, and many refusals at a time ask
// login handlers once.
func TestConcurrentRefusals_T155(t *testing.T) {
	scenario(t, func(w *world) {
		w.server.take("a")
		w.will(found{"h": w.token("a")}, func(context.Context) (found, error) {
			time.Sleep(time.Second)
			w.server.take("b")
			return found{"h": w.token("b")}, nil
		})
		client := w.connect()
		w.used(client, "a")
		w.server.take()
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if code, err := w.get(client); code != 200 || err != nil {
					w.Error(code, err)
				}
			})
		}
		all.Wait()
		w.loggedIn(2)
		w.used(client, "b")
	})
}

// What is new and refused at once is the answer, so that a server that takes nothing is not asked
// for ever; the next request looks further.
func TestNewOnesRefused(t *testing.T) {
	scenario(t, func(w *world) {
		n := 0
		w.will(func(context.Context) (found, error) { n++; return found{"h": w.token(fmt.Sprint(n))}, nil })
		client := w.connect()
		for want := 2; want < 5; want++ {
			if code, err := w.get(client); code != http.StatusUnauthorized || err != nil {
				w.Error(code, err)
			}
			w.loggedIn(want)
		}
		w.server.take("5")
		w.used(client, "5")
	})
}

// EMB-8: what is there before is used until it is refused.
func TestFirst_EMB8(t *testing.T) {
	first := func(o *access.Options) { o.First = &rest.Config{Host: "http://server.invalid", BearerToken: "first"} }
	scenario(t, func(w *world) {
		w.server.take("first")
		w.will(found{"h": w.token("a")})
		client := w.connect()
		w.used(client, "first")
		w.loggedIn(0)
		w.server.take("a")
		w.used(client, "first", "a")
		w.loggedIn(1)
	}, first)
	scenario(t, func(w *world) { // a handler that returns the same finds nothing else
		w.will(found{"h": w.token("first")})
		w.fails(w.connect(), "login handler h: the API server has refused its credentials")
		w.loggedIn(1)
	}, first)
	if _, err := access.New(access.Options{First: &rest.Config{Host: "http://x:y:z"}}); err == nil {
		t.Error("a wrong one was taken")
	}
}

// ACT-5: when the operator cleans up, nobody is asked any more; what is there still serves.
func TestLeave_ACT5(t *testing.T) {
	scenario(t, func(w *world) {
		w.server.take("a")
		w.will(found{"h": w.token("a")})
		client := w.connect()
		w.Leave()
		w.used(client, "a")
		w.server.take()
		if _, err := w.get(client); !errors.As(err, new(*activities.LoginError)) || !strings.Contains(err.Error(), "the operator is stopping") {
			w.Error(err)
		}
		w.loggedIn(1)
	})
	scenario(t, func(w *world) { // while it goes on
		w.will(func(ctx context.Context) (found, error) { <-ctx.Done(); return nil, ctx.Err() })
		waiting := make(chan error)
		go func() {
			_, err := w.Connect(w.Context())
			waiting <- err
		}()
		synctest.Wait()
		w.Leave()
		if err := <-waiting; !errors.As(err, new(*activities.LoginError)) {
			w.Error(err)
		}
		if len(w.failed) != 0 {
			w.Error("the end was taken for a failure", w.failed)
		}
	})
}
