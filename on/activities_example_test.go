package on_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
)

// What must be there before anything is handled, and settings that are only known now. The
// operator waits for it, and tries three times.
func ExampleStartup() {
	reg := kopf.NewRegistry()
	open := func(ctx context.Context, a *kopf.Activity) error {
		if a.Retry == 0 {
			return kopf.Retry(5*time.Second, errors.New("the database does not answer"))
		}
		a.Settings.Queueing = settings.Queueing{WorkerLimit: 20}
		return nil
	}
	on.Startup(open, on.Retries(3), on.ID("database"), on.In(reg))

	// Like this, it is tested without an operator.
	a := &kopf.Activity{Settings: &kopf.Settings{}}
	fmt.Println(open(context.Background(), a))
	a.Retry = 1
	fmt.Println(open(context.Background(), a), a.Settings.Queueing.WorkerLimit)
	// Output:
	// the database does not answer
	// <nil> 20
}

// What startup handlers have opened is closed when nothing uses it any more. They share it
// through a memo of the operator, which handlers of objects reach with Memo.Operator.
func ExampleCleanup() {
	type connection struct{ open bool }
	var database = kopf.NewMemo(func() *connection { return new(connection) })
	reg := kopf.NewRegistry()
	open := func(ctx context.Context, a *kopf.Activity) error {
		database.Of(a).open = true
		return nil
	}
	shut := func(ctx context.Context, a *kopf.Activity) error {
		fmt.Println("was open:", database.Of(a).open)
		database.Of(a).open = false
		return nil
	}
	on.Startup(open, on.ID("open"), on.In(reg))
	on.Cleanup(shut, on.ID("shut"), on.Timeout(5*time.Second), on.In(reg))

	a := &kopf.Activity{}
	fmt.Println(open(context.Background(), a), shut(context.Background(), a))
	// Output:
	// was open: true
	// <nil> <nil>
}

// Tokens that somebody else hands out for some time. When one has expired, or is refused, the
// handler is asked for another one.
func ExampleLogin() {
	reg := kopf.NewRegistry()
	tokens := func(ctx context.Context) (string, time.Time, error) {
		return "secret", time.Now().Add(time.Hour), nil
	}
	login := func(ctx context.Context, l *kopf.Login) (*kopf.Credentials, error) {
		token, expires, err := tokens(ctx)
		if err != nil {
			return nil, err // again in a minute
		}
		config := &rest.Config{Host: "https://kubernetes.example:6443", BearerToken: token}
		return &kopf.Credentials{Config: config, Expiration: expires}, nil
	}
	on.Login(login, on.ID("tokens"), on.In(reg))

	credentials, err := login(context.Background(), &kopf.Login{})
	fmt.Println(credentials.Config.Host, time.Until(credentials.Expiration) > 0, err)
	// Output:
	// https://kubernetes.example:6443 true <nil>
}

// The usual credentials of the process, but in the name of somebody else.
func ExampleLogin_default() {
	on.Login(func(ctx context.Context, l *kopf.Login) (*kopf.Credentials, error) {
		credentials, err := l.Default()
		if err != nil {
			return nil, kopf.Permanent(err)
		}
		credentials.Config.Impersonate = rest.ImpersonationConfig{UserName: "database-operator"}
		return credentials, nil
	}, on.ID("impersonate"), on.In(kopf.NewRegistry()))
}

// How many objects an index has: {"replicas":0}.
func ExampleProbe() {
	reg := kopf.NewRegistry()
	index := on.Index(byReplicas, on.ID("by-replicas"), on.In(reg))
	count := func(ctx context.Context, p *kopf.Probe) (int, error) { return index.Len(), nil }
	on.Probe(count, on.ID("replicas"), on.In(reg))

	n, err := count(context.Background(), &kopf.Probe{})
	text, _ := json.Marshal(map[string]int{"replicas": n})
	fmt.Println(string(text), err)
	// Output:
	// {"replicas":0} <nil>
}
