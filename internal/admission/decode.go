package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "sigs.k8s.io/json"
)

// Limit is how many bytes a review may have. The API server takes objects of 3 MiB at most,
// and a review has two.
const Limit = 8 << 20

// Error says that a review cannot be answered, and with which code of HTTP to say so.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

func failure(code int, format string, args ...any) *Error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// Review is what the API server sends. The versions v1 and v1beta1 have the same form.
type Review struct {
	metav1.TypeMeta
	Request *admissionv1.AdmissionRequest
}

const (
	reviewKind  = "AdmissionReview"
	betaVersion = "admission.k8s.io/v1beta1"
)

// wire is Review in JSON. It tells a user who is not named from one who is nobody.
type wire struct {
	metav1.TypeMeta `json:",inline"`
	Request         *struct {
		admissionv1.AdmissionRequest `json:",inline"`
		UserInfo                     *authenticationv1.UserInfo `json:"userInfo"`
	} `json:"request"`
}

// Decode reads a review. An error is an *Error. It takes memory in proportion to what is
// read, which is never more than Limit.
func Decode(from io.Reader) (*Review, error) {
	raw, err := io.ReadAll(io.LimitReader(from, Limit+1))
	var tooLarge *http.MaxBytesError
	switch {
	case len(raw) > Limit, errors.As(err, &tooLarge):
		return nil, failure(http.StatusRequestEntityTooLarge, "the review has more than %d bytes", Limit)
	case err != nil:
		return nil, failure(http.StatusBadRequest, "the review cannot be read: %w", err)
	}
	var w wire
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(raw, &w); err != nil {
		return nil, failure(http.StatusBadRequest, "the review is not readable: %w", err)
	}
	if w.APIVersion == "" && w.Kind == "" { // ADM-9
		w.APIVersion, w.Kind = admissionv1.SchemeGroupVersion.String(), reviewKind
	}
	switch {
	case w.Kind != reviewKind, w.APIVersion != admissionv1.SchemeGroupVersion.String() && w.APIVersion != betaVersion:
		return nil, failure(http.StatusBadRequest, "got %s, %s, where an AdmissionReview of %s or %s is expected",
			w.APIVersion, w.Kind, admissionv1.SchemeGroupVersion, betaVersion)
	case w.Request == nil:
		return nil, failure(http.StatusBadRequest, "the review has no request")
	case w.Request.UserInfo == nil:
		return nil, failure(http.StatusBadRequest, "the request does not say who asks: it has no userInfo") // ADM-4
	}
	request := &w.Request.AdmissionRequest
	request.UserInfo = *w.Request.UserInfo
	return &Review{TypeMeta: w.TypeMeta, Request: request}, nil
}

// Encode makes the body of the answer to a review, in its own version (ADM-9).
func (r *Review) Encode(response *admissionv1.AdmissionResponse) ([]byte, error) {
	return json.Marshal(admissionv1.AdmissionReview{TypeMeta: r.TypeMeta, Response: response})
}

// Answer decodes a review, answers it, and encodes the answer. An error is an *Error.
func (r *Reviewer) Answer(ctx context.Context, from io.Reader, facts Facts) ([]byte, error) {
	review, err := Decode(from)
	if err != nil {
		return nil, err
	}
	response, err := r.Review(ctx, review.Request, facts)
	if err != nil {
		return nil, err
	}
	encoded, err := review.Encode(response)
	if err != nil {
		return nil, &Error{Code: http.StatusInternalServerError, Err: err}
	}
	return encoded, nil
}
