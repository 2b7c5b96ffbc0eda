package access_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/activities"
	"github.com/kopf-go/kopf/internal/access"
)

// What picking credentials costs each request, beside client-go's own transport.
func BenchmarkRequest(b *testing.B) {
	answering := &answering{}
	config := &rest.Config{Host: "http://server.invalid", BearerToken: "a", Transport: answering}
	vault, err := access.New(access.Options{Log: slog.New(slog.DiscardHandler), Login: func(context.Context) (map[string]*activities.Credentials, error) {
		return found{"h": {Config: config}}, nil
	}})
	if err != nil {
		b.Fatal(err)
	}
	defer vault.Close()
	kept, err := vault.Connect(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for name, config := range map[string]*rest.Config{"plain": config, "vault": kept} {
		b.Run(name, func(b *testing.B) {
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				response, err := client.Get("http://server.invalid/api")
				if err != nil || response.StatusCode != http.StatusOK {
					b.Fatal(response, err)
				}
				_ = response.Body.Close()
			}
		})
	}
}

type answering struct{}

func (*answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(strings.NewReader(""))}, nil
}
