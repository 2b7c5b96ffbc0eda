package stream

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kopf-go/kopf/internal/body"
)

// Reason says in one word what kind of failure it is, and by that who has to act.
type Reason string

const (
	// Forbidden: the verb is not allowed. Somebody has to grant a role.
	Forbidden Reason = "Forbidden"
	// Unauthorized: the credentials are not accepted.
	Unauthorized Reason = "Unauthorized"
	// NotServed: there is no such resource (any more), or it has no such verb.
	NotServed Reason = "NotServed"
	// Throttled: the server has too much to do. An ordinary event.
	Throttled Reason = "Throttled"
	// Expired: the last seen version is too old to go on from. An ordinary event:
	// everything is listed anew, and only what has changed makes events.
	Expired Reason = "Expired"
	// Unreachable: no connection, or it broke before there was an answer.
	Unreachable Reason = "Unreachable"
	// Silent: the connection is open, but nothing came over it for too long. An
	// ordinary event if a resource has not changed since the API server started, for
	// then that sends no bookmarks.
	Silent Reason = "Silent"
	// Unreadable: one object can't be read. All others are not affected.
	Unreadable Reason = "Unreadable"
	// Failed is any other error.
	Failed Reason = "Failed"
)

// Failure is something that went wrong in a stream. The stream goes on in any case.
type Failure struct {
	Reason Reason
	// Verb is the verb that was refused or failed: list or watch. A stream needs
	// both: if either is forbidden, both are tried and reported over and over.
	Verb string
	// Err is the cause: an apierrors.APIStatus if the server gave one.
	Err error
	// Object says who the unreadable object is, as far as that is known. It is nil
	// unless the reason is Unreadable.
	Object *body.Body
}

func (f Failure) Error() string {
	if f.Object != nil {
		return fmt.Sprintf("%s %s/%s: %v", f.Object.Kind, f.Object.Namespace, f.Object.Name, f.Err)
	}
	return fmt.Sprintf("cannot %s: %v", f.Verb, f.Err)
}

// Unwrap returns the cause.
func (f Failure) Unwrap() error { return f.Err }

var (
	errNoAnswer = errors.New("the connection ended before the server answered")
	errSilent   = errors.New("nothing came from the server for too long")
)

func reasonOf(err error) Reason {
	switch {
	case errors.Is(err, errSilent):
		return Silent
	case apierrors.IsForbidden(err):
		return Forbidden
	case apierrors.IsUnauthorized(err):
		return Unauthorized
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return NotServed
	case apierrors.IsTooManyRequests(err):
		return Throttled
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return Expired
	case lost(err):
		return Unreachable
	}
	return Failed
}

// lost tells whether there was no answer, or none to its end.
func lost(err error) bool {
	var transport *url.Error
	return errors.Is(err, errNoAnswer) || errors.As(err, &transport) ||
		utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsTimeout(err)
}

// unconnected tells whether there was not even a connection.
func unconnected(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "dial"
}

// passes tells whether to repeat the very same request after a while. All other
// errors go to the reflector, which lists everything anew, or lists instead of
// streaming the list.
func passes(err error, streamedList bool) bool {
	switch {
	case apierrors.IsTooManyRequests(err), unconnected(err):
		return true
	case streamedList: // may be what a proxy makes of it: let the reflector try a plain list
		return false
	case apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return false // the server has been restored from a backup
	}
	var status apierrors.APIStatus
	return lost(err) || errors.Is(err, errSilent) ||
		errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError
}

// declined tells that a server does not know how to stream a list, which is no
// failure: the reflector falls back to a plain list.
func declined(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// retryAfter is how long the server asked to wait.
func retryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds) * time.Second
}
