package endpoints

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/decisions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var widget = decisions.Object{Kind: "widgets.demo.example", Namespace: "ns", Name: "w1", UID: "u1"}

// stand is a server with an operator behind it that is made up.
type stand struct {
	*Server
	t      *testing.T
	url    string
	client *http.Client
	cancel context.CancelFunc
	done   chan error
	sick   atomic.Bool
	log    bytes.Buffer
}

func serve(t *testing.T, change ...func(*Options)) *stand {
	t.Helper()
	s := &stand{t: t, done: make(chan error, 1)}
	standing := decisions.Standing{Object: widget, State: "waiting", Running: []string{"daemon watch"}, Next: decisions.At(time.Now().Add(time.Hour))}
	o := Options{
		Name: "demo", Addresses: []string{"127.0.0.1:0"}, Ring: decisions.NewRing(), Log: slog.New(slog.NewTextHandler(&s.log, nil)),
		Alive: []Check{{"loops", func() error { return nil }}},
		Ready: []Check{{"streams", func() error {
			if s.sick.Load() {
				return errors.New("nothing was heard")
			}
			return nil
		}}},
		Report: func() decisions.State {
			return decisions.State{Time: time.Now(), Running: true, Kinds: []decisions.Kind{{
				Name: widget.Kind, Kind: "Widget", Objects: 2,
				Streams:  []decisions.Stream{{Age: time.Second, Limit: time.Minute, Listed: true}},
				Handlers: []decisions.Handler{{ID: "create", Cause: "create"}, {ID: "purge", Cause: "delete", Filters: []string{"label tier"}}},
			}}}
		},
		Find: func(kind, namespace, name string, _ int) []decisions.Standing {
			if widget.Match(kind, namespace, name, "Widget") {
				return []decisions.Standing{standing}
			}
			if name == "calm" {
				calm := widget
				calm.Name, calm.UID = "calm", "u2"
				return []decisions.Standing{{Object: calm, State: "unchanged since it was handled: nothing to do"}}
			}
			return nil
		},
		Standing: func(uid types.UID) (decisions.Standing, bool) { return standing, uid == widget.UID },
	}
	for _, c := range change {
		c(&o)
	}
	var err error
	if s.Server, err = Listen(o); err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + s.Addresses()[0].String()
	s.client = &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() { s.done <- s.Run(ctx) }()
	t.Cleanup(s.end)
	return s
}

// end stops the server, and expects that it does so soon, with nothing left behind.
func (s *stand) end() {
	s.cancel()
	select {
	case err := <-s.done:
		if err != nil {
			s.t.Error(err)
		}
		s.done <- nil
	case <-time.After(20 * time.Second):
		s.t.Error("it does not stop")
	}
	s.client.CloseIdleConnections()
	if n := s.options.Ring.Subscribers(); n > 0 {
		s.t.Errorf("%d subscribers are left", n)
	}
}

func (s *stand) get(path string) (code int, body string, header http.Header) {
	s.t.Helper()
	response, err := s.client.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(raw), response.Header
}

func (s *stand) record(texts ...string) {
	d := decisions.Decision{Time: time.Now(), Reason: "update", Changed: []string{"spec.size"}, Next: decisions.At(time.Now().Add(time.Hour))}
	for _, text := range texts {
		d.Handlers = append(d.Handlers, decisions.Verdict{Handler: text, Outcome: "retried", Attempt: 1, Error: text, Next: d.Next})
	}
	d.Handlers = append(d.Handlers, decisions.Verdict{Handler: "other", Outcome: decisions.Skipped, Because: "label tier does not match"})
	s.options.Ring.Record(widget, d)
}

// /healthz and /readyz answer as those of Kubernetes do, and the log says why not, once.
func TestHealth(t *testing.T) {
	s := serve(t)
	for _, path := range []string{"/healthz", "/readyz", "/healthz/loops", "/readyz/streams"} {
		if code, body, _ := s.get(path); code != 200 || body != "ok" {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	if _, body, _ := s.get("/readyz?verbose"); !strings.Contains(body, "[+]streams ok") || !strings.Contains(body, "check passed") {
		t.Error(body)
	}
	s.sick.Store(true)
	for range 2 {
		if code, body, _ := s.get("/readyz"); code != 500 || !strings.Contains(body, "[-]streams failed") || strings.Contains(body, "nothing was heard") {
			t.Errorf("%d %q", code, body)
		}
	}
	if code, _, _ := s.get("/readyz?exclude=streams"); code != 200 {
		t.Error("excluded:", code)
	}
	if code, _, _ := s.get("/healthz"); code != 200 {
		t.Error("what is not ready is alive all the same:", code)
	}
	s.sick.Store(false)
	s.get("/readyz")
	s.end()
	if log := s.log.String(); strings.Count(log, "nothing was heard") != 1 || strings.Count(log, "succeeds again") != 1 {
		t.Error(log)
	}
}

func TestMetricsAreServed(t *testing.T) {
	s := serve(t)
	if code, body, _ := s.get("/metrics"); code != 200 || !strings.Contains(body, "go_goroutines") {
		t.Errorf("%d, %d bytes", code, len(body))
	}
}

// ACT-6: the probes' own path, also if it is one that is there already.
func TestLivenessPath_ACT6(t *testing.T) {
	for path, at := range map[string]string{"/alive": "/alive", "/": "/", "/healthz": "/healthz"} {
		s := serve(t, func(o *Options) {
			o.LivenessPath = path
			o.Liveness = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"probe":1}`) })
		})
		if code, body, _ := s.get(at); code != 200 || body != `{"probe":1}` {
			t.Errorf("%s: %d %q", path, code, body)
		}
		if code, _, _ := s.get("/nothing"); code != 404 {
			t.Errorf("%s: %d of a path that is not there", path, code)
		}
		s.end()
	}
}

// Debug pages are for this machine only, whatever name it is asked by, unless they are
// exposed.
func TestDebugIsGuarded(t *testing.T) {
	exposed := false
	for _, c := range []struct {
		remote, host string
		exposed      bool
		code         int
	}{
		{"127.0.0.1:1234", "localhost:8080", false, 200},
		{"[::1]:1234", "[::1]:8080", false, 200},
		{"127.0.0.1:1234", "localhost", false, 200},
		{"10.0.0.7:1234", "10.0.0.1:8080", false, 403},
		{"10.0.0.7:1234", "localhost:8080", false, 403},
		{"127.0.0.1:1234", "evil.example:8080", false, 403},
		{"10.0.0.7:1234", "operator.ns.svc:8080", true, 200},
	} {
		s := serve(t, func(o *Options) { o.Exposed = c.exposed })
		for _, path := range []string{"/debug/kopf", "/debug/kopf.json", "/debug/kopf/page.js"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.RemoteAddr, r.Host = c.remote, c.host
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			if w.Code != c.code {
				t.Errorf("%+v %s: %d", c, path, w.Code)
			}
		}
		s.end()
		exposed = exposed || c.exposed
	}
	if !exposed {
		t.Error("not tested")
	}
}

// What handlers and objects are named, and what errors say, is text on the page, and never
// anything else; and the page may load nothing from elsewhere.
func TestPageEscapes(t *testing.T) {
	const nasty = `<script>alert("x")</script>'"><img src=x onerror=y>`
	s := serve(t)
	s.record(nasty)
	code, body, header := s.get("/debug/kopf?q=" + "w1")
	if code != 200 || strings.Contains(body, "<script>alert") || strings.Contains(body, "<img") || !strings.Contains(body, "&lt;script&gt;alert") {
		t.Errorf("%d %s", code, body)
	}
	csp := header.Get("Content-Security-Policy")
	if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || header.Get("X-Content-Type-Options") != "nosniff" {
		t.Error(header)
	}
	_, body, _ = s.get("/debug/kopf?q=%22%3E%3Cscript%3E")
	if strings.Contains(body, `"><script>`) || !strings.Contains(body, "such objects") {
		t.Error(body)
	}
	for _, path := range []string{"/debug/kopf/page.js", "/debug/kopf/page.css"} {
		if code, body, _ := s.get(path); code != 200 || strings.Contains(body, "http://") || strings.Contains(body, "https://") {
			t.Error(path, code)
		}
	}
}

// Without scripts the page shows it all: the filter is a form.
func TestPageShows(t *testing.T) {
	s := serve(t)
	s.record("resize")
	_, body, _ := s.get("/debug/kopf")
	for _, want := range []string{"<b>w1</b>", "daemon watch", "in 1h0m0s", "spec.size", "resize retried", "label tier does not match", "purge", `name="q"`, "1s ago"} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	if _, body, _ := s.get("/debug/kopf?q=other"); strings.Contains(body, "<b>w1</b>") {
		t.Error("the filter does not filter")
	}
	s.sick.Store(true)
	if _, body, _ := s.get("/debug/kopf"); !strings.Contains(body, "not ready") || !strings.Contains(body, "nothing was heard") {
		t.Error("who may see the page is told what is wrong")
	}
}

func TestJSON(t *testing.T) {
	s := serve(t)
	s.record("resize")
	for path, want := range map[string]int{
		"/debug/kopf.json": 1, "/debug/kopf.json?kind=widget&name=w1": 1, "/debug/kopf.json?name=w2": 0, "/debug/kopf.json?q=NS/W": 1, "/debug/kopf.json?name=calm": 1,
	} {
		_, body, _ := s.get(path)
		var d Document
		if err := json.Unmarshal([]byte(body), &d); err != nil || len(d.Objects) != want || !d.Running || d.Name != "demo" {
			t.Errorf("%s: %v %s", path, err, body)
		}
	}
}

// Decisions are sent as they are made.
func TestEvents(t *testing.T) {
	s := serve(t)
	response, err := s.client.Get(s.url + "/debug/kopf/events")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Scan() // it has begun
	s.record("line\nbreak")
	for lines.Scan() {
		if data, is := strings.CutPrefix(lines.Text(), "data: "); is {
			var news decisions.News
			if err := json.Unmarshal([]byte(data), &news); err != nil || news.Object != widget || news.Decision.Reason != "update" {
				t.Error(err, data)
			}
			break
		}
	}
}

// The limits of requests are not those of live views; one that is over leaves nothing, and
// the end of the server ends them.
func TestEventsLast(t *testing.T) {
	s := serve(t, func(o *Options) { o.timeout = 50 * time.Millisecond })
	var views []*http.Response
	for range 3 {
		response, err := s.client.Get(s.url + "/debug/kopf/events")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		views = append(views, response)
	}
	lines := bufio.NewScanner(views[0].Body)
	deadline := time.Now().Add(300 * time.Millisecond)
	for n := 0; time.Now().Before(deadline); n++ {
		s.record(fmt.Sprint(n))
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") {
		}
		if lines.Err() != nil {
			t.Fatal("cut off after some time:", lines.Err())
		}
	}
	views[1].Body.Close()
	for s.options.Ring.Subscribers() > 2 { // noticed
		time.Sleep(time.Millisecond)
	}
	s.end()
}

// There are never more live views than there may be.
func TestEventsAreLimited(t *testing.T) {
	s := serve(t)
	for i := range maxStreams + 1 {
		response, err := s.client.Get(s.url + "/debug/kopf/events")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if want := map[bool]int{true: 200, false: 503}[i < maxStreams]; response.StatusCode != want {
			t.Errorf("view %d: %d", i, response.StatusCode)
		}
	}
}

// A client that takes nothing holds nobody up, neither decisions nor the end.
func TestSlowClient(t *testing.T) {
	s := serve(t)
	c, err := net.Dial("tcp", s.Addresses()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /debug/kopf/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	for s.options.Ring.Subscribers() == 0 {
		time.Sleep(time.Millisecond)
	}
	long := strings.Repeat("x", 190)
	for range 20_000 { // more than all buffers of the connection take
		s.record(long, long+"1", long+"2")
	}
	if code, _, _ := s.get("/healthz"); code != 200 {
		t.Error(code)
	}
}

// One that never says what it wants is cut off.
func TestSlowRequest(t *testing.T) {
	s := serve(t, func(o *Options) { o.timeout = 20 * time.Millisecond })
	c, err := net.Dial("tcp", s.Addresses()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow")
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) || err != nil && strings.Contains(err.Error(), "timeout") {
		t.Error("the connection is still there:", err)
	}
}

func TestNoPlaceToListen(t *testing.T) {
	s := serve(t)
	_, err := Listen(Options{Addresses: []string{"127.0.0.1:0", s.Addresses()[0].String()}, Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Error(err)
	}
}
