package access

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	"k8s.io/client-go/rest"
)

var errRefused = errors.New("the API server has answered with 401 (Unauthorized)")

// RoundTrip makes a request with the present credentials. If they are refused, it makes it
// again with others, until some are taken, or some are refused that came since it has begun.
// It waits for login handlers if it must.
func (v *Vault) RoundTrip(r *http.Request) (*http.Response, error) {
	v.mu.Lock()
	known, base := v.logins, v.base
	v.mu.Unlock()
	var last *item
	for attempt := 0; ; attempt++ {
		i := last
		if i == nil {
			var err error
			if i, err = v.acquire(r.Context()); err != nil {
				return nil, closing(r, attempt, err)
			}
		}
		request, err := i.request(r, base, attempt)
		if err != nil {
			return nil, closing(r, attempt, err)
		}
		response, err := i.transport.RoundTrip(request)
		if err != nil || response.StatusCode != http.StatusUnauthorized {
			return response, err
		}
		again := r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
		if i.renews() && last == nil && again { // as it does now that it was refused
			last = i
		} else {
			last = nil
			v.refuse(i, errRefused)
			again = again && i.login <= known
		}
		if !again {
			return response, nil
		}
		drain(response)
	}
}

// closing keeps the promise that a request's body is closed in any case.
func closing(r *http.Request, attempt int, err error) error {
	if r.Body != nil && attempt == 0 {
		return errors.Join(err, r.Body.Close())
	}
	return err
}

// longest is how much of an answer is read that nobody wants, to keep the connection.
const longest = 64 << 10

func drain(response *http.Response) {
	_, _ = io.CopyN(io.Discard, response.Body, longest) // if it is longer, or breaks, the connection is given up
	_ = response.Body.Close()
}

// request is a copy for the API server that the credentials are for.
func (i *item) request(r *http.Request, base *url.URL, attempt int) (*http.Request, error) {
	out := r.Clone(r.Context())
	if attempt > 0 && r.GetBody != nil {
		var err error
		if out.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	if base != nil && r.URL.Host == base.Host {
		out.URL.Scheme, out.URL.Host, out.Host = i.base.Scheme, i.base.Host, ""
		out.URL.Path = below(i.base.Path, base.Path, r.URL.Path)
		if r.URL.RawPath != "" {
			out.URL.RawPath = below(i.base.EscapedPath(), base.EscapedPath(), r.URL.RawPath)
		}
	}
	return out, nil
}

// below moves a path from below one to below another.
func below(to, from, path string) string {
	return strings.TrimSuffix(to, "/") + "/" + strings.TrimPrefix(strings.TrimPrefix(path, strings.TrimSuffix(from, "/")), "/")
}

// renews tells whether client-go gets other secrets for the same configuration by itself.
func (i *item) renews() bool {
	return i.given.ExecProvider != nil || i.given.AuthProvider != nil
}

// same tells whether two items are the same credentials. If in doubt, they are not.
func (i *item) same(other *item) bool {
	if i.inFile != other.inFile {
		return false
	}
	x, y := rest.CopyConfig(i.given), rest.CopyConfig(other.given)
	if x.Transport != nil || y.Transport != nil {
		s, t := reflect.ValueOf(x.Transport), reflect.ValueOf(y.Transport)
		if s.Kind() != reflect.Pointer || t.Kind() != reflect.Pointer || s.Pointer() != t.Pointer() {
			return false
		}
	}
	for _, c := range []*rest.Config{x, y} {
		c.Transport, c.RateLimiter, c.WarningHandler, c.WarningHandlerWithContext = nil, nil, nil, nil
	}
	return reflect.DeepEqual(x, y) // functions are never equal
}

// CloseIdle ends the connections of a transport that are not in use. Unlike that of
// apimachinery, it does not complain about transports that have none.
func CloseIdle(transport http.RoundTripper) {
	for transport != nil {
		switch t := transport.(type) {
		case interface{ CloseIdleConnections() }:
			t.CloseIdleConnections()
			return
		case interface{ WrappedRoundTripper() http.RoundTripper }:
			transport = t.WrappedRoundTripper()
		default:
			return
		}
	}
}
