// Package filters holds criteria for one value of an object: a label, an
// annotation or a field. They are pure: no criterion knows where its value came
// from, none changes it, and the engine decides which values are asked about.
//
// Wherever a criterion is taken, a literal or a function may stand instead:
//
//	filters.Any("gold", "silver")
//	filters.Not(filters.Present)
//	filters.All(filters.Present, func(size int32) bool { return size > 3 })
//
// A mistake in building a criterion, such as a nil literal, is kept in it and
// reported by [Of] and [Check]: pass a criterion through one of them before use.
//
// Criteria are immutable and safe for concurrent use, if the user's functions are.
package filters

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/kopf-go/kopf/diff"
)

// Criterion is a condition on one value. It is made by the functions of this
// package only.
type Criterion interface {
	// Match tells whether a value meets the condition. The value is a JSON tree
	// as package diff describes it, which is not changed; present is false, and
	// value nil, when there is no such label, annotation or field. A panic of a
	// user's function goes through.
	Match(value any, present bool) bool

	// String describes the criterion for logs and errors, like the Go expression
	// that makes it.
	String() string

	// check reports what is wrong with the criterion itself, and, if t is not
	// nil, for values of the Go type t.
	check(t reflect.Type) error
}

// The criteria that look at the existence of a value only. Present is met by any
// value that is there, the empty string, zero and null included; Absent is met
// if there is none (FLT-6, FLT-8).
var (
	Present Criterion = presence(true)
	Absent  Criterion = presence(false)
)

// Of turns what a user has passed as a criterion into one:
//
//   - a Criterion is itself;
//   - a function func(V) bool or func(V, bool) bool is called with the value; see
//     below;
//   - anything else is a literal, as for [Equal].
//
// A function gets the value converted to its type V: texts and numbers to any
// type of their kind, as long as a number fits and an integer stays one, other
// types by way of JSON. What cannot be converted does not match, and the function
// is not called. Its second parameter tells whether the value is there at all; an
// absent one, and null, come as the zero value of V. A function without it is
// called for absent values only if V is a pointer or any, which are nil then, and
// otherwise does not match (FLT-9). Functions must not change what they get, for
// trees are shared.
//
// The error says what to write instead. Nil is one, for it may mean "absent" or
// "null" (FLT-2), as are functions of another form and values without a JSON form.
func Of(v any) (Criterion, error) {
	c := criterion(v)
	if err := c.check(nil); err != nil {
		return nil, err
	}
	return c, nil
}

// Check tells whether a criterion can be met, and its functions be called, by
// values of the Go type t, the one of the field in the user's struct. It reports
// all that is wrong: a literal "3" is never equal to an int32, nor is 300 to an
// int8. Pointers stand for what they point to. A nil t, for a field whose type is
// not known, leaves the checks that [Of] makes.
func Check(c Criterion, t reflect.Type) error {
	if c == nil {
		return errNil
	}
	return c.check(t)
}

// Equal is met by a value that equals the literal, and never by an absent one.
// The literal may be of any type that has a JSON form, which is what is compared,
// by the rules of [diff.Equal]: Equal(3) is met by 3 and 3.0 but not by "3".
//
// Some texts denote the same amount or time without being equal ("1" and
// "1000m"): use a function of the type in question for those.
func Equal(literal any) Criterion {
	value, err := treeOf(literal)
	if err != nil {
		return invalid{err}
	}
	return equality{value}
}

// Any is met if at least one of the criteria is, tried in order up to that one.
// Each is what [Of] takes. Without any it is never met (FLT-19).
func Any(criteria ...any) Criterion { return combination{"Any", criterions(criteria)} }

// All is met if each of the criteria is, tried in order up to the first that is
// not. Each is what [Of] takes. Without any it is always met (FLT-19).
func All(criteria ...any) Criterion { return combination{"All", criterions(criteria)} }

// None is met if none of the criteria is, tried in order up to the first that is.
// Each is what [Of] takes. Without any it is always met (FLT-19).
func None(criteria ...any) Criterion { return combination{"None", criterions(criteria)} }

// Not is met if the criterion, which is what [Of] takes, is not. Mind that an
// absent value meets Not("gold"): say All(Present, Not("gold")) to leave it out.
func Not(c any) Criterion { return combination{"Not", criterions([]any{c})} }

var errNil = errors.New("a criterion cannot be nil: " +
	"say filters.Absent if there must be no value, filters.Present if there must be one")

// criterion is Of with the error inside.
func criterion(v any) Criterion {
	if c, ok := v.(Criterion); ok {
		return c
	}
	if reflect.ValueOf(v).Kind() == reflect.Func {
		return newFunction(v)
	}
	return Equal(v)
}

func criterions(vs []any) []Criterion {
	cs := make([]Criterion, len(vs))
	for i, v := range vs {
		cs[i] = criterion(v)
	}
	return cs
}

type presence bool

func (p presence) Match(_ any, present bool) bool { return bool(p) == present }

func (p presence) String() string {
	if p {
		return "Present"
	}
	return "Absent"
}

func (presence) check(reflect.Type) error { return nil }

// equality holds the literal as a tree.
type equality struct{ literal any }

func (e equality) Match(value any, present bool) bool {
	return present && diff.Equal(e.literal, value)
}

func (e equality) String() string { return jsonText(e.literal) }

func (e equality) check(t reflect.Type) error {
	if t == nil {
		return nil
	}
	if _, ok := convert(e.literal, t); !ok {
		return fmt.Errorf("%s, %s, can never equal %s", e, kindOf(e.literal), typeName(t))
	}
	return nil
}

// Literal returns the value, as a JSON tree, that a criterion wants to be equal; ok is
// false if it wants something else.
func Literal(c Criterion) (value any, ok bool) {
	e, ok := c.(equality)
	return e.literal, ok
}

// combination is one of Any, All, None and Not.
type combination struct {
	name     string
	criteria []Criterion
}

func (c combination) Match(value any, present bool) bool {
	decisive := c.name != "All" // the outcome of a part that settles the matter
	for _, part := range c.criteria {
		if part.Match(value, present) == decisive {
			return c.name == "Any"
		}
	}
	return c.name != "Any"
}

func (c combination) String() string {
	parts := make([]string, len(c.criteria))
	for i, part := range c.criteria {
		parts[i] = part.String()
	}
	return c.name + "(" + strings.Join(parts, ", ") + ")"
}

func (c combination) check(t reflect.Type) error {
	var errs []error
	for _, part := range c.criteria {
		errs = append(errs, part.check(t))
	}
	return errors.Join(errs...)
}

// invalid stands where a criterion could not be made.
type invalid struct{ err error }

func (invalid) Match(any, bool) bool       { return false }
func (i invalid) String() string           { return "invalid(" + i.err.Error() + ")" }
func (i invalid) check(reflect.Type) error { return i.err }
