package on

import (
	"context"
	"fmt"
	"reflect"

	"github.com/kopf-go/kopf/activities"
	"github.com/kopf-go/kopf/internal/registry"
)

// Startup calls fn once when the operator starts, before it does anything else: it connects
// to nothing, not even for permission to log in, before all startup handlers have succeeded
// (ACT-4). They may change the operator's settings:
//
//	on.Startup(func(ctx context.Context, a *kopf.Activity) error {
//		a.Settings.Queueing.WorkerLimit = runtime.NumCPU()
//		return database.Open(ctx)
//	}, on.Retries(3))
//
// Handlers are called one after the other, in order of registration. One that fails is called
// again after a pause, as elsewhere: by default each minute for ever, while the others go on;
// see Retries, Timeout, Backoff, Errors, kopf.Retry and kopf.Permanent (ACT-1). If one fails
// for good, the operator ends with a kopf.ActivityError, and cleanup handlers are not
// called (EXT-6). The context ends when the operator is told to stop. Indices are empty.
func Startup(fn func(context.Context, *activities.Activity) error, opts ...ActivityOption) {
	registerActivity[activities.Activity](registry.Startup, fn, fn == nil, opts, func(ctx context.Context, call *registry.Call) error {
		a := activities.NewActivity(call)
		return fn(ctx, &a)
	})
}

// Cleanup calls fn once when the operator stops, after all that it did has ended (ACT-5), if
// its startup handlers had succeeded: also when it stops because of an error. Its context does not end when the
// operator is told to stop, but after Settings.Process.CleanupTimeout, which all cleanup
// handlers have together. Failures are as in Startup, and end the operator with an error.
func Cleanup(fn func(context.Context, *activities.Activity) error, opts ...ActivityOption) {
	registerActivity[activities.Activity](registry.Cleanup, fn, fn == nil, opts, func(ctx context.Context, call *registry.Call) error {
		a := activities.NewActivity(call)
		return fn(ctx, &a)
	})
}

// Login asks fn for credentials: when the operator has started, and whenever those that it
// has are refused by the API server (401) or have expired. A request that was refused is
// made again with others, so that nothing is lost; meanwhile all requests wait.
//
//	on.Login(func(ctx context.Context, l *kopf.Login) (*kopf.Credentials, error) {
//		token, expires, err := vault.Token(ctx)
//		return &kopf.Credentials{Config: &rest.Config{Host: server, BearerToken: token}, Expiration: expires}, err
//	})
//
// All login handlers are called, and what they return is used by priority (AUTH-4). One that
// has nothing returns nil. Credentials that were refused are not used again, also when a
// handler returns them again (AUTH-5). If there are none left, or a handler fails for good, the
// operator ends with a kopf.LoginError (AUTH-1). A handler that fails is called again as in Startup, and
// everybody waits for it: give it on.Errors(on.Ignored) if others do.
//
// Without login handlers, the operator connects as Options.Config says, or as what
// controller-runtime finds says; tokens in files, and plugins for credentials, are then
// read again by client-go when they must be. With login handlers, Options.Config is used first, if
// it is set, until it is refused (EMB-8).
func Login(fn func(context.Context, *activities.Login) (*activities.Credentials, error), opts ...ActivityOption) {
	registerActivity[activities.Login](registry.Login, fn, fn == nil, opts, func(ctx context.Context, call *registry.Call) error {
		credentials, err := fn(ctx, activities.NewLogin(call))
		if err == nil && credentials != nil {
			call.Result = credentials
		}
		return err
	})
}

// Probe asks fn how the operator is whenever somebody else asks for that over HTTP, at the
// liveness endpoint. What it returns becomes JSON, under the handler's id (ACT-6):
//
//	on.Probe(func(ctx context.Context, p *kopf.Probe) (int, error) {
//		return podsByNode.Len(), nil
//	}, on.ID("pods")) // {"pods": 3}
//
// Answers are kept for 10 seconds, and those who ask at the same time get the same. An error for
// good is answered with 500. Other errors are tried again, as in Startup, while the request
// waits, but no longer than 10 seconds: then the answer is 503. fn's context ends then, too; as
// long as fn does not return, it is not called again.
func Probe[V any](fn func(context.Context, *activities.Probe) (V, error), opts ...ActivityOption) {
	var mistakes []error
	switch t := reflect.TypeFor[V](); t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		mistakes = append(mistakes, fmt.Errorf("it returns %s, which is nothing that JSON has", t))
	}
	registerActivity[activities.Probe](registry.Probe, fn, fn == nil, opts, func(ctx context.Context, call *registry.Call) error {
		value, err := fn(ctx, &activities.Probe{Activity: activities.NewActivity(call)})
		call.Result = value
		return err
	}, mistakes...)
}

// registerActivity registers a handler that is for no object. A is what it gets.
func registerActivity[A any](kind registry.Kind, fn any, isNil bool, opts []ActivityOption, invoke func(context.Context, *registry.Call) error, mistakes ...error) {
	d := begin(kind, reflect.TypeFor[*A](), fn, isNil)
	d.mistakes = append(d.mistakes, mistakes...)
	take(d, opts, ActivityOption.activity)
	d.Invoke = invoke
	if d.id != "" {
		d.Handler.ID = d.id
	}
	d.registry.Add(d.Handler, d.mistakes...)
}
