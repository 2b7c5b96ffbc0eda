// Package faulty stands between a client and a real API server, and makes go wrong
// what a test wants to go wrong: requests, answers, and watches on their way. It has
// the vocabulary of package simulated. It is for tests only.
package faulty

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/internal/simulated"
)

// The words for requests and what goes wrong with them.
type (
	// Request is a request that reached the proxy.
	Request = simulated.Request
	// On says which requests are meant.
	On = simulated.On
	// Fault is what goes wrong with a request.
	Fault = simulated.Fault
)

// Proxy forwards requests to an API server. It is safe for concurrent use.
type Proxy struct {
	upstream http.RoundTripper
	server   *http.Server
	address  net.Addr
	ctx      context.Context // of all requests
	cancel   context.CancelFunc
	running  sync.WaitGroup // requests, and the loop that accepts them

	mu       sync.Mutex
	closed   bool
	hooks    []*hook
	requests []*Request
	watches  map[*watch]bool // those under way
	slow     []latency
}

type hook struct {
	on    On
	after bool
	do    func(Request) *Fault
	seen  int
}

type latency struct {
	on On
	by time.Duration
}

// New starts a proxy on a local port, with the credentials of a connection.
func New(connection *rest.Config) (*Proxy, error) {
	target, _, err := rest.DefaultServerUrlFor(connection)
	if err != nil {
		return nil, err
	}
	upstream, err := rest.TransportFor(connection)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{upstream: upstream, address: listener.Addr(), watches: map[*watch]bool{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: target.Scheme, Host: target.Host}) },
		Transport:     p,
		FlushInterval: -1, // each event at once
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	p.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !p.enter() {
				panic(http.ErrAbortHandler)
			}
			defer p.running.Done()
			forward.ServeHTTP(w, r)
		}),
		BaseContext: func(net.Listener) context.Context { return p.ctx },
		ErrorLog:    log.New(io.Discard, "", 0),
	}
	// A connection per request: a client may repeat by itself what it has lost on a
	// connection that it has used before, and no fault would come out.
	p.server.SetKeepAlivesEnabled(false)
	p.running.Go(func() { _ = p.server.Serve(listener) })
	return p, nil
}

// Config is the connection through the proxy. It needs no credentials.
func (p *Proxy) Config() *rest.Config {
	return &rest.Config{Host: "http://" + p.address.String(), QPS: -1}
}

// Close ends all connections, and returns when nothing is under way any more. Hooks
// that wait for something must be let go before.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	_ = p.server.Close()
	p.running.Wait()
}

// enter has Close wait for the caller, who calls running.Done. It is false if it is
// too late for that.
func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.running.Add(1)
	}
	return !p.closed
}

// Before has do called with requests before they are forwarded. It may use the API
// server, as somebody who is quicker than the request; it returns what goes wrong, or
// nil. remove ends it.
func (p *Proxy) Before(on On, do func(Request) *Fault) (remove func()) {
	return p.hook(&hook{on: on, do: do})
}

// After has do called with requests that have been carried out and whose answers are
// not yet on the way. A watch is carried out when it begins.
func (p *Proxy) After(on On, do func(Request) *Fault) (remove func()) {
	return p.hook(&hook{on: on, do: do, after: true})
}

func (p *Proxy) hook(h *hook) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hooks = append(p.hooks, h)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, other := range p.hooks {
			if other == h {
				p.hooks = append(p.hooks[:i:i], p.hooks[i+1:]...)
				return
			}
		}
	}
}

// Requests returns the requests so far, the oldest first.
func (p *Proxy) Requests(on On) []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Request
	for _, r := range p.requests {
		if on.Matches(*r) {
			out = append(out, *r)
		}
	}
	return out
}

// Count is how many Requests there are.
func (p *Proxy) Count(on On) int { return len(p.Requests(on)) }

// Writes returns the requests that were to change something other than events.
func (p *Proxy) Writes() []Request {
	var out []Request
	for _, r := range p.Requests(On{}) {
		if r.Writes() && r.Resource != "events" {
			out = append(out, r)
		}
	}
	return out
}

// RoundTrip is part of http.RoundTripper: what becomes of a request.
func (p *Proxy) RoundTrip(request *http.Request) (*http.Response, error) {
	r := simulated.Parse(request)
	if request.Body != nil {
		raw, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		_ = request.Body.Close()
		r.Body = raw
		request.Body = io.NopCloser(bytes.NewReader(raw))
	}
	recorded := r
	p.mu.Lock()
	p.requests = append(p.requests, &recorded)
	p.mu.Unlock()

	response, err := p.disturb(request.Context(), r, false)
	if response == nil && err == nil {
		response, err = p.forward(request, r)
	}
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	recorded.Code = response.StatusCode
	p.mu.Unlock()
	return response, nil
}

func (p *Proxy) forward(request *http.Request, r Request) (*http.Response, error) {
	if r.Verb == "watch" {
		request.Header.Del("Accept-Encoding") // its events are looked at
	}
	response, err := p.upstream.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	r.Code = response.StatusCode
	instead, err := p.disturb(request.Context(), r, true)
	if instead != nil || err != nil {
		_ = response.Body.Close()
		return instead, err
	}
	if r.Verb == "watch" && response.StatusCode == http.StatusOK {
		response.Body = p.attach(request.Context(), r, response.Body)
	}
	return response, nil
}

// disturb calls the hooks for a request, and returns an answer if it ends here.
func (p *Proxy) disturb(ctx context.Context, r Request, after bool) (*http.Response, error) {
	p.mu.Lock()
	var due []*hook
	for _, h := range p.hooks {
		if h.after != after || !h.on.Matches(r) {
			continue
		}
		h.seen++
		if h.seen > h.on.Skip && (h.on.Times == 0 || h.seen <= h.on.Skip+h.on.Times) {
			due = append(due, h)
		}
	}
	p.mu.Unlock()
	for _, h := range due {
		if f := h.do(r); f != nil {
			if response, err := f.Happen(ctx); response != nil || err != nil {
				return response, err
			}
		}
	}
	return nil, nil
}

var errCut = errors.New("the watch was cut")

// Latency has each event of watches arrive later by a time, in order: of those under
// way, from the next event on, and of those to come. Zero ends it.
func (p *Proxy) Latency(on On, by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = append(p.slow, latency{on, by})
}

// latencyOf is the latest word on a watch.
func (p *Proxy) latencyOf(r Request) (by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.slow {
		if l.on.Matches(r) {
			by = l.by
		}
	}
	return by
}

// Cut breaks the connections of watches under way, and returns of how many.
func (p *Proxy) Cut(on On) int {
	return p.each(on, func(w *watch) { w.end(nil, errCut) })
}

// Mute lets watches under way stay open, and nothing come over them any more: not
// even their end. It returns how many there were.
func (p *Proxy) Mute(on On) int {
	return p.each(on, (*watch).mute)
}

// Expire ends watches under way with the error that the API server sends when the
// version has become too old, and returns how many there were.
func (p *Proxy) Expire(on On) int {
	const gone = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
		`"message":"too old resource version","reason":"Expired","code":410}}` + "\n"
	return p.each(on, func(w *watch) { w.end([]byte(gone), io.EOF) })
}

// Watching is how many watches are under way.
func (p *Proxy) Watching(on On) int {
	return p.each(on, func(*watch) {})
}

func (p *Proxy) each(on On, do func(*watch)) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.watches {
		if on.Matches(w.request) {
			do(w)
			n++
		}
	}
	return n
}

// String says where it listens, for logs of tests.
func (p *Proxy) String() string { return fmt.Sprintf("faulty proxy on %s", p.address) }
