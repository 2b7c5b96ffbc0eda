// Package control lets a test that runs under devcluster disturb the API
// server: restart it, pause it, make it forget its history.
//
// The protocol is so small that a module which must not depend on this one can
// speak it with net/http alone. The environment variable
// KOPF_DEVCLUSTER_CONTROL holds the path of a unix socket, on which an HTTP
// server takes four requests without a body:
//
//	POST /restart   stop the API server, start it again on the same port and etcd
//	POST /compact   make etcd forget all revisions before the current one
//	POST /pause     stop the API server's process (SIGSTOP): connections hang
//	POST /resume    let it go on (SIGCONT)
//
// The answer is 204 when it is done (after a restart: when the API server is
// ready again), or 500 with the reason as plain text. Requests are served one
// after the other. The host name in the URL does not matter. In full:
//
//	client := &http.Client{Transport: &http.Transport{
//		DisableKeepAlives: true,
//		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
//			return (&net.Dialer{}).DialContext(ctx, "unix", os.Getenv("KOPF_DEVCLUSTER_CONTROL"))
//		},
//	}}
//	response, err := client.Post("http://devcluster/restart", "", nil)
//
// One control plane serves all test packages that run under it: what one of
// them does to the API server happens to all of them.
package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
)

// EnvVar is the environment variable that holds the path of the socket.
const EnvVar = "KOPF_DEVCLUSTER_CONTROL"

// Client asks the devcluster process for things. It is safe for concurrent use
// and holds nothing that must be closed.
type Client struct {
	http http.Client
}

// New returns a client for the socket at that path.
func New(socket string) *Client {
	return &Client{http: http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true, // no goroutine outlives a call
	}}}
}

// FromEnv returns a client for the devcluster that this process runs under, or
// an error if there is none.
func FromEnv() (*Client, error) {
	socket := os.Getenv(EnvVar)
	if socket == "" {
		return nil, errors.New(EnvVar + " is not set: run the tests under the devcluster command")
	}
	return New(socket), nil
}

// RestartAPIServer stops the API server, starts it again on the same port and
// etcd, and returns when it is ready. Open watches end. It takes a few seconds.
func (c *Client) RestartAPIServer(ctx context.Context) error { return c.post(ctx, "restart") }

// Compact makes etcd forget all revisions before the current one. A list that
// continues at an old resourceVersion then ends with "410 Expired"; so does a
// watch, unless the API server still has the events in its watch cache, which
// a restart empties (as does running it with --watch-cache=false).
func (c *Client) Compact(ctx context.Context) error { return c.post(ctx, "compact") }

// PauseAPIServer freezes the API server's process: connections stay open,
// requests get no answer. A second call changes nothing.
func (c *Client) PauseAPIServer(ctx context.Context) error { return c.post(ctx, "pause") }

// ResumeAPIServer lets a paused API server go on.
func (c *Client) ResumeAPIServer(ctx context.Context) error { return c.post(ctx, "resume") }

func (c *Client) post(ctx context.Context, what string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://devcluster/"+what, nil)
	if err != nil {
		return fmt.Errorf("devcluster %s: %w", what, err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("devcluster %s: %w", what, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusNoContent {
		return nil
	}
	reason, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("devcluster %s: %s: %w", what, response.Status, err)
	}
	return fmt.Errorf("devcluster %s: %s: %s", what, response.Status, strings.TrimSpace(string(reason)))
}
