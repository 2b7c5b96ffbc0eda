package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

var (
	widgets    = schema.GroupVersionResource{Group: "kopf.dev", Version: "v1", Resource: "widgets"}
	widgetKind = schema.GroupVersionKind{Group: "kopf.dev", Version: "v1", Kind: "Widget"}
)

// fakeAPI is an API server for one resource that does what the tests tell it to.
// It is reached over pipes, so that it works inside of a synctest bubble.
type fakeAPI struct {
	mu       sync.Mutex
	version  int
	objects  map[string]*fakeObject // by namespace/name
	history  []fakeEvent
	expired  int // versions up to here are too old to watch from
	changed  chan struct{}
	watches  int       // that have been opened
	youngest time.Time // when the last one was
	muted    map[int]bool
	cut      chan struct{} // closed to end all watches abruptly
	seen     []seen
	pages    map[string][]json.RawMessage // by continue token

	noStreaming bool // of lists
	noEnd       bool // bookmark of streamed lists
	noBookmarks bool
	stripKinds  bool // from list items, as for built-in kinds
	before      func(*http.Request) *answer

	listener *pipes
	server   *http.Server
	client   *http.Client
	done     chan struct{}
}

type fakeObject struct {
	UID, Version string
	Raw          json.RawMessage
}

type fakeEvent struct {
	version int
	kind    string
	raw     json.RawMessage
}

// seen is one request that reached the server.
type seen struct {
	at      time.Time
	verb    string // list, watchlist, watch, get, patch
	version string // resourceVersion asked for
	limit   string
	more    string // continue
	query   string
	accept  string
}

// answer is what a script says instead of the server.
type answer struct {
	code   int
	header map[string]string
	body   string
	never  bool // no answer at all
	cutOff bool // end the connection
}

func status(code int, reason, more string) *answer {
	return &answer{code: code, body: fmt.Sprintf(
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"scripted","reason":%q,"code":%d%s}`, reason, code, more)}
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	f := &fakeAPI{
		version: 10, objects: map[string]*fakeObject{}, muted: map[int]bool{},
		changed: make(chan struct{}), cut: make(chan struct{}), done: make(chan struct{}),
		pages:    map[string][]json.RawMessage{},
		listener: &pipes{conns: make(chan net.Conn), closed: make(chan struct{})},
	}
	f.server = &http.Server{Handler: http.HandlerFunc(f.serve)}
	go func() {
		defer close(f.done)
		_ = f.server.Serve(f.listener)
	}()
	transport := &http.Transport{DialContext: f.listener.dial}
	f.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = f.server.Close()
		<-f.done
	})
	return f
}

func (f *fakeAPI) kopf(t *testing.T) *Client {
	t.Helper()
	client, err := NewClient(&rest.Config{Host: "http://fake"}, f.client)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// put creates or changes an object. extra is more members of the object.
func (f *fakeAPI) put(name string, extra string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put1(name, extra, true)
}

// sneak changes an object without telling those who watch, as if they had been away.
func (f *fakeAPI) sneak(name, extra string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put1(name, extra, false)
}

func (f *fakeAPI) put1(name, extra string, tell bool) {
	f.version++
	object, kind := f.objects[name], "MODIFIED"
	if object == nil {
		object, kind = &fakeObject{UID: fmt.Sprintf("uid-%s-%d", strings.ReplaceAll(name, "/", "-"), f.version)}, "ADDED"
		f.objects[name] = object
	}
	ns, short, _ := strings.Cut(name, "/")
	object.Version = strconv.Itoa(f.version)
	object.Raw = fmt.Appendf(nil, `{"apiVersion":"kopf.dev/v1","kind":"Widget","metadata":{"namespace":%q,"name":%q,"uid":%q,"resourceVersion":%q,"labels":{"app":"x"}}%s}`,
		ns, short, object.UID, object.Version, extra)
	if tell {
		f.tell(kind, object.Raw)
	}
}

func (f *fakeAPI) remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	raw := versioned(f.objects[name].Raw, f.version)
	delete(f.objects, name)
	f.tell("DELETED", raw)
}

func (f *fakeAPI) sneakRemove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	delete(f.objects, name)
}

func versioned(raw []byte, version int) []byte {
	var object map[string]any
	_ = json.Unmarshal(raw, &object)
	object["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(version)
	out, _ := json.Marshal(object)
	return out
}

// raw sends an event as it is, without any object behind it.
func (f *fakeAPI) raw(kind, raw string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	f.tell(kind, []byte(raw))
}

func (f *fakeAPI) tell(kind string, raw []byte) {
	f.history = append(f.history, fakeEvent{f.version, kind, raw})
	f.wake()
}

func (f *fakeAPI) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// expire makes all versions so far too old, and ends all watches with ERROR 410.
func (f *fakeAPI) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expired = f.version
	f.version++
	f.history = append(f.history, fakeEvent{f.version, "ERROR",
		[]byte(`{"kind":"Status","metadata":{},"status":"Failure","reason":"Expired","code":410}`)})
	f.wake()
}

// drop ends all connections with a watch. Not in their first second, for then the
// reflector suspects the server and lists everything.
func (f *fakeAPI) drop() {
	for {
		synctest.Wait()
		f.mu.Lock()
		age := time.Since(f.youngest)
		f.mu.Unlock()
		if age > time.Second {
			break
		}
		time.Sleep(time.Second)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.cut)
	f.cut = make(chan struct{})
}

// mute lets the watches that are open stay open, and send nothing any more.
func (f *fakeAPI) mute() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.watches + 1 {
		f.muted[i] = true
	}
	f.wake() // to look at that
}

// amnesia forgets all events so far, once they have been sent.
func (f *fakeAPI) amnesia() {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history = nil
}

func (f *fakeAPI) script(before func(*http.Request) *answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = before
}

func (f *fakeAPI) requests() []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

func (f *fakeAPI) verbs() []string {
	var verbs []string
	for _, r := range f.requests() {
		verbs = append(verbs, r.verb)
	}
	return verbs
}

func (f *fakeAPI) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = nil
}

func verbOf(r *http.Request) string {
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodPatch:
		return "patch"
	case query.Get("sendInitialEvents") == "true":
		return "watchlist"
	case query.Get("watch") == "true":
		return "watch"
	case strings.HasSuffix(r.URL.Path, "/widgets"):
		return "list"
	}
	return "get"
}

func (f *fakeAPI) serve(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	verb := verbOf(r)
	f.mu.Lock()
	f.seen = append(f.seen, seen{time.Now(), verb, query.Get("resourceVersion"), query.Get("limit"), query.Get("continue"), r.URL.RawQuery, r.Header.Get("Accept")})
	before, noStreaming := f.before, f.noStreaming
	f.mu.Unlock()
	if before != nil {
		if a := before(r); a != nil {
			a.write(w, r)
			return
		}
	}
	if r.Header.Get("Accept") != "application/json" {
		status(406, "NotAcceptable", "").write(w, r)
		return
	}
	switch verb {
	case "list":
		f.list(w, r)
	case "watchlist":
		if noStreaming {
			status(422, "Invalid", "").write(w, r)
			return
		}
		f.watch(w, r, true)
	case "watch":
		f.watch(w, r, false)
	default:
		f.one(w, r)
	}
}

func (a *answer) write(w http.ResponseWriter, r *http.Request) {
	switch {
	case a.never:
		<-r.Context().Done()
		return
	case a.cutOff:
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(a.code)
	_, _ = w.Write([]byte(a.body))
}

func (f *fakeAPI) one(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	parts := strings.Split(r.URL.Path, "/") // /apis/kopf.dev/v1/namespaces/NS/widgets/NAME
	if len(parts) < 8 || f.objects[parts[5]+"/"+parts[7]] == nil {
		status(404, "NotFound", "").write(w, r)
		return
	}
	(&answer{code: 200, body: string(f.objects[parts[5]+"/"+parts[7]].Raw)}).write(w, r)
}

func (f *fakeAPI) list(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	query := r.URL.Query()
	var items []json.RawMessage
	if token := query.Get("continue"); token != "" {
		items = f.pages[token]
	} else {
		for _, name := range slices.Sorted(maps.Keys(f.objects)) {
			raw := f.objects[name].Raw
			if f.stripKinds {
				raw = json.RawMessage(strings.Replace(string(raw), `"apiVersion":"kopf.dev/v1","kind":"Widget",`, "", 1))
			}
			items = append(items, raw)
		}
	}
	meta := map[string]any{"resourceVersion": strconv.Itoa(f.version)}
	if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 && len(items) > limit {
		token := fmt.Sprintf("page-%d", len(f.pages))
		f.pages[token] = items[limit:]
		items = items[:limit]
		meta["continue"] = token
	}
	if items == nil {
		items = []json.RawMessage{}
	}
	// Not through json.Marshal, which would refuse what is not readable.
	joined := make([]string, len(items))
	for i, item := range items {
		joined[i] = string(item)
	}
	m, _ := json.Marshal(meta)
	(&answer{code: 200, body: fmt.Sprintf(`{"apiVersion":"kopf.dev/v1","kind":"WidgetList","metadata":%s,"items":[%s]}`, m, strings.Join(joined, ","))}).write(w, r)
}

func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request, initial bool) {
	query := r.URL.Query()
	from, _ := strconv.Atoi(query.Get("resourceVersion"))
	f.mu.Lock()
	if !initial && from <= f.expired && f.expired > 0 {
		f.mu.Unlock()
		status(410, "Expired", "").write(w, r)
		return
	}
	f.watches++
	f.youngest = time.Now()
	me := f.watches
	cut := f.cut
	var first []fakeEvent
	if initial {
		from = f.version
		for _, name := range slices.Sorted(maps.Keys(f.objects)) {
			first = append(first, fakeEvent{kind: "ADDED", raw: f.objects[name].Raw})
		}
		if !f.noEnd {
			first = append(first, fakeEvent{kind: "BOOKMARK", raw: bookmark(f.version, true)})
		}
	}
	bookmarks := time.Minute
	if f.noBookmarks {
		bookmarks = 1000 * time.Hour
	}
	f.mu.Unlock()

	w.Header().Set("Content-Type", "application/json")
	flusher := w.(http.Flusher)
	flusher.Flush()
	send := func(e fakeEvent) {
		_, _ = fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", e.kind, e.raw)
		flusher.Flush()
	}
	for _, e := range first {
		send(e)
	}
	limit, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	timeout := time.NewTimer(time.Duration(limit) * time.Second)
	defer timeout.Stop()
	ticker := time.NewTicker(bookmarks)
	defer ticker.Stop()
	for {
		f.mu.Lock()
		changed, muted := f.changed, f.muted[me]
		var news []fakeEvent
		for _, e := range f.history {
			if e.version > from && !muted {
				news = append(news, e)
			}
		}
		now := f.version
		f.mu.Unlock()
		for _, e := range news {
			send(e)
			from = e.version
			if e.kind == "ERROR" {
				return
			}
		}
		select {
		case <-changed:
		case <-ticker.C:
			if !muted {
				send(fakeEvent{kind: "BOOKMARK", raw: bookmark(now, false)})
				from = now
			}
		case <-timeout.C:
			if !muted {
				return
			}
		case <-cut:
			panic(http.ErrAbortHandler)
		case <-r.Context().Done():
			return
		}
	}
}

func bookmark(version int, end bool) []byte {
	annotations := ""
	if end {
		annotations = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	}
	return fmt.Appendf(nil, `{"apiVersion":"kopf.dev/v1","kind":"Widget","metadata":{"resourceVersion":"%d","creationTimestamp":null%s}}`, version, annotations)
}

// pipes is a network inside of the process.
type pipes struct {
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
	mu      sync.Mutex
	refused error
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	p.mu.Lock()
	refused := p.refused
	p.mu.Unlock()
	if refused != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: refused}
	}
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, errors.New("server is closed")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// refuse lets no more connections be made, or again if it is given nil.
func (p *pipes) refuse(refused error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = refused
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "fake"} }

// follower runs a stream against a fake API server and remembers what came.
type follower struct {
	*Stream
	mu       sync.Mutex
	events   []string
	bodies   []Event
	failures []Failure
	busy     bool
	overlaps int
	cancel   context.CancelFunc
	ended    chan struct{}
}

func follow(t *testing.T, f *fakeAPI, change ...func(*Options)) *follower {
	t.Helper()
	r := &follower{}
	options := Options{Client: f.kopf(t), GVR: widgets, GVK: widgetKind, OnEvent: r.onEvent, OnError: r.onError}
	for _, c := range change {
		c(&options)
	}
	r.Stream = New(options)
	r.start()
	t.Cleanup(r.stop)
	return r
}

func (r *follower) start() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.ended = cancel, make(chan struct{})
	go func() {
		defer close(r.ended)
		r.Run(ctx)
	}()
}

func (r *follower) stop() {
	r.cancel()
	<-r.ended
}

func (r *follower) enter() func() {
	r.mu.Lock()
	if r.busy {
		r.overlaps++
	}
	r.busy = true
	return func() { r.busy = false; r.mu.Unlock() }
}

func (r *follower) onEvent(e Event) {
	defer r.enter()()
	kind := string(e.Type)
	if kind == "" {
		kind = "LISTED"
	}
	if e.Missed {
		kind = "MISSED"
	}
	r.events = append(r.events, fmt.Sprintf("%s %s/%s", kind, e.Body.Namespace, e.Body.Name))
	r.bodies = append(r.bodies, e)
}

func (r *follower) onError(f Failure) {
	defer r.enter()()
	r.failures = append(r.failures, f)
}

// take returns what has happened since the last time.
func (r *follower) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

func (r *follower) reasons() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var reasons []string
	for _, f := range r.failures {
		reasons = append(reasons, strings.TrimSpace(string(f.Reason)+" "+f.Verb))
	}
	r.failures = nil
	return reasons
}

// expect waits until nothing moves any more and compares the events since the last time.
func (r *follower) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := r.take(); !slices.Equal(got, want) {
		t.Errorf("events\n got %q\nwant %q", got, want)
	}
}

func (r *follower) synced() bool {
	select {
	case <-r.Synced():
		return true
	default:
		return false
	}
}
