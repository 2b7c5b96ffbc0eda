package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/settings"
)

func noVariables(string) (string, bool) { return "", false }

// seen is what the functions of a program were called with.
type seen struct {
	Command   string
	Invoked   Invocation
	Freeze    FreezeOptions
	Resume    ResumeOptions
	Manifests ManifestsOptions
	Why       WhyOptions
	Uninstall UninstallOptions
	fail      error
}

// complete is a program with all commands, which notes how it is called.
func complete(note *seen) Program {
	if note == nil {
		note = &seen{}
	}
	did := func(command string, i Invocation) error {
		note.Command, note.Invoked = command, i
		return note.fail
	}
	return Program{
		Name: "op",
		CheckNamespace: func(pattern string) error {
			if strings.Contains(pattern, "[") {
				return errors.New("no pattern")
			}
			return nil
		},
		Run: func(_ context.Context, i Invocation) error { return did("run", i) },
		Handlers: func() ([]*registry.Handler, error) {
			return []*registry.Handler{{Kind: registry.Create, ID: "fn"}}, did("handlers", Invocation{})
		},
		Manifests: func(_ context.Context, out io.Writer, i Invocation, o ManifestsOptions) error {
			note.Manifests = o
			return did("manifests", i)
		},
		Freeze: func(_ context.Context, out io.Writer, i Invocation, o FreezeOptions) error {
			note.Freeze = o
			return did("freeze", i)
		},
		Resume: func(_ context.Context, out io.Writer, i Invocation, o ResumeOptions) error {
			note.Resume = o
			return did("resume", i)
		},
		Uninstall: func(_ context.Context, out io.Writer, i Invocation, o UninstallOptions) error {
			note.Uninstall = o
			return did("uninstall", i)
		},
		Why: func(_ context.Context, out io.Writer, o WhyOptions) error {
			note.Why = o
			return did("why", Invocation{})
		},
	}
}

// call runs a command line, with variables as NAME=VALUE.
func call(t *testing.T, p Program, line string, variables ...string) (code int, out, stderr string) {
	t.Helper()
	c := newCommands(p, func(name string) (string, bool) {
		for _, v := range variables {
			if n, text, _ := strings.Cut(v, "="); n == name {
				return text, true
			}
		}
		return "", false
	})
	var o, e bytes.Buffer
	code = c.main(t.Context(), strings.Fields(line), &o, &e)
	return code, o.String(), e.String()
}

// invoked is what a command line says to run.
func invoked(t *testing.T, p Program, note *seen, line string, variables ...string) Invocation {
	t.Helper()
	*note = seen{}
	if code, _, stderr := call(t, p, line, variables...); code != OK || note.Command == "" {
		t.Fatalf("%s %v: exit code %d:\n%s", line, variables, code, stderr)
	}
	return note.Invoked
}

// allSettings are the paths of all fields, in order.
func allSettings() (paths []string) {
	groups := reflect.TypeFor[settings.Settings]()
	for g := range groups.NumField() {
		for f := range groups.Field(g).Type.NumField() {
			paths = append(paths, groups.Field(g).Name+"."+groups.Field(g).Type.Field(f).Name)
		}
	}
	return paths
}

// effective is a setting of which nobody says anything.
func effective(path string) (field reflect.Value, known bool) {
	group, name, _ := strings.Cut(path, ".")
	if field = reflect.ValueOf(settings.Settings{}.WithDefaults()).FieldByName(group); !field.IsValid() {
		return field, false
	}
	field = field.FieldByName(name)
	return field, field.IsValid()
}

// defaultOf is the default of a setting as it is documented.
func defaultOf(path string) string {
	field, _ := effective(path)
	switch {
	case !scalar(field.Type()):
		return ""
	case reflect.PointerTo(field.Type()).Implements(readable):
		return fmt.Sprint(field.Interface())
	case field.Kind() == reflect.Bool:
		return map[bool]string{true: "yes", false: "no"}[field.Bool()]
	case field.Kind() == reflect.Int && field.IsZero():
		return "0"
	}
	return shown(field)
}
