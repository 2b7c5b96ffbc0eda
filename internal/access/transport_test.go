package access_test

import (
	"bytes"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"

	"github.com/kopf-go/kopf/activities"
	"github.com/kopf-go/kopf/internal/access"
)

// AUTH-5: the request that was refused is made again, with its body.
func TestBodies_AUTH5(t *testing.T) {
	scenario(t, func(w *world) {
		w.server.take("b")
		w.will(found{"h": w.token("a")}, found{"h": w.token("b")})
		client := w.connect()
		response, err := client.Post("http://server.invalid/api?x=1", "text/plain", bytes.NewReader([]byte("content")))
		if err != nil || response.StatusCode != 200 {
			w.Fatal(response, err)
		}
		_ = response.Body.Close()
		for i, token := range []string{"a", "b"} {
			if got := w.server.seen[i]; got.token != token || got.body != "content" || got.url != "http://server.invalid/api?x=1" {
				w.Errorf("%+v", got)
			}
		}
	})
	scenario(t, func(w *world) { // one that cannot be read twice gets the refusal; the next one goes on with others
		w.server.take("b")
		w.will(found{"h": w.token("a")}, found{"h": w.token("b")})
		client := w.connect()
		response, err := client.Post("http://server.invalid/api", "text/plain", io.MultiReader(strings.NewReader("content")))
		if err != nil || response.StatusCode != http.StatusUnauthorized {
			w.Fatal(response, err)
		}
		_ = response.Body.Close()
		w.used(client, "b")
	})
	scenario(t, func(w *world) { // in any case it is closed
		w.will(found{})
		body := &closable{Reader: strings.NewReader("x")}
		if _, err := (&http.Client{Transport: w.Vault}).Post("http://server.invalid/api", "text/plain", body); err == nil || !body.closed {
			w.Error(err, body.closed)
		}
	})
}

type closable struct {
	io.Reader
	closed bool
}

func (c *closable) Close() error {
	c.closed = true
	return nil
}

// Credentials may be for different addresses of the cluster.
func TestAddresses(t *testing.T) {
	at := func(host string) func(*activities.Credentials) {
		return func(c *activities.Credentials) { c.Config.Host = host }
	}
	scenario(t, func(w *world) {
		w.server.take("b", "c", "d")
		w.will(found{"h": w.token("a", at("http://first.invalid:1/below/"))}, found{"h": w.token("b", at("https://second.invalid"))},
			found{"h": w.token("c", at("http://third.invalid/k8s/clusters/c-1"))}, found{"h": w.token("d", at("http://first.invalid:1/below"))})
		config, err := w.Connect(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if config.Host != "http://first.invalid:1/below/" {
			w.Error(config.Host)
		}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			w.Fatal(err)
		}
		for _, tokens := range [][]string{{"b", "c", "d"}, {"c", "d"}, {"d"}} {
			w.server.take(tokens...)
			response, err := client.Get("http://first.invalid:1/below/api/v1/x%2Fy?watch=1")
			if err != nil || response.StatusCode != 200 {
				w.Fatal(response, err)
			}
			_ = response.Body.Close()
		}
		var urls []string
		for _, s := range w.server.seen {
			urls = append(urls, s.token+" "+s.url)
		}
		want := []string{
			"a http://first.invalid:1/below/api/v1/x%2Fy?watch=1",
			"b https://second.invalid/api/v1/x%2Fy?watch=1", "b https://second.invalid/api/v1/x%2Fy?watch=1",
			"c http://third.invalid/k8s/clusters/c-1/api/v1/x%2Fy?watch=1", "c http://third.invalid/k8s/clusters/c-1/api/v1/x%2Fy?watch=1",
			"d http://first.invalid:1/below/api/v1/x%2Fy?watch=1",
		}
		if !slices.Equal(urls, want) {
			w.Error(strings.Join(urls, "\n"))
		}
	})
}

// Functions are never the same, transports are if they are one.
func TestSameCredentials_AUTH5(t *testing.T) {
	wrapped := func(c *activities.Credentials) {
		c.Config.WrapTransport = func(rt http.RoundTripper) http.RoundTripper { return rt }
	}
	for name, c := range map[string]struct {
		first, second func(*activities.Credentials)
		same          bool
	}{
		"equal":              {func(*activities.Credentials) {}, func(*activities.Credentials) {}, true},
		"another expiration": {expires(time.Hour), expires(2 * time.Hour), true},
		"another user":       {func(c *activities.Credentials) { c.Config.Impersonate.UserName = "x" }, func(*activities.Credentials) {}, false},
		"with functions":     {wrapped, wrapped, false},
		"another transport": {func(*activities.Credentials) {}, func(c *activities.Credentials) {
			c.Config.Transport = transport.NewUserAgentRoundTripper("x", c.Config.Transport)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(w *world) {
				w.will(found{"h": w.token("a", c.first)}, found{"h": w.token("a", c.second)})
				code, err := w.get(w.connect())
				if c.same != (err != nil) || !c.same && code != http.StatusUnauthorized {
					w.Error(code, err)
				}
			})
		})
	}
}

// AUTH-7: a file with another token is other credentials.
func TestTokenFiles_AUTH7(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	scenario(t, func(w *world) {
		write("a")
		w.server.take("a")
		w.will(found{"h": w.token("", func(c *activities.Credentials) { c.Config.BearerTokenFile = file })})
		client := w.connect()
		w.used(client, "a")
		write("b")
		w.server.take("b")
		w.used(client, "a", "b")
		w.loggedIn(2)
		w.server.take()
		w.fails(client, "has refused its credentials")
	})
}

// AUTH-7: plugins of client-go get other secrets when the API server has refused theirs.
func TestPlugins_AUTH7(t *testing.T) {
	rest.RegisterAuthProviderPlugin("kopf-test", func(_ string, c map[string]string, _ rest.AuthProviderConfigPersister) (rest.AuthProvider, error) {
		return renewing{}, nil
	})
	scenario(t, func(w *world) {
		w.server.take("b")
		renewable := func(c *activities.Credentials) {
			c.Config.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "kopf-test"}
		}
		w.will(found{"h": w.token("", renewable)}, found{"h": w.token("", renewable)})
		client := w.connect()
		w.used(client, "a", "b")
		w.loggedIn(1)
		w.server.take()
		w.fails(client, "has refused its credentials")
		w.loggedIn(2)
	})
}

// renewing is a plugin whose first token is a, and all others are b.
type renewing struct{}

func (renewing) Login() error { return nil }
func (renewing) WrapTransport(rt http.RoundTripper) http.RoundTripper {
	var refused atomic.Bool
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		token := map[bool]string{false: "a", true: "b"}[refused.Load()]
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := rt.RoundTrip(r)
		if err == nil && response.StatusCode == http.StatusUnauthorized {
			refused.Store(true)
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Over the network, with TLS: no connection is left.
func TestNetwork(t *testing.T) {
	valid := make(chan string, 1)
	valid <- "a"
	over := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		token := <-valid
		valid <- token
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(rw, strings.Repeat("long text ", 100_000), http.StatusUnauthorized)
		}
	}))
	defer over.Close()
	w := &world{T: t, server: &server{}}
	secure := func(c *activities.Credentials) {
		c.Config.Host, c.Config.Transport = over.URL, nil
		c.Config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: over.Certificate().Raw})
	}
	w.will(found{"h": w.token("a", secure)}, found{"h": w.token("b", secure)})
	var err error
	w.Vault, err = access.New(access.Options{Login: w.login, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	client := w.connect()
	for _, token := range []string{"a", "b"} {
		<-valid
		valid <- token
		response, err := client.Get(over.URL + "/api")
		if err != nil || response.StatusCode != 200 {
			t.Fatal(response, err)
		}
		_ = response.Body.Close()
	}
}
