package benchmarks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/on"
)

// eventsPerOp is how many events one iteration feeds: enough that those which are
// still on their way at its end, a handful, do not matter.
const eventsPerOp = 20_000

// BenchmarkEvent feeds an operator with events that ask for nothing: somebody has
// changed the status of handled objects. It measures the way of an event from the
// bytes of the watch on, in this process, for different numbers of objects.
func BenchmarkEvent(b *testing.B) {
	var few float64
	for _, objects := range []int{100, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("objects=%d", objects), func(b *testing.B) {
			api := newEventAPI(objects)
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- runEventOperator(ctx, api) }()
			<-api.synced

			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			spent, events := used().CPU, 0
			for b.Loop() {
				api.feed(eventsPerOp)
				events += eventsPerOp
			}
			each := float64((used().CPU - spent).Nanoseconds()) / float64(events)
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(events), "µs/event")
			b.ReportMetric(each/1e3, "cpu-µs/event")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(events), "allocs/event")
			b.ReportMetric(0, "ns/op")
			if few == 0 {
				few = each
			}
			b.ReportMetric(each/few, "times-100-objects")
			cancel()
			if err := <-done; err != nil {
				b.Error(err)
			}
		})
	}
}

func runEventOperator(ctx context.Context, api *eventAPI) error {
	reg := kopf.NewRegistry()
	widgets, in := on.Resource(eventGroup+"/v1", cluster.Plural), on.In(reg)
	on.Create(unexpected, widgets, in, on.ID("create"))
	on.Update(unexpected, widgets, in, on.ID("update"))
	on.Delete(unexpected, widgets, in, on.ID("delete"))
	operator, err := kopf.New(kopf.Options{
		Registry: reg, Config: &rest.Config{Host: "http://events.invalid", Transport: api},
		Logger: slog.New(&listener{slog.NewTextHandler(io.Discard, nil), listed, api.objects, func() { close(api.synced) }}),
	})
	if err != nil {
		return err
	}
	return operator.Run(ctx)
}

func unexpected(_ context.Context, c *kopf.Change[*Widget]) error {
	panic("nothing has changed, but there is a reason to " + string(c.Reason))
}

const eventGroup = "event.kopf.test"

// eventAPI is as much of an API server as one watch needs: it streams its objects,
// and then as many events as are asked for.
type eventAPI struct {
	objects int
	synced  chan struct{}
	batches chan int      // to be streamed
	drained chan struct{} // a batch was read
	pieces  [4][]byte     // of an object; between them go its name, uid and version
}

func newEventAPI(objects int) *eventAPI { return newEventAPIOf(newWidget(eventGroup, 7), objects) }

// newEventAPIOf has objects that are like one, but for their names and UIDs.
func newEventAPIOf(w *Widget, objects int) *eventAPI {
	w.Name, w.UID, w.ResourceVersion = "@name", "@uid", "@version"
	w.Finalizers = []string{finalizer}
	w.Annotations = map[string]string{lastHandled: essenceOf(&w.Spec, w.Labels)}
	w.Status.Observed = w.Spec.Value
	rest, err := json.Marshal(w)
	if err != nil {
		panic(err) // plain data
	}
	api := &eventAPI{objects: objects, synced: make(chan struct{}), batches: make(chan int), drained: make(chan struct{})}
	for i, mark := range []string{"@name", "@uid", "@version"} {
		api.pieces[i], rest, _ = bytes.Cut(rest, []byte(mark))
	}
	api.pieces[3] = rest
	return api
}

// feed returns when the events were read.
func (a *eventAPI) feed(events int) {
	a.batches <- events
	<-a.drained
}

// RoundTrip is part of http.RoundTripper.
func (a *eventAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(code int, body io.Reader) (*http.Response, error) {
		header := http.Header{"Content-Type": {"application/json"}}
		return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(body), Request: r}, nil
	}
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		return answer(http.StatusOK, &eventStream{api: a, ctx: r.Context(), left: a.objects, kind: "ADDED"})
	case r.Method == http.MethodGet && r.URL.Path == "/apis/"+eventGroup+"/v1":
		list := metav1.APIResourceList{GroupVersion: eventGroup + "/v1", APIResources: []metav1.APIResource{
			{Name: cluster.Plural, Kind: cluster.Kind, Namespaced: true, Verbs: metav1.Verbs{"list", "watch", "patch"}},
		}}
		raw, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		return answer(http.StatusOK, bytes.NewReader(raw))
	}
	return answer(http.StatusNotFound, http.NoBody) // a write, which would show in the operator's errors
}

// eventStream is the body of the watch's answer.
type eventStream struct {
	api     *eventAPI
	ctx     context.Context
	kind    string
	left    int // of the batch
	version int
	buffer  []byte
	rest    []byte // of buffer
	began   bool   // the initial events are over
}

func (s *eventStream) Read(into []byte) (int, error) {
	for len(s.rest) == 0 {
		switch {
		case s.left > 0:
			s.left--
			s.buffer = s.appendEvent(s.buffer[:0])
		case !s.began:
			s.began, s.kind = true, "MODIFIED"
			s.buffer = fmt.Appendf(s.buffer[:0], `{"type":"BOOKMARK","object":{"apiVersion":"%s/v1","kind":"%s","metadata":`+
				`{"resourceVersion":"%d","annotations":{"%s":"true"}}}}`, eventGroup, cluster.Kind, s.version, metav1.InitialEventsAnnotationKey)
		default:
			if err := s.next(); err != nil {
				return 0, err
			}
			continue
		}
		s.rest = s.buffer
	}
	n := copy(into, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// next waits for a batch; the one before has been read.
func (s *eventStream) next() error {
	if s.version > s.api.objects {
		select {
		case s.api.drained <- struct{}{}:
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
	select {
	case s.left = <-s.api.batches:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s *eventStream) appendEvent(to []byte) []byte {
	const uid = "3a5f0b52-0000-4000-8000-"
	n := s.version % s.api.objects
	s.version++
	to = append(append(append(to, `{"type":"`...), s.kind...), `","object":`...)
	to = append(append(to, s.api.pieces[0]...), widgetName(n)...)
	to = strconv.AppendInt(append(append(to, s.api.pieces[1]...), uid...), int64(n), 10)
	to = strconv.AppendInt(append(to, s.api.pieces[2]...), int64(s.version), 10)
	return append(append(to, s.api.pieces[3]...), '}')
}
