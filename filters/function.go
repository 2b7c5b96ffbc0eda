package filters

import (
	"fmt"
	"reflect"
)

// function is a user's function, wrapped once.
type function struct {
	call func(value any, present bool) bool
	typ  reflect.Type
}

func newFunction(f any) Criterion {
	v := reflect.ValueOf(f)
	t := v.Type()
	switch {
	case t.IsVariadic(), t.NumOut() != 1, t.NumIn() != 1 && t.NumIn() != 2,
		t.Out(0).Kind() != reflect.Bool, t.NumIn() == 2 && t.In(1).Kind() != reflect.Bool:
		return invalid{fmt.Errorf("a function as a criterion must be func(V) bool or func(V, bool) bool, "+
			"the second parameter being whether the value is there, not %s", t)}
	case t.In(0).Kind() == reflect.Interface && t.In(0).NumMethod() > 0:
		return invalid{fmt.Errorf("a function as a criterion cannot take a %s, for no value can be made into one: "+
			"take any, or the type of the field", t.In(0))}
	case v.IsNil():
		return invalid{fmt.Errorf("a function as a criterion cannot be nil, as this %s is", t)}
	}
	switch f := f.(type) { // what labels and annotations need, without reflection
	case func(string) bool:
		return function{func(value any, _ bool) bool {
			text, ok := value.(string)
			return ok && f(text)
		}, t}
	case func(string, bool) bool:
		return function{func(value any, present bool) bool {
			text, ok := value.(string)
			return (ok || value == nil) && f(text, present)
		}, t}
	case func(any) bool:
		return function{func(value any, _ bool) bool { return f(value) }, t}
	case func(any, bool) bool:
		return function{f, t}
	}
	return function{reflected(v, t), t}
}

func reflected(f reflect.Value, t reflect.Type) func(value any, present bool) bool {
	param, two := t.In(0), t.NumIn() == 2
	nilable := param.Kind() == reflect.Pointer || param.Kind() == reflect.Interface
	return func(value any, present bool) bool {
		if value == nil && !nilable && !two {
			return false
		}
		arg, ok := reflect.Zero(param), true
		if value != nil {
			arg, ok = convert(value, param)
		}
		if !ok {
			return false
		}
		args := []reflect.Value{arg}
		if two {
			args = append(args, reflect.ValueOf(present).Convert(t.In(1)))
		}
		return f.Call(args)[0].Bool()
	}
}

func (f function) Match(value any, present bool) bool {
	if !present {
		value = nil
	}
	return f.call(value, present)
}

func (f function) String() string { return f.typ.String() }

func (f function) check(t reflect.Type) error {
	if t == nil || mayConvert(t, f.typ.In(0), 0) {
		return nil
	}
	return fmt.Errorf("%s can never be called with %s", f.typ, typeName(t))
}
