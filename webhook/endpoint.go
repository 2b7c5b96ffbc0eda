package webhook

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Service is an endpoint in the cluster: the operator's pods behind a Service.
//
// The API server takes only paths of a Service whose segments are legal as DNS
// subdomains: lower-case letters, digits, dots and dashes, no escapes.
type Service struct {
	Namespace, Name string
	Port            int32  // of the Service; 0: 443
	Path            string // before the paths of all webhooks; empty: nothing
}

// ClientConfig names the Service; the port only if it is not the usual one.
func (s Service) ClientConfig(path string, bundle []byte) admissionregistrationv1.WebhookClientConfig {
	full := joined(s.Path, path)
	reference := &admissionregistrationv1.ServiceReference{Namespace: s.Namespace, Name: s.Name, Path: &full}
	if s.Port != 0 && s.Port != 443 {
		reference.Port = &s.Port
	}
	return admissionregistrationv1.WebhookClientConfig{Service: reference, CABundle: bundle}
}

// Names are the Service's names in the cluster's DNS, from the short one to the full one.
// The API server asks for NAME.NAMESPACE.svc.
func (s Service) Names() []string {
	name := s.Name + "." + s.Namespace
	return []string{name + ".svc", name + ".svc.cluster.local", name, s.Name}
}

// URL is an endpoint outside of the cluster, for development: the operator runs on the
// developer's machine, and the API server can reach it there.
type URL struct {
	Host string // a name or an address of either family; empty: the loopback address
	Port int    // 0: 443
	Path string // before the paths of all webhooks; empty: nothing
}

// K3d is the developer's machine, as clusters of k3d and k3s in Docker see it (ADM-20).
func K3d(port int) URL { return URL{Host: "host.k3d.internal", Port: port} }

// Minikube is the developer's machine, as clusters of minikube see it (ADM-20).
func Minikube(port int) URL { return URL{Host: "host.minikube.internal", Port: port} }

// DockerDesktop is the developer's machine, as the cluster of Docker Desktop sees it (ADM-20).
func DockerDesktop(port int) URL { return URL{Host: "host.docker.internal", Port: port} }

const loopback = "127.0.0.1"

// ClientConfig has the URL, always of HTTPS, as the API server speaks nothing else.
func (u URL) ClientConfig(path string, bundle []byte) admissionregistrationv1.WebhookClientConfig {
	full := "https://" + u.authority() + joined(u.Path, path)
	return admissionregistrationv1.WebhookClientConfig{URL: &full, CABundle: bundle}
}

// Names are the host, and what else the loopback address is called if it is one.
func (u URL) Names() []string {
	host := u.host()
	ip := net.ParseIP(host)
	if host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return []string{host}
	}
	names := []string{host}
	for _, name := range []string{"localhost", loopback, net.IPv6loopback.String()} {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// String is the URL before the paths of the webhooks.
func (u URL) String() string {
	return "https://" + u.authority() + strings.TrimSuffix(joined(u.Path, ""), "/")
}

func (u URL) host() string {
	host := strings.TrimSuffix(strings.TrimPrefix(u.Host, "["), "]")
	if host == "" {
		return loopback
	}
	return host
}

// authority is the host with brackets if it needs them, and the port if it is not the usual one.
func (u URL) authority() string {
	host := u.host()
	if u.Port != 0 && u.Port != 443 {
		return net.JoinHostPort(host, strconv.Itoa(u.Port))
	}
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// joined is a path below a prefix, with one slash between them.
func joined(prefix, path string) string {
	prefix = strings.Trim(prefix, "/")
	path = strings.TrimPrefix(path, "/")
	if prefix == "" {
		return "/" + path
	}
	return "/" + prefix + "/" + path
}

// Tunnel makes a server on the developer's machine reachable from a cluster elsewhere, as
// ngrok and the like do (ADM-21). There is none in this module: an implementation is some
// ten lines around the tool's own client.
type Tunnel interface {
	// Open leads requests for the public URL to the local one, which is of HTTPS with a
	// certificate for the loopback address, until the tunnel is closed. The bundle is what
	// clients of the public URL have to trust, in PEM: nil if the tunnel has a certificate of
	// a public authority, and the operator's own bundle if the tunnel leaves TLS alone.
	Open(ctx context.Context, local string) (public string, bundle []byte, close func(), err error)
}

// Open opens a tunnel to a local URL, as URL.String has it, and returns the endpoint at its
// other end, and what closes it.
func Open(ctx context.Context, tunnel Tunnel, local URL) (Endpoint, func(), error) {
	public, bundle, closeTunnel, err := tunnel.Open(ctx, local.String())
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open the tunnel to %s: %w", local, err)
	}
	parsed, err := url.Parse(public)
	if err == nil && (parsed.Scheme != "https" || parsed.Host == "") {
		err = fmt.Errorf("%q is no URL of HTTPS", public)
	}
	if err != nil {
		closeTunnel()
		return nil, nil, fmt.Errorf("the tunnel to %s has an end that the API server cannot use: %w", local, err)
	}
	return tunnelled{public: *parsed, bundle: bundle, local: local}, closeTunnel, nil
}

// tunnelled is the far end of a tunnel.
type tunnelled struct {
	public url.URL
	bundle []byte
	local  URL
}

// ClientConfig has the tunnel's URL and the tunnel's bundle, whatever the operator's is.
func (t tunnelled) ClientConfig(path string, _ []byte) admissionregistrationv1.WebhookClientConfig {
	full := t.public.Scheme + "://" + t.public.Host + joined(t.public.EscapedPath(), path)
	return admissionregistrationv1.WebhookClientConfig{URL: &full, CABundle: t.bundle}
}

// Names are those of both ends: the tunnel may hand the connection on as it is.
func (t tunnelled) Names() []string {
	return append([]string{t.public.Hostname()}, t.local.Names()...)
}
