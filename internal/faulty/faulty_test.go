package faulty_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/internal/faulty"
	"github.com/kopf-go/kopf/internal/simulated"
)

const (
	collection = "/apis/demo.example/v1/namespaces/default/widgets"
	one        = collection + "/a"
)

// env is a proxy in front of a server that answers every request, and sends what is
// put into lines to the one that watches.
type env struct {
	*testing.T
	proxy  *faulty.Proxy
	served atomic.Int32
	lines  chan string
	client http.Client
}

func newEnv(t *testing.T) *env {
	before := goleak.IgnoreCurrent()
	e := &env{T: t, lines: make(chan string)}
	server := httptest.NewServer(e)
	connection := &rest.Config{Host: server.URL, BearerToken: "secret", Transport: &http.Transport{}}
	proxy, err := faulty.New(connection)
	if err != nil {
		t.Fatal(err)
	}
	e.proxy = proxy
	e.client.Transport = &http.Transport{}
	t.Cleanup(func() {
		e.client.CloseIdleConnections()
		proxy.Close()
		connection.Transport.(*http.Transport).CloseIdleConnections()
		server.CloseClientConnections()
		server.Close()
		goleak.VerifyNone(t, before)
	})
	return e
}

func (e *env) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.served.Add(1)
	if r.Header.Get("Authorization") != "Bearer secret" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.URL.Query().Get("watch") == "" {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, body)
		return
	}
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case line, ok := <-e.lines:
			if !ok {
				return
			}
			fmt.Fprintln(w, line)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (e *env) do(method, path, body string) (*http.Response, string, error) {
	e.Helper()
	request, err := http.NewRequestWithContext(e.Context(), method, e.proxy.Config().Host+path, strings.NewReader(body))
	if err != nil {
		e.Fatal(err)
	}
	response, err := e.client.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	return response, string(raw), err
}

// watch opens a watch; lines come one by one, and in the end the error.
func (e *env) watch() (lines chan string, ended chan error) {
	e.Helper()
	request, err := http.NewRequestWithContext(e.Context(), http.MethodGet, e.proxy.Config().Host+collection+"?watch=true", nil)
	if err != nil {
		e.Fatal(err)
	}
	response, err := e.client.Do(request)
	if err != nil {
		e.Fatal(err)
	}
	lines, ended = make(chan string, 10), make(chan error, 1)
	e.Cleanup(func() { _ = response.Body.Close() })
	go func() {
		scanner := bufio.NewScanner(response.Body)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
		ended <- scanner.Err()
	}()
	return lines, ended
}

var patches = faulty.On{Verb: "patch", Resource: "widgets", Namespace: "default", Name: "a"}

func TestForwards(t *testing.T) {
	e := newEnv(t)
	response, body, err := e.do(http.MethodPatch, one, `{"a":1}`)
	if err != nil || response.StatusCode != http.StatusOK || body != "PATCH "+one+` {"a":1}` {
		t.Fatalf("%v %q %v", response, body, err)
	}
	requests := e.proxy.Requests(patches)
	if len(requests) != 1 || string(requests[0].Body) != `{"a":1}` || requests[0].Code != http.StatusOK {
		t.Errorf("%+v", requests)
	}
	if _, _, err := e.do(http.MethodGet, one, ""); err != nil {
		t.Fatal(err)
	}
	if e.proxy.Count(faulty.On{}) != 2 || len(e.proxy.Writes()) != 1 {
		t.Errorf("%+v", e.proxy.Requests(faulty.On{}))
	}
}

func TestFaults(t *testing.T) {
	e := newEnv(t)
	for name, c := range map[string]struct {
		fault  *faulty.Fault
		after  bool
		code   int
		served int32
	}{
		"status":         {&faulty.Fault{Code: http.StatusTooManyRequests, RetryAfter: 2 * time.Second}, false, http.StatusTooManyRequests, 0},
		"status after":   {simulated.Fail(http.StatusInternalServerError), true, http.StatusInternalServerError, 1},
		"request lost":   {simulated.Drop(), false, 0, 0},
		"answer lost":    {simulated.Drop(), true, 0, 1},
		"nothing":        {nil, false, http.StatusOK, 1},
		"only a delay":   {simulated.Delay(10 * time.Millisecond), false, http.StatusOK, 1},
		"delayed answer": {simulated.Delay(10 * time.Millisecond), true, http.StatusOK, 1},
	} {
		t.Run(name, func(t *testing.T) {
			hook := e.proxy.Before
			if c.after {
				hook = e.proxy.After
			}
			defer hook(patches, simulated.Always(c.fault))()
			before, began := e.served.Load(), time.Now()
			response, body, err := e.do(http.MethodPatch, one, "{}")
			switch {
			case c.code == 0:
				if err == nil {
					t.Error("got an answer", response.StatusCode)
				}
			case err != nil:
				t.Error(err)
			case response.StatusCode != c.code:
				t.Error(response.StatusCode, body)
			case c.fault != nil && c.fault.RetryAfter > 0 && (response.Header.Get("Retry-After") != "2" || !strings.Contains(body, `"retryAfterSeconds":2`)):
				t.Error(response.Header, body)
			}
			if got := e.served.Load() - before; got != c.served {
				t.Errorf("the server got %d requests, not %d", got, c.served)
			}
			if c.fault != nil && time.Since(began) < c.fault.Delay {
				t.Error("no delay")
			}
		})
	}
}

func TestHooksAreChosenAndRemoved(t *testing.T) {
	e := newEnv(t)
	on := patches
	on.Skip, on.Times = 1, 1
	var quicker atomic.Int32
	remove := e.proxy.Before(on, func(r faulty.Request) *faulty.Fault {
		quicker.Add(1)
		return simulated.Fail(http.StatusConflict)
	})
	status := func(method, path string) int {
		t.Helper()
		response, _, err := e.do(method, path, "{}")
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode
	}
	for i, want := range []int{200, 409, 200} {
		if got := status(http.MethodPatch, one); got != want {
			t.Errorf("request %d: %d", i, got)
		}
		if got := status(http.MethodPatch, one+"/status"); got != 200 {
			t.Errorf("the status endpoint was not meant: %d", got)
		}
	}
	remove()
	e.proxy.Before(patches, simulated.Always(nil))
	if got := status(http.MethodPatch, one); got != 200 || quicker.Load() != 1 {
		t.Error(got, quicker.Load())
	}
}

func receive[T any](t *testing.T, from chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came")
	}
	return got
}

var watches = faulty.On{Verb: "watch", Resource: "widgets"}

func TestWatchLatency(t *testing.T) {
	e := newEnv(t)
	lines, _ := e.watch()
	e.lines <- "1"
	if got := receive(t, lines); got != "1" {
		t.Error(got)
	}
	const by = 50 * time.Millisecond
	e.proxy.Latency(watches, by)
	began := time.Now()
	for _, line := range []string{"2", "3"} {
		e.lines <- line
	}
	for _, want := range []string{"2", "3"} {
		if got := receive(t, lines); got != want || time.Since(began) < by {
			t.Error(got, time.Since(began))
		}
	}
	e.proxy.Latency(watches, 0)
	e.lines <- "4"
	if got := receive(t, lines); got != "4" {
		t.Error(got)
	}
}

func TestWatchEnds(t *testing.T) {
	e := newEnv(t)
	_, ended := e.watch()
	if n := e.proxy.Cut(watches); n != 1 {
		t.Error(n)
	}
	if err := receive(t, ended); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("a cut watch ended with", err)
	}
	lines, ended := e.watch()
	if n := e.proxy.Watching(watches); n != 1 {
		t.Error(n)
	}
	if n := e.proxy.Expire(watches); n != 1 {
		t.Error(n)
	}
	if line := receive(t, lines); !strings.Contains(line, `"code":410`) {
		t.Error(line)
	}
	if err := receive(t, ended); err != nil {
		t.Error(err)
	}
	lines, ended = e.watch()
	e.lines <- "last"
	close(e.lines)
	if got := receive(t, lines); got != "last" {
		t.Error(got)
	}
	if err := receive(t, ended); err != nil {
		t.Error("the server's end came as", err)
	}
}

// A muted watch stays open, and what the server sends is lost.
func TestWatchMuted(t *testing.T) {
	e := newEnv(t)
	lines, ended := e.watch()
	if n := e.proxy.Mute(watches); n != 1 {
		t.Error(n)
	}
	e.lines <- "lost"
	close(e.lines)
	select {
	case line := <-lines:
		t.Error("came over a muted watch:", line)
	case err := <-ended:
		t.Error("a muted watch ended with", err)
	case <-time.After(50 * time.Millisecond):
	}
	if n := e.proxy.Cut(watches); n != 1 {
		t.Error(n)
	}
	receive(t, ended)
}

// A hook may do what takes as long as it likes; Close ends what hangs.
func TestCloseEndsWhatHangs(t *testing.T) {
	e := newEnv(t)
	hanging := make(chan struct{}, 1)
	e.proxy.Before(patches, func(faulty.Request) *faulty.Fault {
		hanging <- struct{}{}
		return &faulty.Fault{Hang: true}
	})
	failed := make(chan error)
	go func() {
		_, _, err := e.do(http.MethodPatch, one, "{}")
		failed <- err
	}()
	receive(t, hanging)
	e.proxy.Close()
	if err := receive(t, failed); err == nil {
		t.Error("got an answer")
	}
}
