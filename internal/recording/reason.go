package recording

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ReasonOf says in one word what kind of an error it is: what the API server calls it, or
// the name of the first Go type in it that says something (KEV-1).
func ReasonOf(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Reason != "" {
		return string(status.Status().Reason)
	}
	for err != nil {
		t := reflect.TypeOf(err)
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if name, _, _ := strings.Cut(t.Name(), "["); name != "" && !slices.Contains(wrappers, t.PkgPath()) {
			return strings.ToUpper(name[:1]) + name[1:]
		}
		switch wrapper := err.(type) {
		case interface{ Unwrap() error }:
			err = wrapper.Unwrap()
		case interface{ Unwrap() []error }:
			err = append(wrapper.Unwrap(), nil)[0]
		default:
			err = nil
		}
	}
	return "Error"
}

// wrappers are packages whose types of errors only say that there is one.
var wrappers = []string{"errors", "fmt", "github.com/kopf-go/kopf/internal/outcome"}
