package access_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/activities"
	"github.com/kopf-go/kopf/internal/access"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type found = map[string]*activities.Credentials

// server takes requests with certain tokens, and is its own connection.
type server struct {
	mu     sync.Mutex
	tokens []string
	seen   []seen
}

// seen is a request as it came in.
type seen struct{ token, url, body, agent string }

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.seen = append(s.seen, seen{token, r.URL.Scheme + "://" + host + r.URL.RequestURI(), string(body), r.UserAgent()})
	code := http.StatusOK
	if !slices.Contains(s.tokens, token) {
		code = http.StatusUnauthorized
	}
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader("answer")), Request: r, Header: http.Header{}}, nil
}

func (s *server) take(tokens ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = tokens
}

// world is a vault in virtual time.
type world struct {
	*testing.T
	*access.Vault
	server *server

	mu     sync.Mutex
	logins []func(context.Context) (found, error) // what they come to; the last one is repeated
	asked  int
	failed []error
}

func scenario(t *testing.T, test func(w *world), options ...func(*access.Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		w := &world{T: t, server: &server{}}
		o := access.Options{
			Login: w.login, UserAgent: "agent", Log: slog.New(slog.DiscardHandler),
			Failed: func(err error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.failed = append(w.failed, err)
			},
		}
		for _, option := range options {
			option(&o)
		}
		if o.First != nil {
			o.First.Transport = w.server
		}
		var err error
		if w.Vault, err = access.New(o); err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		test(w)
	})
}

func (w *world) login(ctx context.Context) (found, error) {
	w.mu.Lock()
	next := w.logins[min(w.asked, len(w.logins)-1)]
	w.asked++
	w.mu.Unlock()
	return next(ctx)
}

// will says what the next logins come to.
func (w *world) will(logins ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range logins {
		switch l := l.(type) {
		case found:
			w.logins = append(w.logins, func(context.Context) (found, error) { return l, nil })
		case error:
			w.logins = append(w.logins, func(context.Context) (found, error) { return nil, l })
		case func(context.Context) (found, error):
			w.logins = append(w.logins, l)
		}
	}
}

func (w *world) loggedIn(times int) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked != times {
		w.Errorf("%d logins, want %d", w.asked, times)
	}
}

// token are credentials with a token, for the server.
func (w *world) token(token string, more ...func(*activities.Credentials)) *activities.Credentials {
	c := &activities.Credentials{Config: &rest.Config{Host: "http://server.invalid", BearerToken: token, Transport: w.server}}
	for _, m := range more {
		m(c)
	}
	return c
}

func expires(in time.Duration) func(*activities.Credentials) {
	return func(c *activities.Credentials) { c.Expiration = time.Now().Add(in) }
}

func priority(p int) func(*activities.Credentials) {
	return func(c *activities.Credentials) { c.Priority = p }
}

// connect makes a client, as an operator does.
func (w *world) connect() *http.Client {
	w.Helper()
	config, err := w.Connect(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		w.Fatal(err)
	}
	return client
}

// get makes a request, and returns the code, or 0 and the error.
func (w *world) get(client *http.Client) (int, error) {
	response, err := client.Get("http://server.invalid/api")
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// used makes a request, and expects the tokens that it was made with.
func (w *world) used(client *http.Client, tokens ...string) {
	w.Helper()
	w.server.mu.Lock()
	before := len(w.server.seen)
	w.server.mu.Unlock()
	if code, err := w.get(client); code != http.StatusOK || err != nil {
		w.Errorf("got %d, %v", code, err)
	}
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	var got []string
	for _, s := range w.server.seen[before:] {
		got = append(got, s.token)
	}
	if !slices.Equal(got, tokens) {
		w.Errorf("requests with %q, want %q", got, tokens)
	}
}

// fails expects that there are no credentials any more, and that this was told once.
func (w *world) fails(client *http.Client, text string) error {
	w.Helper()
	_, err := w.get(client)
	var login *activities.LoginError
	if !errors.As(err, &login) || !strings.Contains(err.Error(), text) {
		w.Errorf("got %v, want a LoginError with %s", err, text)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.failed) != 1 || w.failed[0] != error(login) {
		w.Errorf("told of %v", w.failed)
	}
	return err
}
