package stream

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Version is the version of a resource at this moment: what was written before is no
// newer. It costs one request for at most one object.
func (c *Client) Version(ctx context.Context, gvr schema.GroupVersionResource, namespace string) (string, error) {
	p, err := c.list(ctx, gvr, namespace, metav1.ListOptions{Limit: 1}, metav1.TypeMeta{})
	if err != nil {
		return "", err
	}
	return p.ResourceVersion, nil
}

// Checked returns a context whose requests are made only if check says so. It is asked
// right before each of them is sent, also before one that is repeated because the server
// wanted that; its error is, wrapped, the request's. Requests of clients that are none of
// this package are not checked.
func Checked(ctx context.Context, check func() error) context.Context {
	return context.WithValue(ctx, checkKey{}, check)
}

type checkKey struct{}

// checking asks before each request.
type checking struct{ next http.RoundTripper }

func (c checking) RoundTrip(r *http.Request) (*http.Response, error) {
	if check, is := r.Context().Value(checkKey{}).(func() error); is {
		if err := check(); err != nil {
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, err
		}
	}
	return c.next.RoundTrip(r)
}

// withChecks is an HTTP client that asks before each request whose context says so.
func withChecks(client *http.Client) *http.Client {
	checked := *client
	if checked.Transport == nil {
		checked.Transport = http.DefaultTransport
	}
	checked.Transport = checking{next: checked.Transport}
	return &checked
}
