package simulated

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Request is a request that reached the server.
type Request struct {
	// Verb is get, list, watch, create, update, patch, delete, or discover.
	Verb string
	// Resource is the plural, and the subresource, if any: "widgets", "widgets/status".
	// For discover it is the group and version, or the path: "api", "apis", "apis/apps".
	Resource        string
	Namespace, Name string
	Query           string
	Accept          string // the header
	Body            []byte
	At              time.Time
	// Code is the answer's status code: 0 while there is none, and if there was none.
	Code int
}

// Writes tells whether the request is there to change something. What asks for permissions
// is posted, but is not stored.
func (r Request) Writes() bool {
	if strings.HasPrefix(r.Resource, "selfsubject") {
		return false
	}
	switch r.Verb {
	case "create", "update", "patch", "delete":
		return true
	}
	return false
}

// On says which requests are meant. Empty fields mean any.
type On struct {
	Verb      string
	Resource  string // "widgets" does not include "widgets/status"; "widgets*" does
	Namespace string
	Name      string
	// Skip is how many of them are let pass first, Times how many are meant then;
	// zero: all. They have no meaning for Requests and Count.
	Skip, Times int
}

func (o On) matches(r *Request) bool {
	resource := o.Resource == "" || o.Resource == r.Resource
	if prefix, ok := strings.CutSuffix(o.Resource, "*"); ok {
		resource = strings.HasPrefix(r.Resource, prefix)
	}
	return resource && (o.Verb == "" || o.Verb == r.Verb) &&
		(o.Namespace == "" || o.Namespace == r.Namespace) && (o.Name == "" || o.Name == r.Name)
}

// Fault is what goes wrong with a request. The delay comes first; of the others one
// is to be set, or none.
type Fault struct {
	Delay time.Duration
	// Drop resets the connection. Before the request that loses the request, after it
	// the answer.
	Drop bool
	// Hang never answers: the request ends with its context.
	Hang bool
	// Code is an error status to answer with, RetryAfter the header to go with it.
	Code       int
	RetryAfter time.Duration
	// Reason and Message are the status's; they have defaults.
	Reason  metav1.StatusReason
	Message string
}

// Fail is a Fault that answers with a status code.
func Fail(code int) *Fault { return &Fault{Code: code} }

// Drop is a Fault that resets the connection.
func Drop() *Fault { return &Fault{Drop: true} }

// Delay is a Fault that only takes time.
func Delay(d time.Duration) *Fault { return &Fault{Delay: d} }

// Always returns a hook function that always has the same fault.
func Always(f *Fault) func(Request) *Fault { return func(Request) *Fault { return f } }

type hook struct {
	on    On
	after bool
	do    func(Request) *Fault
	seen  int
}

// Before has do called with requests before they are carried out. It may use the
// server, as somebody who is quicker than the request; it returns what goes wrong, or
// nil. remove ends it.
func (s *Server) Before(on On, do func(Request) *Fault) (remove func()) {
	return s.hook(&hook{on: on, do: do})
}

// After has do called with requests that have been carried out and whose answers
// are not yet on the way.
func (s *Server) After(on On, do func(Request) *Fault) (remove func()) {
	return s.hook(&hook{on: on, do: do, after: true})
}

func (s *Server) hook(h *hook) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = append(s.hooks, h)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, other := range s.hooks {
			if other == h {
				s.hooks = append(s.hooks[:i:i], s.hooks[i+1:]...)
				return
			}
		}
	}
}

// disturbAfter is what becomes of an answer on its way.
func (s *Server) disturbAfter(ctx context.Context, r Request, response *http.Response) (*http.Response, error) {
	r.Code = response.StatusCode
	instead, err := s.disturb(ctx, r, true)
	if instead == nil && err == nil {
		return response, nil
	}
	_ = response.Body.Close()
	return instead, err
}

// disturb calls the hooks for a request, and returns an answer if it ends here.
func (s *Server) disturb(ctx context.Context, r Request, after bool) (*http.Response, error) {
	s.mu.Lock()
	var due []*hook
	for _, h := range s.hooks {
		if h.after != after || !h.on.matches(&r) {
			continue
		}
		h.seen++
		if h.seen > h.on.Skip && (h.on.Times == 0 || h.seen <= h.on.Skip+h.on.Times) {
			due = append(due, h)
		}
	}
	s.mu.Unlock()
	for _, h := range due {
		f := h.do(r)
		if f == nil {
			continue
		}
		if response, err := f.happen(ctx); response != nil || err != nil {
			return response, err
		}
	}
	return nil, nil
}

func (f *Fault) happen(ctx context.Context) (*http.Response, error) {
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	switch {
	case f.Hang:
		<-ctx.Done()
		return nil, ctx.Err()
	case f.Drop:
		return nil, errReset
	case f.Code != 0:
		return f.answer(), nil
	}
	return nil, nil
}

var errReset = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}

var reasons = map[int]metav1.StatusReason{
	400: metav1.StatusReasonBadRequest, 401: metav1.StatusReasonUnauthorized, 403: metav1.StatusReasonForbidden,
	404: metav1.StatusReasonNotFound, 409: metav1.StatusReasonConflict, 410: metav1.StatusReasonExpired,
	413: metav1.StatusReasonRequestEntityTooLarge, 422: metav1.StatusReasonInvalid,
	429: metav1.StatusReasonTooManyRequests, 500: metav1.StatusReasonInternalError,
	503: metav1.StatusReasonServiceUnavailable, 504: metav1.StatusReasonTimeout,
}

func (f *Fault) answer() *http.Response {
	status := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(f.Code), Reason: f.Reason, Message: f.Message,
	}
	if status.Reason == "" {
		status.Reason = reasons[f.Code]
	}
	if status.Message == "" {
		status.Message = fmt.Sprintf("simulated failure %d", f.Code)
	}
	if f.RetryAfter > 0 { // the API server says it twice, and client-go reads this
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(f.RetryAfter.Seconds())}
	}
	response := answer(f.Code, status)
	if f.RetryAfter > 0 {
		response.Header.Set("Retry-After", strconv.Itoa(int(f.RetryAfter.Seconds())))
	}
	return response
}

// Requests returns the requests of a sort since the start or the last Forget, in order
// of arrival.
func (s *Server) Requests(on On) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Request
	for _, r := range s.requests {
		if on.matches(r) {
			out = append(out, *r)
		}
	}
	return out
}

// Count is how many Requests there are.
func (s *Server) Count(on On) int { return len(s.Requests(on)) }

// Writes returns the requests that were to change something other than events. Questions
// about permissions change nothing, though they are posted.
func (s *Server) Writes() []Request {
	var out []Request
	for _, r := range s.Requests(On{}) {
		if r.Writes() && r.Resource != "events" && r.Resource != "selfsubjectaccessreviews" {
			out = append(out, r)
		}
	}
	return out
}

// Forget begins the record of requests anew.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}
