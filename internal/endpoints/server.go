// Package endpoints serves what is asked about an operator over HTTP: whether it is alive
// and ready, its metrics, and, to those who may see it, what it is about and why.
package endpoints

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kopf-go/kopf/internal/decisions"
)

// Options say what is served, and where.
type Options struct {
	// Name is that of the operator.
	Name string
	// Addresses are where is listened, such as ":8080"; the same is served on all.
	Addresses []string
	Alive     []Check
	Ready     []Check
	// Liveness, if it is there, answers at LivenessPath, whatever else is there.
	Liveness     http.Handler
	LivenessPath string
	// Exposed shows the debug pages to everybody, and not only to clients on this machine.
	Exposed bool
	Log     *slog.Logger

	Ring *decisions.Ring
	// Report says what the operator is about, Find how the objects stand that are meant, and
	// Standing how one does. All are safe for concurrent use.
	Report   func() decisions.State
	Find     func(kind, namespace, name string, most int) []decisions.Standing
	Standing func(types.UID) (decisions.Standing, bool)

	timeout time.Duration // of requests; zero: the default
}

// The limits of connections. Nobody may hold one for long without asking for something.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = time.Minute
	headerBytes  = 16 << 10
	stopTimeout  = 5 * time.Second
)

// Server listens. Run serves.
type Server struct {
	options   Options
	listeners []net.Listener
	server    *http.Server
	streaming streaming
	ctx       context.Context // ends when the server stops
	stop      context.CancelFunc
}

// ofProcess adds metrics of the process itself, which are there already in programs that
// have controllers of controller-runtime. They cannot be added earlier: there they are added
// when the program starts, without a look at what is there.
func ofProcess() {
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		_ = metrics.Registry.Register(c) // fails if they are there
	}
}

// Listen begins to listen. Connections wait until Run.
func Listen(o Options) (*Server, error) {
	ofProcess()
	s := &Server{options: o}
	s.ctx, s.stop = context.WithCancel(context.Background())
	for _, address := range o.Addresses {
		l, err := net.Listen("tcp", address)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("endpoints for health and metrics: %w", err)
		}
		s.listeners = append(s.listeners, l)
	}
	s.server = &http.Server{
		Handler: s.Handler(), ReadTimeout: cmp.Or(o.timeout, readTimeout), WriteTimeout: cmp.Or(o.timeout, writeTimeout),
		IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes,
		BaseContext: func(net.Listener) context.Context { return s.ctx },
		ErrorLog:    slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// Addresses are where it listens.
func (s *Server) Addresses() (addresses []net.Addr) {
	for _, l := range s.listeners {
		addresses = append(addresses, l.Addr())
	}
	return addresses
}

func (s *Server) close() {
	s.stop()
	for _, l := range s.listeners {
		_ = l.Close()
	}
}

// Run serves until the context ends, and lets requests that have come be answered, for a
// time. It returns an error if it cannot serve any more.
func (s *Server) Run(ctx context.Context) error {
	defer s.close()
	for _, l := range s.listeners {
		s.options.Log.Info("serving health, metrics and debug pages", "address", l.Addr().String())
	}
	failed := make(chan error, len(s.listeners))
	var serving sync.WaitGroup
	for _, l := range s.listeners {
		serving.Go(func() {
			if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.stop() // live views end at once
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if s.server.Shutdown(limit) != nil {
		_ = s.server.Close()
	}
	serving.Wait()
	s.streaming.Wait()
	return err
}

// Handler is what is served.
func (s *Server) Handler() http.Handler {
	routes := map[string]http.Handler{
		"/healthz": checked("/healthz", s.options.Log, s.options.Alive),
		"/readyz":  checked("/readyz", s.options.Log, s.options.Ready),
		"/metrics": promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}),
	}
	routes["/healthz/"], routes["/readyz/"] = routes["/healthz"], routes["/readyz"]
	for path, serve := range map[string]http.HandlerFunc{
		"/debug/kopf": s.page, "/debug/kopf.json": s.json, "/debug/kopf/events": s.events,
		"/debug/kopf/page.css": asset("page.css", "text/css; charset=utf-8"), "/debug/kopf/page.js": asset("page.js", "text/javascript; charset=utf-8"),
	} {
		routes[path] = s.guarded(serve)
	}
	if s.options.Liveness != nil {
		path := s.options.LivenessPath
		if path == "" || path == "/" {
			path = "/{$}"
		}
		routes[path] = s.options.Liveness
	}
	mux := http.NewServeMux()
	for path, handler := range routes {
		mux.Handle("GET "+path, handler)
	}
	return mux
}

// guarded shows debug pages to clients on this machine, such as kubectl port-forward, and
// to others only if they are to see them. The name that the client has asked for is checked,
// too, or any web page could have a browser there ask in its name (DNS rebinding).
func (s *Server) guarded(serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.options.Exposed && !(local(r.RemoteAddr) && local(r.Host)) {
			http.Error(w, "debug pages are shown on the operator's own machine only: use kubectl port-forward, "+
				"or set Settings.Endpoints.Debug", http.StatusForbidden)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "+
			"img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		serve(w, r)
	})
}

// local tells whether a host, with or without a port, is this machine.
func local(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(trimBrackets(host))
	return ip != nil && ip.IsLoopback()
}

func trimBrackets(host string) string {
	if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		return host[1 : len(host)-1]
	}
	return host
}
