package stream

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// crowd is an API server with many objects of 4 KB, which it does not keep, so that
// the heap is the stream's.
func crowd(t testing.TB, n int, streaming bool) *httptest.Server {
	t.Helper()
	blob := strings.Repeat(`{"name":"some-field","value":"some value of some length","number":12345},`, 50)
	object := func(w *bufio.Writer, i int) {
		_, _ = fmt.Fprintf(w, `{"apiVersion":"kopf.dev/v1","kind":"Widget","metadata":{"name":"widget-%05d","namespace":"default",`+
			`"uid":"3f2b8c1e-5a77-4c0e-9d2f-0000000%05d","resourceVersion":"%d","generation":1,"creationTimestamp":"2026-01-02T03:04:05Z",`+
			`"labels":{"app":"widget","index":"%d"},"managedFields":[{"manager":"kubectl","operation":"Update","apiVersion":"kopf.dev/v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{".":{},"f:items":{}}}}]},`+
			`"spec":{"items":[%s{}]}}`, i, i, 100000+i, i, blob)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := bufio.NewWriterSize(w, 64<<10)
		w.Header().Set("Content-Type", "application/json")
		switch verbOf(r) {
		case "watchlist":
			if !streaming {
				status(422, "Invalid", "").write(w, r)
				return
			}
			for i := range n {
				_, _ = out.WriteString(`{"type":"ADDED","object":`)
				object(out, i)
				_, _ = out.WriteString("}\n")
			}
			_, _ = fmt.Fprintf(out, `{"type":"BOOKMARK","object":%s}`+"\n", bookmark(200000, true))
		case "list":
			var from int
			limit := n
			_, _ = fmt.Sscan(r.URL.Query().Get("continue"), &from)
			_, _ = fmt.Sscan(r.URL.Query().Get("limit"), &limit)
			more := ""
			if from+limit < n {
				more = fmt.Sprintf(`,"continue":"%d"`, from+limit)
			}
			_, _ = fmt.Fprintf(out, `{"apiVersion":"kopf.dev/v1","kind":"WidgetList","metadata":{"resourceVersion":"200000"%s},"items":[`, more)
			for i := from; i < min(n, from+limit); i++ {
				if i > from {
					_ = out.WriteByte(',')
				}
				object(out, i)
			}
			_, _ = out.WriteString("]}")
			_ = out.Flush()
			return
		}
		_ = out.Flush()
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	return server
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// all lists everything and returns the most that the heap was during that.
func all(t testing.TB, client *Client, n int) (s *Stream, peak uint64, stop func()) {
	t.Helper()
	got := 0
	s = New(Options{Client: client, GVR: widgets, GVK: widgetKind, OnEvent: func(Event) {
		if got++; got%500 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	<-s.Synced()
	if got != n {
		t.Errorf("%d events", got)
	}
	return s, peak, func() { cancel(); <-done }
}

func crowded(t testing.TB, server *httptest.Server) *Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := NewClient(&rest.Config{Host: server.URL}, &http.Client{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// What is kept of an object is small, and never are all objects in memory.
func TestMemory(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("takes seconds, and the race detector has its own memory")
	}
	const n = 10_000
	for name, streaming := range map[string]bool{"streamed": true, "listed": false} {
		t.Run(name, func(t *testing.T) {
			client := crowded(t, crowd(t, n, streaming))
			before := heap()
			s, peak, stop := all(t, client, n)
			after := heap()
			perObject := float64(after-before) / n
			t.Logf("%d objects of 4 KB: %.0f B each, %.1f MB in all, peak %.1f MB",
				n, perObject, float64(after-before)/1e6, float64(peak-before)/1e6)
			if perObject > 250+30 { // and what the connections need
				t.Errorf("%.0f B per object", perObject)
			}
			if limit := uint64(25e6); peak-before > limit {
				t.Errorf("peak of %d B; all objects together have 40 MB", peak-before)
			}
			stop()
			runtime.KeepAlive(s)
		})
	}
}

func BenchmarkInitialList(b *testing.B) {
	const n = 10_000
	for name, streaming := range map[string]bool{"streamed": true, "listed": false} {
		b.Run(name, func(b *testing.B) {
			client := crowded(b, crowd(b, n, streaming))
			b.ReportAllocs()
			for b.Loop() {
				_, _, stop := all(b, client, n)
				stop()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/n, "µs/object")
		})
	}
}
