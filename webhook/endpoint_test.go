package webhook

import (
	"context"
	"errors"
	"slices"
	"testing"
)

func TestURLs_ADM16(t *testing.T) {
	for _, c := range []struct {
		endpoint URL
		want     string
	}{
		{URL{}, "https://127.0.0.1/validate/a%20b"},
		{URL{Port: 443}, "https://127.0.0.1/validate/a%20b"},
		{URL{Port: 8443, Path: "/hooks/"}, "https://127.0.0.1:8443/hooks/validate/a%20b"},
		{URL{Host: "::1"}, "https://[::1]/validate/a%20b"},
		{URL{Host: "[fd00::1]", Port: 9443, Path: "x"}, "https://[fd00::1]:9443/x/validate/a%20b"},
		{K3d(9443), "https://host.k3d.internal:9443/validate/a%20b"},
		{Minikube(0), "https://host.minikube.internal/validate/a%20b"},
		{DockerDesktop(443), "https://host.docker.internal/validate/a%20b"},
	} {
		got := c.endpoint.ClientConfig("/validate/a%20b", []byte("trust"))
		if got.URL == nil || *got.URL != c.want || string(got.CABundle) != "trust" || got.Service != nil {
			t.Errorf("%+v: %v, expected %s", c.endpoint, got, c.want)
		}
	}
}

func TestServices_ADM16(t *testing.T) {
	usual := Service{Namespace: "ops", Name: "hooks", Port: 443, Path: "/below/"}.ClientConfig("/validate/check", []byte("trust"))
	if s := usual.Service; s == nil || s.Namespace != "ops" || s.Name != "hooks" || *s.Path != "/below/validate/check" || s.Port != nil || usual.URL != nil {
		t.Errorf("%v", usual)
	}
	other := Service{Namespace: "ops", Name: "hooks", Port: 9443}.ClientConfig("validate/check", nil)
	if s := other.Service; *s.Port != 9443 || *s.Path != "/validate/check" || other.CABundle != nil {
		t.Errorf("%v", other)
	}
	names := Service{Namespace: "ops", Name: "hooks"}.Names()
	if !slices.Contains(names, "hooks.ops.svc") || !slices.Contains(names, "hooks.ops.svc.cluster.local") {
		t.Errorf("%q", names)
	}
}

func TestNames_ADM20(t *testing.T) {
	for host, want := range map[string][]string{
		"":          {"127.0.0.1", "localhost", "::1"},
		"localhost": {"localhost", "127.0.0.1", "::1"},
		"[::1]":     {"::1", "localhost", "127.0.0.1"},
		"10.0.0.7":  {"10.0.0.7"},
		"my.host":   {"my.host"},
	} {
		if got := (URL{Host: host}).Names(); !slices.Equal(got, want) {
			t.Errorf("%q: %q, expected %q", host, got, want)
		}
	}
	for host, endpoint := range map[string]URL{"host.k3d.internal": K3d(1), "host.minikube.internal": Minikube(1), "host.docker.internal": DockerDesktop(1)} {
		if got := endpoint.Names(); !slices.Equal(got, []string{host}) {
			t.Errorf("%q, expected %s", got, host)
		}
	}
}

// tunnel leads from a public URL to wherever it is told to.
type tunnel struct {
	public string
	bundle []byte
	err    error
	local  string
	closed bool
}

func (f *tunnel) Open(_ context.Context, local string) (string, []byte, func(), error) {
	f.local = local
	return f.public, f.bundle, func() { f.closed = true }, f.err
}

func TestTunnels_ADM21(t *testing.T) {
	open := &tunnel{public: "https://abc.example.com/x/", bundle: []byte("theirs")}
	endpoint, closeTunnel, err := Open(t.Context(), open, URL{Port: 9443})
	if err != nil || open.local != "https://127.0.0.1:9443" {
		t.Fatalf("%v, opened to %s", err, open.local)
	}
	got := endpoint.ClientConfig("/validate/check", []byte("ours"))
	if *got.URL != "https://abc.example.com/x/validate/check" || string(got.CABundle) != "theirs" {
		t.Errorf("%s, trusting %s", *got.URL, got.CABundle)
	}
	if names := endpoint.Names(); names[0] != "abc.example.com" || !slices.Contains(names, "localhost") {
		t.Errorf("%q", names)
	}
	if closeTunnel(); !open.closed {
		t.Error("not closed")
	}
	plain := &tunnel{public: "http://abc.example.com"}
	if _, _, err := Open(t.Context(), plain, URL{}); err == nil || !plain.closed {
		t.Errorf("a URL without TLS: %v, closed: %v", err, plain.closed)
	}
	if _, _, err := Open(t.Context(), &tunnel{err: errors.New("no way")}, URL{}); err == nil {
		t.Error("no error")
	}
}
