package on

import (
	"context"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/typed"
)

// Validate asks fn about every request to create, change or delete an object, before it is
// stored. An error denies the request, with the error's text; kopf.Reject says with which
// code, and which fields are wrong.
//
//	on.Validate(func(ctx context.Context, a *kopf.Admission[*Database]) error {
//		if a.New.Spec.Engine == "" {
//			return kopf.Reject(422, "no engine").Field("spec.engine", "is required")
//		}
//		return nil
//	}, on.Operations("CREATE", "UPDATE"))
//
// All handlers of a request are asked, in order of registration, even if one denies it, and
// the client is told what all of them say (ADM-8). There is one attempt, and the client
// waits for it: fn should be quick. Its context ends a little before the API server gives
// up. If fn panics, or is too late, the request is denied; see IgnoreFailures. Filters look
// at what is asked for; on deletion, at what goes (ADM-5).
//
// An update of an object that is being deleted is not asked about if it changes nothing but
// what is bookkeeping, such as finalizers: a rule that came later must not keep objects from
// going.
//
// Requests come to all replicas of the operator, at any time, also before it has seen the
// object in another way. Nothing is kept on the object.
func Validate[T typed.Object](fn func(context.Context, *typed.Admission[T]) error, opts ...ValidateOption) {
	d := newDraft[T](registry.Validate, fn, fn == nil)
	take(d, opts, ValidateOption.validate)
	d.Invoke = func(ctx context.Context, call *registry.Call) error {
		a, err := typed.NewAdmission[T](call)
		if err != nil {
			return err
		}
		return fn(ctx, a)
	}
	d.register()
}

// Mutate calls fn for every request to create or change an object, before it is stored: it
// changes Object in place. An error denies the request, as for Validate, and then nothing is
// changed.
//
//	on.Mutate(func(ctx context.Context, a *kopf.Admission[*Database]) error {
//		if a.Object.Spec.Engine == "" {
//			a.Object.Spec.Engine = "postgres"
//		}
//		return nil
//	}, on.Operations("CREATE"))
//
// What is sent to the API server is the difference that fn has made and nothing else: fields
// that T does not know survive on any level. What says which object it is, such as its name,
// cannot be changed. Several handlers see each other's changes, in order of registration;
// their filters look at the object as it was asked for.
//
// Requests to delete come only to handlers with on.Operations("DELETE") and nothing else
// (ADM-7), and cannot be changed.
//
// The API server may call fn again for the same request, when another webhook has changed
// the object: what it does must come to the same when done twice.
func Mutate[T typed.Object](fn func(context.Context, *typed.Admission[T]) error, opts ...MutateOption) {
	d := newDraft[T](registry.Mutate, fn, fn == nil)
	take(d, opts, MutateOption.mutate)
	d.Invoke = func(ctx context.Context, call *registry.Call) error {
		return typed.Mutate(ctx, call, fn)
	}
	d.register()
}

// ValidateCEL gives the API server a rule of its own: an expression in CEL that must be true
// for a request to be allowed. No operator has to run for it to be checked.
//
//	on.ValidateCEL[*Database]("replicas", "object.spec.replicas <= 5",
//		on.Message("there are 5 replicas at most"))
//
// It becomes a ValidatingAdmissionPolicy, with a binding, named after id. The expression may
// use object, oldObject, request, namespaceObject and authorizer, as described for those.
// It is not checked here that the expression compiles.
func ValidateCEL[T typed.Object](id, expression string, opts ...PolicyOption) {
	d := &draft{
		Handler: &registry.Handler{
			Kind: registry.Policy, ID: id, Type: reflect.TypeFor[T](), Retries: -1, Backoff: -1,
			Rule:   registry.Rule{Expression: strings.TrimSpace(expression)},
			Source: registry.Source(reflect.TypeFor[draft]().PkgPath()),
		},
		registry: registry.Default,
	}
	if id == "" {
		d.mistake("on.ValidateCEL needs an id")
	}
	if d.Rule.Expression == "" {
		d.mistake("on.ValidateCEL has no expression")
	}
	take(d, opts, PolicyOption.policy)
	for _, label := range d.Labels {
		if !selectable(label.Match) {
			d.mistake("on.Label(%q): the API server itself looks at labels for on.ValidateCEL: "+
				"it takes a text, filters.Present or filters.Absent, not %s; say more in the expression", label.Key, label.Match)
		}
	}
	d.register()
}

// selectable tells whether the API server can check the criterion for a label.
func selectable(c filters.Criterion) bool {
	if c == nil || c == filters.Present || c == filters.Absent {
		return true // nil is a mistake that is told already
	}
	_, literal := filters.Literal(c)
	return literal
}

var operations = []string{
	string(admissionv1.Create), string(admissionv1.Update), string(admissionv1.Delete), string(admissionv1.Connect),
}

// Operations takes only requests of these kinds: "CREATE", "UPDATE", "DELETE" or "CONNECT".
// Default: all. The API server is told, and the operator looks again.
func Operations(ops ...admissionv1.Operation) RequestOption {
	return setting(func(d *draft) {
		d.give("on.Operations")
		if len(ops) == 0 {
			d.mistake("on.Operations is empty: leave it out for all") // ADM-1
		}
		for _, op := range ops {
			switch name := string(op); {
			case !slices.Contains(operations, name):
				d.mistake("on.Operations(%q): there are %s", name, strings.Join(operations, ", "))
			case !slices.Contains(d.Handler.Operations, name):
				d.Handler.Operations = append(d.Handler.Operations, name)
			}
		}
	})
}

// Subresource takes requests for a subresource, such as "status" or "scale", instead of
// those for the object itself; "*" takes both (ADM-7). See Admission.Subresource for the
// type that T has to be.
func Subresource(name string) RequestOption {
	return setting(func(d *draft) {
		d.give("on.Subresource")
		if name == "" || strings.ContainsAny(name, "/ ") || name != "*" && strings.Contains(name, "*") {
			d.mistake(`on.Subresource(%q): name one, such as "status", or "*"; leave it out for the object itself`, name)
		}
		d.Handler.Subresource = name
	})
}

// Persistent leaves the API server asking when the operator stops, so that requests are
// denied until it is back, unless there is IgnoreFailures (ADM-15). Default: what the
// operator has configured goes with it.
func Persistent() AdmissionOption {
	return setting(func(d *draft) { d.Handler.Persistent = true })
}

// SideEffects says that the handler changes something elsewhere, but not in a dry run (see
// Admission.DryRun). Default: it says that it changes nothing, and may be called at any time.
func SideEffects() AdmissionOption {
	return setting(func(d *draft) { d.Handler.SideEffects = true })
}

// IgnoreFailures lets requests pass when the handler cannot say anything about them: when
// the API server does not reach the operator, or the handler panics or is too late. An error
// that it returns denies them as ever. Default: they are denied.
func IgnoreFailures() AdmissionOption {
	return setting(func(d *draft) { d.Handler.IgnoreFailures = true })
}

// Message is what a client is told whose request breaks the rule. Default: the expression.
func Message(text string) PolicyOption {
	return setting(func(d *draft) {
		d.give("on.Message")
		if text = strings.TrimSpace(text); text == "" || strings.Contains(text, "\n") {
			d.mistake("on.Message(%q): it is one line of text", text)
		}
		d.Rule.Message = text
	})
}

// MessageExpression is Message as an expression in CEL, whose value is the text. Message is
// what is said if it fails.
func MessageExpression(expression string) PolicyOption {
	return setting(func(d *draft) {
		d.give("on.MessageExpression")
		if expression = strings.TrimSpace(expression); expression == "" {
			d.mistake("on.MessageExpression is empty")
		}
		d.Rule.MessageExpression = expression
	})
}
