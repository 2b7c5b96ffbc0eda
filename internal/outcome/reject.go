package outcome

import (
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RejectError denies a request, with a code as of HTTP.
type RejectError struct {
	// Code is what the client gets, such as 422 or 403. What is no code of an error, such
	// as 0, is 500 (ADM-11).
	Code int
	// Err is what the client is told.
	Err error
	// Causes say which fields are wrong.
	Causes []metav1.StatusCause
}

// Reject makes a RejectError.
func Reject(code int, format string, args ...any) *RejectError {
	if code < http.StatusBadRequest || code > 599 {
		code = http.StatusInternalServerError
	}
	return &RejectError{Code: code, Err: fmt.Errorf(format, args...)}
}

// Field says what is wrong with a field, named as Kubernetes does: spec.engine or
// spec.containers[0].image. Repeatable. It changes the error, and returns it.
//
// With code 422, kubectl shows fields and messages instead of the error's own text.
func (e *RejectError) Field(path, message string) *RejectError {
	e.Causes = append(e.Causes, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: path, Message: message})
	return e
}

// Error is the text with what is wrong with the fields.
func (e *RejectError) Error() string {
	var parts []string
	if e.Err != nil && e.Err.Error() != "" {
		parts = append(parts, e.Err.Error())
	}
	var fields []string
	for _, cause := range e.Causes {
		fields = append(fields, cause.Field+": "+cause.Message)
	}
	if len(fields) > 0 {
		parts = append(parts, strings.Join(fields, ", "))
	}
	if len(parts) == 0 {
		return "rejected"
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns what the client is told.
func (e *RejectError) Unwrap() error { return e.Err }
