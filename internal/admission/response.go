package admission

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kopf-go/kopf/internal/outcome"
	"github.com/kopf-go/kopf/internal/registry"
)

// complaint is why a handler lets the request be denied.
type complaint struct {
	relevance int // the least leads (ADM-10)
	code      int
	message   string
	causes    []metav1.StatusCause
}

// The order of ADM-10.
const (
	rejected = iota
	permanent
	temporary
	others
)

// newComplaint is what the client is told of an error. Of what went wrong inside the handler
// it is told no more than where.
func newComplaint(h *registry.Handler, err error) complaint {
	c := complaint{relevance: others, code: http.StatusInternalServerError, message: err.Error()}
	var reject *outcome.RejectError
	var final *outcome.PermanentError
	var retry *outcome.RetryError
	var panicked *outcome.PanicError
	var late *lateError
	var decode *registry.DecodeError
	switch {
	case errors.As(err, &panicked):
		c.message = h.Name() + " panicked"
	case errors.As(err, &late):
		c.code = http.StatusGatewayTimeout
	case errors.As(err, &reject):
		c.relevance, c.code, c.causes = rejected, reject.Code, causes(err)
	case errors.As(err, &decode): // the object is not what it should be
		c.relevance, c.code = permanent, http.StatusUnprocessableEntity
	case errors.As(err, &final):
		c.relevance = permanent
	case errors.As(err, &retry):
		c.relevance = temporary
	}
	if c.code < http.StatusBadRequest || c.code > 599 {
		c.code = http.StatusInternalServerError
	}
	if c.message == "" {
		c.message = fmt.Sprintf("%s denies it with an empty %T", h.Name(), err)
	}
	return c
}

// causes are those of all rejections in an error.
func causes(err error) (all []metav1.StatusCause) {
	if reject, ok := err.(*outcome.RejectError); ok {
		all = slices.Clone(reject.Causes)
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		if inner := err.Unwrap(); inner != nil {
			all = append(all, causes(inner)...)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range err.Unwrap() {
			all = append(all, causes(inner)...)
		}
	}
	return all
}

func (v *review) complain(h *registry.Handler, err error) {
	v.complaints = append(v.complaints, newComplaint(h, err))
}

// filterFailed notes that nobody knows whether a handler is for the object. The client is told
// no more than that, unless it is because of what it has sent.
func (v *review) filterFailed(h *registry.Handler, err error) {
	var decode *registry.DecodeError
	undecodable := errors.As(err, &decode)
	switch {
	case undecodable:
		v.complain(h, decode)
	case !h.IgnoreFailures:
		v.complain(h, errors.New("the filter of "+h.Name()+" failed"))
	}
	v.log.Error("filter failed", "handler", h.ID, "error", err, "ignored", h.IgnoreFailures && !undecodable)
}

// settle notes what a call has come to.
func (v *review) settle(h *registry.Handler, log *slog.Logger, err error, took time.Duration) {
	var panicked *outcome.PanicError
	var late *lateError
	var reject *outcome.RejectError
	result := "denied"
	switch {
	case err == nil:
		result = "allowed"
		log.Debug("handler allows the request", "took", took)
	case errors.As(err, &panicked):
		result = "failed"
		log.Error("handler panicked", "error", err, "stack", string(panicked.Stack), "ignored", h.IgnoreFailures)
	case errors.As(err, &late):
		result = "failed"
		log.Error("handler is too late", "error", err, "ignored", h.IgnoreFailures)
	case errors.As(err, &reject):
		log.Info("handler denies the request", "error", err)
	default:
		log.Warn("handler failed, so the request is denied", "error", err)
	}
	if result == "denied" || result == "failed" && !h.IgnoreFailures {
		v.complain(h, err)
	}
	if v.Observe != nil {
		v.Observe(h, v.resource, result, took)
	}
}

// response is what all handlers come to.
func (v *review) response() *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: v.request.UID, Warnings: cutWarnings(v.warnings)}
	if len(v.complaints) == 0 && v.changed && v.request.Operation != admissionv1.Delete {
		v.patch(response)
	}
	if response.Allowed = len(v.complaints) == 0; !response.Allowed {
		response.Result = v.status()
	}
	return response
}

// patch puts what handlers have changed into the response.
func (v *review) patch(response *admissionv1.AdmissionResponse) {
	patch, err := Patch(v.request.Object.Raw, v.object.Raw())
	switch {
	case err != nil:
		v.log.Error("changes of the object do not encode, so the request is denied", "error", err)
		v.complaints = append(v.complaints, complaint{
			relevance: others, code: http.StatusInternalServerError, message: "changes of the object do not encode",
		})
	case patch != nil:
		kind := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = patch, &kind
	}
}

// status is that of a request that is denied. The API server hands it on to the client.
func (v *review) status() *metav1.Status {
	slices.SortStableFunc(v.complaints, func(a, b complaint) int { return cmp.Compare(a.relevance, b.relevance) })
	first := v.complaints[0]
	status := &metav1.Status{Status: metav1.StatusFailure, Code: int32(first.code), Reason: reasons[first.code]}
	var messages []string
	var all []metav1.StatusCause
	fields := slices.ContainsFunc(v.complaints, func(c complaint) bool { return len(c.causes) > 0 })
	for _, c := range v.complaints {
		if !slices.Contains(messages, c.message) {
			messages = append(messages, c.message)
		}
		if all = append(all, c.causes...); fields && len(c.causes) == 0 {
			// kubectl prints either the message or the causes.
			all = append(all, metav1.StatusCause{Message: c.message})
		}
	}
	status.Message = strings.Join(messages, "; ")
	if len(all) > 0 {
		status.Details = &metav1.StatusDetails{
			Name: v.request.Name, Group: v.request.Kind.Group, Kind: v.request.Kind.Kind, Causes: all,
		}
	}
	return status
}

// reasons are what clients tell errors apart by.
var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:            metav1.StatusReasonBadRequest,
	http.StatusUnauthorized:          metav1.StatusReasonUnauthorized,
	http.StatusForbidden:             metav1.StatusReasonForbidden,
	http.StatusNotFound:              metav1.StatusReasonNotFound,
	http.StatusMethodNotAllowed:      metav1.StatusReasonMethodNotAllowed,
	http.StatusNotAcceptable:         metav1.StatusReasonNotAcceptable,
	http.StatusConflict:              metav1.StatusReasonConflict,
	http.StatusGone:                  metav1.StatusReasonGone,
	http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge,
	http.StatusUnsupportedMediaType:  metav1.StatusReasonUnsupportedMediaType,
	http.StatusUnprocessableEntity:   metav1.StatusReasonInvalid,
	http.StatusTooManyRequests:       metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError:   metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:    metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:        metav1.StatusReasonTimeout,
}

// What the API server takes of warnings, in characters.
const (
	warningLimit  = 256
	warningsLimit = 4096
)

// cutWarnings makes warnings ones that the API server hands on as they are: in one line, each
// once, and not too long. It would leave out whole ones otherwise.
func cutWarnings(said []string) (warnings []string) {
	seen := make(map[string]bool, len(said))
	total := 0
	for _, text := range said {
		text = cut(strings.TrimSpace(strings.Map(printable, strings.ToValidUTF8(text, "\uFFFD"))))
		if text == "" || seen[text] {
			continue
		}
		if total += utf8.RuneCountInString(text); total > warningsLimit {
			break
		}
		seen[text] = true
		warnings = append(warnings, text)
	}
	return warnings
}

func printable(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}

func cut(text string) string {
	if utf8.RuneCountInString(text) <= warningLimit {
		return text
	}
	return string([]rune(text)[:warningLimit-1]) + "…"
}
